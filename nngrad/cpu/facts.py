"""Facts about ops that only the passes for CPUs read: of what they take with channels last, and of what XLA considers
cheap.

In a channels-last layout, axis 1 of an array of three axes or more is moved behind all others. If an op has an argument
for the layout, or names axes, it can work on arrays in that layout, and `CHANNELS_LAST` gives the arguments for it.
Diagonal ops need no entry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .. import functions as F
from ..extend import Op
from ..functions.axes import axes_of
from ..functions.convolution import convolve, convolve_data_grad, convolve_filter_grad
from ..functions.resampling import resample, resample_transpose

Shape = tuple[int, ...]
Named = Mapping[str, Any]
Moved = Callable[[tuple[Shape, ...], Named], Named | None]
"""From the shapes of the inputs, and the arguments by name, to the arguments that change; None if it is impossible."""


def last_order(ndim: int) -> tuple[int, ...]:
    """The permutation that moves axis 1, the channels, behind all others."""
    return (0, *range(2, ndim), 1) if ndim > 2 else tuple(range(ndim))


def first_order(ndim: int) -> tuple[int, ...]:
    """The inverse permutation, which moves the channels from last back to axis 1."""
    return (0, ndim - 1, *range(1, ndim - 1)) if ndim > 2 else tuple(range(ndim))


def axes_moved_last(entries: tuple[Any, ...]) -> tuple[Any, ...]:
    """A shape, or any tuple with one entry per axis, with the channels' entry last."""
    return tuple([entries[a] for a in last_order(len(entries))])


def with_flag(shapes: tuple[Shape, ...], arguments: Named) -> Named | None:
    """For an op with an argument `channel_last`, and perhaps the `shape` of its result."""
    if arguments["channel_last"]:
        return None
    return {"channel_last": True} | ({"shape": axes_moved_last(arguments["shape"])} if "shape" in arguments else {})


def over_axes(shapes: tuple[Shape, ...], arguments: Named) -> Named | None:
    """For a reduction over the axes in an argument `axis`, which vanish unless `keepdims` is true."""
    ndim, axis = len(shapes[0]), arguments["axis"]
    order = last_order(ndim)
    gone = range(ndim) if axis is None else axes_of(axis, ndim)
    stay = [a for a in range(ndim) if a not in gone]
    if not arguments["keepdims"] and axes_moved_last(tuple(stay)) != tuple([a for a in order if a in stay]):
        return None
    return {"axis": tuple(sorted([order.index(a) for a in gone]))}


def along_axis(shapes: tuple[Shape, ...], arguments: Named) -> Named | None:
    """For an op that works along one axis, its argument `axis`, and keeps all axes."""
    ndim = len(shapes[0])
    return {"axis": last_order(ndim).index(arguments["axis"] % ndim)}


def to_shape(shapes: tuple[Shape, ...], arguments: Named) -> Named | None:
    """For an op that broadcasts its input to its argument `shape`."""
    shape = arguments["shape"]
    return {"shape": axes_moved_last(shape)} if len(shapes[0]) in (0, len(shape)) else None


def by_key(shapes: tuple[Shape, ...], arguments: Named) -> Named | None:
    """For an op with a `key` of one window per axis, and perhaps the `shape` of its result."""
    key = arguments["key"]
    if not all([isinstance(entry, tuple) for entry in key]):
        return None
    shape = {"shape": axes_moved_last(arguments["shape"])} if "shape" in arguments else {}
    return {"key": axes_moved_last(key)} | shape


def of_windows(shapes: tuple[Shape, ...], arguments: Named) -> Named | None:
    """As `with_flag`, for an op with windows along its last axes: there must be one batch axis and one channel axis."""
    return with_flag(shapes, arguments) if len(shapes[0]) == len(arguments["kernel"]) + 2 else None


def along_axes(shapes: tuple[Shape, ...], arguments: Named) -> Named | None:
    """For an op that works along its argument `axes`, keeps all axes, and perhaps has the `shape` of its result."""
    order = last_order(len(shapes[0]))
    changed = {"axes": tuple([order.index(a) for a in arguments["axes"]])}
    return changed | ({"shape": axes_moved_last(arguments["shape"])} if "shape" in arguments else {})


CHANNELS_LAST: dict[Op[Any, Any], Moved] = {
    **dict.fromkeys((convolve, convolve_data_grad, convolve_filter_grad), with_flag),
    **dict.fromkeys((F.max_pooling, F.max_pooling_backward, F.max_pooling_select), of_windows),
    **dict.fromkeys((F.average_pooling, F.average_pooling_backward, F.unpooling), of_windows),
    **dict.fromkeys((F.sum_pooling, F.sum_pooling_backward), of_windows),
    **dict.fromkeys((F.sum, F.mean, F.amax, F.amin), over_axes),
    **dict.fromkeys((resample, resample_transpose), along_axes),
    **dict.fromkeys((F.take_slices, F.put_slices), by_key),
    F.concatenate: along_axis,
    F.broadcast: to_shape,
    F.optimization_barrier: lambda shapes, arguments: {},
}
"""For an op that is not diagonal: the arguments with which it takes its inputs, and gives its output, with channels
last."""

TAKEN_FOR_LIGHT: frozenset[Op[Any, Any]] = frozenset({F.sin, F.cos, F.tan})
"""Ops that XLA considers as cheap as a product and recomputes in each loop that reads them, but that are many times
slower."""

KEPT_UNROLLED: frozenset[Op[Any, Any]] = frozenset({F.recomputed})
"""Ops whose programs are not rolled into loops: a loop would stack the values of all steps, which are recomputed so as
not to be kept."""
