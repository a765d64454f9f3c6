"""Merge equal carries of a loop, and remove carries that no step changes.

A tangent of a loop that carries tangents would carry some of them twice, if both are along the same direction v: the
derivative of c along v appears once as a carry, and once as the tangent of c. Unmerged, the nth derivative would carry
2^n values instead of n + 1.
"""

from __future__ import annotations

import itertools

from ...graph import Variable
from ...graph.body_op import Anew, Numbers, Smaller
from ...graph.closing import close, derived_once
from .loop import Loop, Settled


@derived_once
def merge_equal_carries(loop: Loop, classes: Numbers, anew: Anew) -> Smaller | None:
    """The loop with equal carries merged; None if none are equal. `classes` gives for each input the first one that
    equals it at the first step; `anew` makes a function that inlines the body with hash-consing."""
    body, carried = loop.body, range(loop.fixed, loop.first_slice)
    leaves, canonical = body.leaves(), anew()
    while True:
        inputs = [leaves[i] for i in classes]
        results = body.picked(inputs, canonical(body, inputs))
        found: dict[tuple[int, Variable], int] = {}
        told_apart = [found.setdefault((classes[i], y), i) for i, y in zip(carried, results, strict=False)]
        after = (*classes[: loop.fixed], *told_apart, *classes[loop.first_slice :])
        if after == classes:
            break
        classes = after
    if len(set(told_apart)) == len(told_apart):
        return None
    kept = [i for i in range(len(leaves)) if classes[i] == i or i not in carried]
    carries = [i for i in kept if i in carried]
    finals = [results[i - loop.fixed] for i in carries]
    one = loop._replace(
        body=close([*finals, *results[loop.carries :]], [leaves[i] for i in kept]), carries=len(carries)
    )
    stacks = len(results) - loop.carries
    place = {i: k for k, i in enumerate(carries)}
    own = [place[i] for i in told_apart]
    outputs = (*own, *range(len(carries), len(carries) + stacks), *[len(carries) + stacks + k for k in own])
    starts = [one.first_start + k for k in own] if loop.segments else []
    return Smaller(tuple(one), tuple(kept), (*outputs, *(None,) * (loop.first_start - len(outputs)), *starts))


def without_unchanging(loop: Loop, found: Settled) -> Smaller:
    """A replacement for a loop in which no step changes the carries that are missing from `found`."""

    def carries(first: int, steps: int) -> list[int | tuple[int, int]]:
        """For each carry, its output, counted from `first`; or its input and how many times to repeat it."""
        own = itertools.count(first)
        return [(loop.fixed + j, steps) if j in found.unchanging else next(own) for j in range(loop.carries)]

    one = found.loop
    outputs = [*carries(0, 0), *range(one.carries, one.results), *carries(one.results, loop.length)]
    rest = (None,) * (loop.first_start - len(outputs))
    starts = carries(one.first_start, loop.start_specs()[0].shape[0]) if loop.segments else []
    return Smaller(tuple(one), found.inputs, (*outputs, *rest, *starts))
