"""Sparsity: which axes of a result depend elementwise on which axes of an input, mostly the rows of a batch.

An axis of x is *carried* to an axis of y if y at index b of that axis depends only on x at index b. The rows of a
network's input are carried to the rows of its output, unless something such as batch normalization mixes them. If every
axis of x longer than 1 is carried, each element of y depends on one element of x, and the Jacobian is diagonal except
for additional axes of y.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from ..graph import Function, Variable
from ..graph.axes import Places
from ..graph.body_op import Axes, BodyOp


def followed_axes(
    path: Iterable[Function], x: Variable, axes: Axes, stands_for: Mapping[int, Variable] = MappingProxyType({})
) -> dict[int, Axes | None]:
    """Follow `axes` of `x` through the functions on all paths from it, given in topological order; `stands_for` maps
    ids of Variables to those read in their place.

    Returns:
        The axes of each Variable that depends on `x`, by its id, or None if some are mixed.
    """
    found: dict[int, Axes | None] = {id(x): axes}
    for f in path:
        _follow([f], found, len(axes))
        for y in f.outputs if stands_for else ():
            if id(y) in stands_for and id(y) in found:
                found[id(stands_for[id(y)])] = found[id(y)]
    return found


def _follow(path: Iterable[Function], found: dict[int, Axes | None], count: int) -> None:
    """Enter where functions carry `count` axes of the Variables already `found`."""
    for f in path:
        read = f.inputs[: f.op.reads]
        given = [(i, found[id(each)]) for i, each in enumerate(read) if id(each) in found]
        if not given:
            continue
        carried = f.op.followed(f, given, count, _follow) if isinstance(f.op, BodyOp) else None
        if carried is not None:
            found.update({id(y): carried[k] for k, y in enumerate(f.outputs) if k in carried})
        else:
            mixed = any([axes is None for _, axes in given])
            result = None if mixed else _agreed(f, given) if count else ()
            found.update({id(y): result for y in f.outputs})


def _agreed(f: Function, given: list[tuple[int, Axes | None]]) -> Axes | None:
    """Where `f` carries the axes of its inputs; None if it mixes them, or carries different inputs' axes to different
    places."""
    if f.op.axes is None and not f.op.diagonal:
        return None
    places = axes_carried(f)
    distinct = {tuple([places[i][a] for a in axes]) for i, axes in given if axes is not None}
    (first, *others) = distinct
    apart = None not in first and len(set(first)) == len(first)  # two axes must not become one
    return first if apart and not others else None  # type: ignore[return-value]


def axes_carried(f: Function) -> tuple[Places, ...]:
    """The output axis that each axis of each input of `f` is carried to, as declared."""
    if f.op.axes is not None:
        return f.op.axes.places(f)
    ndim = len(f.specs[0].shape)
    return tuple([tuple(range(ndim - x.ndim, ndim)) for x in f.inputs[: f.op.reads]])
