"""Warn where an estimate of a derivative, such as that of rounding, cancels a derivative.

`F.round` and the like pass gradients as if they were not there, as in nnabla. So `d - L * F.round(d / L)`, the minimum
image of a distance d in a periodic box, has the gradient 0, where the derivative is 1.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

import numpy as np

from ..graph import Function, Variable, engine
from ..graph.engine import provide
from ..graph.messages import warn_user
from ..rewrite.sums import summands

Factors = tuple[float, tuple[tuple[Hashable, int], ...]]
"""A number, and keys of Variables with their powers."""

MOST_COMPARED = 64
"""Up to how many elements factors are compared by value."""


def warn_of_cancelled(path: Sequence[Function], estimates: Sequence[Function]) -> None:
    """Warn about the first of some functions f on a path, which pass gradients unchanged, that is in
    `x - c * f(x / c)`."""
    readers: dict[int, list[Function]] = {}
    for f in path:
        for x in f.inputs:
            readers.setdefault(id(x), []).append(f)
    for f in estimates:
        before = _multiples(f.inputs[0])
        pending: list[tuple[Variable, Factors]] = [(y, (1.0, ())) for y in f.outputs]
        while pending:
            y, factors = pending.pop()
            for reader in readers.get(id(y), ()):
                if _cancels(reader, y, factors, before):
                    _warn(f)
                    return
                scaled = [_times(factors, own) for x, own in _factors(reader) if x is y]
                pending += [(z, each) for z in reader.outputs for each in scaled]


def _cancels(f: Function, y: Variable, factors: Factors, before: dict[int, Factors]) -> bool:
    """Whether `f` subtracts `y`, some factors times an estimate, from that of which the estimate's input is a multiple.
    """
    operands, _ = summands(f.op, f.inputs, f.arguments) or ((), 0)
    for x, coefficient in operands:
        for other, minus in operands:
            if other is y and id(x) in before and coefficient > 0 > minus:
                number, others = _times(factors, before[id(x)])
                if not others and math.isclose(number * -minus, coefficient, rel_tol=1e-6):
                    return True
    return False


def _warn(f: Function) -> None:
    name, where = f.op.name, f" at {f.location}" if hasattr(f, "location") else ""
    warn_user(
        f"grad: x - c * F.{name}(x / c){where} has the gradient 0, since gradients pass F.{name} as if it were not "
        f"there. If you want the derivative, 1, write F.unlink(F.{name}(...))", RuntimeWarning,
    )  # fmt: skip


def _multiples(x: Variable) -> dict[int, Factors]:
    """By id, the Variables of which `x` is a multiple, and the factors."""
    found: dict[int, Factors] = {id(x): (1.0, ())}
    pending = [x]
    while pending:
        y = pending.pop()
        for z, factors in [] if y.parent is None else _factors(y.parent):
            if id(z) not in found:
                found[id(z)] = _times(found[id(y)], factors)
                pending.append(z)
    return found


def _factors(f: Function) -> list[tuple[Variable, Factors]]:
    """For each input of which the output of `f` is a multiple, the factors."""
    if f.op.powers is not None:
        powers = list(zip(f.inputs, f.op.powers(f), strict=True))
        return [
            (x, (1.0, tuple([(_key(y), p) for k, (y, p) in enumerate(powers) if k != i])))
            for i, (x, power) in enumerate(powers) if power == 1
        ]  # fmt: skip
    if f.op.elementwise and f.op.linear is True and len(f.op.numbers) == 1:
        return [(f.inputs[0], (float(f.args[f.op.numbers[0]]), ()))]
    return []


def _key(x: Variable) -> Hashable:
    """A factor's identity: by value for small arrays, since each use of a NumPy array is a leaf of its own."""
    array = x.cell._value.array if x.parent is None and x.size <= MOST_COMPARED else None
    return id(x) if array is None else (x.shape, np.asarray(array).tobytes())


def _times(a: Factors, b: Factors) -> Factors:
    """The product of two products."""
    powers = dict(a[1])
    for key, power in b[1]:
        powers[key] = powers.get(key, 0) + power
    return a[0] * b[0], tuple([(key, power) for key, power in powers.items() if power])


provide(engine, {"warn_of_cancelled": warn_of_cancelled})
