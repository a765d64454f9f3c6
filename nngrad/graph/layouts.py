"""Arrays with their channels last: axis 1 of an array of three axes or more is put behind all others.

Where an op has an argument for that, or names axes, it does the same to arrays which are so moved; the fact
`channels_last` says with what arguments. Of diagonal ops it need not be said. What backend wants it is not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .arguments import axes_of

Shape = tuple[int, ...]
Named = Mapping[str, Any]
Moved = Callable[[tuple[Shape, ...], Named], Named | None]
"""From the shapes of the inputs, and the arguments by name, to the arguments that change; None where it cannot be."""


def last_order(ndim: int) -> tuple[int, ...]:
    """The axes of an array in the order in which the channels are the last one."""
    return (0, *range(2, ndim), 1) if ndim > 2 else tuple(range(ndim))


def first_order(ndim: int) -> tuple[int, ...]:
    """The axes of an array whose channels are the last one in the order in which they are axis 1 again."""
    return (0, ndim - 1, *range(1, ndim - 1)) if ndim > 2 else tuple(range(ndim))


def axes_moved_last(entries: tuple[Any, ...]) -> tuple[Any, ...]:
    """A shape, or other things of which there is one for each axis, with that of the channels last."""
    return tuple([entries[a] for a in last_order(len(entries))])


def unchanged(shapes: tuple[Shape, ...], arguments: Named) -> Named | None:
    """For an op that is the same whichever order the axes of its inputs are in."""
    return {}


def with_flag(shapes: tuple[Shape, ...], arguments: Named) -> Named | None:
    """For an op with an argument `channel_last`, and perhaps one that is the shape of the result."""
    if arguments["channel_last"]:
        return None
    return {"channel_last": True} | ({"shape": axes_moved_last(arguments["shape"])} if "shape" in arguments else {})


def over_axes(shapes: tuple[Shape, ...], arguments: Named) -> Named | None:
    """For a reduction over the axes that an argument `axis` names, which vanish unless `keepdims` says otherwise."""
    ndim, axis = len(shapes[0]), arguments["axis"]
    order = last_order(ndim)
    gone = range(ndim) if axis is None else axes_of(axis, ndim)
    stay = [a for a in range(ndim) if a not in gone]
    if not arguments["keepdims"] and axes_moved_last(tuple(stay)) != tuple([a for a in order if a in stay]):
        return None
    return {"axis": tuple(sorted([order.index(a) for a in gone]))}


def along_axis(shapes: tuple[Shape, ...], arguments: Named) -> Named | None:
    """For an op that an argument `axis` tells along which one of them it works; all stay."""
    ndim = len(shapes[0])
    return {"axis": last_order(ndim).index(arguments["axis"] % ndim)}


def to_shape(shapes: tuple[Shape, ...], arguments: Named) -> Named | None:
    """For an op that broadcasts its input to an argument `shape`."""
    shape = arguments["shape"]
    return {"shape": axes_moved_last(shape)} if len(shapes[0]) in (0, len(shape)) else None


def by_key(shapes: tuple[Shape, ...], arguments: Named) -> Named | None:
    """For an op with a `key` of windows, one for each axis, and perhaps the `shape` of the result."""
    key = arguments["key"]
    if not all([isinstance(entry, tuple) for entry in key]):
        return None
    shape = {"shape": axes_moved_last(arguments["shape"])} if "shape" in arguments else {}
    return {"key": axes_moved_last(key)} | shape
