"""Layers whose weights are signs."""

from __future__ import annotations

from .. import functions as F
from ..graph import Array, Variable
from ..graph.arguments import Ints
from ..initializer import Rng
from ..parameter import get_parameter_or_create
from .layer_parameters import ZEROS, Init, initial, own_parameters, parameter
from .shapes import Shapes, of_affine, of_convolution


def _weights(shapes: Shapes, w_init: Init, wb_init: Init, fixed: bool) -> tuple[Variable, Variable]:
    """W and Wb."""
    w = parameter("W", shapes.weight, w_init, shapes.default, fixed)
    return w, get_parameter_or_create("Wb", shapes.weight, initial(wb_init, shapes.default), False)


@own_parameters("bicon_affine")
def binary_connect_affine(
    inp: Array,
    n_outmaps: Ints,
    base_axis: int = 1,
    quantize_zero_to: float = 1.0,
    w_init: Init = None,
    wb_init: Init = None,
    b_init: Init = None,
    fix_parameters: bool = False,
    rng: Rng | None = None,
    with_bias: bool = True,
    name: str | None = None,
) -> Variable:
    """`affine` with the signs of W, as `F.binary_connect_affine` has it (Courbariaux and others, 2015).

    Parameters: W (size of the flattened axes, *n_outmaps), uniform within Glorot's limits; Wb, the signs of W,
    which each `forward()` writes, not trained; b (*n_outmaps), zeros.

    Args:
        inp: As for `affine`.
        n_outmaps: As for `affine`.
        base_axis: As for `affine`.
    """
    shapes = of_affine("binary_connect_affine", inp, n_outmaps, base_axis, rng)
    w, wb = _weights(shapes, w_init, wb_init, fix_parameters)
    b = parameter("b", shapes.bias, b_init, ZEROS, fix_parameters) if with_bias else None
    return F.binary_connect_affine(inp, w, wb, b, base_axis=shapes.base_axis, quantize_zero_to=quantize_zero_to)


@own_parameters("bicon_conv")
def binary_connect_convolution(
    inp: Array,
    outmaps: int,
    kernel: Ints,
    pad: Ints | None = None,
    stride: Ints | None = None,
    dilation: Ints | None = None,
    group: int = 1,
    quantize_zero_to: float = 1.0,
    w_init: Init = None,
    wb_init: Init = None,
    b_init: Init = None,
    base_axis: int = 1,
    fix_parameters: bool = False,
    rng: Rng | None = None,
    with_bias: bool = True,
    name: str | None = None,
) -> Variable:
    """`convolution` with the signs of W, as `F.binary_connect_convolution` has it.

    Parameters: W (outmaps, channels / group, *kernel), uniform within Glorot's limits; Wb, the signs of W, which
    each `forward()` writes, not trained; b (outmaps,), zeros.

    Args:
        inp: As for `convolution`.
        outmaps: As for `convolution`.
        kernel: As for `convolution`.
        pad: As for `convolution`.
        stride: As for `convolution`.
        dilation: As for `convolution`.
        group: As for `convolution`.
        base_axis: As for `convolution`.
    """
    shapes = of_convolution("binary_connect_convolution", inp, outmaps, kernel, group, False, base_axis, rng)
    w, wb = _weights(shapes, w_init, wb_init, fix_parameters)
    b = parameter("b", shapes.bias, b_init, ZEROS, fix_parameters) if with_bias else None
    return F.binary_connect_convolution(
        inp, w, wb, b, base_axis=shapes.base_axis, pad=pad, stride=stride, dilation=dilation, group=group,
        quantize_zero_to=quantize_zero_to,
    )


@own_parameters("bwn_affine")
def binary_weight_affine(
    inp: Array,
    n_outmaps: Ints,
    base_axis: int = 1,
    quantize_zero_to: float = 1.0,
    w_init: Init = None,
    wb_init: Init = None,
    b_init: Init = None,
    fix_parameters: bool = False,
    rng: Rng | None = None,
    with_bias: bool = True,
    name: str | None = None,
) -> Variable:
    """`affine` with scaled signs of W, as `F.binary_weight_affine` has it (Rastegari and others, 2016).

    Parameters: W (size of the flattened axes, *n_outmaps), uniform within Glorot's limits; Wb, the signs of W, and
    alpha (*n_outmaps), the mean sizes, both of which each `forward()` writes, not trained; b (*n_outmaps), zeros.

    Args:
        ...: As for `binary_connect_affine`.
    """
    shapes = of_affine("binary_weight_affine", inp, n_outmaps, base_axis, rng)
    w, wb = _weights(shapes, w_init, wb_init, fix_parameters)
    alpha = get_parameter_or_create("alpha", shapes.bias, ZEROS, False)
    b = parameter("b", shapes.bias, b_init, ZEROS, fix_parameters) if with_bias else None
    return F.binary_weight_affine(inp, w, wb, alpha, b, base_axis=shapes.base_axis, quantize_zero_to=quantize_zero_to)


@own_parameters("bwn_conv")
def binary_weight_convolution(
    inp: Array,
    outmaps: int,
    kernel: Ints,
    pad: Ints | None = None,
    stride: Ints | None = None,
    dilation: Ints | None = None,
    group: int = 1,
    quantize_zero_to: float = 1.0,
    w_init: Init = None,
    wb_init: Init = None,
    b_init: Init = None,
    base_axis: int = 1,
    fix_parameters: bool = False,
    rng: Rng | None = None,
    with_bias: bool = True,
    name: str | None = None,
) -> Variable:
    """`convolution` with scaled signs of W, as `F.binary_weight_convolution` has it.

    Parameters: W (outmaps, channels / group, *kernel), uniform within Glorot's limits; Wb, the signs of W, and
    alpha (outmaps,), the mean sizes, both of which each `forward()` writes, not trained; b (outmaps,), zeros.

    Args:
        ...: As for `binary_connect_convolution`.
    """
    shapes = of_convolution("binary_weight_convolution", inp, outmaps, kernel, group, False, base_axis, rng)
    w, wb = _weights(shapes, w_init, wb_init, fix_parameters)
    alpha = get_parameter_or_create("alpha", shapes.bias, ZEROS, False)
    b = parameter("b", shapes.bias, b_init, ZEROS, fix_parameters) if with_bias else None
    return F.binary_weight_convolution(
        inp, w, wb, alpha, b, base_axis=shapes.base_axis, pad=pad, stride=stride, dilation=dilation, group=group,
        quantize_zero_to=quantize_zero_to,
    )
