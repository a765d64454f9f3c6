"""Functions of gradients that are there more than once, so that a further gradient takes them for one.

Gradients that were asked for one by one do not know of each other, and what they have in common is there for each of
them. When it runs, the compiler makes one of it. But the gradient of two equal functions is more than that of one: two
that arrive, each with matrix products of its own, where the sum of both would do. So the reverse pass lets what arrives
at the one arrive at the other.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

from backward_registry import registry

from ..graph import Function, Variable

Outputs = tuple[Variable, ...]
Equal = dict[Function, tuple[Outputs, Outputs]]
"""For a function the outputs of its own, and those of an equal one that comes before it."""


def equal_functions(functions: Iterable[Function], fixed: Container[int]) -> Equal:
    """Returns the functions of gradients that compute what others do which come before them.

    Args:
        functions: All that is computed, lowest rank first.
        fixed: Ids of Variables that stand for themselves alone.
    """
    found: dict[tuple[Any, ...], Outputs] = {}
    same: dict[int, Variable] = {}
    equal: Equal = {}
    for f in functions:
        rule = registry.find(f.op) if f.order and not f.effects and f.mark is None else None
        if rule is None or not rule.exact:  # a rule that is not linear makes something else of a sum
            continue
        outputs = f.outputs
        if any([id(y) in fixed or y._need_grad is False for y in outputs]):
            continue
        key = f.op, f.arguments, f.context, tuple([same.get(id(x), x) for x in f.inputs])
        first = found.setdefault(key, outputs)
        if first is not outputs:
            equal[f] = outputs, first
            same.update(zip(map(id, outputs), first, strict=True))
    return equal
