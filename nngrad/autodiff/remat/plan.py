"""Plans: what a gradient computes again, and when.

A plan says it in one way, whoever chose it: which segment of the forward pass each function belongs to, which functions
are not kept, and how the segments are nested. `rebuild.py` builds the gradient that follows it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from ...graph import Function
from .costs import reads


class Node(NamedTuple):
    """A stretch of segments, numbered in the order of the forward pass, and the stretches that it is made of.

    What the last of its parts needs is computed together with the values on which the parts before it are based; each
    of those is computed again from there, once the gradient has come back to its end.
    """

    first: int
    end: int
    """One past the last of its segments."""
    parts: tuple[Node, ...] = ()
    """In the order of the forward pass; none where all of it is computed at once."""


class Plan(NamedTuple):
    """What is computed again, and when."""

    segment: Mapping[Function, int]
    """The segment that each forward function belongs to."""
    dropped: frozenset[Function]
    """The functions whose results are not kept where the gradient needs them; all others' are."""
    tree: Node
    originals: Mapping[Function, Function] = MappingProxyType({})
    """For functions that compute something again already: what they compute again. They are read as that one."""
    bases_stay: bool = False
    """Whether a value that the segment after its own is computed again from stays for the gradient of its own segment,
    which is next. That is less arithmetic, and in some graphs more memory."""


# ---------------------------------------------------------------- nests

Nest = tuple[list[float], Node]
"""Shares of segments, and how these are nested."""


def in_a_row(count: int) -> Node:
    """So many segments, one level."""
    return Node(0, count, tuple([Node(i, i + 1) for i in range(count)]))


def uniform_plan(count: int) -> Nest:
    """`count` segments of equal shares, one level."""
    return [1.0] * count, in_a_row(count)


def binomial_plan(levels: int, slots: int) -> Nest:
    """The deepest nest of segments that `slots` values are enough for, when each is computed again `levels` times.

    With k levels and m slots it has C(m + k, k + 1) steps: a stretch with m slots is cut into m stretches of one level
    less, the first with m slots and each next with one less, since one is taken by the value that it starts from
    (Griewank and Walther, 'Algorithm 799: revolve', ACM TOMS 26, 2000; a stretch of no level keeps all its steps).
    """
    shares: list[float] = []

    def stretch(level: int, free: int) -> Node:
        first = len(shares)
        if level == 0 or free == 1:
            shares.append(float(free if level == 0 else 1))
            return Node(first, first + 1)
        parts = tuple([stretch(level - 1, i) for i in range(free, 0, -1)])
        return Node(first, len(shares), parts)

    return shares, stretch(levels, slots)


def slots_for(levels: int, steps: float) -> int:
    """The least number of slots with which `levels` levels are enough for so many steps."""
    slots = 1
    while math.comb(slots + levels, levels + 1) < steps:
        slots += 1
    return slots


def partly(nest: Nest, share: float) -> Nest:
    """`nest` for the first `share` of the forward pass; the rest of it is kept."""
    shares, tree = nest
    end = len(shares)
    return [*shares, sum(shares) * (1 / share - 1)], Node(0, end + 1, (tree, Node(end, end + 1)))


_FEWEST_STEPS = 4
"""Of a loop that is cut."""

SHARES = (0.35, 0.6, 1.0)
"""Sizes of segments to try, as shares of that at which there would be as many segments as steps in each: what a step
needs is mostly more than what it carries."""


def sizes_of(steps: int, levels: int, share: float) -> tuple[int, ...]:
    """For a loop, the numbers of steps of a segment, of a segment of that, and so on: so many levels, if it has enough.

    The sizes are divisors where there are some near: what is left over is sliced off, and that is copied.
    """
    found: list[int] = []
    before = steps if steps >= _FEWEST_STEPS else 0
    for level in range(1, levels + 1):
        aim = min(share * steps ** (1 - level / (levels + 1)), before / 2)
        if round(aim) < 2:
            break
        near = [d for d in range(2, before // 2 + 1) if before % d == 0 and 0.6 * aim <= d <= 1.6 * aim]
        before = min(near, key=lambda d: abs(math.log(d / aim)), default=round(aim))
        found.append(before)
    return tuple(found)


def by_blocks(schedule: Sequence[Function], dropped: frozenset[Function]) -> Plan:
    """A segment for each block: functions of `dropped` that pass values to each other; those of two `with
    nn.recompute():` are of two blocks."""
    head: dict[Function | None, Function] = {}

    def head_of(f: Function) -> Function:
        while head[f] is not f:
            head[f] = head[head[f]]
            f = head[f]
        return f

    for f in schedule:
        if f in dropped:
            head[f] = f
            for p in [x.parent for x in reads(f)]:
                if p in head and p is not None and p.mark is f.mark:
                    head[head_of(p)] = f
    last = {head_of(f): t for t, f in enumerate(schedule) if f in head}
    numbers = {f: n for n, f in enumerate(sorted(last, key=last.__getitem__))}
    segment, number = {}, 0
    for f in schedule:
        if f in head:
            number = numbers[head_of(f)]
        segment[f] = number
    # The plain graph comes last: no block is spared.
    return Plan(segment, dropped, in_a_row(len(numbers) + 1))
