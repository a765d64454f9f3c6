"""Bodies put into a graph, function by function, where what is around them can share with them."""

from __future__ import annotations

from collections.abc import Sequence

from ..graph import Variable, apply
from ..graph.body import Body
from .control import unlink


def inlined(body: Body, inputs: Sequence[Variable]) -> list[Variable]:
    """The outputs of a body, as functions of the graph that is being built.

    Args:
        body: The body.
        inputs: What it is applied to.
    """
    values: list[Variable] = []
    for op, arguments, ins in body.steps:
        made = apply(op, tuple([inputs[i] if i >= 0 else values[~i] for i in ins]), arguments)
        for y in made if op.multiple_results else (made,):
            values.append(unlink(y) if ~len(values) in body.stops else y)
    return [inputs[i] if i >= 0 else values[~i] for i in body.outputs]
