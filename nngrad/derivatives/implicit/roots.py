"""root, fixed_point and minimize: solutions of equations, differentiated by the implicit function theorem."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, overload

import jax
import numpy as np

import nngrad.functions as F

from ...autodiff.grad import grad
from ...functions.bodies.implicit import root_of_body
from ...graph import Variable, apply
from ...graph.arguments import checked_choice, checked_count
from ...graph.capture import captured
from .convergence import LINEAR, OF_FIXED_POINTS, Convergence, keeps, options_for, tolerance, without_gradients
from .iterations import FIXED_POINT, MINIMIZE, ROOT, Finder, Problem
from .packing import CapturedEquation, Packing, at_full_precision, equation


@at_full_precision
def root(
    fun: Callable[[Any], Any],
    x0: Any,
    method: str = "newton",
    *,
    tol: float | None = None,
    maxiter: int = 100,
    linear: str | None = None,
    unconverged: str = "nan",
) -> tuple[Any, Convergence]:
    """Solve `fun(x) = 0` for a function with as many results as unknowns.

        x, info = nn.root(lambda x: x**3 + a * x - b, x0)

    Derivatives of any order, in all that `fun` reads from outside, follow from the implicit function theorem: each is
    the solution of a linear system with the Jacobian at the root. No iterate is stored. No gradient reaches `x0`, since
    the root does not depend on the starting point.

    Args:
        fun: Takes a pytree like `x0` and returns one of the same structure, shapes and dtype. It is called once, on
            Variables without values. Its random numbers are drawn once for each `forward()`.
        x0: The starting point: a pytree of Variables, arrays and numbers, all float32 or all float64.
        method: "newton": Newton's method, with steps halved until the residual falls.
        tol: It has converged when the norm of `fun(x)` is at most `tol`, or `tol` times its value at the start, if that
            was larger than 1; by default eps^(2/3) for the machine epsilon of the dtype.
        maxiter: The largest number of steps.
        linear: How to solve linear systems with the Jacobian, in steps and for derivatives: as `method` in
            `nn.linear_solve`. By default "dense" up to 128 unknowns, where all derivatives share the LU factors, and
            "gmres" for more.
        unconverged: The result if it does not converge: "nan", or "keep" for the last step, whose derivatives mean
            little.

    Returns:
        The root, in the structure and shapes of `x0`, and a `Convergence`: `residual`, the norm of `fun(x)`,
        `converged` and `steps`, and `check()`, which raises an error unless it converged.

    Raises:
        TypeError: `fun` returns another structure or dtype, or `x0` is not floating or has several dtypes.
        ValueError: `fun` returns other shapes, or an option is unknown or out of range.
    """
    packing = Packing(x0, "x0", "root")

    def residual(x: Variable) -> Variable:
        return packing.packed(fun(packing.unpacked(x)), "fun returns")

    system = equation(residual, [packing.spec], "root", fun)
    return _solution("root", system, system, packing, method, ROOT, tol, maxiter, linear, unconverged)


@at_full_precision
def fixed_point(
    fun: Callable[[Any], Any],
    x0: Any,
    method: str = "anderson",
    *,
    tol: float | None = None,
    maxiter: int = 1000,
    linear: str | None = None,
    unconverged: str = "nan",
) -> tuple[Any, Convergence]:
    """Solve `fun(x) = x`.

        z, info = nn.fixed_point(lambda z: F.tanh(z @ w + x), z0)      # a deep equilibrium layer

    Derivatives are as in `nn.root`.

    Args:
        fun: As in `nn.root`.
        x0: The starting point, as in `nn.root`.
        method: "iterate": `fun` applied repeatedly, which must be a contraction; "anderson": Anderson acceleration of
            this, over five steps; or "newton".
        tol: As in `nn.root`, for the norm of `fun(x) - x`.
        maxiter: The largest number of steps.
        linear: As in `nn.root`; or "iterate", like the fixed point itself. This is the default with that method for
            more than 128 unknowns.
        unconverged: As in `nn.root`.

    Returns:
        The fixed point and its `Convergence`, as from `nn.root`.

    Raises:
        TypeError, ValueError: As in `nn.root`.
    """
    packing = Packing(x0, "x0", "fixed_point")
    function = equation(
        lambda x: packing.packed(fun(packing.unpacked(x)), "fun returns"), [packing.spec], "fixed_point", fun
    )
    residual = equation(lambda x: x - function.at(x), [packing.spec], "fixed_point", fun)
    return _solution(
        "fixed_point", residual, function, packing, method, FIXED_POINT, tol, maxiter, linear, unconverged,
        iterative="iterate" if method == "iterate" else "gmres", known=OF_FIXED_POINTS,
    )  # fmt: skip


@overload
def minimize(
    fun: Callable[[Variable], Variable], x0: Variable | np.ndarray[Any, Any] | jax.Array | float, method: str = ...,
    *, tol: float | None = ..., maxiter: int = ..., linear: str | None = ..., unconverged: str = ...,
) -> tuple[Variable, Convergence]: ...
@overload
def minimize(
    fun: Callable[[Any], Variable], x0: Any, method: str = ...,
    *, tol: float | None = ..., maxiter: int = ..., linear: str | None = ..., unconverged: str = ...,
) -> tuple[Any, Convergence]: ...  # fmt: skip


@at_full_precision
def minimize(
    fun: Callable[[Any], Variable],
    x0: Any,
    method: str = "lbfgs",
    *,
    tol: float | None = None,
    maxiter: int = 1000,
    linear: str | None = None,
    unconverged: str = "nan",
) -> tuple[Any, Convergence]:
    """Find a local minimum of `fun(x)`, which is a scalar.

        w, info = nn.minimize(lambda w: F.sum((x @ w - y) ** 2) + F.exp(s) * F.sum(w * w), w0)

    It is a root of the gradient, so derivatives are as in `nn.root`, with the Hessian for the Jacobian.

    Args:
        fun: Takes a pytree like `x0` and returns a Variable without axes. It is called once, on Variables without
            values. Its random numbers are drawn once for each `forward()`.
        x0: The starting point, as in `nn.root`.
        method: "lbfgs": the limited-memory quasi-Newton method; "newton", which steps against the gradient where
            Newton's direction leads uphill; both halve steps until the function decreases enough.
        tol: As in `nn.root`, for the norm of the gradient.
        maxiter: The largest number of steps.
        linear: As in `nn.root`, for the Hessian; by default "dense" up to 128 unknowns, and "cg" for more.
        unconverged: As in `nn.root`.

    Returns:
        The minimum's position and its `Convergence`, as from `nn.root`; `residual` is the norm of the gradient.

    Raises:
        TypeError: `x0` is not floating or has several dtypes.
        ValueError: `fun` returns something that has axes, or an option is unknown or out of range.
    """
    packing = Packing(x0, "x0", "minimize")

    def value(x: Variable) -> Variable:
        y = fun(packing.unpacked(x))
        if not isinstance(y, Variable) or y.shape or y.dtype != packing.dtype:
            raise ValueError(f"minimize: fun must return a {packing.dtype} Variable of shape (), got {y!r}")
        return y

    function = equation(value, [packing.spec], "minimize", fun)

    def gradient(x: Variable) -> Variable:
        (gx,) = grad(function.at(x), x)
        return gx

    residual = equation(gradient, [packing.spec], "minimize", fun)
    return _solution(
        "minimize", residual, function, packing, method, MINIMIZE, tol, maxiter, linear, unconverged, iterative="cg"
    )


def _solution(
    owner: str,
    residual: CapturedEquation,
    function: CapturedEquation,
    packing: Packing,
    method: str,
    methods: dict[str, Finder],
    tol: float | None,
    maxiter: int,
    linear: str | None,
    unconverged: str,
    iterative: str = "gmres",
    known: tuple[str, ...] = LINEAR,
) -> tuple[Any, Convergence]:
    """The root of a residual. `known` are the methods for linear systems, and `iterative` is the one for many
    unknowns."""
    keep = keeps(unconverged, owner)
    options = options_for(linear, packing.spec.shape[0], packing.dtype, keep, owner, iterative, known)
    most = checked_count(maxiter, f"{owner}: maxiter")
    limits = tolerance(tol, packing.dtype, owner), most, options._replace(keep=True)
    find = methods[checked_choice(method, methods, f"{owner}: method")]
    problem = Problem(residual, function, *limits)

    def results(starts: list[Variable]) -> list[Variable]:
        x, norm, converged, steps = find(problem, starts[0])
        nowhere = F.constant(math.nan, x.shape, x.dtype)
        return [x if keep else F.where(converged, x, nowhere), norm, converged, steps]

    search = captured(results, [packing.spec], owner, find, often=True)
    outer = (*search.variables, *search.keys)
    variables = list({id(x): x for x in (*residual.parameters, *outer)}.values())
    place = {id(x): i for i, x in enumerate(variables)}
    specs = (*[x.spec for x in variables], packing.spec)
    last = len(variables)
    bodies = (
        residual.body.with_inputs(specs, [*[place[id(x)] for x in residual.parameters], last]),
        search.body.with_inputs(
            specs, [*[place[id(x)] for x in search.variables], last, *[place[id(x)] for x in search.keys]]
        ),
    )
    x, norm, converged, steps = apply(root_of_body, (*variables, packing.vector), (*bodies, *options))
    return packing.solution(x, without_gradients(norm, converged, steps))
