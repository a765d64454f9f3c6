"""Normalisations with parameters and running statistics of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import functions as F
from ..graph import Array
from ..graph.arguments import Ints, axes_of
from ..initializer import ConstantInitializer
from ..layer_arguments import fraction, ints
from ..layer_parameters import ZEROS, Init, initial, inits, own_parameters, parameter
from ..parameter import get_parameter_or_create

ONES = ConstantInitializer(1)


@own_parameters("bn")
def batch_normalization(
    inp: Array,
    axes: Ints = (1,),
    decay_rate: float = 0.9,
    eps: float = 1e-5,
    batch_stat: bool = True,
    output_stat: bool = False,
    fix_parameters: bool = False,
    param_init: Mapping[str, Init] | None = None,
    no_scale: bool = False,
    no_bias: bool = False,
    name: str | None = None,
) -> Any:
    """`gamma * (inp - m) / sqrt(v + eps) + beta`, mean m and variance v per index of `axes` (Ioffe and Szegedy, 2015).

    Parameters: beta (zeros), gamma (ones), and, not trained, the running mean (zeros) and var (ones); each has
    the size of `inp` along `axes` and size 1 along all other axes.

    Args:
        inp: The input.
        axes: The axes that are kept; the statistics go over all others.
        decay_rate: How much of the running statistics is kept at each step, from 0 to 1.
        eps: Added to the variance.
        batch_stat: Whether the statistics are those of `inp`, which move the running ones; else the running ones.
        output_stat: Whether to return (y, m, v) in place of y.
        fix_parameters: Whether beta and gamma are constants.
        param_init: Initial values by name of parameter: each a function of a shape, an array or a number.
        no_scale: Leave gamma out.
        no_bias: Leave beta out.
        name: Scope around that of the parameters.

    Raises:
        ValueError: An argument is out of range, `param_init` names none, or a parameter has another shape already.
    """
    decay_rate = fraction(decay_rate, "batch_normalization: decay_rate")
    kept = axes_of(ints(axes, "batch_normalization: axes"), inp.ndim, "batch_normalization: axes")
    shape = tuple([n if i in kept else 1 for i, n in enumerate(inp.shape)])
    init = inits(param_init, ("beta", "gamma", "mean", "var"), "batch_normalization")
    beta = None if no_bias else parameter("beta", shape, init["beta"], ZEROS, fix_parameters)
    gamma = None if no_scale else parameter("gamma", shape, init["gamma"], ONES, fix_parameters)
    mean = get_parameter_or_create("mean", shape, initial(init["mean"], ZEROS), False)
    var = get_parameter_or_create("var", shape, initial(init["var"], ONES), False)
    return F.batch_normalization(
        inp, beta, gamma, mean, var, axes=kept, decay_rate=decay_rate, eps=eps, batch_stat=batch_stat,
        output_stat=output_stat,
    )


@own_parameters("layer_normalization")
def layer_normalization(
    inp: Array,
    batch_axis: Ints = 0,
    eps: float = 1e-5,
    output_stat: bool = False,
    fix_parameters: bool = False,
    param_init: Mapping[str, Init] | None = None,
    no_scale: bool = False,
    no_bias: bool = False,
    name: str | None = None,
) -> Any:
    """`gamma * (inp - m) / sqrt(v + eps) + beta`, mean m and variance v per element of the batch (Ba et al., 2016).

    Parameters: beta (zeros) and gamma (ones), of the shape of `inp` with size 1 along `batch_axis`.

    Args:
        inp: The input.
        batch_axis: The axis, or axes, of the batch; the statistics go over all others.
        eps: Added to the variance.
        output_stat: Whether to return (y, m, v) in place of y.
        fix_parameters: Whether beta and gamma are constants.
        param_init: Initial values by name of parameter: each a function of a shape, an array or a number.
        no_scale: Leave gamma out.
        no_bias: Leave beta out.
        name: Scope around that of the parameters.

    Raises:
        ValueError: An argument is out of range, `param_init` names none, or a parameter has another shape already.
    """
    batch = axes_of(ints(batch_axis, "layer_normalization: batch_axis"), inp.ndim, "layer_normalization: batch_axis")
    shape = tuple([1 if i in batch else n for i, n in enumerate(inp.shape)])
    init = inits(param_init, ("beta", "gamma"), "layer_normalization")
    beta = None if no_bias else parameter("beta", shape, init["beta"], ZEROS, fix_parameters)
    gamma = None if no_scale else parameter("gamma", shape, init["gamma"], ONES, fix_parameters)
    return F.layer_normalization(inp, beta, gamma, batch_axis=batch, eps=eps, output_stat=output_stat)
