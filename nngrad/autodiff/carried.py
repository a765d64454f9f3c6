"""Axes that are carried: which axes of a result depend elementwise on which axes of an input.

An axis of x is *carried* to an axis of y if y at index b of that axis depends on x only at index b. The rows of a
network's input are carried to the rows of its output, unless something such as batch normalization mixes them. If
every axis of x that is longer than 1 is carried, each element of y depends on one element of x, and the Jacobian is
diagonal except for additional axes of y.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..graph import Function, Variable
from ..graph.axes import axes_carried
from ..graph.body_op import Axes, BodyOp


def followed_axes(path: Iterable[Function], x: Variable, axes: Axes) -> dict[int, Axes | None]:
    """Follow `axes` of `x` through the functions on all paths from it, given in topological order.

    Returns:
        The axes of each Variable that depends on `x`, by its id, or None if some are mixed.
    """
    axes_of: dict[int, Axes | None] = {id(x): axes}
    _follow(path, axes_of, len(axes))
    return axes_of


def _follow(path: Iterable[Function], axes_of: dict[int, Axes | None], count: int) -> None:
    """Record in `axes_of` where functions carry `count` axes of the Variables that are already in it."""
    for f in path:
        read = f.inputs[: f.op.reads]
        inputs = [(i, axes_of[id(x)]) for i, x in enumerate(read) if id(x) in axes_of]
        if not inputs:
            continue
        carried = f.op.followed(f, inputs, count, _follow) if isinstance(f.op, BodyOp) else None
        if carried is not None:
            axes_of.update({id(y): carried[k] for k, y in enumerate(f.outputs) if k in carried})
        else:
            mixed = any([axes is None for _, axes in inputs])
            result = None if mixed else _agreed(f, inputs) if count else ()
            axes_of.update({id(y): result for y in f.outputs})


def _agreed(f: Function, inputs: list[tuple[int, Axes | None]]) -> Axes | None:
    """Where `f` carries the axes of its inputs; None if it mixes them, or carries different inputs' axes to different
    places."""
    if f.op.axes is None and not f.op.diagonal:
        return None
    places = axes_carried(f)
    distinct = {tuple([places[i][a] for a in axes]) for i, axes in inputs if axes is not None}
    (first, *others) = distinct
    apart = None not in first and len(set(first)) == len(first)  # two axes must not become the same
    return first if apart and not others else None  # type: ignore[return-value]
