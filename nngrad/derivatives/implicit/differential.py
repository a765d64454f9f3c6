"""odeint: solving ordinary differential equations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import nngrad.functions as F

from ...functions.flows import FIXED, FlowSteps, integrated
from ...graph import Variable, as_variable, spec_of
from ...graph.arguments import checked_choice, checked_count
from .packing import Packing, at_full_precision, equation

_MOST_STEPS = 256


@at_full_precision
def odeint(
    fun: Callable[..., Any],
    y0: Any,
    t: Any,
    *args: Any,
    method: str = "dopri5",
    steps: int | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    max_steps: int | None = None,
) -> Any:
    """Solve `dy/dt = fun(y, t, *args)` from `y0` at the first of the times `t`, and return y at each of them.

        ys = nn.odeint(lambda y, t, w: F.tanh(y @ w), y0, [0.0, 0.5, 1.0], w, method="rk4", steps=10)

    Like `jax.experimental.ode.odeint`. Derivatives of any order reach `y0`, `t`, `args` and everything that `fun` reads
    from outside. They are the exact derivatives of the steps taken, with the lengths of steps as constants, and a
    gradient stores what it needs of each step.

    Args:
        fun: Takes a pytree like `y0`, the time (a Variable without axes) and `args`; returns the derivative, in the
            structure, shapes and dtype of `y0`. It is called once, on Variables without values. Its random numbers are
            drawn once for each `forward()`.
        y0: The state at the first time: a pytree of Variables, arrays and numbers, all float32 or all float64.
        t: (times,), ascending or descending.
        args: Further arguments of `fun`.
        method: "dopri5": Dormand and Prince's method with adaptive steps; or with constant steps "euler", "midpoint",
            "heun" or "rk4".
        steps: For constant steps, the number of steps from each time to the next.
        rtol: For "dopri5": the relative error allowed in a step; by default eps^(1/2) for the machine epsilon of the
            dtype.
        atol: The absolute error allowed; by default the same as `rtol`.
        max_steps: For "dopri5": the most steps from each time to the next, by default 256. If they do not suffice, the
            solution is NaN from there on, and so are its derivatives. A gradient reserves memory for this many.

    Returns:
        The states, with the times along a first axis, in the structure of `y0`.

    Raises:
        TypeError: `fun` returns another structure or dtype, or `y0` is not floating or has several dtypes.
        ValueError: `fun` returns other shapes, `t` has not one axis, or an option is unknown or out of range.
    """
    packing = Packing(y0, "y0", "odeint")
    chosen = _steps(method, steps, rtol, atol, max_steps, packing.dtype)
    times = as_variable(t, "t", "odeint", packing.dtype)
    if times.ndim != 1 or not times.size:
        raise ValueError(f"odeint: t must be a one-dimensional array of at least one time, got {times.spec}")
    if times.dtype != packing.dtype:
        times = F.cast(times, dtype=packing.dtype)
    field = equation(
        lambda y, t: packing.packed(fun(packing.unpacked(y), t, *args), "fun returns"),
        [packing.spec, spec_of((), packing.dtype)], "odeint", fun,
    )  # fmt: skip

    def interval(y: Variable, ends: Any) -> Any:
        start, end = ends
        after = integrated(field.at, y, start, end, chosen)
        return after, after

    first = packing.vector
    rows = F.reshape(first, shape=(1, first.size))
    if times.size == 2:  # the usual case, which needs no nested loops
        rest = F.reshape(interval(first, (times[0], times[1]))[0], shape=rows.shape)
    else:
        rest = F.scan(interval, first, (times[:-1], times[1:]))[1]
    return packing.unpacked(F.concatenate(rows, rest, axis=0))


def _steps(
    method: str, steps: int | None, rtol: float | None, atol: float | None, max_steps: int | None, dtype: np.dtype[Any]
) -> FlowSteps:
    """How to step from each time to the next."""
    checked_choice(method, ("dopri5", *FIXED), "odeint: method")
    if method == "dopri5":
        if steps is not None:
            raise ValueError("odeint: steps= is for methods with fixed steps; with method='dopri5' use max_steps=")
        usual = float(np.finfo(dtype).eps ** 0.5)
        tolerances = [usual if tol is None else tol for tol in (rtol, rtol if atol is None else atol)]
        for name, tol in zip(("rtol", "atol"), tolerances, strict=True):
            if isinstance(tol, bool) or not isinstance(tol, int | float) or not tol > 0:
                raise ValueError(f"odeint: {name} must be a positive number, got {tol!r}")
        most = checked_count(_MOST_STEPS if max_steps is None else max_steps, "odeint: max_steps")
        return FlowSteps(method, most, *tolerances)
    for name, value in (("rtol", rtol), ("atol", atol), ("max_steps", max_steps)):
        if value is not None:
            raise ValueError(f"odeint: {name}= is for method='dopri5'; with method={method!r} use steps=")
    if steps is None:
        raise ValueError(f"odeint: method={method!r} needs steps=, the number of steps from each time to the next")
    return FlowSteps(method, checked_count(steps, "odeint: steps"), 0.0, 0.0)
