"""Methods for roots, fixed points and minima, as loops over functions of the graph.

They run as the forward of one function, and are never differentiated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import nngrad.functions as F

from ...functions.bodies.implicit import solve
from ...functions.bodies.matrices import SolveOptions, jacobian_of
from ...graph import Variable
from .packing import CapturedEquation


class IterationResult(NamedTuple):
    """The result of an iterative method."""

    x: Variable
    residual: Variable
    """The norm of the residual."""
    converged: Variable
    """Whether the residual is small enough, a bool."""
    steps: Variable


class Problem(NamedTuple):
    """The problem that a method has to solve."""

    residual: CapturedEquation
    """The function of a vector whose root is sought; for minima, the gradient."""
    function: CapturedEquation
    """The user's function."""
    tol: float
    maxiter: int
    linear: SolveOptions
    """How linear systems are solved."""

    def newton_step(self, x: Variable, r: Variable) -> Variable:
        """The Newton step: it makes the linearised residual 0."""
        matrix = jacobian_of(self.residual.body)
        return -solve(matrix, (*self.residual.parameters, x), r, self.linear)[0]


Finder = Callable[[Problem, Variable], IterationResult]

_HALVINGS = 30
"""How often a step is halved at most."""


def _iterated(problem: Problem, state: Any, step: Callable[[Any], Any]) -> IterationResult:
    """Loop until the residual is small. The loop carries the number of steps, the norm of the residual, and a state
    that `step` advances: x, the residual there, and whatever a method needs."""
    first = F.norm(state[1])
    target = problem.tol * F.maximum_scalar(first, 1.0)

    def goes_on(carry: Any) -> Variable:
        k, norm, _ = carry
        return F.logical_and(norm > target, k < problem.maxiter)

    def advance(carry: Any) -> Any:
        k, _, state = carry
        after = step(state)
        return k + 1, F.norm(after[1]), after

    steps, norm, (x, *_) = F.while_loop(goes_on, advance, (F.constant(0, (), "int32"), first, state))
    return IterationResult(x, norm, F.cast(norm <= target, dtype="bool"), steps)


def _halved(fits: Callable[[Variable, Any], Variable], trial: Callable[[Variable], Any], like: Variable) -> Any:
    """The result of `trial(t)` for the first t of 1, 1/2, 1/4, ... that is accepted, or else the last one tried."""
    one = F.constant(1.0, (), like.dtype)

    def goes_on(carry: Any) -> Variable:
        k, t, tried = carry
        return F.logical_and(F.logical_not(fits(t, tried)), k < _HALVINGS)

    def halve(carry: Any) -> Any:
        k, t, _ = carry
        return k + 1, t * 0.5, trial(t * 0.5)

    return F.while_loop(goes_on, halve, (F.constant(0, (), "int32"), one, trial(one)))[2]


# ---------------------------------------------------------------- roots and fixed points


def newton(problem: Problem, start: Variable) -> IterationResult:
    """Newton's method; a step is halved until the residual decreases sufficiently."""

    def step(state: Any) -> Any:
        x, r = state
        dx, size = problem.newton_step(x, r), F.norm(r)

        def trial(t: Variable) -> Any:
            ahead = x + t * dx
            return ahead, problem.residual.at(ahead)

        return _halved(lambda t, tried: F.norm(tried[1]) <= (1 - 1e-4 * t) * size, trial, x)

    return _iterated(problem, (start, problem.residual.at(start)), step)


def iterate(problem: Problem, start: Variable) -> IterationResult:
    """Fixed-point iteration: x = f(x), repeated."""

    def at(x: Variable) -> Any:
        ahead = problem.function.at(x)
        return x, x - ahead, ahead

    return _iterated(problem, at(start), lambda state: at(state[2]))


_REMEMBERED = 5
"""How many steps Anderson's acceleration combines."""


def anderson(problem: Problem, start: Variable) -> IterationResult:
    """Anderson acceleration (1965): the combination of recent iterates with the smallest combined residual."""
    n = start.shape[0]
    memory = min(_REMEMBERED, n)
    small = float(np.finfo(start.dtype).eps)

    def step(state: Any) -> Any:
        x, r, last_x, last_r, xs, rs = state
        xs, rs = _shifted(x - last_x, xs), _shifted(r - last_r, rs)
        gram = rs @ F.transpose(rs)
        # Large enough on the diagonal that steps not yet taken, or linearly dependent, carry no weight.
        ridge = small * F.sum(F.matrix_diag_part(gram)) + float(np.finfo(start.dtype).tiny)
        weights = F.batch_solve(gram + ridge * np.eye(memory), rs @ r)
        ahead = x - r - weights @ (xs - rs)
        return ahead, problem.residual.at(ahead), x, r, xs, rs

    r = problem.residual.at(start)
    none = F.constant(0.0, (memory, n), start.dtype)
    return _iterated(problem, (start, r, start, r, none, none), step)


def _quotient(a: Variable, b: Variable, otherwise: Variable) -> Variable:
    """a / b where b is positive, else `otherwise`."""
    positive = b > 0
    y: Variable = F.where(positive, a / F.where(positive, b, F.constant(1.0, b.shape, b.dtype)), otherwise)
    return y


def _shifted(new: Variable, rows: Variable) -> Variable:
    """The rows with `new` before them, and without the last."""
    y: Variable = F.concatenate(F.reshape(new, shape=(1, *new.shape)), rows[:-1], axis=0)
    return y


# ---------------------------------------------------------------- minima


def _downhill(problem: Problem, x: Variable, y: Variable, g: Variable, dx: Variable) -> Any:
    """Returns x, the gradient and the function after a step along a direction. The step is halved until the function
    decreases enough (Armijo's condition); or, where values are so close that rounding decides, until it rises at most
    half as steeply as it fell (as Hager and Zhang, 2005)."""
    slope = F.sum(g * dx)

    def trial(t: Variable) -> Any:
        ahead = x + t * dx
        return ahead, problem.residual.at(ahead), problem.function.at(ahead)

    def fits(t: Variable, tried: Any) -> Variable:
        _, after, lower = tried
        falls = lower <= y + 1e-4 * t * slope
        close = F.abs(lower - y) <= float(np.finfo(x.dtype).eps ** (2 / 3)) * F.abs(y)
        return F.where(close, F.sum(after * dx) <= -0.5 * slope, falls)

    return _halved(fits, trial, x)


def _descent(problem: Problem, start: Variable, memory: Any, direction: Callable[..., Any]) -> IterationResult:
    """Loop over steps that lead down. `direction(x, g, memory)` returns a direction and `remember(ahead, g)`, which
    returns what the method remembers after the step."""

    def step(state: Any) -> Any:
        x, g, y, memory = state
        dx, remember = direction(x, g, memory)
        ahead, after, lower = _downhill(problem, x, y, g, dx)
        return ahead, after, lower, remember(ahead, after)

    return _iterated(problem, (start, problem.residual.at(start), problem.function.at(start), memory), step)


def newton_descent(problem: Problem, start: Variable) -> IterationResult:
    """Newton's method for minima, which steps against the gradient where Newton's direction leads uphill."""

    def direction(x: Variable, g: Variable, memory: Any) -> Any:
        dx = problem.newton_step(x, g)
        down = F.sum(g * dx) < 0
        return F.where(F.broadcast(down, shape=x.shape), dx, -g), lambda ahead, after: memory

    return _descent(problem, start, (), direction)


_PAIRS = 10
"""How many steps the limited memory holds."""


def lbfgs(problem: Problem, start: Variable) -> IterationResult:
    """L-BFGS (Nocedal 1980): the inverse Hessian is estimated from recent steps and changes of the gradient."""
    n = start.shape[0]
    none = F.constant(0.0, (_PAIRS, n), start.dtype)

    def direction(x: Variable, g: Variable, memory: Any) -> Any:
        steps, changes = memory  # newest first
        curvatures = F.sum(steps * changes, axis=1)
        weights = _quotient(F.constant(1.0, (_PAIRS,), x.dtype), curvatures, F.constant(0.0, (_PAIRS,), x.dtype))
        unknown = 1 / F.maximum_scalar(F.norm(g), 1.0)
        scale = _quotient(curvatures[0], F.sum(changes[0] * changes[0]), unknown)

        def back(q: Variable, pair: Any) -> Any:
            s, change, weight = pair
            rate = weight * F.sum(s * q)
            return q - rate * change, rate

        def forth(q: Variable, pair: Any) -> Any:
            s, change, weight, rate = pair
            return q + (rate - weight * F.sum(change * q)) * s, None

        q, rates = F.scan(back, g, (steps, changes, weights))
        q, _ = F.scan(forth, scale * q, (steps, changes, weights, rates), reverse=True)

        def remember(ahead: Variable, after: Variable) -> Any:
            s, change = ahead - x, after - g
            useful = F.sum(s * change) > 0
            moved = _shifted(s, steps), _shifted(change, changes)
            keep = F.broadcast(F.reshape(useful, shape=(1, 1)), shape=(_PAIRS, n))
            return tuple([F.where(keep, new, old) for new, old in zip(moved, (steps, changes), strict=True)])

        return -q, remember

    return _descent(problem, start, (none, none), direction)


ROOT: dict[str, Finder] = {"newton": newton}
FIXED_POINT: dict[str, Finder] = {"iterate": iterate, "anderson": anderson, "newton": newton}
MINIMIZE: dict[str, Finder] = {"lbfgs": lbfgs, "newton": newton_descent}
