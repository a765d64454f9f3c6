"""Ops defined by equations: solutions of linear systems whose matrix is a body, and roots of bodies.

    A(p) x = b       A dx = db - dA x         gb = w with A' w = gx, and gp is the gradient of -<w, A(p) x> in p
    r(p, x) = 0      (dr/dx) dx = -dr/dp dp   gp is that of -<w, r(p, x)> in p, with (dr/dx)' w = gx

The graph does not record how a solution was found. It is one function with the equation as a static argument, and its
derivatives are solutions of linear equations. A body that is differentiated is inlined, so that its derivatives share
common subexpressions; and linear systems with one matrix share its factors. Nested gradients of a root take 1, 3, 7 and
12 solves up to order 4, since the product rule in bodies associates factors in two ways; forward mode takes one for
each order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ...graph import Array, Function, Spec, Variable, apply
from ...graph.arguments import Static
from ...graph.block import Block
from ...graph.body_op import BodyOp, Gradients, Numbers, Results
from .. import krylov
from ..factors import eliminated, lu_solve, nan_of_matrix
from .derived_bodies import operations_in
from .matrices import DENSE, SolveOptions, jacobian_of, product_with, pulled_back, pushed_forward, transpose_of

# ---------------------------------------------------------------- solutions


class Solution(BodyOp):
    """The solution of an equation. A subclass defines the equation, and solves it for other right-hand sides."""

    def right(self, arguments: tuple[Any, ...]) -> int | None:
        """The index of the input that is the right-hand side; None if there is none."""
        return None

    def operations(self, f: Function) -> int:
        """The operations of one product with the matrix per unknown."""
        return f.specs[0].size * operations_in(f.arguments[0])

    def parameters(self, arguments: tuple[Any, ...], count: int) -> range:
        """The indices of the inputs that are the equation's parameters; by default the first of `count`."""
        return range(len(arguments[0].inputs) - 1)

    def is_transposed(self, arguments: tuple[Any, ...]) -> bool:
        """True if the equation has the transposed matrix."""
        return False

    def solved(self, f: Function, right: Variable, transposed: bool) -> Variable:
        """The solution of the linear equation with the matrix of `f`, or its transpose, and this right-hand side."""
        raise NotImplementedError

    def gradients(self, f: Function, gys: Sequence[Variable], indexes: Numbers) -> Gradients:
        """gb = w with A' w = gx, and gp is the gradient of -<w, A(p) x> in p; the starting point has none"""
        x, places = f.outputs[0], self.parameters(f.arguments, len(f.inputs))
        w = self.solved(f, gys[0], True)
        v, seed = (w, x) if self.is_transposed(f.arguments) else (x, w)
        wanted = [i - places.start for i in indexes if i in places]
        gradients = pulled_back(f.arguments[0], [*[f.inputs[i] for i in places], v], seed, wanted)
        gxs: Gradients = [None] * len(f.inputs)
        for i, gx in gradients.items():
            gxs[places.start + i] = gx
        place = self.right(f.arguments)
        if place is not None:
            gxs[place] = w
        return gxs

    def tangents(self, f: Function, ts: Results, read: Sequence[bool]) -> Gradients:
        """A dx = db - dA x"""
        places = self.parameters(f.arguments, len(f.inputs))
        place, moves = self.right(f.arguments), [ts[i] for i in places]
        right = None if place is None else ts[place]
        if any([t is not None for t in moves]):
            body = transpose_of(f.arguments[0]) if self.is_transposed(f.arguments) else f.arguments[0]
            moved = pushed_forward(body, [*[f.inputs[i] for i in places], f.outputs[0]], [*moves, None])
            if moved is not None:
                right = -moved if right is None else right - moved
        return [None if right is None else self.solved(f, right, False), *[None] * (len(f.specs) - 1)]


class Factored(Solution):
    """A linear solve by factors of the matrix."""

    def right(self, arguments: tuple[Any, ...]) -> int:
        """The first input."""
        return 0

    def parameters(self, arguments: tuple[Any, ...], count: int) -> range:
        """The inputs after the right-hand side and the factors."""
        return range(3, count)

    def is_transposed(self, arguments: tuple[Any, ...]) -> bool:
        """The value of the static argument."""
        return bool(arguments[1])

    def operations(self, f: Function) -> int:
        """Two operations for each element of a factor."""
        return int(2 * f.specs[0].size ** 2)

    def solved(self, f: Function, right: Variable, transposed: bool) -> Variable:
        """Solve with the same factors."""
        matrix, is_transposed = f.arguments
        return solve(matrix, f.inputs[3:], right, DENSE, is_transposed != transposed)[0]


class Iterated(Solution):
    """A linear solve by products with the matrix."""

    def right(self, arguments: tuple[Any, ...]) -> int:
        """The input after the parameters of the matrix."""
        return len(arguments[0].inputs) - 1

    def solved(self, f: Function, right: Variable, transposed: bool) -> Variable:
        """Solve with the same method, starting from 0."""
        matrix, transpose, *options = f.arguments
        pair = (transpose, matrix) if transposed else (matrix, transpose)
        x: Variable = apply(self, (*f.inputs[: self.right(f.arguments)], right), (*pair, *options))[0]
        return x


class Root(Solution):
    """A root of a body."""

    def result_specs(self, inputs: tuple[Spec, ...], arguments: tuple[Any, ...]) -> tuple[Spec, ...]:
        """Shape and dtype of each output."""
        finder: Block = arguments[1]
        return tuple([finder.spec(number) for number in finder.outputs])

    def operations(self, f: Function) -> int:
        """The operations of products with the Jacobian, and of finding the root."""
        return super().operations(f) + operations_in(f.arguments[1])

    def solved(self, f: Function, right: Variable, transposed: bool) -> Variable:
        """Solve with the Jacobian at the root."""
        residual, _, *options = f.arguments
        at = (*f.inputs[:-1], f.outputs[0])
        return solve(jacobian_of(residual), at, right, SolveOptions(*options), transposed)[0]


class Factors(BodyOp):
    """The factors of a matrix. They have no gradient: a solve with them also takes the parameters of the matrix."""

    def operations(self, f: Function) -> int:
        """The operations of forming and factoring the matrix."""
        n = f.specs[0].shape[0]
        return int(n * (n * n + operations_in(f.arguments[0])))


# ---------------------------------------------------------------- ops


@Factors.declared(multiple_results=True)
def factors_of_body(*x: Array, matrix: Static) -> tuple[jax.Array, jax.Array]:
    """The LU factors, as in `lu_factor`, of a matrix given as a body, from all inputs of the body except the last."""
    spec = matrix.inputs[-1]
    columns = jax.vmap(product_with(matrix, x), out_axes=1)(jnp.eye(spec.shape[0], dtype=spec.dtype))
    lu, _, permutation = eliminated(columns)
    return *nan_of_matrix(columns, lu), permutation


@Factored.declared(linear=True, reads=3)
def factored_solve(*x: Array, matrix: Static, transposed: bool) -> jax.Array:
    """The solution of a linear system, from the factors of its matrix, which is a body.

    Its inputs are the right-hand side, a vector; the outputs of `factors_of_body`; and, for the gradient, its inputs.
    """
    del matrix
    b, lu, permutation = x[:3]
    y: jax.Array = lu_solve.forward(b[:, None], lu, permutation, None, transposed)[:, 0]
    return y


@Iterated.declared(multiple_results=True)
def iterative_solve(
    *x: Array, matrix: Static, transpose: Static, method: str, tol: float, atol: float, maxiter: int, keep: bool
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """The solution of a linear system by products with its matrix, the residual norm, whether it converged, and the
    number of products. Its inputs are those of the matrix except the last, the right-hand side and the starting vector,
    which is 0 if there is none. The transpose serves the gradient; `SolveOptions` describes the other arguments."""
    del transpose
    count = len(matrix.inputs) - 1
    parameters, b, start = x[:count], x[count], x[count + 1] if len(x) > count + 1 else None
    target = lax.max(tol * krylov.euclidean_norm(b), jnp.asarray(atol, b.dtype))
    solution, _, square, steps = krylov.solved(method, product_with(matrix, parameters), b, start, target, maxiter)
    residual = lax.sqrt(square)
    converged = residual <= target
    return solution if keep else jnp.where(converged, solution, jnp.nan), residual, converged, steps


@Root.declared(multiple_results=True)
def root_of_body(
    *x: Array, residual: Static, finder: Static, method: str, tol: float, atol: float, maxiter: int, keep: bool
) -> tuple[jax.Array, ...]:
    """The root of a body, `residual`, computed by another body.

    Both take all inputs; the last one is the initial guess. The finder returns the root, the norm of the residual
    there, whether it is small enough, and the number of steps. The other arguments, described by `SolveOptions`, say
    how to solve the linear equations of the derivatives.
    """
    del residual, method, tol, atol, maxiter, keep
    root: tuple[jax.Array, ...] = finder.results_of(x)
    return root


# ---------------------------------------------------------------- applied


def solve(
    matrix: Block,
    parameters: Sequence[Variable],
    b: Variable,
    options: SolveOptions,
    transposed: bool = False,
    start: Variable | None = None,
) -> tuple[Variable, ...]:
    """The solution of a linear system whose matrix is a body of parameters and a vector. An iterative method starts
    from `start`, or from 0, and its other outputs follow the solution."""
    if options.method == "dense":
        factors = apply(factors_of_body, tuple(parameters), (matrix,))
        return (apply(factored_solve, (b, *factors, *parameters), (matrix, transposed)),)
    pair = (matrix, matrix if options.symmetric else transpose_of(matrix))
    inputs = (*parameters, b, *([] if start is None else [start]))
    solution: tuple[Variable, ...] = apply(iterative_solve, inputs, (*(pair[::-1] if transposed else pair), *options))
    return solution
