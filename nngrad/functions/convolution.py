"""Convolutions: one trilinear form seen from its three sides, and layers composed of it."""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
from jax import lax

from ..graph import Array, Variable, apply, composite, op
from ..graph.arguments import Ints, MatmulPrecision, Shape, as_ints
from .arithmetic import add2, alike, floating
from .axes import per_axis, rows
from .barriers import known_after
from .movement import reshape
from .transposition import missing_places, transposed

# ---------------------------------------------------------------- sizes and their checks


def check_convolution(
    x: tuple[int, ...], weight: tuple[int, ...], pad: tuple[int, ...], stride: tuple[int, ...],
    dilation: tuple[int, ...], group: int, channel_last: bool,
) -> None:
    """Raise a ValueError that names the argument if a convolution cannot have these shapes and sizes."""
    count = len(x) - 2
    if not 1 <= count <= 3:
        raise ValueError(f"x must have 1 to 3 spatial axes beside batch and channels, got shape {x}")
    if len(weight) != count + 2:
        raise ValueError(f"weight must have {count + 2} axes for {count} spatial axes, got shape {weight}")
    for name, value, lowest in (("pad", pad, 0), ("stride", stride, 1), ("dilation", dilation, 1)):
        if len(value) != count:
            raise ValueError(f"{name} must have {count} entries, one for each spatial axis, got {value}")
        per_axis(value, name, count, lowest, lowest)
    channels, taken = (x[-1], weight[-1]) if channel_last else (x[1], weight[1])
    if group < 1 or weight[0] % group:
        raise ValueError(f"group must divide the {weight[0]} output channels of weight, got {group}")
    if taken * group != channels:
        raise ValueError(
            f"weight of shape {weight} takes {taken} input channels in each of group={group} groups, "
            f"but x of shape {x} has {channels} (channel_last={channel_last})"
        )
    sizes, kernel = (x[1:-1], weight[1:-1]) if channel_last else (x[2:], weight[2:])
    for i, (n, k, p, d) in enumerate(zip(sizes, kernel, pad, dilation, strict=True)):
        if k < 1:
            raise ValueError(f"weight must have a kernel of at least one element, got shape {weight}")
        if d * (k - 1) + 1 > n + 2 * p:
            raise ValueError(
                f"weight's kernel spans {d * (k - 1) + 1} on spatial axis {i}, more than the {n + 2 * p} of padded x"
            )


def spatial_axes(channel_last: bool) -> slice:
    """The axes along which kernels move."""
    return slice(1, -1) if channel_last else slice(2, None)


# ---------------------------------------------------------------- the three sides


def padded(x: jax.Array, ends: list[tuple[int, int, int]]) -> jax.Array:
    """`x`, padded with zeros unknown to XLA: it would fold known ones into the convolution, and swap it after all."""
    return lax.pad(x, known_after(lax.full((), 0, x.dtype), x), ends)


@op(
    type_name="Convolution", linear="each", axes=rows(), precision="low",
    cost=lambda f: 2 * f.specs[0].size * math.prod(f.inputs[1].shape[1:]),
)  # fmt: skip
def convolve(
    x: Array, weight: Array, /, pad: Ints, stride: Ints, dilation: Ints, group: int, channel_last: bool,
    matmul_precision: MatmulPrecision | None = None,
) -> jax.Array:
    """Cross-correlation of `x` with `weight` over 1 to 3 spatial axes: the op behind `convolution`.

    Args:
        x: (batch, C, *sizes), or (batch, *sizes, C) if `channel_last`.
        weight: (out, C/group, *kernel), or (out, *kernel, C/group) if `channel_last`.
        pad: Zeros added at both ends of each spatial axis. One entry for each axis, here and in the next two.
        stride: Step of the kernel.
        dilation: Spacing between the kernel's elements.
        group: Number of groups of channels, each convolved separately.

    Returns:
        (batch, out, *sizes), or (batch, *sizes, out): sizes as in `convolution`.

    Raises:
        ValueError: The shapes do not fit, or an argument is out of range.
    """
    pad, stride, dilation = as_ints(pad), as_ints(stride), as_ints(dilation)
    check_convolution(x.shape, weight.shape, pad, stride, dilation, group, channel_last)
    x, weight = alike(floating(x), floating(weight))
    # Where batch, channel and spatial axes are: x and y alike, and weight as (out, in, *kernel).
    axes = (0, x.ndim - 1, *range(1, x.ndim - 1)) if channel_last else tuple(range(x.ndim))
    return lax.conv_general_dilated(
        x, weight, stride, [(p, p) for p in pad], rhs_dilation=dilation, feature_group_count=group,
        dimension_numbers=lax.ConvDimensionNumbers(axes, axes, axes), precision=matmul_precision,
    )  # fmt: skip


# Both transposes are those of the undilated product. Differentiating them again leads back to the product itself,
# whereas nested transposition by XLA's rules would pile up dilations, and be several times slower.


def data_grad(
    y: Any, weight: Any, /, keeps_places: bool, shape: Shape, pad: Ints, stride: Ints, dilation: Ints, group: int,
    channel_last: bool, matmul_precision: str | None,
) -> jax.Array:
    """`convolve_data_grad`; with `keeps_places`, y is padded so that XLA does not swap it with the kernel."""
    y, weight = alike(floating(y), floating(weight))
    spatial = spatial_axes(channel_last)
    more = missing_places(y.shape[spatial], weight.shape[spatial]) if keeps_places else (0,) * (y.ndim - 2)
    ends, larger = [(0, 0, 0)] * y.ndim, list(shape)
    ends[spatial] = [(0, m, 0) for m in more]
    larger[spatial] = [n + s * m for n, s, m in zip(shape[spatial], as_ints(stride), more, strict=True)]

    def product(x: Any) -> Any:
        return convolve.forward(x, weight, pad, stride, dilation, group, channel_last, matmul_precision)

    gx = transposed(product, tuple(larger), padded(y, ends) if any(more) else y, "y")
    return gx[tuple(map(slice, shape))] if any(more) else gx


@op(
    type_name="Deconvolution", linear="each", axes=rows("shape"), precision="low",
    cost=lambda f: 2 * f.inputs[0].size * math.prod(f.inputs[1].shape[1:]),
)  # fmt: skip
def convolve_data_grad(
    y: Array, weight: Array, /, shape: Shape, pad: Ints, stride: Ints, dilation: Ints, group: int, channel_last: bool,
    matmul_precision: MatmulPrecision | None = None,
) -> jax.Array:
    """The transpose of `convolve` in its first input.

    Args:
        y: Of the shape that `convolve` returns.
        shape: The shape of x and of the result.
        ...: As in `convolve`.
    """
    # With groups and some strides equal to the kernel's size, XLA crashes after it has swapped the kernel with y: it
    # mistakes such an axis for that of the groups (seen in JAX 0.8 to 0.10).
    return data_grad(y, weight, group > 1 and max(as_ints(stride), default=1) > 1, shape, pad, stride, dilation, group,
                      channel_last, matmul_precision)  # fmt: skip


@op(
    type_name="ConvolutionFilterGrad", linear="each", precision="low", adds_rows=True,
    cost=lambda f: 2 * f.inputs[0].size * math.prod(f.specs[0].shape[1:]),
)  # fmt: skip
def convolve_filter_grad(
    y: Array, x: Array, /, shape: Shape, pad: Ints, stride: Ints, dilation: Ints, group: int, channel_last: bool,
    matmul_precision: MatmulPrecision | None = None,
) -> jax.Array:
    """The transpose of `convolve` in its second input: the gradient with respect to the weight.

    Args:
        y: Of the shape that `convolve` returns.
        shape: The shape of the weight and of the result.
        ...: As in `convolve`.
    """
    y, x = alike(floating(y), floating(x))

    def product(weight: Any) -> Any:
        return convolve.forward(x, weight, pad, stride, dilation, group, channel_last, matmul_precision)

    return transposed(product, shape, y, "y")


# ---------------------------------------------------------------- layers


@composite
def convolution(
    x: Array, weight: Array, bias: Array | None = None, /, base_axis: int = 1, pad: Ints | None = None,
    stride: Ints | None = None, dilation: Ints | None = None, group: int = 1, channel_last: bool = False,
) -> Variable:
    """Cross-correlation over 1 to 3 spatial axes, with strides, dilation, groups and a bias per output channel.

    Args:
        x: (*batch, C, *sizes), or (*batch, *sizes, C) if `channel_last`.
        weight: (out, C/group, *kernel), or (out, *kernel, C/group) if `channel_last`.
        bias: (out,); None for no bias.
        base_axis: Number of batch axes; from the end of the axes of x if negative.
        pad: Zeros added at both ends of each spatial axis; 0 by default. A single entry, here and below, applies to all
            axes.
        stride: Step of the kernel; 1 by default.
        dilation: Spacing between the kernel's elements; 1 by default.
        group: Number of groups of channels, each convolved separately.

    Returns:
        (*batch, out, *sizes), or (*batch, *sizes, out): sizes (n + 2 pad - dilation (kernel - 1) - 1) // stride + 1.
    """
    x, batch, count = with_one_batch_axis(x, base_axis)
    pad, stride, dilation = steps_of(count, pad, stride, dilation)
    y = apply(convolve, (x, weight), (pad, stride, dilation, group, channel_last, None))
    return finished(y, bias, batch, channel_last)


@composite
def deconvolution(
    x: Array, weight: Array, bias: Array | None = None, /, base_axis: int = 1, pad: Ints | None = None,
    stride: Ints | None = None, dilation: Ints | None = None, group: int = 1, channel_last: bool = False,
    output_padding: Ints | None = None,
) -> Variable:
    """Transposed convolution: the transpose of `convolution` with the same weight and strides, plus a bias.

    Args:
        weight: (C, out/group, *kernel), or (C, *kernel, out/group) if `channel_last`.
        pad: The padding of the convolution from the result to x: the result is cropped by it at both ends of each axis.
        stride: Step of that convolution: the spacing of the copies of the kernel in the result.
        dilation: Spacing between the kernel's elements; 1 by default, like the stride.
        group: Number of groups of channels.
        output_padding: Additional length of each spatial axis of the result, below the stride (a strided convolution
            maps several sizes to one); 0 by default.
        ...: As in `convolution`.

    Returns:
        (*batch, out, *sizes), or (*batch, *sizes, out): sizes
        stride (n - 1) + dilation (kernel - 1) + 1 - 2 pad + output_padding.
    """
    x, batch, count = with_one_batch_axis(x, base_axis)
    pad, stride, dilation = steps_of(count, pad, stride, dilation)
    extra = per_axis(output_padding, "output_padding", count, 0, 0)
    if any(e >= s for e, s in zip(extra, stride, strict=True)):
        raise ValueError(f"output_padding must be smaller than stride {stride}, got {extra}")
    if weight.ndim != count + 2:
        raise ValueError(f"weight must have {count + 2} axes, got shape {weight.shape}")
    channels, sizes = (x.shape[-1], x.shape[1:-1]) if channel_last else (x.shape[1], x.shape[2:])
    if weight.shape[0] != channels:
        raise ValueError(f"weight must have size {channels} along axis 0, the channels of x, got shape {weight.shape}")
    out, kernel = (
        (weight.shape[-1] * group, weight.shape[1:-1]) if channel_last else (weight.shape[1] * group, weight.shape[2:])
    )
    wide = tuple(
        s * (n - 1) + d * (k - 1) + 1 - 2 * p + e
        for n, k, p, s, d, e in zip(sizes, kernel, pad, stride, dilation, extra, strict=True)
    )
    if min(wide) < 1:
        raise ValueError(f"pad {pad} is too large: the result would have spatial sizes {wide}")
    shape = (x.shape[0], *wide, out) if channel_last else (x.shape[0], out, *wide)
    y = apply(convolve_data_grad, (x, weight), (shape, pad, stride, dilation, group, channel_last, None))
    return finished(y, bias, batch, channel_last)


@composite
def depthwise_convolution(
    x: Array, weight: Array, bias: Array | None = None, /, base_axis: int = 1, pad: Ints | None = None,
    stride: Ints | None = None, dilation: Ints | None = None, multiplier: int = 1,
) -> Variable:
    """Convolution of each channel separately, with `multiplier` filters per channel.

    Args:
        x: (*batch, C, *sizes).
        weight: (C * multiplier, *kernel); the filters of a channel are adjacent.
        bias: (C * multiplier,); None for no bias.
        multiplier: Number of filters per channel.
        ...: As in `convolution`.

    Returns:
        (*batch, C * multiplier, *sizes), sizes as in `convolution`.
    """
    x, batch, count = with_one_batch_axis(x, base_axis)
    pad, stride, dilation = steps_of(count, pad, stride, dilation)
    channels = x.shape[1]
    if multiplier < 1 or weight.ndim != count + 1 or weight.shape[0] != channels * multiplier:
        raise ValueError(
            f"weight must be of shape (channels * multiplier, *kernel) with {channels} channels, "
            f"multiplier={multiplier} and {count} spatial axes, got {weight.shape}"
        )
    weight = reshape(weight, shape=(weight.shape[0], 1, *weight.shape[1:]))
    y = apply(convolve, (x, weight), (pad, stride, dilation, channels, False, None))
    return finished(y, bias, batch, False)


@composite
def depthwise_deconvolution(
    x: Array, weight: Array, bias: Array | None = None, /, base_axis: int = 1, pad: Ints | None = None,
    stride: Ints | None = None, dilation: Ints | None = None, divisor: int = 1,
) -> Variable:
    """The transpose of `depthwise_convolution`: each output channel sums `divisor` neighbouring ones.

    Args:
        x: (*batch, C, *sizes).
        weight: (C, *kernel).
        bias: (C // divisor,); None for no bias.
        divisor: Number of input channels per output channel.
        ...: As in `deconvolution`.

    Returns:
        (*batch, C // divisor, *sizes), sizes as in `deconvolution`.
    """
    if divisor < 1 or weight.ndim < 1 or weight.shape[0] % divisor:
        raise ValueError(f"divisor must divide axis 0 of weight, of shape {weight.shape}, got {divisor}")
    weight = reshape(weight, shape=(weight.shape[0], 1, *weight.shape[1:]))
    group = weight.shape[0] // divisor
    return deconvolution(x, weight, bias, base_axis=base_axis, pad=pad, stride=stride, dilation=dilation, group=group)


def with_one_batch_axis(x: Variable, base_axis: int) -> tuple[Variable, tuple[int, ...], int]:
    """`x` with its batch axes flattened into one, their sizes, and the number of spatial axes."""
    if not -x.ndim <= base_axis < x.ndim:
        raise ValueError(f"base_axis {base_axis} is out of range for x of shape {x.shape}")
    base_axis = base_axis + x.ndim if base_axis < 0 else base_axis
    batch, count = x.shape[:base_axis], x.ndim - base_axis - 1
    if not 1 <= count <= 3:
        raise ValueError(f"x must have 1 to 3 spatial axes after base_axis={base_axis} and channels, got {x.shape}")
    if base_axis != 1:
        x = reshape(x, shape=(math.prod(batch), *x.shape[base_axis:]))
    return x, batch, count


@functools.lru_cache(maxsize=1024)
def steps_of(count: int, pad: Any, stride: Any, dilation: Any) -> tuple[tuple[int, ...], ...]:
    return (
        per_axis(pad, "pad", count, 0, 0),
        per_axis(stride, "stride", count, 1, 1),
        per_axis(dilation, "dilation", count, 1, 1),
    )


def finished(y: Variable, bias: Variable | None, batch: tuple[int, ...], channel_last: bool) -> Variable:
    """`y` plus the bias, with its batch axes restored."""
    if bias is not None:
        out = y.shape[-1] if channel_last else y.shape[1]
        if bias.shape != (out,):
            raise ValueError(f"bias must have shape {(out,)}, one number per output channel, got {bias.shape}")
        y = add2(y, bias if channel_last else reshape(bias, shape=(out, *(1,) * (y.ndim - 2))))
    return y if len(batch) == 1 else reshape(y, shape=(*batch, *y.shape[1:]))
