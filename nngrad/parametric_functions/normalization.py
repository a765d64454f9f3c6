"""Layer, instance and group normalisation with parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import functions as F
from ..extend import Array, Ints, Variable
from ..functions.axes import axes_of
from .layer_arguments import axis, ints
from .layer_parameters import Init, inits, own_parameters, scale_and_offset


@own_parameters("layer_normalization")
def layer_normalization(
    inp: Array, batch_axis: Ints = 0, eps: float = 1e-5, output_stat: bool = False, fix_parameters: bool = False,
    param_init: Mapping[str, Init] | None = None, no_scale: bool = False, no_bias: bool = False,
    name: str | None = None,
) -> Any:
    """`gamma * (inp - m) / sqrt(v + eps) + beta`, mean m and variance v per element of the batch (Ba et al., 2016).

    Parameters: beta (zeros) and gamma (ones), of the shape of `inp` with size 1 along `batch_axis`.

    Args:
        batch_axis: The axis, or axes, of the batch; statistics are taken over all others.
        fix_parameters: Whether beta and gamma are constants.
        no_scale: Whether to omit gamma.
        no_bias: Whether to omit beta.
        ...: As in `F.layer_normalization`.
    """
    batch = axes_of(ints(batch_axis, "batch_axis"), inp.ndim, "batch_axis")
    shape = tuple([1 if i in batch else n for i, n in enumerate(inp.shape)])
    init = inits(param_init, ("beta", "gamma"))
    beta, gamma = scale_and_offset(shape, init, no_scale, no_bias, fix_parameters)
    return F.layer_normalization(inp, beta, gamma, batch_axis=batch, eps=eps, output_stat=output_stat)


def _of_channels(
    inp: Variable, channel_axis: int, param_init: Mapping[str, Init] | None, no_scale: bool,
    no_bias: bool, fixed: bool,
) -> tuple[Variable | None, Variable | None]:
    """beta and gamma with an element for each channel."""
    channel = axis(channel_axis, inp.ndim, "channel_axis")
    shape = tuple([n if i == channel else 1 for i, n in enumerate(inp.shape)])
    return scale_and_offset(shape, inits(param_init, ("beta", "gamma")), no_scale, no_bias, fixed)


@own_parameters("instance_normalization")
def instance_normalization(
    inp: Array, channel_axis: int = 1, batch_axis: Ints = 0, eps: float = 1e-5, output_stat: bool = False,
    fix_parameters: bool = False, param_init: Mapping[str, Init] | None = None, no_scale: bool = False,
    no_bias: bool = False, name: str | None = None,
) -> Any:
    """`gamma * (inp - m) / sqrt(v + eps) + beta`, m and v per batch item and channel (Ulyanov et al., 2016).

    Parameters: beta (zeros) and gamma (ones), of the size of `inp` along `channel_axis` and size 1 along all others.

    Args:
        channel_axis: The axis of the channels.
        batch_axis: The axis, or axes, of the batch.
        ...: As in `layer_normalization`.
    """
    beta, gamma = _of_channels(inp, channel_axis, param_init, no_scale, no_bias, fix_parameters)
    return F.instance_normalization(
        inp, beta, gamma, channel_axis=channel_axis, batch_axis=batch_axis, eps=eps,
        output_stat=output_stat,
    )


@own_parameters("group_normalization")
def group_normalization(
    inp: Array, num_groups: int, channel_axis: int = 1, batch_axis: Ints = 0, eps: float = 1e-5,
    output_stat: bool = False, fix_parameters: bool = False, param_init: Mapping[str, Init] | None = None,
    no_scale: bool = False, no_bias: bool = False, name: str | None = None,
) -> Any:
    """`gamma * (inp - m) / sqrt(v + eps) + beta`, m and v per batch item and group of channels (Wu and He, 2018).

    Parameters: beta (zeros) and gamma (ones), of the size of `inp` along `channel_axis` and size 1 along all others.

    Args:
        num_groups: Number of groups; it divides the number of channels.
        ...: As in `instance_normalization`.
    """
    beta, gamma = _of_channels(inp, channel_axis, param_init, no_scale, no_bias, fix_parameters)
    return F.group_normalization(
        inp, beta, gamma, num_groups=num_groups, channel_axis=channel_axis, batch_axis=batch_axis, eps=eps,
        output_stat=output_stat,
    )
