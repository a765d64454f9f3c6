"""Batch normalisation and mean subtraction, with parameters and running statistics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import functions as F
from ..extend import Array, Ints, Variable
from ..functions.axes import axes_of
from ..parameter import get_parameter_or_create
from .layer_arguments import axis, fraction, ints
from .layer_parameters import ONES, ZEROS, Init, initial, inits, own_parameters, scale_and_offset


def _parameters(
    inp: Variable, axes: Ints, decay_rate: float, param_init: Mapping[str, Init] | None, no_scale: bool,
    no_bias: bool, fixed: bool,
) -> tuple[Variable | None, Variable | None, Variable, Variable]:
    """beta, gamma, mean and var."""
    fraction(decay_rate, "decay_rate")
    along = axes_of(ints(axes, "axes"), inp.ndim, "axes")
    shape = tuple([n if i in along else 1 for i, n in enumerate(inp.shape)])
    init = inits(param_init, ("beta", "gamma", "mean", "var"))
    beta, gamma = scale_and_offset(shape, init, no_scale, no_bias, fixed)
    mean = get_parameter_or_create("mean", shape, initial(init["mean"], ZEROS), False)
    var = get_parameter_or_create("var", shape, initial(init["var"], ONES), False)
    return beta, gamma, mean, var


@own_parameters("bn")
def batch_normalization(
    inp: Array, axes: Ints = (1,), decay_rate: float = 0.9, eps: float = 1e-5, batch_stat: bool = True,
    output_stat: bool = False, fix_parameters: bool = False, param_init: Mapping[str, Init] | None = None,
    no_scale: bool = False, no_bias: bool = False, name: str | None = None,
) -> Any:
    """`gamma * (inp - m) / sqrt(v + eps) + beta`, mean m and variance v per index of `axes` (Ioffe and Szegedy, 2015).

    Parameters: beta (zeros), gamma (ones), and, not trained, the running mean (zeros) and var (ones); each has
    the size of `inp` along `axes` and size 1 along all other axes.

    Args:
        axes: The axes that are kept; statistics are taken over all others.
        decay_rate: The share of the running statistics that is kept at each step, from 0 to 1.
        eps: Added to the variance.
        batch_stat: Whether to use the statistics of `inp`, which update the running ones, instead of the running ones.
        output_stat: Whether to return (y, m, v) in place of y.
        fix_parameters: Whether beta and gamma are constants.
        no_scale: Whether to omit gamma.
        no_bias: Whether to omit beta.
    """
    parameters = _parameters(inp, axes, decay_rate, param_init, no_scale, no_bias, fix_parameters)
    return F.batch_normalization(
        inp, *parameters, axes=axes, decay_rate=decay_rate, eps=eps, batch_stat=batch_stat, output_stat=output_stat,
    )


@own_parameters("bn")
def fused_batch_normalization(
    inp: Array, z: Array | None = None, axes: Ints = (1,), decay_rate: float = 0.9, eps: float = 1e-5,
    batch_stat: bool = True, nonlinearity: str = "relu", output_stat: bool = False, fix_parameters: bool = False,
    param_init: Mapping[str, Init] | None = None, no_scale: bool = False, no_bias: bool = False,
    name: str | None = None,
) -> Any:
    """`relu(batch_normalization(inp) + z)`.

    Parameters: those of `batch_normalization`, in the same scope.

    Args:
        z: A term added before the nonlinearity, of the shape of `inp`; None for 0.
        nonlinearity: "relu", the only choice.
        ...: As in `batch_normalization`.

    Raises:
        ValueError: An argument is out of range, `z` differs in shape from `inp`, `param_init` names no parameter, or an
            existing one has another shape.
    """
    parameters = _parameters(inp, axes, decay_rate, param_init, no_scale, no_bias, fix_parameters)
    return F.fused_batch_normalization(
        inp, *parameters, z, axes=axes, decay_rate=decay_rate, eps=eps, batch_stat=batch_stat,
        nonlinearity=nonlinearity, output_stat=output_stat,
    )


@own_parameters("bn")
def sync_batch_normalization(
    inp: Array, comm: Any, group: str = "world", axes: Ints = (1,), decay_rate: float = 0.9, eps: float = 1e-5,
    batch_stat: bool = True, output_stat: bool = False, fix_parameters: bool = False,
    param_init: Mapping[str, Init] | None = None, no_scale: bool = False, no_bias: bool = False,
    name: str | None = None,
) -> Any:
    """`batch_normalization` with statistics over the inputs of all processes of a group.

    Parameters: those of `batch_normalization`, in the same scope.

    Args:
        ...: As in `batch_normalization` and `F.sync_batch_normalization`.

    Raises:
        TypeError: `comm` is not a communicator.
        ValueError: An argument is out of range, `comm` has no such group, `param_init` names no parameter, or an
            existing one has another shape.
    """
    parameters = _parameters(inp, axes, decay_rate, param_init, no_scale, no_bias, fix_parameters)
    return F.sync_batch_normalization(
        inp, *parameters, comm=comm, group=group, axes=axes, decay_rate=decay_rate, eps=eps, batch_stat=batch_stat,
        output_stat=output_stat,
    )


@own_parameters("mean_subtraction")
def mean_subtraction(
    inp: Array, base_axis: int = 1, update_running_mean: bool = True, fix_parameters: bool = False,
    name: str | None = None,
) -> Variable:
    """`inp` minus the running mean of all batches so far, including this one.

    Parameters, not trained: mean, the running mean, of the shape of `inp` from `base_axis` on, zeros; t, the number of
    batches so far, int32 of shape (1,), 0.

    Args:
        base_axis: Number of batch axes; a negative one counts from the end.
        update_running_mean: Whether this batch updates the mean.
        fix_parameters: Without effect: there is nothing to train.
    """
    base_axis = axis(base_axis, inp.ndim, "base_axis")
    mean = get_parameter_or_create("mean", inp.shape[base_axis:], ZEROS, False)
    t = get_parameter_or_create("t", (1,), ZEROS, False, dtype="int32")
    return F.mean_subtraction(inp, mean, t, base_axis=base_axis, update_running_mean=update_running_mean)
