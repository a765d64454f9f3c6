"""Deformable convolution: the kernel reads between pixels, at positions that inputs shift."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..graph import Array, Variable, as_variable, composite
from ..graph.arguments import Ints
from . import linear, slicing
from .array import like_floats
from .convolution import check_convolution, finished, steps_of, with_one_batch_axis
from .moments import accurate
from .movement import concatenate, reshape, transpose
from .warping import sampled


@composite
def deformable_convolution(
    x: Array, weight: Array, offset: Array, mask: Array | None = None, bias: Array | None = None, /, base_axis: int = 1,
    pad: Ints | None = None, stride: Ints | None = None, dilation: Ints | None = None, group: int = 1,
    deformable_group: int = 1, channel_last: bool = False,
) -> Variable:
    """2-D convolution in which each kernel element reads `x` at its own position, shifted by `offset`.

    x is interpolated bilinearly between four pixels, with zeros beyond its borders (Dai et al., 2017). A mask
    multiplies the values read (Zhu et al., 2019). At offsets where a position is exactly on a row or column of pixels,
    the derivative is that towards larger offsets.

    Args:
        x: (*batch, C, H, W), or (*batch, H, W, C) if `channel_last`.
        weight: (out, C/group, *kernel), or (out, *kernel, C/group) if `channel_last`.
        offset: (*batch, 2 * deformable_group * K, h, w), or channels last if `channel_last`: for each group of channels
            and each of the K kernel elements, the offset of the row and that of the column. (h, w) is the size of the
            result; or, as in nnabla, that of x, of which every `stride`-th element is used.
        mask: (*batch, deformable_group * K, h, w), or channels last; None for ones.
        bias: (out,); None for no bias.
        base_axis: Number of batch axes; from the end of the axes of x if negative.
        pad: Zeros added at both ends of both axes; 0 by default. A single entry, here and below, applies to both.
        stride: Step of the kernel; 1 by default.
        dilation: Spacing between the kernel's elements; 1 by default.
        group: Number of groups of channels, each convolved separately.
        deformable_group: Number of groups of channels, each with its own offsets and mask.

    Returns:
        (*batch, out, *sizes), or (*batch, *sizes, out): sizes as in `convolution`.
    """
    x, batch, count = with_one_batch_axis(x, base_axis)
    if count != 2:
        raise ValueError(f"x must have 2 spatial axes, got {count} in shape {x.shape}")
    offset = _with_batch_of_x("offset", offset, batch)
    mask = None if mask is None else _with_batch_of_x("mask", mask, batch)
    if not channel_last:
        x, weight, offset = _last(x), _last(weight), _last(offset)
        mask = None if mask is None else _last(mask)
    window = steps_of(2, pad, stride, dilation)
    sizes = _checked(x, weight, group, deformable_group, window)
    out, height, width, _ = weight.shape
    k = height * width
    taken = [
        _at_windows(f"{what}", value, (x.shape[0], deformable_group, k, width_each), x.shape[1:3], sizes, window[1])
        for what, value, width_each in (("offset", offset, 2), ("mask", mask, 1)) if value is not None
    ]
    moves = accurate(taken[0])  # else nearby positions on large images would coincide
    places = _places((height, width), sizes, window, moves.dtype)
    rows, columns = (place + moves[..., i] for i, place in enumerate(places))
    per_group = (deformable_group, x.shape[-1] // deformable_group)
    apart = transpose(reshape(x, shape=(*x.shape[:3], *per_group)), axes=(0, 3, 1, 2, 4))
    apart = reshape(apart, shape=(x.shape[0] * deformable_group, *x.shape[1:3], per_group[1]))
    read = _interpolated(apart, rows, columns, taken[1][..., 0] if mask is not None else None)
    read = reshape(read, shape=(x.shape[0], deformable_group, *sizes, k, per_group[1]))
    read = reshape(transpose(read, axes=(0, 2, 3, 4, 1, 5)), shape=(x.shape[0] * math.prod(sizes), k, group, -1))
    read = reshape(transpose(read, axes=(2, 0, 1, 3)), shape=(group, x.shape[0] * math.prod(sizes), -1))
    weight = reshape(weight, shape=(group, out // group, -1))
    y = linear.batch_matmul(read, weight, transpose_b=True)
    y = reshape(transpose(y, axes=(1, 0, 2)), shape=(x.shape[0], *sizes, out))
    return finished(y if channel_last else transpose(y, axes=(0, 3, 1, 2)), bias, batch, channel_last)


def _with_batch_of_x(name: str, value: Variable, batch: tuple[int, ...]) -> Variable:
    """`value` with its batch axes, which x shares, flattened into one."""
    if value.ndim != len(batch) + 3 or value.shape[: len(batch)] != batch:
        raise ValueError(f"{name} must have x's batch axes {batch} and 3 further axes, got shape {value.shape}")
    return reshape(value, shape=(math.prod(batch), *value.shape[len(batch) :]))


def _last(x: Variable) -> Variable:
    return transpose(x, axes=(0, *range(2, x.ndim), 1))


def _checked(x: Variable, weight: Variable, group: int, deformable_group: int, window: Any) -> tuple[int, int]:
    """The sizes of the result; a ValueError names what does not fit. Channels are last in both."""
    pad, stride, dilation = window
    check_convolution(x.shape, weight.shape, pad, stride, dilation, group, True)
    if deformable_group < 1 or x.shape[-1] % deformable_group:
        raise ValueError(f"deformable_group must divide the {x.shape[-1]} channels of x, got {deformable_group}")
    sizes = [
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, p, s, d in zip(x.shape[1:3], weight.shape[1:3], *window, strict=True)
    ]
    return sizes[0], sizes[1]


def _at_windows(
    name: str, value: Variable, parts: tuple[int, int, int, int], of_x: Any, sizes: Any, stride: tuple[int, ...]
) -> Variable:
    """The entries for each window, as (B, group, *sizes, k, each), of an input with channels last that may have the
    size of x."""
    batch, groups, k, width = parts
    expected = (batch, *sizes, groups * k * width)
    if value.shape != expected and value.shape == (batch, *of_x, groups * k * width):
        value = slicing.getitem(
            value, (slice(None), *[slice(0, (n - 1) * s + 1, s) for n, s in zip(sizes, stride, strict=True)])
        )
    if value.shape != expected:
        raise ValueError(
            f"{name} must have {groups * k * width} channels, and the spatial sizes {tuple(sizes)} of the result or "
            f"{tuple(of_x)} of x, got shape {value.shape} with channels last"
        )
    return transpose(reshape(value, shape=(batch, *sizes, groups, k, width)), axes=(0, 3, 1, 2, 4, 5))


def _places(kernel: tuple[int, int], sizes: tuple[int, int], window: Any, dtype: Any) -> tuple[Variable, Variable]:
    """The rows and the columns of the kernel's elements without offsets, with axes for (*sizes, k)."""
    pad, stride, dilation = window
    firsts = [np.arange(n) * s - p for n, s, p in zip(sizes, stride, pad, strict=True)]
    rows, columns = (index.ravel() for index in np.indices(kernel))
    return (
        as_variable((firsts[0][:, None, None] + rows * dilation[0]).astype(dtype)),
        as_variable((firsts[1][None, :, None] + columns * dilation[1]).astype(dtype)),
    )


def _interpolated(x: Variable, rows: Variable, columns: Variable, factor: Variable | None) -> Variable:
    """x (B, H, W, C), interpolated at rows and columns (B', group, *places), times a factor for each place: (B, Q, C)
    for all places in a row. B counts the groups of channels of each of B' samples."""
    batch, *sizes, channels = x.shape
    count = math.prod(rows.shape) // batch
    positions = concatenate(*[reshape(place, shape=(batch, count, 1)) for place in (columns, rows)], axis=2)
    pixels = reshape(x, shape=(batch, math.prod(sizes), channels))
    factor = None if factor is None else reshape(factor, shape=(batch, 1, count))
    y = sampled(pixels, positions, tuple(sizes), "zero", "linear", True, factor)
    return like_floats(y, x)
