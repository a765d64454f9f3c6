"""Keys of parts of arrays, for ops that split arrays or join them unchanged.

A part has a key, as in `x[key]`: for each axis an index, which drops it, or a window `(start, count, step)`; and None
for a new axis of size 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Shape = tuple[int, ...]
Key = tuple[Any, ...]
Keys = Callable[[tuple[Shape, ...], Mapping[str, Any]], tuple[Key, ...]]
"""From the shapes of the inputs, and the arguments by name, to a key for each part."""


def told_by_key(shapes: tuple[Shape, ...], arguments: Mapping[str, Any]) -> tuple[Key, ...]:
    """For an op with one part, given by its argument `key`."""
    return (arguments["key"],)


def entries(shapes: tuple[Shape, ...], arguments: Mapping[str, Any]) -> tuple[Key, ...]:
    """For an op that splits its input into the entries along its argument `axis`."""
    (shape,) = shapes
    axis = arguments["axis"] % len(shape)
    return tuple([_across(shape, axis, k) for k in range(shape[axis])])


def layers(shapes: tuple[Shape, ...], arguments: Mapping[str, Any]) -> tuple[Key, ...]:
    """For an op that stacks its inputs along a new axis `axis`."""
    shape, axis = shapes[0], arguments["axis"] % (len(shapes[0]) + 1)
    return tuple([_across((*shape[:axis], len(shapes), *shape[axis:]), axis, k) for k in range(len(shapes))])


def stretches(shapes: tuple[Shape, ...], arguments: Mapping[str, Any]) -> tuple[Key, ...]:
    """For an op that concatenates its inputs along their axis `axis`."""
    axis = arguments["axis"] % len(shapes[0])
    keys, start = [], 0
    for shape in shapes:
        keys.append(_across(shape, axis, (start, shape[axis], 1)))
        start += shape[axis]
    return tuple(keys)


def _across(shape: Shape, axis: int, entry: Any) -> Key:
    """The key of everything at `entry` along one axis."""
    return tuple([entry if a == axis else (0, n, 1) for a, n in enumerate(shape)])
