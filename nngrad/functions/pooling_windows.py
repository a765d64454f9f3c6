"""The windows that pooling moves along the last axes of an array, and sums over them."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from ..graph.arguments import Ints, as_ints, per_axis


class Axis(NamedTuple):
    """The windows along one axis."""

    axis: int
    size: int
    kernel: int
    stride: int
    pad: int
    number: int
    """Number of windows."""

    @property
    def ends(self) -> tuple[int, int]:
        """Padding before the elements, and behind them as far as the last window reaches (negative: cut off)."""
        return self.pad, (self.number - 1) * self.stride + self.kernel - self.size - self.pad

    @property
    def least(self) -> int:
        """The least number of elements that a window has: that of the first or the last one."""
        last = (self.number - 1) * self.stride - self.pad
        return min(min(first + self.kernel, self.size) - max(first, 0) for first in (-self.pad, last))

    def counts(self, margin: int) -> Any:
        """How many positions each window has among the elements and `margin` more on either side, as int32."""
        first = lax.iota(jnp.int32, self.number) * self.stride - self.pad
        end = lax.min(first + self.kernel, lax.full_like(first, self.size + margin))
        return end - lax.max(first, lax.full_like(first, -margin))


def windows(
    shape: tuple[int, ...],
    kernel: Ints,
    stride: Ints | None,
    ignore_border: bool,
    pad: Ints | None,
    channel_last: bool,
) -> list[Axis]:
    """The windows along each spatial axis of an array of `shape`; a ValueError names the argument that is wrong."""
    kernel = as_ints(kernel)
    count = len(kernel)
    if not 1 <= count <= 3:
        raise ValueError(f"kernel {kernel} must have 1 to 3 entries, one per spatial axis")
    if min(kernel) < 1:
        raise ValueError(f"kernel must be at least 1, got {kernel}")
    steps = kernel if stride is None else per_axis(stride, "stride", count, 1, 1)
    pads = per_axis(pad, "pad", count, 0, 0)
    first = len(shape) - count - channel_last
    if first < 0:
        raise ValueError(
            f"kernel {kernel} is for {count} spatial axes{' and channels' * channel_last}, but x has shape {shape}"
        )
    axes = []
    for i, (k, s, p) in enumerate(zip(kernel, steps, pads, strict=True)):
        n = shape[first + i]
        length = n + 2 * p
        if ignore_border and k > length:
            raise ValueError(f"kernel {kernel} is larger than the {length} elements of padded spatial axis {i}")
        axes.append(Axis(first + i, n, k, s, p, (length - k) // s + 1 if ignore_border else -(-length // s)))
        if length + k + s > _LARGEST:
            raise ValueError(f"kernel {kernel}, stride {steps} and pad {pads} go beyond the range of int32")
    return axes


_LARGEST = 2**31 - 1


def need_elements(axes: list[Axis]) -> None:
    """Raise a ValueError if some window lies in the padding alone."""
    if any(a.number and a.least < 1 for a in axes):
        raise ValueError(f"pad {tuple(a.pad for a in axes)} makes windows that hold no element of x")


def pooled_shape(shape: tuple[int, ...], axes: list[Axis]) -> tuple[int, ...]:
    """`shape` with as many elements along `axes` as there are windows."""
    counts = {a.axis: a.number for a in axes}
    return tuple(counts.get(i, n) for i, n in enumerate(shape))


def window_sums(x: Any, axes: list[Axis]) -> Any:
    """The sum over each window: axis by axis, since a sum over a box is a sum of sums."""
    zero = np.zeros((), x.dtype)
    for a in axes:
        padded = lax.pad(x, zero, [(*a.ends, 0) if i == a.axis else (0, 0, 0) for i in range(x.ndim)])
        if a.kernel > 32:  # so many slices would take long to compile
            sizes, steps = ([n if i == a.axis else 1 for i in range(x.ndim)] for n in (a.kernel, a.stride))
            x = lax.reduce_window(padded, zero, lax.add, sizes, steps, "VALID")
        else:
            span = (a.number - 1) * a.stride + 1
            slices = [lax.slice_in_dim(padded, k, k + span, a.stride, a.axis) for k in range(a.kernel)]
            x = functools.reduce(lax.add, slices)
    return x


def per_window(y: Any, axes: list[Axis], margins: list[int]) -> Any:
    """`y` divided by the number of positions that each of its windows has among the elements and margins."""
    for a, margin in zip(axes, margins, strict=True):
        share = 1 / lax.convert_element_type(a.counts(margin), jnp.promote_types(y.dtype, jnp.float32))
        y = y * lax.broadcast_in_dim(lax.convert_element_type(share, y.dtype), y.shape, (a.axis,))
    return y
