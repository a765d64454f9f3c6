"""Numeric derivatives, their error estimates, and whether the derivative exists at all."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from .problem import Arrays, CheckedFunction

_STEPS = (1.0, 0.5, 0.25)
"""Steps of the differences, as fractions of the largest."""


class Tolerances(NamedTuple):
    """Steps and tolerances."""

    eps: float
    atol: float
    rtol: float
    precision: float

    @staticmethod
    def of(precision: float, eps: float | None, atol: float | None, rtol: float | None) -> Tolerances:
        """These values, with defaults that suit the precision of the arithmetic in place of None."""
        fine, medium = precision < 1e-12, precision < 1e-5
        default = (1e-3, 1e-7, 1e-6) if fine else (2e-2, 1e-3, 1e-3) if medium else (0.25, 5e-2, 5e-2)
        chosen = [d if v is None else v for v, d in zip((eps, atol, rtol), default, strict=True)]
        for name, value in zip(("eps", "atol", "rtol"), chosen, strict=True):
            if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
                raise TypeError(f"{name}: expected a number, got {value!r}")
            if not 0 <= value < np.inf or (name == "eps" and value == 0):
                least = "positive" if name == "eps" else "non-negative"
                raise ValueError(f"{name}: must be a finite {least} number, got {value!r}")
        return Tolerances(float(chosen[0]), float(chosen[1]), float(chosen[2]), precision)


class Comparison(NamedTuple):
    """A directional derivative, by differences and by the gradient."""

    numeric: float
    uncertainty: float
    """The error estimate of the differences, from rounding and from the size of the step."""
    analytic: float
    allowed: float
    """The largest distance between the two that counts as agreement."""
    step: float
    kink: str
    """The kind of irregularity at the point, such as a kink or a jump; empty for none."""

    @property
    def apart(self) -> float:
        """The distance between the two."""
        return abs(self.numeric - self.analytic)

    @property
    def agrees(self) -> bool:
        """True if the two agree; NaN does not."""
        return bool(self.apart <= self.allowed)

    @property
    def is_open(self) -> bool:
        """True if the differences say nothing: at a kink, or where they are less accurate than they need to be."""
        return bool(self.kink) or (not self.agrees and self.uncertainty > self.allowed)


@np.errstate(all="ignore")
def compare(problem: CheckedFunction, direction: Arrays, settings: Tolerances, begin: float = 0.0) -> list[Comparison]:
    """Compare the derivative along `direction`, by differences and by the gradient, at each order.

    If the differences are inconclusive, because of a possible kink or strong curvature, the step is shortened up to
    twice: a kink may be near the point rather than at it.

    Args:
        problem: The function.
        direction: The direction.
        settings: The steps and tolerances.
        begin: How far along the direction to compare them.
    """
    results = _compared(problem, direction, begin, settings.eps, settings)
    if settings.precision < 1e-12:
        for step in (settings.eps / 10, settings.eps / 100):
            if not any([c.is_open for c in results]):
                break
            finer = _compared(problem, direction, begin, step, settings)
            results = [new if old.is_open else old for old, new in zip(results, finer, strict=True)]
    return results


def _compared(
    problem: CheckedFunction, direction: Arrays, begin: float, step: float, settings: Tolerances
) -> list[Comparison]:
    """Central differences D(t) = s' + O(t^2) at three steps t, each half as long as the one before, are extrapolated to
    (4 D(t/2) - D(t)) / 3 = s' + O(t^4) (Richardson).

    The one-sided slopes differ by t s'' + O(t^3) for a smooth function; at a kink a constant is added, and at a jump a
    term that grows as t shrinks. So their roughness is 0 for a smooth function, except for terms of higher order.
    """
    steps = [step * part for part in _STEPS]
    center = problem.at(direction, begin)
    ahead, behind = [[problem.at(direction, begin + sign * t) for t in steps] for sign in (1, -1)]
    results = []
    for k, weights in enumerate(problem.weights):
        value = _weighted(center[k], weights)
        right = [(_weighted(level[k], weights) - value) / t for level, t in zip(ahead, steps, strict=True)]
        left = [(value - _weighted(level[k], weights)) / t for level, t in zip(behind, steps, strict=True)]
        central = [(r + q) / 2 for r, q in zip(right, left, strict=True)]
        gaps = [r - q for r, q in zip(right, left, strict=True)]
        first, second = [(4 * fine - coarse) / 3 for coarse, fine in pairwise(central)]
        roughness = max([abs(fine - coarse / 2) for coarse, fine in pairwise(gaps)]
                        + [abs(fine - coarse) for coarse, fine in pairwise(central)])  # fmt: skip
        moved = direction[: problem.moved[k]]
        size = _magnitude(center[k + 1], moved)
        noise = 4 * settings.precision * _magnitude(center[k], weights) / steps[-1]
        scale = max(float(np.nan_to_num(size)), abs(second), settings.atol)
        kink = ""
        if not np.isfinite([*right, *left]).all():
            kink = "an edge, next to which the function is not finite"
        elif not roughness <= 1e-3 * scale + 4 * noise:
            grows = abs(right[-1]) + abs(left[-1]) > 1.5 * (abs(right[0]) + abs(left[0]))
            slopes = f"the slope is {left[-1]:.6g} on one side and {right[-1]:.6g} on the other"
            kink = "a jump" if grows else f"a kink: {slopes}"
        allowed = settings.atol + settings.rtol * max(size, abs(second))
        analytic = _weighted(center[k + 1], moved)
        results.append(Comparison(second, abs(second - first) + noise, analytic, allowed, step, kink))
    return results


def compare_beside(problem: CheckedFunction, direction: Arrays, order: int, settings: Tolerances) -> Comparison:
    """The comparison at one order next to the point. A gradient that is right at the point but wrong next to it was
    computed from values read there."""
    along = [v if i < problem.moved[order - 1] else np.zeros_like(v) for i, v in enumerate(direction)]
    return compare(problem, along, settings, 4 * settings.eps)[order - 1]


def _magnitude(values: Arrays, weights: Arrays) -> float:
    return float(sum([np.sum(np.abs(a * w)) for a, w in zip(values, weights, strict=True)]))


def _weighted(values: Arrays, weights: Arrays) -> float:
    return float(sum([np.sum(a * w.astype(np.float64)) for a, w in zip(values, weights, strict=True)]))
