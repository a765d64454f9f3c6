"""Gradient checks against numeric differences, for tests of your own functions.

    def test_cube():
        nn.checks.check_nth_backward(Cube(), np.random.default_rng(0).normal(size=(2, 3)), order=3)

Each check raises an error with a report if the gradient and the differences disagree, and otherwise returns None.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...extend import Variable, checked_count
from .differences import Tolerances, compare, compare_beside
from .problem import CheckedFunction, listed
from .report import GradientMismatch, NondifferentiableError, kink_report, lagging_report, mismatch_report

__all__ = [
    "GradientMismatch", "NondifferentiableError", "check_backward", "check_double_backward", "check_nth_backward",
]  # fmt: skip


def check_backward(func: Callable[..., Any], x_data: Any, y_grad: Any = None, **options: Any) -> None:
    """Check the gradient of `func`: `check_nth_backward` of order 1.

    Args:
        func: A function of Variables, which returns one or several.
        x_data: The point: an array, or a sequence with an array for each argument of `func`.
        y_grad: A weight for each output; random by default.
        options: Options of `check_nth_backward`.
    """
    check_nth_backward(func, x_data, 1, y_grad, **options)


def check_double_backward(
    func: Callable[..., Any], x_data: Any, y_grad: Any = None, x_grad_grad: Any = None, **options: Any
) -> None:
    """Check the gradient of `func` and the gradient of that gradient: `check_nth_backward` of order 2.

    Args:
        func: A function of Variables, which returns one or several.
        x_data: The point: an array, or a sequence with an array for each argument of `func`.
        y_grad: A weight for each output; random by default.
        x_grad_grad: A weight for the gradient at each floating input; random by default.
        options: Options of `check_nth_backward`.
    """
    check_nth_backward(func, x_data, 2, y_grad, x_grad_grad, **options)


def check_nth_backward(
    func: Callable[..., Any],
    x_data: Any,
    order: int,
    y_grad: Any = None,
    x_grad_grad: Any = None,
    *,
    params: Sequence[Variable] = (),
    no_grads: Sequence[bool] | None = None,
    dtype: Any = np.float64,
    eps: float | None = None,
    atol: float | None = None,
    rtol: float | None = None,
    directions: int = 2,
    seed: int = 0,
) -> None:
    """Check the gradients of `func` of orders 1 to `order` against numeric differences.

    The gradient of order k is that of a weighted sum of all gradients of order k - 1 (of the outputs, for k = 1), with
    respect to the inputs and the weights of lower orders. It is compared with the slope of that sum along a random
    direction: central differences at three steps, extrapolated (Richardson). So order k tests the step from order k - 1
    to k, and the report names the first wrong order. A gradient that is right at the point, but is constant because it
    was computed from values read there, counts as wrong too.

    Args:
        func: A function of Variables, which returns one or several. Random functions get the same noise at each call.
        x_data: The point: an array, or a sequence with an array for each argument of `func`. Arrays without a floating
            dtype are passed on unchanged.
        order: The highest order to check.
        y_grad: A weight for each output; random by default.
        x_grad_grad: A weight for the gradient at each checked input; random by default.
        params: Leaves that `func` uses in addition to its arguments, and that are checked as well.
        no_grads: For each argument, whether to leave it out of the check.
        dtype: The dtype that floating arrays are cast to; None for no cast. Below float64 the check is less sensitive.
        eps: The largest step, along a direction of unit length; by default 1e-3 in float64, 2e-2 in float32.
        atol: The allowed error is atol + rtol * (the sum of the absolute values of the terms of the slope); by default
            1e-7 in float64, 1e-3 in float32.
        rtol: See `atol`; by default 1e-6 in float64, 1e-3 in float32.
        directions: The number of directions.
        seed: The seed of directions and weights.

    Raises:
        GradientMismatch: (an `AssertionError`) A gradient is wrong. The report names the order and the inputs, and
            shows the numbers and the worst elements.
        TypeError: `func` is not a function of Variables, or returns nothing of a floating dtype.
        ValueError: An argument is out of range, or lengths or shapes do not fit.
        NondifferentiableError: (a `ValueError`) The function has a kink or a jump at the point, so there is no
            derivative to compare with: choose another point.
    """
    if not callable(func):
        raise TypeError(f"func: expected a function of Variables, got {func!r}")
    order, directions = checked_count(order, "order"), checked_count(directions, "directions")
    given_weights = [None if w is None else listed(w) for w in (y_grad, x_grad_grad)]
    problem = CheckedFunction(func, listed(x_data), order, given_weights, params, no_grads, dtype, seed)
    settings = Tolerances.of(problem.precision, eps, atol, rtol)
    for number in range(directions):
        direction = problem.direction(number)
        where = f"direction {number + 1} of {directions}, seed {seed}"
        for k, comparison in enumerate(compare(problem, direction, settings), start=1):
            if comparison.kink:
                raise NondifferentiableError(kink_report(problem, k, comparison, settings, where))
            if not comparison.agrees:
                raise GradientMismatch(mismatch_report(problem, k, direction, comparison, settings, where))
            beside = compare_beside(problem, direction, k, settings)
            if not (beside.agrees or beside.is_open):
                raise GradientMismatch(lagging_report(problem, k, beside, where))
