"""Backward rules of functions that an equation defines, by the implicit function theorem.

    A(p) x = b       A dx = db - dA x         gb = w with A' w = gx, and gp is the gradient of -<w, A(p) x> in p
    r(p, x) = 0      (dr/dx) dx = -dr/dp dp   gp is that of -<w, r(p, x)> in p, with (dr/dx)' w = gx

A body that is differentiated is put into the graph, so what its derivatives have in common is computed once; and linear
systems with one matrix share its factors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nngrad.functions.array import zeros_like
from nngrad.functions.implicit import (
    Options,
    factored_solve,
    factors_of_body,
    iterative_solve,
    jacobian_of,
    root_of_body,
    solve,
    solve_by_body,
    transpose_of,
)
from nngrad.functions.inlining import inlined
from nngrad.graph import Function, Variable, apply
from nngrad.graph.block import Block

from .rules import Rule, non_differentiable, registry

Numbers = tuple[int, ...]
Take = Callable[[int], Variable | None]


def pulled_back(body: Block, inputs: Sequence[Variable], w: Variable, wanted: Sequence[int]) -> dict[int, Variable]:
    """The gradients of -<w, body(inputs)>, by the number of the input."""
    given = tuple([i for i in wanted if body.inputs[i].differentiable])
    found = body.gradient(body.outputs, given, tuple(range(len(inputs))), ())
    gradients = inlined(found.body, [*[inputs[i] for i in found.residuals], w])
    return {i: -gradient for i, gradient in zip(found.reached, gradients, strict=True)}


def pushed_forward(body: Block, inputs: Sequence[Variable], ts: Sequence[Variable | None]) -> Variable | None:
    """The tangent of a body when its inputs move along tangents; None for zero."""
    moving = tuple([i for i, t in enumerate(ts) if t is not None and body.inputs[i].differentiable])
    found = body.tangent(moving, body.outputs)
    if not found.moved:
        return None
    directions = [t for i, t in enumerate(ts) if t is not None and i in moving]
    return inlined(found.body, [*inputs, *directions])[-1]


def difference(a: Variable | None, b: Variable | None) -> Variable | None:
    """a - b, where None is zero."""
    if b is None:
        return a
    return -b if a is None else a - b


# ---------------------------------------------------------------- linear systems


non_differentiable(factors_of_body)  # what solves with the factors depend on, their rules say of the matrix itself


def factored_gradients(f: Function, gys: Sequence[Variable], indexes: Numbers, take: Take) -> list[Variable | None]:
    """A x = b: gb = w with A' w = gx, and gp is the gradient of -<w, A(p) x> in p"""
    del take
    (gx,), (x,) = gys, f.outputs
    matrix, transposed = f.arguments
    (_, _, _, *parameters), wanted = f.inputs, [i - 3 for i in indexes if i >= 3]
    (w,) = solve(matrix, parameters, gx, _DENSE, not transposed)
    v, seed = (w, x) if transposed else (x, w)
    found = pulled_back(matrix, [*parameters, v], seed, wanted)
    return [w, None, None, *[found.get(i) for i in range(len(parameters))]]


_DENSE = Options("dense", 0.0, 0.0, 0, False)


def factored_tangents(f: Function, ts: Sequence[Variable | None], read: Sequence[bool]) -> list[Variable | None]:
    """A dx = db - dA x"""
    del read
    (x,), (_, _, _, *parameters) = f.outputs, f.inputs
    matrix, transposed = f.arguments
    moved: Variable | None
    if not any([t is not None for t in ts[3:]]):
        moved = None
    elif transposed:
        moved = pushed_forward(transpose_of(matrix), [*parameters, x], [*ts[3:], None])
    else:
        moved = pushed_forward(matrix, [*parameters, x], [*ts[3:], None])
    right = difference(ts[0], moved)
    return [None] if right is None else [*solve(matrix, parameters, right, _DENSE, transposed)]


def _again(f: Function, b: Variable, transposed: bool) -> Variable:
    """The solution of the system that `f` solves, or of the transposed one, with another right side."""
    matrix, transpose, *options = f.arguments
    inputs = (*f.inputs[:-2], b, zeros_like(b))
    x: Variable = apply(
        iterative_solve, inputs, (*((transpose, matrix) if transposed else (matrix, transpose)), *options)
    )[0]
    return x


def iterative_gradients(f: Function, gys: Sequence[Variable], indexes: Numbers, take: Take) -> list[Variable | None]:
    """The same; where it began is of no account"""
    del take
    *parameters, _, _ = f.inputs
    w = _again(f, gys[0], transposed=True)
    wanted = [i for i in indexes if i < len(parameters)]
    found = pulled_back(f.arguments[0], [*parameters, f.outputs[0]], w, wanted)
    return [*[found.get(i) for i in range(len(parameters))], w, None]


def iterative_tangents(f: Function, ts: Sequence[Variable | None], read: Sequence[bool]) -> list[Variable | None]:
    """A dx = db - dA x"""
    del read
    *parameters, _, _ = f.inputs
    moved = pushed_forward(f.arguments[0], [*parameters, f.outputs[0]], [*ts[:-2], None])
    right = difference(ts[-2], moved)
    return [None if right is None else _again(f, right, transposed=False), None, None, None]


def _by_other_body(f: Function, b: Variable, transposed: bool) -> Variable:
    """The same as `_again`, where bodies solve."""
    matrix, transpose, solver, other = f.arguments
    first, second = len(matrix.inputs) - 1, len(solver.inputs) - 1
    parameters = f.inputs[:first]
    of_solver, of_other = f.inputs[first : first + second], f.inputs[first + second : -1]
    inputs, arguments = (*parameters, *of_solver, *of_other, b), (matrix, transpose, solver, other)
    if transposed:
        inputs, arguments = (*parameters, *of_other, *of_solver, b), (transpose, matrix, other, solver)
    x: Variable = apply(solve_by_body, inputs, arguments)
    return x


def body_gradients(f: Function, gys: Sequence[Variable], indexes: Numbers, take: Take) -> list[Variable | None]:
    """The same; how the solution was found is of no account"""
    del take
    matrix = f.arguments[0]
    count = len(matrix.inputs) - 1
    w = _by_other_body(f, gys[0], transposed=True)
    found = pulled_back(matrix, [*f.inputs[:count], f.outputs[0]], w, [i for i in indexes if i < count])
    return [*[found.get(i) for i in range(len(f.inputs) - 1)], w]


def body_tangents(f: Function, ts: Sequence[Variable | None], read: Sequence[bool]) -> list[Variable | None]:
    """A dx = db - dA x"""
    del read
    matrix = f.arguments[0]
    count = len(matrix.inputs) - 1
    moved = pushed_forward(matrix, [*f.inputs[:count], f.outputs[0]], [*ts[:count], None])
    right = difference(ts[-1], moved)
    return [None if right is None else _by_other_body(f, right, transposed=False)]


# ---------------------------------------------------------------- roots


def _with_jacobian(f: Function, right: Variable, transposed: bool) -> Variable:
    """The solution of a linear system with the Jacobian at the root that `f` gives."""
    residual, _, *options = f.arguments
    at = (*f.inputs[:-1], f.outputs[0])
    return solve(jacobian_of(residual), at, right, Options(*options), transposed)[0]


def root_gradients(f: Function, gys: Sequence[Variable], indexes: Numbers, take: Take) -> list[Variable | None]:
    """r(p, x) = 0: gp is the gradient of -<w, r(p, x)> in p, with (dr/dx)' w = gx"""
    del take
    *parameters, _ = f.inputs
    w = _with_jacobian(f, gys[0], transposed=True)
    wanted = [i for i in indexes if i < len(parameters)]
    found = pulled_back(f.arguments[0], [*parameters, f.outputs[0]], w, wanted)
    return [*[found.get(i) for i in range(len(parameters))], None]


def root_tangents(f: Function, ts: Sequence[Variable | None], read: Sequence[bool]) -> list[Variable | None]:
    """(dr/dx) dx = -dr/dp dp"""
    del read
    moved = pushed_forward(f.arguments[0], [*f.inputs[:-1], f.outputs[0]], [*ts[:-1], None])
    return [None if moved is None else _with_jacobian(f, -moved, transposed=False), None, None, None]


def _of_all(gradients: Callable[..., list[Variable | None]]) -> Callable[..., list[Variable | None]]:
    """The rule that gives the gradients of all inputs."""

    def rule(f: Function, *gys: Variable) -> list[Variable | None]:
        return gradients(f, gys, tuple([i for i, x in enumerate(f.inputs) if x.spec.differentiable]), lambda i: None)

    return rule


for solver, gradients, tangents in (
    (factored_solve, factored_gradients, factored_tangents),
    (iterative_solve, iterative_gradients, iterative_tangents),
    (solve_by_body, body_gradients, body_tangents),
    (root_of_body, root_gradients, root_tangents),
):
    registry.add(solver, Rule(_of_all(gradients), "rule", True, __name__, accumulate=gradients, tangents=tangents))
