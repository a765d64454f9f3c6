"""Functions that an equation defines: solutions of linear systems whose matrix is a body, and roots of bodies.

How a solution was found leaves no trace in the graph: it is one function, with the equation as a static argument, and
its derivatives are solutions of linear equations again (`backward_registry/implicit.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ..graph import Array, Function, Op, Spec, Variable, apply, op
from ..graph.arguments import Static
from ..graph.block import Block
from ..graph.derived import derived_once
from . import krylov
from .array import constant, zeros_like
from .factors import lu_solve

# ---------------------------------------------------------------- bodies that are matrices


class Options(NamedTuple):
    """How linear systems are solved."""

    method: str
    """'dense', or a key of `krylov.METHODS`."""
    tol: float
    """Iteration ends when the norm of the residual is at most this, times that of the right side,"""
    atol: float
    """or at most this,"""
    maxiter: int
    """or after so many products with the matrix."""
    keep: bool
    """Whether what did not converge is given nevertheless; else it is NaN."""

    @property
    def symmetric(self) -> bool:
        """Whether the method takes the matrix for its own transpose."""
        return self.method == "cg"


class NotLinear(ValueError):
    """A body that should be a matrix is not linear in its last input."""


@derived_once
def transpose_of(matrix: Block) -> Block:
    """The transpose of a matrix: of a body that is linear in its last input, a vector, and gives a vector.

    Raises:
        NotLinear: It is not.
    """
    place = len(matrix.inputs) - 1
    found = matrix.gradient(matrix.outputs, (place,), tuple(range(place + 1)), ())
    if place in found.residuals:
        raise NotLinear
    inputs = (*matrix.inputs[:-1], matrix.spec(matrix.outputs[0]))
    if not found.reached:
        return _zero_of(inputs, matrix.inputs[place])
    return found.body.with_inputs(inputs, [*found.residuals, place])


@derived_once
def jacobian_of(residual: Block) -> Block:
    """The Jacobian of a body in its last input, as a matrix: its inputs are those of the body, and a vector."""
    place = len(residual.inputs) - 1
    found = residual.tangent((place,), residual.outputs)
    inputs = (*residual.inputs, residual.inputs[place])
    if not found.moved:
        return _zero_of(inputs, residual.spec(residual.outputs[0]))
    body = found.body
    return Block(inputs, body.steps, body.orders, body.outputs[len(residual.outputs) :], body.stops, body.places)


def _zero_of(inputs: tuple[Spec, ...], spec: Spec) -> Block:
    return Block(inputs, ((constant, (0, spec.shape, spec.dtype), ()),), (0,), (-1,))


def product_with(matrix: Block, parameters: Sequence[Any]) -> Callable[[Any], Any]:
    """The function on arrays that multiplies a vector by the matrix."""

    def product(v: Any) -> Any:
        (number,) = matrix.outputs
        return v if number == len(parameters) else matrix.run((*parameters, v))[~number]

    return product


# ---------------------------------------------------------------- solves


def _body_cost(body: Block) -> int:
    return sum([max(1, spec.size) for spec in body.specs])


def _factors_cost(f: Function) -> int:
    n = f.specs[0].shape[0]
    return n * (n * n + _body_cost(f.arguments[0]))


@op(multiple_results=True, cost=_factors_cost)
def factors_of_body(*x: Array, matrix: Static) -> tuple[jax.Array, jax.Array]:
    """The LU factors of the matrix that a body is, as `lu_factor` gives them: an aid for solves.

    Args:
        x: The inputs of the body but for the last.
        matrix: The body.
    """
    spec = matrix.inputs[-1]
    columns = jax.vmap(product_with(matrix, x), out_axes=1)(jnp.eye(spec.shape[0], dtype=spec.dtype))
    lu, _, permutation = lax.linalg.lu(columns)
    return lu, permutation


@op(linear=True, reads=3, cost=lambda f: 2 * f.specs[0].size ** 2)
def factored_solve(*x: Array, matrix: Static, transposed: bool) -> jax.Array:
    """The solution of a linear system by the factors of its matrix, which is a body.

    Args:
        x: The right side, a vector; what `factors_of_body` gives; and, for the gradient, what it was given: nothing is
            computed from that.
        matrix: The body.
        transposed: Whether the matrix is transposed first.
    """
    del matrix
    b, lu, permutation = x[:3]
    y: jax.Array = lu_solve.forward(b[:, None], lu, permutation, None, transposed)[:, 0]
    return y


def _iterations_cost(f: Function) -> int:
    return f.specs[0].size * _body_cost(f.arguments[0])


@op(multiple_results=True, cost=_iterations_cost)
def iterative_solve(
    *x: Array, matrix: Static, transpose: Static, method: str, tol: float, atol: float, maxiter: int, keep: bool
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """The solution of a linear system by products with its matrix, which is a body.

    Args:
        x: The inputs of the body but for the last, the right side, and where to begin.
        matrix: The body.
        transpose: The transpose, for the gradient.
        method: As in `Options`, as are those that follow.
        tol: Relative.
        atol: Absolute.
        maxiter: The most products.
        keep: Whether what did not converge is given.

    Returns:
        The solution, the norm of its residual, whether it converged, and how many products it took.
    """
    del transpose
    *parameters, b, start = x
    target = lax.max(tol * krylov.norm(b), jnp.asarray(atol, b.dtype))
    found = krylov.solved(method, product_with(matrix, parameters), b, start, target, maxiter)
    converged = found.residual <= target
    solution = found.x if keep else jnp.where(converged, found.x, jnp.nan)
    return solution, found.residual, converged, found.steps


def solve(
    matrix: Block, parameters: Sequence[Variable], b: Variable, options: Options, transposed: bool = False,
    start: Variable | None = None,
) -> tuple[Variable, ...]:
    """The solution of a linear system whose matrix is a body, and for an iterative method what else it gives.

    Args:
        matrix: The body: its inputs are parameters and a vector, its output a vector.
        parameters: What it is applied to but for the vector.
        b: The right side, a vector.
        options: How it is solved.
        transposed: Whether the matrix is transposed first.
        start: Where an iterative method begins; None for 0.
    """
    if options.method == "dense":
        factors = apply(factors_of_body, tuple(parameters), (matrix,))
        return (apply(factored_solve, (b, *factors, *parameters), (matrix, transposed)),)
    pair = (matrix, matrix if options.symmetric else transpose_of(matrix))
    inputs = (*parameters, b, zeros_like(b) if start is None else start)
    found: tuple[Variable, ...] = apply(iterative_solve, inputs, (*(pair[::-1] if transposed else pair), *options))
    return found


@op(cost=_iterations_cost)
def solve_by_body(
    *x: Array, matrix: Static, transpose: Static, solver: Static, transposed_solver: Static
) -> jax.Array:
    """The solution of a linear system whose matrix is a body, as another body finds it.

    Args:
        x: The inputs of the matrix but for the last, those of the solver but for the last, those of the transposed
            solver but for the last, and the right side, a vector.
        matrix: The body that multiplies by the matrix.
        transpose: The transpose, for the gradient.
        solver: The body that gives the solution for a right side, its last input.
        transposed_solver: That for the transpose, for the gradient.
    """
    del transpose  # JAX, which may differentiate what is emitted, makes its own
    first, second = len(matrix.inputs) - 1, len(solver.inputs) - 1
    by_solver = product_with(solver, x[first : first + second])
    by_other = product_with(transposed_solver, x[first + second : -1])
    found: jax.Array = lax.custom_linear_solve(
        product_with(matrix, x[:first]), x[-1], lambda _, b: by_solver(b), lambda _, b: by_other(b)
    )
    return found


# ---------------------------------------------------------------- roots


class RootOfBody(Op):
    """An op that knows the shapes of its outputs from its arguments."""

    def result_specs(self, given: tuple[Spec, ...], arguments: tuple[Any, ...]) -> tuple[Spec, ...]:
        """Shape and dtype of each output."""
        finder: Block = arguments[1]
        return tuple([finder.spec(number) for number in finder.outputs])


def _root_cost(f: Function) -> int:
    return f.specs[0].size * _body_cost(f.arguments[0]) + _body_cost(f.arguments[1])


def _root_of_body(
    *x: Array, residual: Static, finder: Static, method: str, tol: float, atol: float, maxiter: int, keep: bool
) -> tuple[jax.Array, ...]:
    """Where a body is 0, as another one finds it.

    Args:
        x: What both bodies are given; the last is where to begin, a vector.
        residual: Gives a vector, which is 0 where the last of its inputs is a root.
        finder: Gives the root, and what else is known of it: the norm of the residual there, whether that is small
            enough, and the number of steps.
        method: How the linear equations of the derivatives are solved, as in `Options`, as are those that follow.
        tol: Relative.
        atol: Absolute.
        maxiter: The most products.
        keep: Whether what did not converge is given.

    Returns:
        What the finder gives.
    """
    del residual, method, tol, atol, maxiter, keep
    values = finder.run(x)
    return tuple([x[i] if i >= 0 else values[~i] for i in finder.outputs])


_root_of_body.__name__ = "root_of_body"
root_of_body = RootOfBody(_root_of_body, multiple_results=True, cost=_root_cost)
