"""Pooling windows along the last axes of an array: reading them, and adding to them."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..graph.arguments import Ints, as_ints
from ..graph.thresholds import MOST_SLICES
from .axes import per_axis


class WindowAxis(NamedTuple):
    """The windows along one axis."""

    axis: int
    size: int
    kernel: int
    stride: int
    pad: int
    number: int
    """Number of windows."""
    dilation: int = 1
    """Distance between the positions of a window."""

    @property
    def span(self) -> int:
        """Distance from the first position of a window to the end of its last one."""
        return (self.kernel - 1) * self.dilation + 1

    @property
    def ends(self) -> tuple[int, int]:
        """Padding before the elements, and after them up to the end of the last window (negative: cropped)."""
        return self.pad, (self.number - 1) * self.stride + self.span - self.size - self.pad

    @property
    def least(self) -> int:
        """The smallest number of elements in a window: that of the first or the last one, unless dilated ones reach
        beyond both ends."""
        last = (self.number - 1) * self.stride - self.pad
        within = self.dilation == 1 or self.span <= self.size
        firsts = (-self.pad, last) if within else range(-self.pad, last + 1, self.stride)
        return min(-((max(first, first % self.dilation) - min(first + self.span, self.size)) // self.dilation)
                   for first in firsts)

    def counts(self, margin: int) -> Any:
        """The number of positions of each window within the elements and `margin` more on either side, as int32."""
        first = lax.iota(jnp.int32, self.number) * self.stride - self.pad
        end = lax.min(first + self.kernel, lax.full_like(first, self.size + margin))
        return end - lax.max(first, lax.full_like(first, -margin))


def windows(
    shape: tuple[int, ...], kernel: Ints, stride: Ints | None, ignore_border: bool, pad: Ints | None,
    channel_last: bool, dilation: Ints | None = None, ceil_mode: bool = False,
) -> list[WindowAxis]:
    """The windows along each spatial axis of an array of `shape`; a ValueError names the argument that is wrong."""
    kernel = as_ints(kernel)
    count = len(kernel)
    if not count:
        raise ValueError(f"kernel must have one entry for each of one or more spatial axes, got {kernel}")
    if min(kernel) < 1:
        raise ValueError(f"kernel must be at least 1, got {kernel}")
    steps = kernel if stride is None else per_axis(stride, "stride", count, 1, 1)
    pads = per_axis(pad, "pad", count, 0, 0)
    apart = per_axis(dilation, "dilation", count, 1, 1)
    first = len(shape) - count - channel_last
    if first < 0:
        raise ValueError(
            f"kernel {kernel} needs {count} spatial axes{' and channels' * channel_last}, but x has shape {shape}"
        )
    axes = []
    for i, (k, s, p, d) in enumerate(zip(kernel, steps, pads, apart, strict=True)):
        n = shape[first + i]
        length, span = n + 2 * p, (k - 1) * d + 1
        number = -(-(n + p) // s)
        if ceil_mode:
            number = max(min(-((span - length) // s) + 1, number), 0)
        elif ignore_border:
            if span > length:
                dilated = f" with dilation {apart}" if d > 1 else ""
                raise ValueError(f"kernel must not exceed the {length} elements of padded spatial axis {i}, got "
                                 f"{kernel}{dilated}")
            number = (length - span) // s + 1
        axes.append(WindowAxis(first + i, n, k, s, p, number, d))
        if length + span + s > _LARGEST:
            raise ValueError(f"kernel {kernel}, stride {steps} and pad {pads} exceed the range of int32")
    return axes


_LARGEST = 2**31 - 1


def check_no_empty_window(axes: list[WindowAxis]) -> None:
    """Raise a ValueError if some window lies entirely in the padding."""
    if any(a.number and a.least < 1 for a in axes):
        raise ValueError(f"pad {tuple(a.pad for a in axes)} gives windows without elements of x")


def pooled_shape(shape: tuple[int, ...], axes: list[WindowAxis]) -> tuple[int, ...]:
    """`shape`, with the number of windows along each of `axes`."""
    counts = {a.axis: a.number for a in axes}
    return tuple(counts.get(i, n) for i, n in enumerate(shape))


def over_windows(x: Any, axes: list[WindowAxis], combine: Callable[[Any, Any], Any], neutral: Any) -> Any:
    """Each window reduced by `combine`, a sum or a maximum, one axis at a time."""
    for a in axes:
        padded = _padded(x, [a], neutral)
        if a.kernel > MOST_SLICES:  # this many slices would take long to compile
            along = (a.kernel, a.stride, a.dilation)
            sizes, steps, apart = ([n if i == a.axis else 1 for i in range(x.ndim)] for n in along)
            x = lax.reduce_window(padded, neutral, combine, sizes, steps, "VALID", None, apart)
        else:
            span = (a.number - 1) * a.stride + 1
            slices = [lax.slice_in_dim(padded, k, k + span, a.stride, a.axis) for k in range(0, a.span, a.dilation)]
            x = functools.reduce(combine, slices)
    return x


def _padded(x: Any, axes: list[WindowAxis], fill: Any) -> Any:
    ends = {a.axis: a.ends for a in axes}
    return lax.pad(x, fill, [(*ends.get(i, (0, 0)), 0) for i in range(x.ndim)])


def window_offsets(axes: list[WindowAxis]) -> list[tuple[int, ...]]:
    """The positions in a window, in row-major order."""
    return list(itertools.product(*[range(0, a.span, a.dilation) for a in axes]))


def at_places(x: Any, axes: list[WindowAxis], fill: Any) -> list[Any]:
    """For each position in a window, the elements there, one per window; `fill` in the padding."""
    padded = _padded(x, axes, fill)
    slices = []
    for place in window_offsets(axes):
        low, high, step = [0] * x.ndim, [*padded.shape], [1] * x.ndim
        for a, k in zip(axes, place, strict=True):
            low[a.axis], high[a.axis], step[a.axis] = k, k + (a.number - 1) * a.stride + 1, a.stride
        slices.append(lax.slice(padded, low, high, step))
    return slices


def to_places(parts: list[Any], axes: list[WindowAxis]) -> Any:
    """The transpose of `at_places`, with zeros in the padding: `parts` has one array for each position in a window,
    with one element for each window, and each element is added at its position. Positions with equal coordinates modulo
    the strides are summed as one array; then these arrays are interleaved."""
    zero = np.zeros((), parts[0].dtype)
    lengths = {a.axis: a.number + (a.span - 1) // a.stride for a in axes}
    empty = lax.full([lengths.get(i, n) for i, n in enumerate(parts[0].shape)], 0, parts[0].dtype)
    phases = dict.fromkeys(itertools.product(*[range(a.stride) for a in axes]), empty)
    for place, part in zip(window_offsets(axes), parts, strict=True):
        ends = {a.axis: k // a.stride for a, k in zip(axes, place, strict=True)}
        widths = [(ends.get(i, 0), empty.shape[i] - n - ends.get(i, 0), 0) for i, n in enumerate(part.shape)]
        phase = tuple([k % a.stride for a, k in zip(axes, place, strict=True)])
        moved = lax.pad(part, zero, widths)
        phases[phase] = moved if phases[phase] is empty else lax.add(phases[phase], moved)
    for a in reversed(axes):
        rows: dict[tuple[int, ...], list[Any]] = {}
        for phase, part in phases.items():
            rows.setdefault(phase[:-1], []).append(lax.expand_dims(part, (a.axis + 1,)))
        joined = {phase: lax.concatenate(row, a.axis + 1) for phase, row in rows.items()}
        phases = {phase: lax.collapse(part, a.axis, a.axis + 2) for phase, part in joined.items()}
    (y,) = phases.values()
    before = {a.axis: a for a in axes}
    return lax.pad(y, zero, [
        (-before[i].pad, before[i].pad + before[i].size - n, 0) if i in before else (0, 0, 0)
        for i, n in enumerate(y.shape)
    ])


def are_disjoint(axes: list[WindowAxis]) -> bool:
    """True if the windows follow one another from the first element on, and have no element in common."""
    return all([a.stride == a.kernel and a.pad == 0 and a.dilation == 1 for a in axes])


def apart(y: Any, axes: list[WindowAxis]) -> jax.Array:
    """Each element repeated over its window, whose positions lie along axes of their own, each behind its windows'."""
    kernels = {a.axis: a.kernel for a in axes}
    shape: list[int] = []
    places = []
    for i, n in enumerate(y.shape):
        places.append(len(shape))
        shape += [n, kernels[i]] if i in kernels else [n]
    return lax.broadcast_in_dim(y, shape, places)


def joined(y: Any, axes: list[WindowAxis], shape: Sequence[int]) -> jax.Array:
    """What `apart` gives as an array of `shape`, with zeros behind the last windows or without what is beyond."""
    for a in axes:
        y = lax.collapse(y, a.axis, a.axis + 2)
    return lax.pad(y, np.zeros((), y.dtype), [(0, n - m, 0) for n, m in zip(shape, y.shape, strict=True)])


def per_window(y: Any, axes: list[WindowAxis], margins: list[int]) -> Any:
    """`y` divided by the number of positions of each window that lie within the elements and margins."""
    for a, margin in zip(axes, margins, strict=True):
        share = 1 / lax.convert_element_type(a.counts(margin), jnp.promote_types(y.dtype, jnp.float32))
        y = y * lax.broadcast_in_dim(lax.convert_element_type(share, y.dtype), y.shape, (a.axis,))
    return y
