"""Channels-last layouts: axis 1 of an array of three axes or more is moved behind all others.

If an op has an argument for the layout, or names axes, it can work on arrays in that layout; the fact `channels_last`
gives the arguments for it. Diagonal ops need no such fact. Which backends prefer this layout is not decided here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .arguments import axes_of

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


def unchanged(shapes: tuple[Shape, ...], arguments: Named) -> Named | None:
    """For an op to which the order of its inputs' axes does not matter."""
    return {}


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
