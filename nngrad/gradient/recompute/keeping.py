"""Gradients along recurrences: what XLA would compute anew in every loop, and need not.

XLA fuses an elementwise function into all its readers, unless one of them also depends on it by way of something that
must be in memory. A sum of gradients in a long recurrence, such as that of an LSTM's cell, escapes that rule: it
reaches the sum of the step before through a product with a gate, and the program computes each step's sum from those of
*all* later steps. Arithmetic and compile time then grow with the square of the length. So one reader of such a sum is
given `F.after(sum, y)` instead, the same to the bit, where `y` is something heavy that is computed from the sum: with
this the rule applies, and the sum is computed once.
"""

from __future__ import annotations

from collections.abc import Sequence

import nngrad.functions as F

from ...graph import Function, Op, Variable, functions_of
from .costs import VIEWS, is_heavy
from .fusion import combines_arrays, is_fused
from .liveness import in_order
from .stages import created_like

MOST_SOURCES = 8
"""What one loop reads more arrays for than this is kept."""

_FAR = 512
"""How many functions after a sum are searched for something heavy."""

_SUMS: frozenset[Op] = frozenset({F.add2, F.add_n, F.linear_combination, F.sub2})


def keeping_sums(outputs: Sequence[Variable], gradients: list[Variable]) -> list[Variable]:
    """The same gradients, by a graph of which XLA keeps the sums along recurrences.

    Args:
        outputs: What was differentiated.
        gradients: Its gradients, as emitted.
    """
    before = frozenset(functions_of(outputs))
    if not any([f.op in _SUMS for f in functions_of(gradients) if f not in before]):
        return gradients
    return _Keeping([f for f in in_order(gradients) if f not in before]).kept(gradients)


class _Keeping:
    """Args:
    functions: Those of the gradients, in an order in which they can run, each as late as possible.
    """

    def __init__(self, functions: list[Function]) -> None:
        self._functions = functions
        self._place = {f: n for n, f in enumerate(functions)}
        self._readers: dict[Function, list[Function]] = {}
        for f in functions:
            for p in {x.parent for x in f.inputs}:
                if p in self._place:
                    self._readers.setdefault(p, []).append(f)
        self._waiting: dict[Function, list[tuple[Variable, Variable]]] = {}
        """For a reader: what it is to read later, and after what."""

    def kept(self, gradients: list[Variable]) -> list[Variable]:
        self._choose()
        return self._rebuilt(gradients) if self._waiting else gradients

    def _choose(self) -> None:
        sources: dict[Function, frozenset[Variable]] = {}
        """What a loop that computes a function reads."""
        for f in self._functions:
            if not (is_fused(f.op) or f.op in VIEWS):
                continue
            parts = [sources.get(x.parent) or frozenset([x]) for x in f.inputs]  # type: ignore[arg-type]
            read = frozenset().union(*parts)
            if len(read) > MOST_SOURCES and (self._delayed(f) or len(read) > 8 * MOST_SOURCES):
                read = frozenset(f.outputs)
            sources[f] = read

    def _delayed(self, f: Function) -> bool:
        """Let a reader of `f` read it after something heavy that depends on it, if there is such a reader."""
        readers = self._readers.get(f, ())
        if f.op not in _SUMS or len(readers) < 2 or not combines_arrays(f):
            return False
        start, end = self._place[f], self._place[readers[-1]]
        reached = {f}
        for g in self._functions[start + 1 : min(end, start + _FAR)]:
            if any([x.parent in reached for x in g.inputs]):
                reached.add(g)
                if is_heavy(g.op) and g.outputs[0].size:
                    self._waiting.setdefault(readers[-1], []).append((f.outputs[0], g.outputs[0]))
                    return True
        return False

    def _rebuilt(self, gradients: list[Variable]) -> list[Variable]:
        instead: dict[Function, tuple[Variable, ...]] = {}

        def now(x: Variable) -> Variable:
            return instead[x.parent][x.index] if x.parent in instead else x

        for f in self._functions:
            inputs = [now(x) for x in f.inputs]
            for late, token in self._waiting.get(f, ()):
                after = created_like(f, F.after, (now(late), now(token)))[0]
                inputs = [after if x is late else y for x, y in zip(f.inputs, inputs, strict=True)]
            if any([new is not old for new, old in zip(inputs, f.inputs, strict=True)]):
                instead[f] = created_like(f, f.op, tuple(inputs), f.arguments)
                for old, new in zip(f.outputs, instead[f], strict=True):
                    if old._need_grad is False:
                        new.need_grad = False
        return [now(gx) for gx in gradients]
