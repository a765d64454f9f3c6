"""How what is computed again begins, in graphs and in bodies."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from ..graph import Variable

Create = Callable[[tuple[Variable, ...]], Variable]
"""Makes an `optimization_barrier` of what it passes on, and what comes before it in time."""


class Recomputation:
    """Functions that repeat others, and begin when some Variables are there.

    Those that read nothing but what was there before read one of their inputs behind a barrier. Without it they would
    be the same functions as those that they repeat, and the compiler would compute them once, and keep the results.

    Args:
        tokens: What must be there before, such as gradients that have arrived.
    """

    def __init__(self, tokens: Sequence[Variable]) -> None:
        self._tokens = tuple(tokens)
        self._tied: dict[Variable, Variable] = {}

    def begun(self, inputs: Sequence[Variable], among: Iterable[int], create: Create) -> list[Variable]:
        """The inputs for a function that begins: the smallest `among` them is there after the tokens only."""
        k = min(among, key=lambda k: inputs[k].spec.nbytes or math.inf)
        x = inputs[k]
        if x not in self._tied:
            self._tied[x] = create((x, *self._tokens))
        return [*inputs[:k], self._tied[x], *inputs[k + 1 :]]
