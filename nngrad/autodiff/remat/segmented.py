"""Loops that gradients compute again segment by segment: how many steps a segment has, and what graphs come of it.

A loop is one function, so no plan cuts it. What cuts it is its backward rule, which is told how many steps to take at a
time; so the gradients are emitted anew for each size of segments.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ...graph import Function, Variable, functions_of
from ...graph.body_op import ControlOp
from ...graph.thresholds import FEWEST_STEPS, SHARES_OF_SEGMENTS
from .candidates import ProgramOf, Source
from .costs import arithmetic

Sizes = tuple[int, ...]
Emit = Callable[[Callable[[Function], Sizes]], list[Variable]]
"""Emits the gradients, where loops are cut into segments of the sizes that it is given."""


def sizes_of(steps: int, levels: int, share: float) -> Sizes:
    """The numbers of steps of a segment, of a segment of that, and so on: so many levels, if there are steps enough.

    The sizes are divisors where there are some near: what is left over is sliced off, and that is copied.
    """
    found: list[int] = []
    before = steps
    for level in range(1, levels + 1):
        aim = min(share * steps ** (1 - level / (levels + 1)), before / 2)
        if round(aim) < 2:
            break
        near = [d for d in range(2, before // 2 + 1) if before % d == 0 and 0.6 * aim <= d <= 1.6 * aim]
        before = min(near, key=lambda d: abs(math.log(d / aim)), default=round(aim))
        found.append(before)
    return tuple(found)


def steps_of(f: Function) -> int | None:
    """For a loop how many steps it has, 0 where it is settled how it is cut; None for other functions."""
    return f.op.steps_to_cut(f) if isinstance(f.op, ControlOp) else None


class Segmented:
    """The graphs of gradients in which loops are cut.

    Args:
        outputs: What was differentiated.
        emit: Emits the gradients.
        program_of: The program that runs with such gradients.
        mark: The mark of functions that compute something again.
    """

    def __init__(self, outputs: Sequence[Variable], emit: Emit, program_of: ProgramOf, mark: Any) -> None:
        self._outputs, self._emit, self._program_of, self._mark = outputs, emit, program_of, mark
        self._known = functions_of(outputs)
        self._loops = {f: steps for f in self._known for steps in [steps_of(f)] if steps is not None}
        self._made: dict[frozenset[tuple[Function, Sizes]], Source] = {}

    def sources(self, levels: int, named: Callable[[Function], Any] = lambda f: True) -> list[Source]:
        """A graph for each of some sizes, in which the loops for which `named` is true are cut so many levels deep; the
        one that takes least comes first."""
        found: dict[int, Source] = {}
        for share in SHARES_OF_SEGMENTS:
            sizes = {
                f: sizes_of(steps, levels, share) for f, steps in self._loops.items()
                if steps >= FEWEST_STEPS and named(f)
            }  # fmt: skip
            source = self._source({f: each for f, each in sizes.items() if each})
            if source is not None:
                found[id(source)] = source
        return sorted(found.values(), key=lambda source: source.plain.peak)

    def _source(self, sizes: dict[Function, Sizes]) -> Source | None:
        if not sizes:
            return None
        key = frozenset(sizes.items())
        if key not in self._made:
            gradients = self._emit(lambda f: sizes.get(f, ()))
            before = frozenset(self._known)
            for f in functions_of(gradients):
                if f not in before and steps_of(f) == 0:
                    f.mark = self._mark
            again = sum([len(each) * arithmetic(f) for f, each in sizes.items()])
            self._made[key] = Source(self._outputs, self._known, gradients, self._program_of, self._mark, again)
        return self._made[key]
