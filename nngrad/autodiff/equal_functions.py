"""Functions that are there more than once, so that a gradient takes them for one.

A program that computes something anew wherever it is needed, as the lengths of edges in each layer, has it more than
once. Gradients that were asked for one by one do not know of each other, and what they have in common is there for each
of them. When it runs, the compiler makes one of it. But the gradient of two equal functions is more than that of one:
two that arrive, each with matrix products of its own, where the sum of both would do. So the reverse pass lets what
arrives at the one arrive at the other. Not so where a number is infinite, or a zero with a sign: there the gradient of
a sum is not the sum of two.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

from backward_registry import registry

from ..graph import Function, Variable, build_options
from ..graph.function import watched
from ..rewrite.numbers import is_exact

Outputs = tuple[Variable, ...]
Equal = dict[Function, tuple[Outputs, Outputs]]
"""For a function the outputs of its own, and those of an equal one that comes before it."""


def taken_for_one(functions: Iterable[Function], fixed: Container[int]) -> Equal:
    """Returns the functions that compute what others do which come before them; none where something watches, or where
    nothing is to be simplified.

    Args:
        functions: All that is computed, lowest rank first.
        fixed: Ids of Variables that stand for themselves alone.
    """
    found: dict[tuple[Any, ...], Function] = {}
    same: dict[int, Variable] = {}
    equal: Equal = {}
    if build_options().emitting.simplify is not True or watched():
        return equal
    for f in functions:
        if f.effects or f.mark is not None:
            continue
        inputs = tuple([same.get(id(x), x) for x in f.inputs]) if same else f.inputs
        key = f.op, f.arguments, f.context, inputs
        first = found.setdefault(key, f)
        if first is f or not all([is_exact(a) for a in f.arguments if isinstance(a, int | float)]):
            continue
        rule = registry.find(f.op)
        if rule is None or not rule.exact:  # a rule that is not linear makes something else of a sum
            continue
        own, shared = f.outputs, first.outputs
        if _alone(shared, fixed):
            found[key] = f
        elif not _alone(own, fixed):
            equal[f] = own, shared
            same.update(zip(map(id, own), shared, strict=True))
    return equal


def _alone(outputs: Outputs, fixed: Container[int]) -> bool:
    """Whether some of the outputs stand for themselves alone."""
    return any([id(y) in fixed or y._need_grad is False for y in outputs])
