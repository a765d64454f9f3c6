"""Convolution layers."""

from __future__ import annotations

from .. import functions as F
from ..extend import Array, Ints, Variable
from ..initializer import Rng
from .layer_arguments import axis, evenly, kernel_extents, of_convolution, size
from .layer_parameters import ZEROS, Apply, Init, glorot, own_parameters, parameter


@own_parameters("conv")
def convolution(
    inp: Array, outmaps: int, kernel: Ints, pad: Ints | None = None, stride: Ints | None = None,
    dilation: Ints | None = None, group: int = 1, channel_last: bool = False, w_init: Init = None, b_init: Init = None,
    base_axis: int = 1, fix_parameters: bool = False, rng: Rng | None = None, with_bias: bool = True,
    apply_w: Apply = None, apply_b: Apply = None, name: str | None = None,
) -> Variable:
    """N-dimensional convolution with a bias per channel.

    Parameters: W of shape (outmaps, channels / group, *kernel), or (outmaps, *kernel, channels / group) with
    `channel_last`, uniform within Glorot's limits; b of shape (outmaps,), zeros.

    Args:
        inp: Of shape (batch axes..., channels, spatial axes...); channels last with `channel_last`.
        outmaps: Number of output channels.
        kernel: Size of the kernel along each spatial axis; an int is for all of them.
        base_axis: Number of batch axes; a negative one counts from the end.
        ...: As in `F.convolution`.
    """
    shapes = of_convolution(inp, outmaps, kernel, group, channel_last, base_axis, rng)
    weight, bias = shapes.weight_and_bias(w_init, b_init, fix_parameters, with_bias, apply_w, apply_b)
    return F.convolution(
        inp, weight, bias, base_axis=shapes.base_axis, pad=pad, stride=stride, dilation=dilation, group=group,
        channel_last=channel_last,
    )


@own_parameters("deconv")
def deconvolution(
    inp: Array, outmaps: int, kernel: Ints, pad: Ints | None = None, stride: Ints | None = None,
    dilation: Ints | None = None, group: int = 1, channel_last: bool = False, output_padding: Ints | None = None,
    w_init: Init = None, b_init: Init = None, base_axis: int = 1, fix_parameters: bool = False, rng: Rng | None = None,
    with_bias: bool = True, apply_w: Apply = None, apply_b: Apply = None, name: str | None = None,
) -> Variable:
    """Transposed convolution with a bias per channel: `inp` has the shape of a convolution's output.

    Parameters: W of shape (channels, outmaps / group, *kernel), or (channels, *kernel, outmaps / group) with
    `channel_last`, uniform within Glorot's limits; b of shape (outmaps,), zeros.

    Args:
        pad: Elements cropped at both ends of each spatial axis; by default none.
        stride: Spacing in the output between neighbours of the input along each spatial axis; by default 1.
        output_padding: Elements added at the end of each spatial axis of the output; by default none.
        ...: As in `convolution`.
    """
    shapes = of_convolution(inp, outmaps, kernel, group, channel_last, base_axis, rng, transposed=True)
    weight, bias = shapes.weight_and_bias(w_init, b_init, fix_parameters, with_bias, apply_w, apply_b)
    return F.deconvolution(
        inp, weight, bias, base_axis=shapes.base_axis, pad=pad, stride=stride, dilation=dilation, group=group,
        channel_last=channel_last, output_padding=output_padding,
    )


@own_parameters("depthwise_conv")
def depthwise_convolution(
    inp: Array, kernel: Ints, pad: Ints | None = None, stride: Ints | None = None, dilation: Ints | None = None,
    multiplier: int = 1, w_init: Init = None, b_init: Init = None, base_axis: int = 1, fix_parameters: bool = False,
    rng: Rng | None = None, with_bias: bool = True, name: str | None = None,
) -> Variable:
    """Convolution of each channel separately, with `multiplier` kernels per channel and a bias per output channel.

    Parameters: W (channels * multiplier, *kernel), uniform within Glorot's limits; b (channels * multiplier,), zeros.

    Args:
        inp: Of shape (batch axes..., channels, spatial axes...).
        multiplier: Number of output channels per channel.
        ...: As in `convolution`.
    """
    base_axis = axis(base_axis, inp.ndim, "base_axis")
    extents = kernel_extents(inp, kernel, base_axis)
    channels = inp.shape[base_axis]
    outmaps = channels * size(multiplier, "multiplier")
    w = parameter("W", (outmaps, *extents), w_init, glorot(outmaps, channels, extents, rng), fix_parameters)
    b = parameter("b", (outmaps,), b_init, ZEROS, fix_parameters) if with_bias else None
    return F.depthwise_convolution(
        inp, w, b, base_axis=base_axis, pad=pad, stride=stride, dilation=dilation, multiplier=multiplier,
    )


@own_parameters("depthwise_deconv")
def depthwise_deconvolution(
    inp: Array, kernel: Ints, pad: Ints | None = None, stride: Ints | None = None, dilation: Ints | None = None,
    divisor: int = 1, w_init: Init = None, b_init: Init = None, base_axis: int = 1, fix_parameters: bool = False,
    rng: Rng | None = None, with_bias: bool = True, name: str | None = None,
) -> Variable:
    """Transposed convolution of each channel separately, summed over `divisor` adjacent channels, plus a bias per sum.

    Parameters: W (channels, *kernel), uniform within Glorot's limits; b (channels / divisor,), zeros.

    Args:
        inp: Of shape (batch axes..., channels, spatial axes...).
        divisor: Number of channels per output channel.
        ...: As in `deconvolution`.
    """
    base_axis = axis(base_axis, inp.ndim, "base_axis")
    extents = kernel_extents(inp, kernel, base_axis)
    channels = inp.shape[base_axis]
    outmaps = evenly(channels, size(divisor, "divisor"), "channels")
    w = parameter("W", (channels, *extents), w_init, glorot(channels, channels, extents, rng), fix_parameters)
    b = parameter("b", (outmaps,), b_init, ZEROS, fix_parameters) if with_bias else None
    return F.depthwise_deconvolution(
        inp, w, b, base_axis=base_axis, pad=pad, stride=stride, dilation=dilation, divisor=divisor,
    )


@own_parameters("deformable_conv")
def deformable_convolution(
    inp: Array, outmaps: int, kernel: Ints, offset: Array, mask: Array | None = None, pad: Ints | None = None,
    stride: Ints | None = None, dilation: Ints | None = None, group: int = 1, deformable_group: int = 1,
    channel_last: bool = False, w_init: Init = None, b_init: Init = None, base_axis: int = 1,
    fix_parameters: bool = False, rng: Rng | None = None, with_bias: bool = True, apply_w: Apply = None,
    apply_b: Apply = None, name: str | None = None,
) -> Variable:
    """2-D convolution whose kernel elements read at positions shifted by `offset`, with a bias per channel.

    Parameters: W of shape (outmaps, channels / group, *kernel), or (outmaps, *kernel, channels / group) with
    `channel_last`, uniform within Glorot's limits; b of shape (outmaps,), zeros.

    Args:
        inp: Of shape (batch axes..., channels, height, width); channels last with `channel_last`.
        kernel: Size of the kernel along both axes.
        base_axis: Number of batch axes; a negative one counts from the end.
        ...: As in `F.deformable_convolution` and `convolution`.
    """
    shapes = of_convolution(inp, outmaps, kernel, group, channel_last, base_axis, rng)
    weight, bias = shapes.weight_and_bias(w_init, b_init, fix_parameters, with_bias, apply_w, apply_b)
    return F.deformable_convolution(
        inp, weight, offset, mask, bias, base_axis=shapes.base_axis, pad=pad, stride=stride, dilation=dilation,
        group=group, deformable_group=deformable_group, channel_last=channel_last,
    )
