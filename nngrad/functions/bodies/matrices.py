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
    """True to return a solution that has not converged; else it is NaN."""

    @property
    def symmetric(self) -> bool:
        """True if the method assumes a symmetric matrix."""
        return self.method == "cg"


DENSE = SolveOptions("dense", 0.0, 0.0, 0, False)


class NotLinear(ValueError):
    """A body that should represent a matrix is not linear in its last input."""


@derived_once
def transpose_of(matrix: Block) -> Block:
    """The transpose of a matrix given as a body. NotLinear: the body is not linear in its last input, a vector."""
    place = len(matrix.inputs) - 1
    gradient = matrix.gradient(matrix.outputs, (place,), tuple(range(place + 1)), ())
    if place in gradient.residuals:
        raise NotLinear
    inputs = (*matrix.inputs[:-1], matrix.spec(matrix.outputs[0]))
    if not gradient.reached:
        return _zero_of(inputs, matrix.inputs[place])
    return gradient.body.with_inputs(inputs, [*gradient.residuals, place])


@derived_once
def is_zero_at_zero(matrix: Block) -> bool | None:
    """True if a body whose derivative does not depend on its last input is 0 where that is 0, as a matrix is; None if
    the facts of its functions do not show it.

    Each value is "zero" there, or a "number" that does not depend on that input, or the "sum" of a zero and a number.
    None is anything else: numbers that may cancel, and results of functions without such facts.
    """
    place = len(matrix.inputs) - 1
    values: list[str | None] = []
    for (op, arguments, ins), specs in zip(matrix.steps, matrix.results, strict=True):
        kinds = [values[~i] if i < 0 else "zero" if i == place else "number" for i in ins]
        values += [_at_zero(op, arguments, kinds)] * len(specs)
    (number,) = matrix.outputs
    kind = "zero" if number == place else "number" if number >= 0 else values[~number]
    return None if kind is None else kind == "zero"


def _at_zero(op: Op, arguments: tuple[Any, ...], kinds: Sequence[str | None]) -> str | None:
    if op is constant:
        return "zero" if arguments[0] == 0 else "number"
    others = [kind for kind in kinds if kind != "number"]
    if not others:
        return "number"
    if any([kind == "zero" and op.linear_in(i) for i, kind in enumerate(kinds)]):
        return "zero"
    if others == ["sum"] and op.linear_in(kinds.index("sum")):
        return "sum"
    fixed = op.fixed(len(kinds))
    if fixed is None or any([kinds[i] != "number" for i in fixed]):
        return None
    summands = [kind for i, kind in enumerate(kinds) if i not in fixed and kind != "zero"]
    if op.offset and op.named(arguments)[op.offset] != 0:
        summands.append("number")
    return "zero" if not summands else "sum" if summands in (["number"], ["sum"]) else None


@derived_once
def jacobian_of(residual: Block) -> Block:
    """The Jacobian of a body in its last input, as a matrix that takes the inputs of the body and a vector."""
    place = len(residual.inputs) - 1
    tangent = residual.tangent((place,), residual.outputs)
    inputs = (*residual.inputs, residual.inputs[place])
    if not tangent.moved:
        return _zero_of(inputs, residual.spec(residual.outputs[0]))
    body = tangent.body
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
    floating = tuple([i for i in wanted if body.inputs[i].differentiable])
    derived = body.gradient(body.outputs, floating, tuple(range(len(inputs))), ())
    gradients = inlined(derived.body, [*[inputs[i] for i in derived.residuals], w])
    return {i: -gradient for i, gradient in zip(derived.reached, gradients, strict=True)}


def pushed_forward(body: Block, inputs: Sequence[Variable], ts: Results) -> Variable | None:
    """The tangent of a body when its inputs move along tangents; None for zero."""
    moving = tuple([i for i, t in enumerate(ts) if t is not None and body.inputs[i].differentiable])
    tangent = body.tangent(moving, body.outputs)
    if not tangent.moved:
        return None
    directions = [t for i, t in enumerate(ts) if t is not None and i in moving]
    return inlined(tangent.body, [*inputs, *directions])[-1]
