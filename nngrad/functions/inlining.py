"""Inline a body into a graph, function by function, so that it can share expressions with its surroundings."""

from __future__ import annotations

from collections.abc import Sequence

from ..graph import Variable, apply
from ..graph.block import Block
from .control import unlink


def inlined(body: Block, inputs: Sequence[Variable]) -> list[Variable]:
    """The outputs of a body applied to `inputs`, as functions of the graph under construction."""
    values: list[Variable] = []
    places = body.places or (None,) * len(body.steps)
    for (op, arguments, ins), place in zip(body.steps, places, strict=True):
        results = apply(op, tuple(body.picked(inputs, values, ins)), arguments)
        for y in results if op.multiple_results else (results,):
            if place is not None and y.parent is not None and not hasattr(y.parent, "location"):
                y.parent.location = place
            values.append(unlink(y) if ~len(values) in body.stop_gradients else y)
    return body.picked(inputs, values)
