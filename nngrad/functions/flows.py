"""Ordinary differential equations: Runge-Kutta steps from the state at one time to that at another.

A field is a function of a state (a vector) and a time. `integrated` composes its flow of functions of the graph, which
are differentiable as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..graph import Variable
from .arithmetic import maximum2, maximum_scalar, minimum_scalar
from .array import constant
from .comparison import equal, greater_equal, less_equal_scalar, less_scalar
from .control import unlink
from .elementwise import abs as absolute
from .elementwise import sign
from .indexing import where
from .loops import scan
from .movement import broadcast
from .reduction import mean
from .while_loops import while_loop

Field = Callable[[Variable, Variable], Variable]


class Tableau(NamedTuple):
    """An explicit Runge-Kutta method: k_i = f(y + h sum_j a_ij k_j, t + c_i h); the step is h sum_i b_i k_i."""

    a: tuple[tuple[float, ...], ...]
    b: tuple[float, ...]
    error: tuple[float, ...] = ()
    """The weights of the difference to the step of a lower-order method."""

    @property
    def c(self) -> tuple[float, ...]:
        """The time of each stage."""
        return tuple([float(sum(row)) for row in self.a])


FIXED = {
    "euler": Tableau(((),), (1.0,)),
    "midpoint": Tableau(((), (1 / 2,)), (0.0, 1.0)),
    "heun": Tableau(((), (1.0,)), (1 / 2, 1 / 2)),
    "rk4": Tableau(((), (1 / 2,), (0.0, 1 / 2), (0.0, 0.0, 1.0)), (1 / 6, 1 / 3, 1 / 3, 1 / 6)),
}
"""Methods with a constant step size."""

DORMAND_PRINCE = Tableau(
    (
        (),
        (1 / 5,),
        (3 / 40, 9 / 40),
        (44 / 45, -56 / 15, 32 / 9),
        (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
        (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
        (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
    ),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84, 0.0),
    (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40),
)
"""Dormand and Prince (1980): order 5, with an error estimate; the last stage is the first one of the next step."""


class FlowSteps(NamedTuple):
    """The method and step sizes with which a field is integrated."""

    method: str
    """'dopri5', or a key of `FIXED`."""
    number: int
    """The number of steps; for 'dopri5', the largest number."""
    rtol: float
    """For 'dopri5': the tolerated error of a step, relative to the state,"""
    atol: float
    """and absolute."""


def _weighted(weights: Sequence[float], ks: Sequence[Variable]) -> Variable:
    """sum_i weights_i k_i."""
    total, *terms = [k if w == 1 else w * k for w, k in zip(weights, ks, strict=True) if w]
    for term in terms:
        total = total + term
    return total


def _stages(field: Field, tableau: Tableau, y: Variable, t: Variable, h: Variable, first: Variable) -> list[Variable]:
    """All stages: k_1, which is given as `first`, and those after it."""
    ks = [first]
    for row, c in zip(tableau.a[1:], tableau.c[1:], strict=True):
        ks.append(field(y + h * _weighted(row, ks), t + c * h))
    return ks


def integrated(field: Field, y: Variable, start: Variable, end: Variable, steps: FlowSteps) -> Variable:
    """The state at the time `end`, from the state `y` at the time `start`; NaN if the step limit is exceeded."""
    if steps.method == "dopri5":
        return _adaptive(field, y, start, end, steps)
    tableau = FIXED[steps.method]
    h = (end - start) / steps.number

    def step(carry: Any, _: None) -> Any:
        y, k = carry
        t = start + k * h
        ks = _stages(field, tableau, y, t, h, field(y, t))
        return (y + h * _weighted(tableau.b, ks), k + 1), None

    last: Variable = scan(step, (y, constant(0.0, (), y.dtype)), length=steps.number)[0][0]
    return last


def _size(y: Variable) -> Variable:
    """The root mean square; 0 for an empty state."""
    square: Variable = mean(y * y) if y.size else constant(0.0, (), y.dtype)
    return square**0.5


def _adaptive(field: Field, y: Variable, start: Variable, end: Variable, steps: FlowSteps) -> Variable:
    """Steps of Dormand and Prince, as long as the error estimate allows. Gradients treat their lengths as constants,
    except for the last step, which ends at `end`."""
    one, direction = constant(1.0, (), y.dtype), unlink(sign(end - start))
    first = field(y, start)

    def goes_on(carry: Any) -> Variable:
        return 1 - equal(carry[1], end)

    def step(carry: Any) -> Any:
        y, t, h, k = carry
        rest = end - t
        ends = greater_equal(absolute(h), absolute(rest))
        length = where(ends, rest, h)
        ks = _stages(field, DORMAND_PRINCE, y, t, length, k)
        ahead = y + length * _weighted(DORMAND_PRINCE.b, ks)
        wrong = unlink(length * _weighted(DORMAND_PRINCE.error, ks))
        allowed = steps.atol + steps.rtol * maximum2(absolute(unlink(y)), absolute(unlink(ahead)))
        ratio = _size(wrong / allowed)
        fits = less_equal_scalar(ratio, 1.0)
        smallest = maximum_scalar(ratio, 1e-10)
        factor = minimum_scalar(maximum_scalar(0.9 * smallest**-0.2, 0.2), 10.0)
        every = broadcast(fits, shape=y.shape)
        return (
            where(every, ahead, y), where(fits, where(ends, end, t + length), t), unlink(length * factor),
            where(every, ks[-1], k),
        )  # fmt: skip

    allowed = steps.atol + steps.rtol * absolute(unlink(y))
    height, slope = _size(unlink(y) / allowed), _size(unlink(first) / allowed)
    known = less_scalar(height, 1e-5) + less_scalar(slope, 1e-5)
    h = direction * where(known, 1e-6 * one, 0.01 * height / where(known, one, slope))
    last = while_loop(goes_on, step, (y, start, h, first), bound=steps.number)
    # A factor, not a selection: the derivatives of what has not arrived are NaN too, at every order.
    arrived = where(equal(last[1], end), one, constant(float("nan"), (), y.dtype))
    state: Variable = last[0] * unlink(arrived)
    return state
