"""Canonical form of what is emitted: zeros and ones vanish, numbers collect, movements compose.

Each form looks at an op's inputs and either returns a Variable that has the same value and costs
less, or None to have the op applied as it is. No form distributes a product over a sum, since that
loses accuracy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import nngrad.functions as F

from ..graph import Op, Variable, op
from ..graph.arguments import DTypeName, Shape
from ..graph.spec import Spec

if TYPE_CHECKING:
    from .intern import Emission

Form = Callable[["Emission", tuple[Variable, ...], tuple[Any, ...]], "Variable | None"]

canonical_forms: dict[Op, Form] = {}


def canonical(*ops: Op) -> Callable[[Form], Form]:
    """Register the decorated function as the canonical form of `ops`."""

    def enter(form: Form) -> Form:
        for each in ops:
            canonical_forms[each] = form
        return form

    return enter


@op(type_name="GradEndFunction")
def grad_end(*, shape: Shape, dtype: DTypeName):  # type: ignore[no-untyped-def]
    """Ones, the gradient of an output with respect to itself: where a gradient graph begins."""
    return F.constant.forward(val=1, shape=shape, dtype=dtype)


_constants = (F.constant, grad_end)


def number_of(x: Variable) -> float | None:
    """The number that fills `x`, if `x` is a constant of the graph."""
    f = x.parent
    if f is None or f.op not in _constants:
        return None
    value: float = f.arguments[0] if f.op is F.constant else 1.0
    return value


def is_zero(x: Variable) -> bool:
    """Whether `x` is a constant 0 of the graph."""
    f = x.parent
    return f is not None and f.op is F.constant and f.arguments[0] == 0


def filled(emission: Emission, number: float, spec: Spec) -> Variable:
    """A constant of the graph."""
    y: Variable = emission.node(F.constant, (), (float(number), spec.shape, spec.dtype))
    return y


def collectable(number: float, spec: Spec) -> bool:
    """Whether a product of numbers may stand for its factors: far from overflow and underflow."""
    limit = 2.0**8 if spec.dtype.itemsize == 2 else 2.0**64
    return 1 / limit <= abs(number) <= limit


def scaled(emission: Emission, x: Variable, number: Any) -> Variable:
    """`number * x`, with the numbers of nested products collected."""
    f = x.parent
    if f is not None:
        if f.op is F.mul_scalar and collectable(number * f.arguments[0], x.spec):
            x, number = f.inputs[0], number * f.arguments[0]
        else:
            constant = number_of(x)
            if constant is not None:
                return filled(emission, number * constant, x.spec)
    if number == 1:
        return x
    if number == 0:
        return filled(emission, 0.0, x.spec)
    y: Variable = emission.node(F.mul_scalar, (x,), (number,))
    return y


@canonical(F.mul_scalar)
def _mul_scalar(emission: Emission, inputs: tuple[Variable, ...], arguments: tuple[Any, ...]) -> Variable | None:
    (x,) = inputs
    return scaled(emission, x, arguments[0]) if x.spec.differentiable else None


@canonical(F.mul2)
def _mul2(emission: Emission, inputs: tuple[Variable, ...], arguments: tuple[Any, ...]) -> Variable | None:
    x0, x1 = inputs
    spec = x0.spec
    if spec is not x1.spec or not spec.differentiable:
        return None
    f0, f1 = x0.parent, x1.parent
    if f1 is not None and f1.op in _constants:
        return scaled(emission, x0, number_of(x1))
    if f0 is not None and f0.op in _constants:
        return scaled(emission, x1, number_of(x0))
    # Numbers move outward, so that like factors meet.
    number = 1.0
    if f0 is not None and f0.op is F.mul_scalar:
        number, x0 = f0.arguments[0], f0.inputs[0]
    if f1 is not None and f1.op is F.mul_scalar:
        number, x1 = number * f1.arguments[0], f1.inputs[0]
    if number != 1.0 and not collectable(number, spec):
        number, (x0, x1) = 1.0, inputs
    if x0.rank > x1.rank:
        x0, x1 = x1, x0
    y = emission.node(F.mul2, (x0, x1), ())
    return y if number == 1.0 else scaled(emission, y, number)


@canonical(F.div2)
def _div2(emission: Emission, inputs: tuple[Variable, ...], arguments: tuple[Any, ...]) -> Variable | None:
    x0, x1 = inputs
    if x0.spec is x1.spec and is_zero(x0):
        return x0
    return None


@canonical(F.add2, F.add_n)
def _add(emission: Emission, inputs: tuple[Variable, ...], arguments: tuple[Any, ...]) -> Variable | None:
    spec = inputs[0].spec
    if not spec.differentiable or any(x.spec is not spec for x in inputs):
        return None
    kept = tuple([x for x in inputs if not is_zero(x)])
    if not kept:
        return inputs[0]
    if len(kept) == 1:
        return kept[0]
    if len(kept) == 2:
        x0, x1 = kept
        if x0 is x1:
            return scaled(emission, x0, 2.0)
        for x, other in ((x0, x1), (x1, x0)):
            number = number_of(other)
            if number is not None:
                return shifted(emission, x, number)
    y: Variable = emission.node(F.add2 if len(kept) == 2 else F.add_n, kept, ())
    return y


def shifted(emission: Emission, x: Variable, number: float) -> Variable:
    """`x + number`."""
    f = x.parent
    if f is not None and f.op is F.add_scalar and f.order:
        x, number = f.inputs[0], number + f.arguments[0]
    constant = number_of(x)
    if constant is not None:
        return filled(emission, constant + number, x.spec)
    if number == 0:
        return x
    y: Variable = emission.node(F.add_scalar, (x,), (number,))
    return y


@canonical(F.add_scalar)
def _add_scalar(emission: Emission, inputs: tuple[Variable, ...], arguments: tuple[Any, ...]) -> Variable | None:
    (x,) = inputs
    return shifted(emission, x, arguments[0]) if x.spec.differentiable else None


@canonical(F.sub2)
def _sub2(emission: Emission, inputs: tuple[Variable, ...], arguments: tuple[Any, ...]) -> Variable | None:
    x0, x1 = inputs
    if x0.spec is not x1.spec or not x0.spec.differentiable:
        return None
    if x0 is x1:
        return filled(emission, 0.0, x0.spec)
    number = number_of(x1)
    if number is not None:
        return shifted(emission, x0, -number)
    if is_zero(x0):
        return scaled(emission, x1, -1.0)
    return None


@canonical(F.r_sub_scalar)
def _r_sub_scalar(emission: Emission, inputs: tuple[Variable, ...], arguments: tuple[Any, ...]) -> Variable | None:
    (x,) = inputs
    number = number_of(x)
    if number is not None and x.spec.differentiable:
        return filled(emission, arguments[0] - number, x.spec)
    return scaled(emission, x, -1.0) if arguments[0] == 0 and x.spec.differentiable else None


@canonical(F.pow_scalar)
def _pow_scalar(emission: Emission, inputs: tuple[Variable, ...], arguments: tuple[Any, ...]) -> Variable | None:
    (x,), (val,) = inputs, arguments
    if not x.spec.differentiable:
        return None
    if val == 1:
        return x
    if val == 0:
        return filled(emission, 1.0, x.spec)
    number = number_of(x)
    if number is None or number <= 0 or not collectable(number, x.spec) or abs(val) > 8:
        return None
    return filled(emission, number**val, x.spec) if collectable(number**val, x.spec) else None


@canonical(F.identity)
def _identity(emission: Emission, inputs: tuple[Variable, ...], arguments: tuple[Any, ...]) -> Variable | None:
    return inputs[0]


@canonical(F.cast)
def _cast(emission: Emission, inputs: tuple[Variable, ...], arguments: tuple[Any, ...]) -> Variable | None:
    (x,) = inputs
    if x.dtype == arguments[0]:
        return x
    number = number_of(x)
    spec = F.cast.infer(inputs, arguments)[0]
    return filled(emission, number, spec) if number is not None and spec.differentiable else None


def _moved(op: Op) -> Form:
    """Form of an op that only moves or repeats elements."""

    def form(emission: Emission, inputs: tuple[Variable, ...], arguments: tuple[Any, ...]) -> Variable | None:
        (x,) = inputs
        (spec,) = op.infer(inputs, arguments)
        if op is not F.transpose and spec is x.spec:
            return x
        number = number_of(x)
        if number is not None:
            return filled(emission, number, spec)
        f = x.parent
        if f is not None and f.op is op:
            if op is F.transpose:
                first, second = _axes(f.arguments[0], x.ndim), _axes(arguments[0], x.ndim)
                axes = tuple(first[i] for i in second)
                if axes == tuple(range(x.ndim)):
                    return f.inputs[0]
                arguments = (axes,)
            inputs = f.inputs
            if op is F.reshape and inputs[0].spec is spec:
                return inputs[0]
        y: Variable = emission.node(op, inputs, arguments)
        return y

    return form


def _axes(axes: tuple[int, ...] | None, ndim: int) -> tuple[int, ...]:
    return tuple(range(ndim))[::-1] if axes is None else tuple(a % ndim for a in axes)


for _op in (F.reshape, F.broadcast, F.transpose):
    canonical_forms[_op] = _moved(_op)


@canonical(F.sum)
def _sum(emission: Emission, inputs: tuple[Variable, ...], arguments: tuple[Any, ...]) -> Variable | None:
    (x,) = inputs
    (spec,) = F.sum.infer(inputs, arguments)
    number = number_of(x)
    if number is not None and spec.differentiable and spec.size:
        return filled(emission, number * (x.size // spec.size), spec)
    return x if spec is x.spec else None


def _linear(op: Op) -> Form:
    """Form of an op that is linear in its first input: it takes zero to zero."""

    def form(emission: Emission, inputs: tuple[Variable, ...], arguments: tuple[Any, ...]) -> Variable | None:
        if not is_zero(inputs[0]) or op.several:
            return None
        (spec,) = op.infer(inputs, arguments)
        return filled(emission, 0.0, spec)

    return form


def complete() -> None:
    """Give every other linear op the form that takes zero to zero."""
    for name in F.names():
        each = getattr(F, name)
        if isinstance(each, Op) and each.linear:
            canonical_forms.setdefault(each, _linear(each))


complete()
