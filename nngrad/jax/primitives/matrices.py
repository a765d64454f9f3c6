"""Matrix factorisations and linear solves, including `custom_linear_solve`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from ... import functions as F
from ...derivatives.implicit.capturing import equation as captured_equation
from ...derivatives.implicit.packing import Packing
from ...functions.bodies.implicit import solve_by_body
from ...functions.bodies.matrices import NotLinear, transpose_of
from ...functions.factors import lu_decomposition
from ...graph import Variable, apply
from ..values import Value, is_held
from .registry import JaxprEquation, controls, opens, require, variable


@opens("cholesky")
def _cholesky(equation: JaxprEquation, x: Variable) -> Variable:
    return F.batch_cholesky(x)


@opens("triangular_solve")
def _triangular_solve(equation: JaxprEquation, a: Variable, b: Variable) -> Variable:
    p = equation.params
    require(not p["conjugate_a"], "of the conjugate")
    transposed = bool(p["transpose_a"])
    if p["left_side"]:
        return F.triangular_solve(
            a, b, lower=bool(p["lower"]), transposed=transposed, unit_diagonal=bool(p["unit_diagonal"])
        )
    swapped = F.triangular_solve(
        a,
        F.swapaxes(b, -1, -2),
        lower=bool(p["lower"]),
        transposed=not transposed,
        unit_diagonal=bool(p["unit_diagonal"]),
    )
    return F.swapaxes(swapped, -1, -2)


@opens("eigh")
def _eigh(equation: JaxprEquation, x: Variable) -> list[Variable]:
    require(equation.params.get("subset_by_index") in (None, (0, x.shape[-1])), "of some of the eigenvalues")
    values, vectors = F.batch_eigh(x)
    return [vectors, values]


@opens("svd")
def _svd(equation: JaxprEquation, x: Variable) -> list[Variable]:
    p = equation.params
    require(not p["compute_uv"] or not p.get("full_matrices") or x.shape[-1] == x.shape[-2], "with full matrices")
    require(p.get("subset_by_index") in (None, (0, min(x.shape[-2:]))), "of some of the singular values")
    u, s, vh = F.batch_svd(x)
    return [s, u, vh] if p["compute_uv"] else [s]


@opens("lu")
def _lu(equation: JaxprEquation, x: Variable) -> list[Variable]:
    require(x.shape[-1] == x.shape[-2], "of matrices that are not square")
    return list(lu_decomposition(x))


@opens("qr")
def _qr(equation: JaxprEquation, x: Variable) -> list[Variable]:
    p = equation.params
    require(not p.get("pivoting"), "with pivots")
    require(not p["full_matrices"] or x.shape[-2] <= x.shape[-1], "with full matrices")
    return list(F.batch_qr(x))


@controls("custom_linear_solve")
def _custom_linear_solve(opening: Any, equation: JaxprEquation, values: list[Value]) -> list[Any]:
    jaxprs, counts = equation.params["jaxprs"], equation.params["const_lengths"]
    require(jaxprs.transpose_solve is not None, "without a function that solves the transposed system")
    require(all(map(is_held, equation.inputs)), "of what is no array of numbers")
    rest, constants = [variable(v) for v in values], []
    for count in counts:
        constants.append(rest[:count])
        rest = rest[count:]
    of_product, _, of_solver, of_other = constants
    require(len(equation.outputs) == len(rest), "with something beside the solution")
    require(all([b.dtype == rest[0].dtype and b.dtype.name in ("float32", "float64") for b in rest]), "of such dtypes")
    packing = Packing(rest, "b", equation.name)

    def product(vector: Variable) -> Variable:
        found = opening.run_closed(jaxprs.matvec, [*of_product, *packing.unpacked(vector)])
        return packing.packed([variable(y) for y in found], "the function returns")

    def solver(closed: ClosedJaxpr, given: Sequence[Variable]) -> Any:
        """The user's solver, opaque: no derivative differentiates it."""
        run = F.jax_function(jaxpr_as_fun(closed))
        return lambda vector: packing.packed(run(*given, *packing.unpacked(vector)), "the solver returns")

    functions = (product, solver(jaxprs.solve, of_solver), solver(jaxprs.transpose_solve, of_other))
    matrix, found, other = [captured_equation(f, [packing.spec], equation.name, f) for f in functions]
    try:
        transpose = transpose_of(matrix.body)
    except NotLinear:
        require(False, "of a function that is not linear")
    inputs = (*matrix.parameters, *found.parameters, *other.parameters, packing.vector)
    x = apply(solve_by_body, inputs, (matrix.body, transpose, found.body, other.body))
    return list(packing.unpacked(x))
