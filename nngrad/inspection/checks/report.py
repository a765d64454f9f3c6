"""Messages of failed gradient checks."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from backward_registry import registry

from ..shown import aligned
from .differences import Comparison, Tolerances, compare
from .problem import Array, Arrays, CheckedFunction

_MOST_ELEMENTS = 64
"""The maximum number of elements of an input that are compared one by one."""
_SHOWN = 6


class GradientMismatch(AssertionError):
    """A gradient disagrees with numeric differences."""


class NondifferentiableError(ValueError):
    """A function has a kink or a jump at the point of a gradient check."""


def kink_report(problem: CheckedFunction, order: int, result: Comparison, settings: Tolerances, where: str) -> str:
    """The message for a point without a gradient: the elements at which the function is not smooth, if they show it."""
    places = [
        f"    {problem.labels[i]}[{_index(place, problem.point[i])}]: {one.kink}"
        for i in range(problem.moved[order - 1]) for place, one in _one_by_one(problem, order, i, settings) if one.kink
    ]
    return "\n".join([
        f"{problem.name}: cannot check the gradient of order {order}, because this point is at {result.kink}.",
        f"  along a random direction ({where}, steps from {result.step:.1e}), where the gradient is "
        f"{result.analytic:.6g}",
        *(["  by element:", *places[:_SHOWN]] if places else []),
        "Choose inputs away from kinks and ties, or a smaller eps if the function changes within the step.",
    ])


def mismatch_report(
    problem: CheckedFunction, order: int, direction: Arrays, result: Comparison, settings: Tolerances, where: str
) -> str:
    """The message for a wrong gradient: the inputs, the size of the error, and the elements."""
    wrong = []
    for i in range(problem.moved[order - 1]):
        alone = [v if k == i else np.zeros_like(v) for k, v in enumerate(direction)]
        if not compare(problem, alone, settings)[order - 1].agrees:
            wrong.append(i)
    names = ", ".join([problem.labels[i] for i in wrong]) or "no input by itself"
    lines = [f"{problem.name}: the gradient of order {order} is wrong at {names}.", *_slopes(order, result, where)]
    for i in wrong:
        lines += ["", *_elements(problem, order, i, settings)]
    if result.uncertainty > result.allowed:
        lines += ["", "The differences are less accurate than allowed: check in float64, or choose another eps."]
    return "\n".join([*lines, *_rules_of_yours(problem)])


def lagging_report(problem: CheckedFunction, order: int, beside: Comparison, where: str) -> str:
    """The message for a gradient that is right at the point but wrong next to it."""
    return "\n".join([
        f"{problem.name}: the gradient of order {order} is right at this point, but wrong next to it.",
        *_slopes(order, beside, where),
        "Does backward read values, with .d or .data? Use the Variables themselves.",
        *_rules_of_yours(problem),
    ])


def _slopes(order: int, result: Comparison, where: str) -> list[str]:
    below = "the function" if order == 1 else f"the gradient of order {order - 1}"
    return [
        f"  slope of {below} along a random direction ({where}):",
        f"    by differences  {result.numeric:.10g}   (sure to {result.uncertainty:.1e}, steps from {result.step:.1e})",
        f"    by gradient     {result.analytic:.10g}",
        f"    apart by        {result.apart:.3e}   (allowed: {result.allowed:.3e})",
    ]


def _rules_of_yours(problem: CheckedFunction) -> list[str]:
    rules = [(f, registry.find(f.op)) for f in problem.functions]
    users = sorted({f.op.name for f, rule in rules if rule is not None and rule.kind == "user"})
    return ["", f"Functions on the path with rules of your own: {', '.join(users)}."] if users else []


def _one_by_one(problem: CheckedFunction, order: int, i: int, settings: Tolerances) -> list[tuple[int, Comparison]]:
    """The comparison for single elements of an input: all, or a sample if there are many."""
    size = problem.point[i].size
    places: Iterable[int] = range(size)
    if size > _MOST_ELEMENTS:
        places = sorted(np.random.default_rng(0).choice(size, _MOST_ELEMENTS, replace=False).tolist())
    results = []
    for place in places:
        units = [np.zeros(a.shape) for a in problem.point]
        units[i].reshape(-1)[place] = 1.0
        results.append((place, compare(problem, units, settings)[order - 1]))
    return results


def _elements(problem: CheckedFunction, order: int, i: int, settings: Tolerances) -> list[str]:
    """The lines for the worst elements of an input, and for their common pattern."""
    results = _one_by_one(problem, order, i, settings)
    wrong = [(place, c) for place, c in results if not c.agrees]
    worst = sorted(wrong, key=lambda entry: -np.nan_to_num(entry[1].apart, nan=np.inf))[:_SHOWN]
    x = problem.point[i]
    looked = "" if len(results) == x.size else f" (of {x.size})"
    rows = [[f"[{_index(place, x)}]", f"{c.numeric:.8g}", f"{c.analytic:.8g}", f"{c.apart:.1e}"] for place, c in worst]
    lines = [
        f"  {problem.labels[i]}: {len(wrong)} of {len(results)} elements{looked} are wrong; the worst are",
        *[f"    {line}" for line in aligned([["element", "differences", "gradient", "apart by"], *rows])],
    ]
    hint = _hint(np.array([c.numeric for _, c in results]), np.array([c.analytic for _, c in results]))
    return [*lines, f"  {hint}"] if hint else lines


def _index(place: int, x: Array) -> str:
    return ", ".join([str(int(n)) for n in np.unravel_index(place, x.shape)])


def _hint(numeric: Array, analytic: Array) -> str:
    """The common pattern of all errors, such as a constant factor, in words."""
    if not np.isfinite(analytic).all():
        return "The gradient is not finite."
    large = np.abs(numeric) > 1e-6 * max(1e-30, float(np.max(np.abs(numeric), initial=0.0)))
    if not large.any():
        return ""
    if not analytic.any():
        return (
            "The gradient is zero everywhere: does something cut the graph (F.unlink, need_grad = False, "
            "a value read with .d in backward), or does a rule return None?"
        )
    ratios = analytic[large] / numeric[large]
    ratio = float(np.median(ratios))
    if large.sum() > 1 and np.all(np.abs(ratios - ratio) <= 1e-4 * abs(ratio)):
        return f"The gradient is {ratio:.6g} times the differences in every element."
    return ""
