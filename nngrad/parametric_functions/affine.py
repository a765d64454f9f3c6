"""Affine and embedding layers."""

from __future__ import annotations

import math

from .. import functions as F
from ..extend import Array, Ints, Variable
from ..initializer import Rng, UniformInitializer
from .layer_arguments import of_affine, size
from .layer_parameters import Apply, Init, own_parameters, parameter, reparametrized

UNIT_VARIANCE = UniformInitializer((-math.sqrt(3.0), math.sqrt(3.0)))


@own_parameters("affine")
def affine(
    inp: Array, n_outmaps: Ints, base_axis: int = 1, w_init: Init = None, b_init: Init = None,
    fix_parameters: bool = False, rng: Rng | None = None, with_bias: bool = True, apply_w: Apply = None,
    apply_b: Apply = None, name: str | None = None,
) -> Variable:
    """Affine layer: `inp`, flattened from `base_axis` on, times W, plus b.

    Parameters: W (size of the flattened axes, *n_outmaps), uniform within Glorot's limits; b (*n_outmaps), zeros.

    Args:
        inp: Of shape (batch axes..., axes to flatten...).
        n_outmaps: Shape of the outputs, or their number.
        base_axis: Number of batch axes; a negative one counts from the end.
    """
    shapes = of_affine(inp, n_outmaps, base_axis, rng)
    weight, bias = shapes.weight_and_bias(w_init, b_init, fix_parameters, with_bias, apply_w, apply_b)
    return F.affine(inp, weight, bias, base_axis=shapes.base_axis)


@own_parameters("embed")
def embed(
    inp: Array, n_inputs: int, n_features: int, initializer: Init = None, fix_parameters: bool = False,
    apply_w: Apply = None, name: str | None = None,
) -> Variable:
    """Embedding layer: the rows of W at the indices `inp`.

    Parameter: W of shape (n_inputs, n_features), uniform between -sqrt(3) and sqrt(3), which gives variance 1.

    Args:
        inp: Row numbers, of any shape; one that is not from 0 to n_inputs - 1 gives a row of NaN.
        n_inputs: Number of rows.
        n_features: Length of a row.
        initializer: Initial W.
        fix_parameters: Whether W is a constant.
    """
    shape = size(n_inputs, "n_inputs"), size(n_features, "n_features")
    w = parameter("W", shape, initializer, UNIT_VARIANCE, fix_parameters)
    return F.embed(inp, reparametrized(apply_w, w, "apply_w"))
