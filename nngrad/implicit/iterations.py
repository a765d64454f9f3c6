"""The ways to find roots, fixed points and minima, as loops over functions of the graph.

They are run as the forward of one function, and no derivative is ever taken of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import nngrad.functions as F

from ..functions.implicit import Options, jacobian_of, solve
from ..graph import Variable
from .capturing import Equation


class Found(NamedTuple):
    """What a method gives."""

    x: Variable
    residual: Variable
    """The norm of the residual."""
    converged: Variable
    """Whether it is small enough, a bool."""
    steps: Variable


class Problem(NamedTuple):
    """What a method is to solve."""

    residual: Equation
    """A function of a vector that is to become 0; for minima, the gradient."""
    function: Callable[[Variable], Variable]
    """What the user has written, of vectors."""
    tol: float
    maxiter: int
    linear: Options
    """How linear systems are solved."""

    def target(self, start: Variable) -> Variable:
        """The norm of the residual at which to end."""
        return self.tol * F.maximum_scalar(F.norm(self.residual.at(start)), 1.0)

    def found(self, x: Variable, target: Variable, steps: Variable) -> Found:
        """The result, whose residual is computed anew."""
        norm = F.norm(self.residual.at(x))
        return Found(x, norm, F.cast(norm <= target, dtype="bool"), steps)

    def newton_step(self, x: Variable, r: Variable) -> Variable:
        """What leads to where the residual is 0 if it is linear."""
        matrix = jacobian_of(self.residual.body)
        return -solve(matrix, (*self.residual.parameters, x), r, self.linear)[0]


Finder = Callable[[Problem, Variable], Found]

_HALVINGS = 30
"""How often a step is halved at most."""


def _iterated(problem: Problem, start: Variable, state: Any, step: Callable[[Variable, Any], Any]) -> Found:
    """A loop until the residual is small.

    Args:
        problem: What is to be solved.
        start: Where to begin.
        state: What is carried beside the number of steps: x, the residual there, and whatever a method needs.
        step: `step(k, state)` gives the state after a step.
    """
    target = problem.target(start)

    def goes_on(carry: Any) -> Variable:
        k, state = carry
        return F.logical_and(F.norm(state[1]) > target, k < problem.maxiter)

    def advance(carry: Any) -> Any:
        k, state = carry
        return k + 1, step(k, state)

    steps, state = F.while_loop(goes_on, advance, (F.constant(0, (), "int32"), state))
    return problem.found(state[0], target, steps)


def _halved(fits: Callable[[Variable, Any], Variable], trial: Callable[[Variable], Any], like: Variable) -> Any:
    """What `trial(t)` gives for the first t of 1, 1/2, 1/4, ... that fits, or the last one that is tried."""
    one = F.constant(1.0, (), like.dtype)

    def goes_on(carry: Any) -> Variable:
        k, t, tried = carry
        return F.logical_and(F.logical_not(fits(t, tried)), k < _HALVINGS)

    def halve(carry: Any) -> Any:
        k, t, _ = carry
        return k + 1, t * 0.5, trial(t * 0.5)

    return F.while_loop(goes_on, halve, (F.constant(0, (), "int32"), one, trial(one)))[2]


# ---------------------------------------------------------------- roots and fixed points


def newton(problem: Problem, start: Variable) -> Found:
    """Newton's method; a step is halved until the residual falls a little."""

    def step(_: Variable, state: Any) -> Any:
        x, r = state
        dx, size = problem.newton_step(x, r), F.norm(r)

        def trial(t: Variable) -> Any:
            ahead = x + t * dx
            return ahead, problem.residual.at(ahead)

        return _halved(lambda t, tried: F.norm(tried[1]) <= (1 - 1e-4 * t) * size, trial, x)

    return _iterated(problem, start, (start, problem.residual.at(start)), step)


def iterate(problem: Problem, start: Variable) -> Found:
    """x = f(x), again and again."""

    def step(_: Variable, state: Any) -> Any:
        x, r = state
        ahead = x + r
        return ahead, problem.residual.at(ahead)

    return _iterated(problem, start, (start, problem.residual.at(start)), step)


_REMEMBERED = 5
"""How many steps Anderson's acceleration combines."""


def anderson(problem: Problem, start: Variable) -> Found:
    """Anderson (1965): the combination of the last steps whose residuals, taken together, are smallest."""
    n = start.shape[0]
    memory = min(_REMEMBERED, n)
    small = float(np.finfo(start.dtype).eps)

    def step(k: Variable, state: Any) -> Any:
        x, r, last_x, last_r, xs, rs = state
        slot = F.cast(F.equal_scalar(F.constant(0, (memory, 1), "int32") + _numbers(memory) - k % memory, 0), x.dtype)
        first = F.cast(k == 0, x.dtype)
        xs = xs + slot * ((x - last_x) * (1 - first) - xs)
        rs = rs + slot * ((r - last_r) * (1 - first) - rs)
        gram = rs @ F.transpose(rs)
        # Enough on the diagonal that steps which are not there yet, or depend on each other, count for nothing.
        ridge = small * F.sum(F.matrix_diag_part(gram)) + float(np.finfo(start.dtype).tiny)
        weights = F.batch_solve(gram + ridge * np.eye(memory), rs @ r)
        ahead = x + r - weights @ (xs + rs)
        return ahead, problem.residual.at(ahead), x, r, xs, rs

    r = problem.residual.at(start)
    none = F.constant(0.0, (memory, n), start.dtype)
    return _iterated(problem, start, (start, r, start, r, none, none), step)


def _numbers(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.int32)[:, None]


# ---------------------------------------------------------------- minima


def _downhill(problem: Problem, x: Variable, y: Variable, g: Variable, dx: Variable) -> Any:
    """Where a direction leads: x, the gradient, and the function, after a step that is halved until the function falls
    enough (Armijo's condition), or the gradient does, which tells where the function is flat to rounding."""
    slope, size = F.sum(g * dx), F.norm(g)

    def trial(t: Variable) -> Any:
        ahead = x + t * dx
        return ahead, problem.residual.at(ahead), problem.function(ahead)

    def fits(t: Variable, tried: Any) -> Variable:
        falls = tried[2] <= y + 1e-4 * t * slope
        flat = F.abs(tried[2] - y) <= 10 * float(np.finfo(x.dtype).eps) * F.abs(y)
        return F.logical_or(falls, F.logical_and(flat, F.norm(tried[1]) < size))

    return _halved(fits, trial, x)


def _descent(problem: Problem, start: Variable, memory: Any, direction: Callable[..., Any]) -> Found:
    """A loop of steps that lead down.

    Args:
        problem: What is to be solved.
        start: Where to begin.
        memory: What a method remembers.
        direction: `direction(k, x, g, memory)` gives a direction, and `remember(ahead, g)`, which gives the memory after
            the step.
    """

    def step(k: Variable, state: Any) -> Any:
        x, g, y, memory = state
        dx, remember = direction(k, x, g, memory)
        ahead, after, lower = _downhill(problem, x, y, g, dx)
        return ahead, after, lower, remember(ahead, after)

    return _iterated(problem, start, (start, problem.residual.at(start), problem.function(start), memory), step)


def gradient_descent(problem: Problem, start: Variable) -> Found:
    """Steps against the gradient, each first tried at twice the length that did at the step before."""
    one = F.constant(1.0, (), start.dtype)

    def direction(k: Variable, x: Variable, g: Variable, rate: Variable) -> Any:
        del k
        size = F.norm(g)

        def remember(ahead: Variable, after: Variable) -> Variable:
            del after
            taken = F.norm(ahead - x) / size
            return F.where(taken > 0, 2 * taken, rate * 0.5)

        return -rate * g, remember

    return _descent(problem, start, one / F.maximum_scalar(F.norm(problem.residual.at(start)), 1.0), direction)


def newton_descent(problem: Problem, start: Variable) -> Found:
    """Newton's steps, where they lead down, else against the gradient."""

    def direction(k: Variable, x: Variable, g: Variable, memory: Any) -> Any:
        del k
        dx = problem.newton_step(x, g)
        down = F.sum(g * dx) < 0
        return F.where(F.broadcast(down, shape=x.shape), dx, -g), lambda ahead, after: memory

    return _descent(problem, start, (), direction)


_PAIRS = 10
"""How many steps the limited memory holds."""


def lbfgs(problem: Problem, start: Variable) -> Found:
    """Nocedal (1980): the inverse of the Hessian, as the last steps and what they did to the gradient show it."""
    n = start.shape[0]
    none = F.constant(0.0, (_PAIRS, n), start.dtype)

    def direction(k: Variable, x: Variable, g: Variable, memory: Any) -> Any:
        steps, changes = memory  # the last first
        q, rates = g, []
        curvatures = F.sum(steps * changes, axis=1)
        weights = F.where(curvatures > 0, 1 / F.where(curvatures > 0, curvatures, F.constant(1.0, (_PAIRS,), x.dtype)),
                          F.constant(0.0, (_PAIRS,), x.dtype))  # fmt: skip
        for i in range(_PAIRS):
            rate = weights[i] * F.sum(steps[i] * q)
            q = q - rate * changes[i]
            rates.append(rate)
        square = F.sum(changes[0] * changes[0])
        known = curvatures[0] > 0
        scale = F.where(known, curvatures[0] / F.where(known, square, F.constant(1.0, (), x.dtype)),
                        1 / F.maximum_scalar(F.norm(g), 1.0))  # fmt: skip
        q = scale * q
        for i in reversed(range(_PAIRS)):
            q = q + (rates[i] - weights[i] * F.sum(changes[i] * q)) * steps[i]

        def remember(ahead: Variable, after: Variable) -> Any:
            s, change = ahead - x, after - g
            useful = F.sum(s * change) > 0
            rolled = [
                F.concatenate(F.reshape(new, shape=(1, n)), old[:-1], axis=0)
                for new, old in ((s, steps), (change, changes))
            ]
            keep = F.broadcast(F.reshape(useful, shape=(1, 1)), shape=(_PAIRS, n))
            return tuple([F.where(keep, new, old) for new, old in zip(rolled, (steps, changes), strict=True)])

        del k
        return -q, remember

    return _descent(problem, start, (none, none), direction)


ROOT: dict[str, Finder] = {"newton": newton}
FIXED_POINT: dict[str, Finder] = {"iterate": iterate, "anderson": anderson, "newton": newton}
MINIMIZE: dict[str, Finder] = {"lbfgs": lbfgs, "newton": newton_descent, "gradient_descent": gradient_descent}
