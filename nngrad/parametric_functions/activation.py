"""Activation functions with trainable parameters."""

from __future__ import annotations

from .. import functions as F
from ..extend import Array, Variable
from ..initializer import ConstantInitializer
from .layer_arguments import axis
from .layer_parameters import Init, own_parameters, parameter

QUARTER = ConstantInitializer(0.25)


@own_parameters("prelu")
def prelu(
    inp: Array, base_axis: int = 1, shared: bool = True, fix_parameters: bool = False, slope_init: Init = None,
    name: str | None = None,
) -> Variable:
    """`inp` where it is positive, else `inp` times a learned slope; its derivative at 0 is 1 (He et al., 2015).

    Parameter: slope, 0.25; of shape () if `shared`, else (channels,).

    Args:
        base_axis: The axis of the channels.
        shared: Whether all channels have one slope.
        fix_parameters: Whether the slope is a constant.
        slope_init: Initial slope.

    Raises:
        ValueError: `base_axis` is out of range and slopes are not shared, or an existing parameter has another shape.
    """
    shape = () if shared else (inp.shape[axis(base_axis, inp.ndim, "base_axis")],)
    slope = parameter("slope", shape, slope_init, QUARTER, fix_parameters)
    return F.prelu(inp, slope, base_axis=base_axis)
