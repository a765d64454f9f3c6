"""Gradients along recurrences: what XLA would compute anew in every loop, and need not.

XLA fuses an elementwise function into all its readers, unless one of them also depends on it by way of something that
must be in memory. A sum of gradients in a long recurrence, such as that of an LSTM's cell, escapes that rule: it
reaches the sum of the step before through a product with a gate, and the program computes each step's sum from those of
*all* later steps. Arithmetic and compile time then grow with the square of the length. So one reader of such a sum is
given `F.after(sum, y)` instead, the same to the bit, where `y` is something heavy that is computed from the sum: with
this the rule applies, and the sum is computed once.

A weight that is used at every step has a gradient that is a sum over all of them, and large. Its parts would all wait
in memory for the last. They are added up on the way, and the recurrence is made to wait for that.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable

import nngrad.functions as F

from ..graph import Function, Variable, functions_of
from .costs import is_sum
from .fusion import combines_arrays, combines_at_once, is_fused
from .liveness import in_order
from .stages import created_like

MOST_SOURCES = 8
"""What one loop reads more arrays for than this is kept."""

_FAR = 512
"""How many functions after a sum are searched for something heavy."""

_GROUP = 8
"""How many parts of a sum over the steps are added up together."""


def keeping_sums(known: Iterable[Function], gradients: list[Variable]) -> list[Variable]:
    """The same gradients, by a graph of which XLA keeps the sums along recurrences.

    Args:
        known: The functions of what was differentiated.
        gradients: Its gradients, as emitted.
    """
    before = frozenset(known)
    if not any([is_sum(f.op) for f in functions_of(gradients) if f not in before]):
        return gradients
    return _Keeping([f for f in in_order(gradients) if f not in before]).kept(gradients)


class _Keeping:
    """Args:
    functions: Those of the gradients, in an order in which they can run, each as late as possible.
    """

    def __init__(self, functions: list[Function]) -> None:
        self._readers: dict[Function, list[Function]] = {f: [] for f in functions}
        for f in functions:
            for p in {x.parent for x in f.inputs}:
                if p in self._readers:
                    self._readers[p].append(f)
        self._functions = sorted(functions, key=self._early_parts(functions))
        self._place = {f: n for n, f in enumerate(self._functions)}
        self._waiting: dict[Function, list[tuple[Variable, Variable]]] = {}
        """For a reader: what it is to read later, and after what."""
        self._partial: dict[Function, list[tuple[Function, list[Variable]]]] = {}
        """For such a reader: of which sums which parts are added up before it."""
        self._instead: dict[Function, tuple[Variable, ...]] = {}
        """What stands for the outputs of a function."""
        self._totals: dict[Function, tuple[Variable, frozenset[Variable]]] = {}
        """What has been added up of a sum, and of which parts."""

    def kept(self, gradients: list[Variable]) -> list[Variable]:
        self._choose()
        if not self._waiting:
            return gradients
        self._divide_sums()
        return self._rebuilt(gradients)

    def _choose(self) -> None:
        sources: dict[Function, frozenset[Variable]] = {}
        """What a loop that computes a function reads."""
        for f in self._functions:
            if not (is_fused(f.op) or f.op.view):
                continue
            parts = [sources.get(x.parent) or frozenset([x]) for x in f.inputs]  # type: ignore[arg-type]
            read = frozenset().union(*parts)
            if len(read) > MOST_SOURCES and (self._is_computed_once(f) or len(read) > 8 * MOST_SOURCES):
                read = frozenset(f.outputs)  # by itself; or it cannot be helped, and is followed no further
            sources[f] = read

    def _is_computed_once(self, f: Function) -> bool:
        """Whether XLA computes `f` once: by itself, or as a reader is now to wait for something heavy made of `f`."""
        readers = self._readers[f]
        if not is_sum(f.op) or len(readers) < 2 or not combines_arrays(f):
            return False
        last = max(readers, key=self._place.__getitem__)
        start, end = self._place[f], self._place[last]
        token: Variable | None = None
        near: set[Function] = {f}
        far: set[Function] = set()
        for g in self._functions[start + 1 : min(end + 1, start + _FAR)]:
            parents = [x.parent for x in g.inputs]
            through = any([p in far for p in parents])
            if through and any([p is f and combines_at_once(g, k) for k, p in enumerate(parents)]):
                return True
            if not through and not any([p in near for p in parents]):
                continue
            heavy = g.op.heavy
            (far if through or heavy else near).add(g)
            if heavy and token is None and g is not last and g.outputs[0].size:
                token = g.outputs[0]
        if token is None:
            return False
        self._waiting.setdefault(last, []).append((f.outputs[0], token))
        return True

    def _early_parts(self, functions: list[Function]) -> Callable[[Function], tuple[int, int]]:
        """A key to sort `functions` by that has the parts of large sums as soon as what they are made of is there."""
        place = {f: n for n, f in enumerate(functions)}
        parts = {x.parent for f in functions if f.op is F.add_n for x in f.inputs if self._is_large(x)}
        for f in reversed(functions):
            if f in parts:
                parts.update([x.parent for x in f.inputs if len(self._readers.get(x.parent, ())) == 1])  # type: ignore[arg-type]
        early: dict[Function, int] = {}
        for f in functions:
            if f in parts:
                made_of = [x.parent for x in f.inputs if x.parent in place]
                early[f] = max([early.get(p, place[p]) for p in made_of], default=0)
        return lambda f: (early[f], 1) if f in early else (place[f], 0)

    def _divide_sums(self) -> None:
        """Find parts of sums over the steps that can be added up on the way."""
        readers = sorted(self._waiting, key=self._place.__getitem__)
        for f in self._functions:
            if f.op is not F.add_n or not all(map(self._is_large, f.inputs)):
                continue
            parts = sorted(f.inputs, key=self._made_at)
            places = list(map(self._made_at, parts))
            start = 0
            for reader in readers:
                end = bisect.bisect_left(places, self._place[reader])
                if end - start >= _GROUP and self._place[reader] < self._place[f]:
                    self._partial.setdefault(reader, []).append((f, parts[start:end]))
                    start = end

    def _made_at(self, x: Variable) -> int:
        return self._place[x.parent]  # type: ignore[index]

    def _is_large(self, x: Variable) -> bool:
        """Whether `x` must lie in memory until it is added to something."""
        return x.parent in self._readers and x.parent.op.heavy and len(self._readers[x.parent]) == 1

    def _rebuilt(self, gradients: list[Variable]) -> list[Variable]:
        for f in self._functions:
            inputs = list(map(self._now, f.inputs))
            tokens = [self._added_up(*partial) for partial in self._partial.get(f, ())]
            for late, token in self._waiting.get(f, ()):
                after = created_like(f, F.after, (self._now(late), self._now(token), *tokens))[0]
                inputs = [after if x is late else y for x, y in zip(f.inputs, inputs, strict=True)]
            if f in self._totals:
                total, parts = self._totals[f]
                inputs = [total, *[y for x, y in zip(f.inputs, inputs, strict=True) if x not in parts]]
            if len(inputs) == 1 and f in self._totals:
                self._instead[f] = (inputs[0],)
            elif len(inputs) < len(f.inputs) or any([y is not x for x, y in zip(f.inputs, inputs, strict=True)]):
                self._instead[f] = created_like(f, f.op, tuple(inputs), f.arguments)
            for old, new in zip(f.outputs, self._instead.get(f, ()), strict=False):
                if old._need_grad is False:
                    new.need_grad = False
        return list(map(self._now, gradients))

    def _now(self, x: Variable) -> Variable:
        """What stands for `x`."""
        return self._instead[x.parent][x.index] if x.parent in self._instead else x

    def _added_up(self, f: Function, parts: list[Variable]) -> Variable:
        """The sum of `parts` of the sum `f`, and of those before."""
        before, added = self._totals.get(f, (None, frozenset()))
        terms = [*([] if before is None else [before]), *map(self._now, parts)]
        total = created_like(f, F.add_n, tuple(terms))[0]
        self._totals[f] = total, added.union(parts)
        return total
