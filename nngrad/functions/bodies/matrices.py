"""Bodies that represent matrices: linear in their last input, a vector."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ...graph import Op, Spec, Variable
from ...graph.block import Block
from ...graph.body_op import Results
from ...graph.closing import derived_once
from ..array import constant
from ..inlining import inlined


class SolveOptions(NamedTuple):
    """The method and tolerances of linear solves."""

    method: str
    """'dense', or a key of `krylov.METHODS`."""
    tol: float
    """Iteration ends when the norm of the residual is at most this times that of the right-hand side,"""
    atol: float
    """or at most this,"""
    maxiter: int
    """or after this many products with the matrix."""
    keep: bool
    """Whether to return a solution that has not converged; else it is NaN."""

    @property
    def symmetric(self) -> bool:
        """Whether the method assumes a symmetric matrix."""
        return self.method == "cg"


DENSE = SolveOptions("dense", 0.0, 0.0, 0, False)


class NotLinear(ValueError):
    """A body that should represent a matrix is not linear in its last input."""


@derived_once
def transpose_of(matrix: Block) -> Block:
    """The transpose of a matrix given as a body. NotLinear: the body is not linear in its last input, a vector."""
    place = len(matrix.inputs) - 1
    found = matrix.gradient(matrix.outputs, (place,), tuple(range(place + 1)), ())
    if place in found.residuals:
        raise NotLinear
    inputs = (*matrix.inputs[:-1], matrix.spec(matrix.outputs[0]))
    if not found.reached:
        return _zero_of(inputs, matrix.inputs[place])
    return found.body.with_inputs(inputs, [*found.residuals, place])


@derived_once
def is_zero_at_zero(matrix: Block) -> bool | None:
    """Whether a body whose derivative does not depend on its last input is 0 where that is 0, as a matrix is; None if
    the facts of its functions do not show it.

    Each value is "zero" there, or a "number" that does not depend on that input, or the "sum" of a zero and a number.
    None is anything else: numbers that may cancel, and results of functions without such facts.
    """
    place = len(matrix.inputs) - 1
    values: list[str | None] = []
    for (op, arguments, ins), specs in zip(matrix.steps, matrix.results, strict=True):
        given = [values[~i] if i < 0 else "zero" if i == place else "number" for i in ins]
        values += [_at_zero(op, arguments, given)] * len(specs)
    (number,) = matrix.outputs
    found = "zero" if number == place else "number" if number >= 0 else values[~number]
    return None if found is None else found == "zero"


def _at_zero(op: Op, arguments: tuple[Any, ...], given: Sequence[str | None]) -> str | None:
    if op is constant:
        return "zero" if arguments[0] == 0 else "number"
    others = [each for each in given if each != "number"]
    if not others:
        return "number"
    if any([each == "zero" and op.linear_in(i) for i, each in enumerate(given)]):
        return "zero"
    if others == ["sum"] and op.linear_in(given.index("sum")):
        return "sum"
    fixed = op.fixed(len(given))
    if fixed is None or any([given[i] != "number" for i in fixed]):
        return None
    summands = [each for i, each in enumerate(given) if i not in fixed and each != "zero"]
    if op.offset and op.named(arguments)[op.offset] != 0:
        summands.append("number")
    return "zero" if not summands else "sum" if summands in (["number"], ["sum"]) else None


@derived_once
def jacobian_of(residual: Block) -> Block:
    """The Jacobian of a body in its last input, as a matrix that takes the inputs of the body and a vector."""
    place = len(residual.inputs) - 1
    found = residual.tangent((place,), residual.outputs)
    inputs = (*residual.inputs, residual.inputs[place])
    if not found.moved:
        return _zero_of(inputs, residual.spec(residual.outputs[0]))
    body = found.body
    return body.with_outputs(body.outputs[len(residual.outputs) :])


def _zero_of(inputs: tuple[Spec, ...], spec: Spec) -> Block:
    return Block(inputs, ((constant, (0, spec.shape, spec.dtype), ()),), (0,), (-1,))


def product_with(matrix: Block, parameters: Sequence[Any]) -> Callable[[Any], Any]:
    """A function on arrays that multiplies the matrix with a vector."""

    def product(v: Any) -> Any:
        (number,) = matrix.outputs
        return v if number == len(parameters) else matrix.run((*parameters, v))[~number]

    return product


def pulled_back(body: Block, inputs: Sequence[Variable], w: Variable, wanted: Sequence[int]) -> dict[int, Variable]:
    """The gradients of -<w, body(inputs)>, by input number."""
    given = tuple([i for i in wanted if body.inputs[i].differentiable])
    found = body.gradient(body.outputs, given, tuple(range(len(inputs))), ())
    gradients = inlined(found.body, [*[inputs[i] for i in found.residuals], w])
    return {i: -gradient for i, gradient in zip(found.reached, gradients, strict=True)}


def pushed_forward(body: Block, inputs: Sequence[Variable], ts: Results) -> Variable | None:
    """The tangent of a body when its inputs move along tangents; None for zero."""
    moving = tuple([i for i, t in enumerate(ts) if t is not None and body.inputs[i].differentiable])
    found = body.tangent(moving, body.outputs)
    if not found.moved:
        return None
    directions = [t for i, t in enumerate(ts) if t is not None and i in moving]
    return inlined(found.body, [*inputs, *directions])[-1]
