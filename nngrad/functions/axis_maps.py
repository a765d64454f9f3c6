"""How batch axes pass through functions that move elements, for ops that declare it by a function of shapes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ..graph import Function
from ..graph.axes import AxisMap, Places, Shape


def _inverse(places: Places, ndim: int) -> Places:
    """For each of `ndim` axes of the output, the axis of the input that is carried to it, or None."""
    return tuple([places.index(b) if b in places else None for b in range(ndim)])


def base_axis_leading(f: Function, size: Shape, shape: Shape) -> Mapping[str, Any]:
    """The arguments, adjusted for new batch axes, of an op whose samples begin at its argument `base_axis`."""
    axis = f.args["base_axis"]
    return {"base_axis": axis + len(size) if axis >= 0 else axis}


# ---------------------------------------------------------------- shape


def _reshaped(f: Function) -> tuple[Places]:
    """An axis is carried to one with the same size and the same number of elements before and after it."""
    before, after = f.inputs[0].shape, f.specs[0].shape
    place = {(math.prod(after[:b]), n): b for b, n in enumerate(after) if n != 1}
    return (tuple([place.get((math.prod(before[:a]), n)) for a, n in enumerate(before)]),)


def _reshaped_leading(f: Function, size: Shape, shape: Shape) -> Mapping[str, Any]:
    sources = _inverse(_reshaped(f)[0], len(f.specs[0].shape))
    return {"shape": (*size, *[n if a is None else shape[a] for n, a in zip(f.specs[0].shape, sources, strict=True)])}


def _reshaped_condition(f: Function, condition: Shape) -> Shape | None:
    """All elements stay, if not all axes."""
    return f.inputs[0].shape if condition == f.specs[0].shape else None


RESHAPED = AxisMap(places=_reshaped, leading=_reshaped_leading, thin=True, before=_reshaped_condition)


def _order(f: Function) -> tuple[int, ...]:
    ndim, axes = f.inputs[0].ndim, f.args["axes"]
    return tuple(range(ndim))[::-1] if axes is None else tuple([a % ndim for a in axes])


TRANSPOSED = AxisMap(
    places=lambda f: (_inverse(_order(f), f.inputs[0].ndim),), thin=True,
    leading=lambda f, size, shape: {"axes": (*range(len(size)), *[a + len(size) for a in _order(f)])},
)  # fmt: skip


def _repeated(f: Function) -> tuple[Places]:
    shape = f.specs[0].shape
    room = len(shape) - f.inputs[0].ndim
    return (tuple([a + room if n == shape[a + room] else None for a, n in enumerate(f.inputs[0].shape)]),)


REPEATED = AxisMap(places=_repeated)


# ---------------------------------------------------------------- slices and points


def _windows(key: tuple[Any, ...], shape: Shape) -> tuple[Places, list[int]]:
    """For each axis of the whole array, the axis of the part if it is taken in full; and where the key has its
    entry."""
    places: list[int | None] = []
    entries: list[int] = []
    part = 0
    for k, entry in enumerate(key):
        if entry is not None:
            n = shape[len(places)]
            places.append(part if entry == (0, n, 1) else None)
            entries.append(k)
        part += not isinstance(entry, int)
    return tuple(places), entries


def _taken_leading(f: Function, size: Shape, shape: Shape) -> Mapping[str, Any]:
    places, entries = _windows(f.args["key"], f.inputs[0].shape)
    key = list(f.args["key"])
    for place, k, n in zip(places, entries, shape, strict=True):
        if place is not None:
            key[k] = (0, n, 1)
    return {"key": (*[(0, n, 1) for n in size], *key)}


TAKEN = AxisMap(
    places=lambda f: (_windows(f.args["key"], f.inputs[0].shape)[0],), leading=_taken_leading, thin=True
)


PUT = AxisMap(
    places=lambda f: (_inverse(_windows(f.args["key"], f.specs[0].shape)[0], f.inputs[0].ndim),),
    leading=lambda f, size, shape: {
        "key": (*[(0, n, 1) for n in size], *f.args["key"]), "shape": (*size, *f.args["shape"])
    },
)  # fmt: skip


def _around_points(f: Function, ndim: int) -> list[int]:
    """For each axis of the slices at the points, the axis of the whole array (with `ndim` axes); -1 for the axes of the
    points."""
    of_rows = [a for a, _ in f.args["rows"]]
    rest = [a for a in range(ndim) if a not in f.args["axes"] and a not in of_rows]
    rest[f.args["at"] : f.args["at"]] = [-1] * (f.inputs[1].ndim - 1)
    return rest


def _points_taken(f: Function) -> tuple[Places, Places]:
    whole = f.inputs[0].ndim
    return _inverse(tuple(_around_points(f, whole)), whole), (None,) * f.inputs[1].ndim


def _points_put(f: Function) -> tuple[Places, Places]:
    part = _around_points(f, len(f.specs[0].shape))
    return tuple([None if a < 0 else a for a in part]), (None,) * f.inputs[1].ndim


def _points_leading(f: Function, size: Shape, shape: Shape) -> Mapping[str, Any]:
    """The arguments that index the same points in each element of the batch."""
    lead = len(size)
    moved = {
        "axes": tuple([a + lead for a in f.args["axes"]]),
        "at": f.args["at"] + lead,
        "rows": tuple([(a + lead, p) for a, p in f.args["rows"]]),
    }
    return moved | ({"shape": (*size, *f.args["shape"])} if "shape" in f.args else {})


POINTS_TAKEN = AxisMap(places=_points_taken, leading=_points_leading, inputs=(0,))
POINTS_PUT = AxisMap(places=_points_put, leading=_points_leading, inputs=(0,))


# ---------------------------------------------------------------- margins and diagonals


def _unchanged(f: Function, size: Shape, shape: Shape) -> Mapping[str, Any]:
    """No change: the op looks at the last axes only."""
    return {}


def padded_axes(f: Function) -> tuple[int, int]:
    """The number of trailing axes that have pad widths."""
    return (len(f.args["pad_width"]) // 2,) * 2


def _padded(f: Function) -> tuple[Places]:
    """Axes without padding are carried."""
    ndim, widths = f.inputs[0].ndim, f.args["pad_width"]
    first = ndim - len(widths) // 2
    wider = {first + i // 2 for i, width in enumerate(widths) if width}
    return (tuple([None if a in wider else a for a in range(ndim)]),)


PADDED = AxisMap(places=_padded, leading=_unchanged)

ON_DIAGONAL = AxisMap(places=lambda f: (tuple(range(f.inputs[0].ndim)),), leading=_unchanged)
"""Each element goes to the diagonal, with zeros beside it."""
