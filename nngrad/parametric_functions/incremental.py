"""Layers whose weights become powers of two step by step."""

from __future__ import annotations

from .. import functions as F
from ..graph import Array, Variable
from ..graph.arguments import Ints
from ..initializer import Rng
from ..parameter import get_parameter_or_create
from .layer_parameters import ZEROS, Init, initial, own_parameters, parameter
from .shapes import Shapes, of_affine, of_convolution


def _weights(
    shapes: Shapes, w_init: Init, i_init: Init, b_init: Init, fixed: bool, with_bias: bool
) -> tuple[Variable, Variable, Variable | None]:
    """W, I and b."""
    w = parameter("W", shapes.weight, w_init, shapes.default, fixed)
    i = get_parameter_or_create("I", shapes.weight, initial(i_init, ZEROS), False)
    return w, i, parameter("b", shapes.bias, b_init, ZEROS, fixed) if with_bias else None


@own_parameters("inq_affine")
def inq_affine(
    inp: Array,
    n_outmaps: Ints,
    base_axis: int = 1,
    num_bits: int = 4,
    inq_iterations: Ints = (),
    selection_algorithm: str = "random",
    seed: int = -1,
    w_init: Init = None,
    i_init: Init = None,
    b_init: Init = None,
    fix_parameters: bool = False,
    rng: Rng | None = None,
    with_bias: bool = True,
    name: str | None = None,
) -> Variable:
    """`affine` under incremental network quantisation, as `F.inq_affine` has it (Zhou and others, 2017).

    Parameters: W (size of the flattened axes, *n_outmaps), uniform within Glorot's limits; I, of that shape, 1
    where a weight is fixed, zeros, not trained; b (*n_outmaps), zeros. Each `forward()` writes W and I.

    Args:
        inp: As for `affine`.
        n_outmaps: As for `affine`.
        base_axis: As for `affine`.
        i_init: Initial I: 1 where a weight is fixed from the start.
        ...: As for `F.inq_affine`.
    """
    shapes = of_affine("inq_affine", inp, n_outmaps, base_axis, rng)
    w, i, b = _weights(shapes, w_init, i_init, b_init, fix_parameters, with_bias)
    return F.inq_affine(
        inp, w, i, b, base_axis=shapes.base_axis, num_bits=num_bits, inq_iterations=inq_iterations,
        selection_algorithm=selection_algorithm, seed=seed,
    )


@own_parameters("inq_conv")
def inq_convolution(
    inp: Array,
    outmaps: int,
    kernel: Ints,
    pad: Ints | None = None,
    stride: Ints | None = None,
    dilation: Ints | None = None,
    group: int = 1,
    num_bits: int = 4,
    inq_iterations: Ints = (),
    selection_algorithm: str = "random",
    seed: int = -1,
    w_init: Init = None,
    i_init: Init = None,
    b_init: Init = None,
    base_axis: int = 1,
    fix_parameters: bool = False,
    rng: Rng | None = None,
    with_bias: bool = True,
    name: str | None = None,
) -> Variable:
    """`convolution` under incremental network quantisation, as `F.inq_convolution` has it.

    Parameters: W (outmaps, channels / group, *kernel), uniform within Glorot's limits; I, of that shape, 1 where a
    weight is fixed, zeros, not trained; b (outmaps,), zeros. Each `forward()` writes W and I.

    Args:
        inp: As for `convolution`.
        outmaps: As for `convolution`.
        kernel: As for `convolution`.
        pad: As for `convolution`.
        stride: As for `convolution`.
        dilation: As for `convolution`.
        group: As for `convolution`.
        i_init: Initial I: 1 where a weight is fixed from the start.
        base_axis: As for `convolution`.
        ...: As for `F.inq_affine`.
    """
    shapes = of_convolution("inq_convolution", inp, outmaps, kernel, group, False, base_axis, rng)
    w, i, b = _weights(shapes, w_init, i_init, b_init, fix_parameters, with_bias)
    return F.inq_convolution(
        inp, w, i, b, base_axis=shapes.base_axis, pad=pad, stride=stride, dilation=dilation, group=group,
        num_bits=num_bits, inq_iterations=inq_iterations, selection_algorithm=selection_algorithm, seed=seed,
    )
