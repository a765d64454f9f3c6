"""Batched bodies whose results are selected per element: safe inputs for elements that are not selected."""

from __future__ import annotations

from collections.abc import Sequence

from ...graph import Variable
from ...graph.block import Block
from ..indexing import where
from ..movement import reshape
from ..operands import repeated
from ..reduction import argmax
from ..slicing import take_points


def with_stand_ins(taken: Variable, xs: Sequence[Variable]) -> list[Variable]:
    """`xs`, in which the elements along the first axis that are not taken are replaced by the first one that is."""
    first = reshape(argmax(taken), shape=(1,))
    return [where(taken, x, repeated(take_points(x, first, axes=(0,)), x.shape)) for x in xs]


def is_hidden(body: Block) -> bool:
    """Whether a derivative in the body may be infinite where masks (`nngrad/rewrite/masks.py`) cannot reach it: they do
    not pass through that function, or through one that follows."""
    risky: set[int] = set()
    for (op, _, ins), outs in zip(body.steps, body.outs, strict=True):
        at_risk = not risky.isdisjoint(ins)
        passes = op.diagonal or not ins or (op.axes is not None and len(ins) == 1)
        if (at_risk and not passes) or (ins and not op.diagonal and op.axes is None):
            return True
        may_be_infinite = op.unbounded and op.linear != "each"
        if at_risk or may_be_infinite or not (op.diagonal or op.linear):
            risky.update(outs)
    return False
