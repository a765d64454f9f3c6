"""linear_solve: solve linear systems whose matrix is an array or a function."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import nngrad.functions as F

from ...functions.bodies.implicit import solve
from ...functions.bodies.matrices import NotLinear, SolveOptions, is_zero_at_zero, transpose_of
from ...functions.inlining import inlined
from ...graph import Variable, as_variable
from ...graph.arguments import checked_choice, checked_count
from .convergence import LINEAR, Convergence, keeps, tolerance, without_gradients
from .packing import Packing, at_full_precision, equation


@at_full_precision
def linear_solve(
    matrix: Callable[[Any], Any] | Variable,
    b: Any,
    method: str | None = None,
    *,
    tol: float | None = None,
    atol: float = 0.0,
    maxiter: int | None = None,
    x0: Any = None,
    unconverged: str = "nan",
) -> tuple[Any, Convergence]:
    """Solve `A x = b`, where A is a matrix or a function that multiplies by it.

        x, info = nn.linear_solve(lambda v: v + F.sin(w) * (c @ v), b, method="gmres")

    Gradients of any order reach `b` and all that the function reads from outside, such as `w` and `c` here. Each
    derivative is the solution of a linear system with A or its transpose, and no iterate is stored. No gradient reaches
    `x0`, since the solution does not depend on it.

    Args:
        matrix: A linear function of a pytree like `b`, which is called once, on Variables without values; or an array
            (n, n).
        b: The right-hand side: a pytree of Variables, arrays and numbers; for an array (n,) or (n, m).
        method: "cg" for symmetric positive definite matrices, "gmres" for others: these iterate, and never form A.
            "dense" forms it, and all derivatives share its LU factors. By default "dense" for an array, "gmres" for a
            function.
        tol: Iteration stops when the norm of `b - A x` is at most `tol` times that of `b`; by default eps^(2/3) for the
            machine epsilon of the dtype.
        atol: Or when it is at most `atol`.
        maxiter: Or after this many products with A; by default ten for each unknown, and at least 100.
        x0: The starting point, like `b`; by default 0.
        unconverged: The result if an iteration reached neither: "nan", or with "keep" the last iterate. The result of
            "dense" is returned unchanged; that of a singular matrix has infinities or NaN, and has not converged.

    Returns:
        The solution, in the structure and shapes of `b`, and a `Convergence`: `residual`, the norm of `b - A x`,
        `converged` and `steps`, and `check()`, which raises an error unless it converged.

    Raises:
        TypeError: The function returns something that is not like `b`, or dtypes are not floating, or not the same.
        ValueError: Shapes do not fit, the function is not linear, or an option is unknown or out of range.
    """
    if callable(matrix) and not isinstance(matrix, Variable):
        product = matrix
        packing = Packing(b, "b", "linear_solve")
        chosen = method or "gmres"
    else:
        a = as_variable(matrix, "matrix", "linear_solve")
        packing = _packed_for_matrix(a, b)
        product = lambda v: F.matmul(a, v)  # noqa: E731 - it is what a function would be
        chosen = method or "dense"
    keep = keeps(unconverged, "linear_solve")
    n = packing.spec.shape[0]
    options = SolveOptions(
        checked_choice(chosen, LINEAR, "linear_solve: method"),
        tolerance(tol, packing.dtype, "linear_solve"),
        tolerance(atol, packing.dtype, "linear_solve", "atol"),
        max(10 * n, 100) if maxiter is None else checked_count(maxiter, "linear_solve: maxiter"),
        keep,
    )
    if chosen == "dense" and product is not matrix:
        x = F.batch_solve(a, packing.leaves[0])
        return x, _of_dense(packing.leaves[0] - F.matmul(a, x))
    body, parameters = equation(
        lambda v: packing.packed(product(packing.unpacked(v)), "the function returns"), [packing.spec], "linear_solve",
        product,
    )  # fmt: skip
    try:
        transpose_of(body)
    except NotLinear:
        raise ValueError(
            "linear_solve: the function must be linear, but its derivative depends on the point. Solve nonlinear "
            "equations with nn.root"
        ) from None
    homogeneous = is_zero_at_zero(body)
    if homogeneous is False:
        raise ValueError(
            "linear_solve: the function must be linear, but something is added to its argument, so it is not 0 at 0. "
            "Subtract what is added from both sides of the equation"
        )
    start = None if x0 is None else packing.packed(x0, "x0 has")
    right = packing.vector
    if homogeneous is None:  # known when it runs; for a function that is not linear, the solution is NaN
        at_zero = F.norm(inlined(body, [*parameters, F.zeros_like(right)])[0])
        allowed = F.maximum2(F.norm(right) * options.tol, F.constant(options.atol, (), packing.dtype))
        right = right + F.unlink(F.where(F.less_equal(at_zero, allowed), 0.0 * at_zero, math.nan * at_zero))
    x, *known = solve(body, parameters, right, options, start=start)
    info = without_gradients(*known) if known else _of_dense(right - inlined(body, [*parameters, x])[0])
    return packing.solution(x, info)


def _packed_for_matrix(a: Variable, b: Any) -> Packing:
    right = as_variable(b, "b", "linear_solve", a.dtype)
    if a.ndim != 2 or a.shape[0] != a.shape[1]:
        raise ValueError(f"linear_solve: matrix must be square, got shape {a.shape}; F.batch_solve takes batches")
    if right.ndim not in (1, 2) or right.shape[0] != a.shape[0]:
        raise ValueError(f"linear_solve: b must have {a.shape[0]} rows and one or two axes, got shape {right.shape}")
    packing = Packing(right, "b", "linear_solve")
    Packing([right, a], "[b, matrix]", "linear_solve")
    return packing


def _of_dense(r: Variable) -> Convergence:
    """The Convergence of a direct solve."""
    residual = F.norm(r)
    finite = F.cast(F.less_scalar(residual, math.inf), dtype="bool")
    return without_gradients(residual, finite, F.constant(0, (), "int32"))
