"""Gradients of rematerialised gradients that read what is kept, where it is, and not what was computed again.

Where a graph contains a rematerialised gradient, what is emitted for a further one reads values of both kinds: the
gradient of the first's functions reads what these read, which was computed again for them, and the gradient of the
model reads the model's own. Both would be kept, and be more than the plain graph keeps. As the values are equal, one is
enough.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import nngrad.functions as F

from ...graph import Function, Variable, functions_of
from .plan import created_like


def contains_recomputed(functions: Sequence[Function]) -> bool:
    """Whether something is computed again among `functions`."""
    return any([f.op is F.recomputed for f in functions])


def reading_originals(known: Sequence[Function], gradients: Sequence[Variable]) -> list[Variable]:
    """The same gradients, of functions that read no recomputed value of `known`, but its original.

    Args:
        known: The functions that were there before, inputs before readers.
        gradients: The gradients' graph as it was emitted.
    """
    reading = _Reading()
    for f in known:
        if f.op is F.recomputed:
            reading.instead[f] = (reading.now(f.inputs[1]),)
        elif reading.is_expression(f):
            reading.anew(f)
    before = frozenset(known)
    for f in functions_of(gradients):
        if f not in before and f.inputs:
            reading.anew(f)
    return [reading.now(gx) for gx in gradients]


class _Reading:
    """Functions, and what stands for them."""

    def __init__(self) -> None:
        self.instead: dict[Function, tuple[Variable, ...]] = {}
        self._made: dict[Hashable, tuple[Variable, ...]] = {}
        """Outputs by op, arguments and inputs: what was one function for a value and another for the same value
        computed again is one now."""

    def now(self, x: Variable) -> Variable:
        """Returns what stands for `x`."""
        return self.instead[x.parent][x.index] if x.parent in self.instead else x

    def is_expression(self, f: Function) -> bool:
        """Whether `f` is part of an elementwise expression of a recomputed value, such as g * (1 - tanh(x)^2).

        Emitted functions share it. Where XLA computes it anew for them, it reads the recomputed value for it.
        """
        return f.order > 0 and bool(f.op.fuses) and any([x.parent in self.instead for x in f.inputs])

    def anew(self, f: Function) -> None:
        """Let `f` read originals."""
        inputs = tuple([self.now(x) for x in f.inputs])
        stops = [y for y in f.outputs if y._need_grad is False]
        key = f.op, f.arguments, inputs
        if key in self._made and not stops:
            self.instead[f] = self._made[key]
        elif any([new is not old for new, old in zip(inputs, f.inputs, strict=True)]):
            outputs = self.instead[f] = created_like(f, f.op, inputs, f.arguments)
            for y in stops:
                outputs[y.index].need_grad = False
        if not stops:
            self._made.setdefault(key, self.instead.get(f, f.outputs))
