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
        """The given values, with defaults that suit the precision of the arithmetic."""
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
    size: float
    """The sum of the absolute values of the terms of the slope."""
    step: float
    kink: str | None
    """The kind of irregularity at the point, such as a kink or a jump, if any."""
    gradient: Arrays

    @property
    def apart(self) -> float:
        """The distance between the two."""
        return abs(self.numeric - self.analytic)

    def allowed(self, settings: Tolerances) -> float:
        """The largest distance that counts as agreement."""
        return settings.atol + settings.rtol * max(self.size, abs(self.numeric))

    def agrees(self, settings: Tolerances) -> bool:
        """Whether the two agree; NaN does not."""
        return bool(self.apart <= self.allowed(settings))


@np.errstate(all="ignore")
def compare(problem: CheckedFunction, direction: Arrays, settings: Tolerances) -> list[Comparison]:
    """Compare the derivative along `direction`, by differences and by the gradient, at each order.

    If the differences are inconclusive, because of a possible kink or strong curvature, the step is shortened up to
    twice: a kink may be near the point rather than at it.
    """
    center = problem.at(direction, 0.0)
    results = _compared(problem, direction, center, settings.eps, settings)
    if settings.precision < 1e-12:
        for step in (settings.eps / 10, settings.eps / 100):
            if not any([_is_open(c, settings) for c in results]):
                break
            finer = _compared(problem, direction, center, step, settings)
            results = [new if _is_open(old, settings) else old for old, new in zip(results, finer, strict=True)]
    return results


def _is_open(c: Comparison, settings: Tolerances) -> bool:
    return c.kink is not None or (not c.agrees(settings) and c.uncertainty > c.allowed(settings))


def _compared(
    problem: CheckedFunction, direction: Arrays, center: list[Arrays], step: float, settings: Tolerances
) -> list[Comparison]:
    ahead = [problem.at(direction, step * part) for part in _STEPS]
    behind = [problem.at(direction, -step * part) for part in _STEPS]
    results = []
    for k, weights in enumerate(problem.weights):
        quantity = [[_weighted(level[k], weights) for level in side] for side in (ahead, behind)]
        gradient = center[k + 1]
        moved = direction[: problem.moved[k]]
        analytic = _weighted(gradient, moved)
        size = _magnitude(gradient, moved)
        noise = 4 * settings.precision * _magnitude(center[k], weights) / (step * _STEPS[-1])
        slope = slope_of(_weighted(center[k], weights), quantity[0], quantity[1], step)
        scale = max(float(np.nan_to_num(size)), abs(slope.value), settings.atol)
        kink = None if slope.roughness <= 1e-3 * scale + 4 * noise else slope.kind
        results.append(Comparison(slope.value, slope.error + noise, analytic, size, step, kink, gradient))
    return results


class Change(NamedTuple):
    """The rate of change of a slope along a direction, by differences of the quantity and of its gradient."""

    numeric: float
    analytic: float
    step: float


@np.errstate(all="ignore")
def lagging(problem: CheckedFunction, direction: Arrays, k: int, settings: Tolerances) -> Change | None:
    """Detect a gradient of the quantity of order `k` that is right at the point but does not change when the point
    moves, as if computed from values read there; None if it changes.

    The second differences of the quantity are compared with differences of its gradient, both extrapolated.
    """
    along = [v if i < problem.moved[k] else np.zeros_like(v) for i, v in enumerate(direction)]
    fine = settings.precision < 1e-12
    change = None
    for step in (settings.eps, settings.eps / 10, settings.eps / 100) if fine else (settings.eps,):
        change, noise, size = _change(problem, along, k, step, settings)
        relative = 1e-3 if fine else 5e-2
        allowed = relative * max(abs(change.numeric), abs(change.analytic), 1e-2 * size) + settings.atol + noise
        if abs(change.numeric - change.analytic) <= allowed or not np.isfinite(change.numeric):
            return None
    return change


def _change(
    problem: CheckedFunction, along: Arrays, k: int, step: float, settings: Tolerances
) -> tuple[Change, float, float]:
    weights, moved = problem.weights[k], along[: problem.moved[k]]
    center = problem.at(along, 0.0)
    numeric, analytic = [], []
    for t in (step, step / 2):
        ahead, behind = problem.at(along, t), problem.at(along, -t)
        ends = [_weighted(level[k], weights) for level in (ahead, center, behind)]
        numeric.append((ends[0] - 2 * ends[1] + ends[2]) / t**2)
        analytic.append((_weighted(ahead[k + 1], moved) - _weighted(behind[k + 1], moved)) / (2 * t))
    parts = [(4 * fine - coarse) / 3 for coarse, fine in (numeric, analytic)]
    noise = 16 * settings.precision * _magnitude(center[k], weights) / (step / 2) ** 2
    return Change(parts[0], parts[1], step), noise, _magnitude(center[k + 1], moved)


def _magnitude(values: Arrays, weights: Arrays) -> float:
    return float(sum([np.sum(np.abs(a * w)) for a, w in zip(values, weights, strict=True)]))


def _weighted(values: Arrays, weights: Arrays) -> float:
    return float(sum([np.sum(a * w.astype(np.float64)) for a, w in zip(values, weights, strict=True)]))


class Slope(NamedTuple):
    """The derivative at 0 of a function of one number."""

    value: float
    error: float
    roughness: float
    """A measure of non-smoothness: 0 for a smooth function, except for terms of higher order in the step."""
    kind: str


def slope_of(center: float, ahead: list[float], behind: list[float], step: float) -> Slope:
    """The derivative from values at 0 and at three steps on either side, each half as long as the one before.

    Central differences D(t) = s' + O(t^2) are extrapolated to (4 D(t/2) - D(t)) / 3 = s' + O(t^4) (Richardson). The
    one-sided slopes differ by t s'' + O(t^3) for a smooth function; at a kink a constant is added, and at a jump a term
    that grows as t shrinks.
    """
    steps = [step * part for part in _STEPS]
    right = [(a - center) / t for a, t in zip(ahead, steps, strict=True)]
    left = [(center - b) / t for b, t in zip(behind, steps, strict=True)]
    central = [(r + q) / 2 for r, q in zip(right, left, strict=True)]
    first, second = [(4 * fine - coarse) / 3 for coarse, fine in pairwise(central)]
    gaps = [r - q for r, q in zip(right, left, strict=True)]
    roughness = max(
        [abs(fine - coarse / 2) for coarse, fine in pairwise(gaps)]
        + [abs(fine - coarse) for coarse, fine in pairwise(central)]
    )
    grows = abs(right[-1]) + abs(left[-1]) > 1.5 * (abs(right[0]) + abs(left[0]))
    if not np.isfinite([*right, *left]).all():
        return Slope(second, abs(second - first), np.inf, "an edge, next to which the function is not finite")
    kind = "a jump" if grows else f"a kink: the slope is {left[-1]:.6g} on one side and {right[-1]:.6g} on the other"
    return Slope(second, abs(second - first), roughness, kind)
