"""Canonical form of what is emitted: zeros and ones vanish, numbers move outward, movements compose, and products and
sums are polynomials (`polynomial.py`).

Each form looks at an op's inputs and either returns a Variable that has the same value and costs
less, or None to have the op applied as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import nngrad.functions as F

from ..graph import Op, Variable
from ..graph.arguments import axes_of
from .numbers import Number, collectable, exact, filled, is_zero, movable, number_of, scaled, split
from .polynomial import combination, product

if TYPE_CHECKING:
    from .builder import Builder

Inputs = tuple[Variable, ...]
Arguments = tuple[Any, ...]
Form = Callable[["Builder", Inputs, Arguments], "Variable | None"]

canonical_forms: dict[Op, Form] = {}


def canonical(*ops: Op) -> Callable[[Form], Form]:
    """Register the decorated function as the canonical form of `ops`."""

    def enter(form: Form) -> Form:
        for each in ops:
            canonical_forms[each] = form
        return form

    return enter


def alike(inputs: Inputs) -> bool:
    """Whether all of `inputs` are floating and of one shape and dtype: operands of a polynomial."""
    spec = inputs[0].spec
    return spec.differentiable and (len(inputs) == 1 or all([x.spec is spec for x in inputs]))


# ---------------------------------------------------------------- products


@canonical(F.mul2, F.mul_n)
def _mul(builder: Builder, inputs: Inputs, arguments: Arguments) -> Variable | None:
    if alike(inputs):
        return product(builder, [(x, 1) for x in inputs])
    return freed(builder, F.mul2, inputs, arguments) if len(inputs) == 2 else None


@canonical(F.div2)
def _div2(builder: Builder, inputs: Inputs, arguments: Arguments) -> Variable | None:
    x0, x1 = inputs
    if alike(inputs):
        return product(builder, [(x0, 1), (x1, -1)])
    return freed(builder, F.div2, inputs, arguments)


@canonical(F.monomial)
def _monomial(builder: Builder, inputs: Inputs, arguments: Arguments) -> Variable | None:
    return product(builder, list(zip(inputs, arguments[0], strict=True))) if alike(inputs) else None


@canonical(F.square)
def _square(builder: Builder, inputs: Inputs, arguments: Arguments) -> Variable | None:
    return product(builder, [(inputs[0], 2)]) if alike(inputs) else None


@canonical(F.reciprocal)
def _reciprocal(builder: Builder, inputs: Inputs, arguments: Arguments) -> Variable | None:
    return product(builder, [(inputs[0], -1)]) if alike(inputs) else None


@canonical(F.r_div_scalar)
def _r_div_scalar(builder: Builder, inputs: Inputs, arguments: Arguments) -> Variable | None:
    if not alike(inputs) or not math.isfinite(arguments[0]):
        return None
    power = product(builder, [(inputs[0], -1)])
    return None if power is None else scaled(builder, power, exact(arguments[0]))


@canonical(F.pow_scalar)
def _pow_scalar(builder: Builder, inputs: Inputs, arguments: Arguments) -> Variable | None:
    (x,), (val,) = inputs, arguments
    if not alike(inputs) or not math.isfinite(val):
        return None
    if val.is_integer():
        return product(builder, [(x, int(val))])
    number = number_of(x)
    if number is None or number <= 0 or not collectable(number, x.spec) or abs(val) > 8:
        return None
    power = exact(float(number) ** val)
    return filled(builder, power, x.spec) if collectable(power, x.spec) else None


@canonical(F.mul_scalar)
def _mul_scalar(builder: Builder, inputs: Inputs, arguments: Arguments) -> Variable | None:
    (x,), (val,) = inputs, arguments
    return scaled(builder, x, exact(val)) if alike(inputs) and math.isfinite(val) else None


# ---------------------------------------------------------------- sums


@canonical(F.add2, F.add_n)
def _add(builder: Builder, inputs: Inputs, arguments: Arguments) -> Variable | None:
    return combination(builder, [(x, 1) for x in inputs]) if alike(inputs) else None


@canonical(F.sub2)
def _sub2(builder: Builder, inputs: Inputs, arguments: Arguments) -> Variable | None:
    return combination(builder, [(inputs[0], 1), (inputs[1], -1)]) if alike(inputs) else None


@canonical(F.add_scalar)
def _add_scalar(builder: Builder, inputs: Inputs, arguments: Arguments) -> Variable | None:
    return shifted(builder, inputs, 1, arguments[0])


@canonical(F.r_sub_scalar)
def _r_sub_scalar(builder: Builder, inputs: Inputs, arguments: Arguments) -> Variable | None:
    return shifted(builder, inputs, -1, arguments[0])


def shifted(builder: Builder, inputs: Inputs, coefficient: int, number: float) -> Variable | None:
    """`coefficient * x + number`."""
    if not alike(inputs) or not math.isfinite(number):
        return None
    return combination(builder, [(inputs[0], coefficient)], exact(number))


@canonical(F.linear_combination)
def _linear_combination(builder: Builder, inputs: Inputs, arguments: Arguments) -> Variable | None:
    coefficients, constant = arguments
    if not alike(inputs) or not all([math.isfinite(c) for c in (*coefficients, constant)]):
        return None
    weighted = [(x, exact(c)) for x, c in zip(inputs, coefficients, strict=True)]
    return combination(builder, weighted, exact(constant))


# ---------------------------------------------------------------- linear functions


def freed(builder: Builder, op: Op, inputs: Inputs, arguments: Arguments) -> Variable | None:
    """`op`, which is linear in some of `inputs`, with the numbers of those moved out of it; None if there are none."""
    number: Number = 1
    moved = None
    for i, x in enumerate(inputs):
        if not x.spec.differentiable or not op.linear_in(i):
            continue
        inner, core = split(x)
        if inner == 0:
            (spec,) = op.infer(inputs, arguments)
            return filled(builder, 0, spec)
        if inner == 1 or not movable(number * inner, x.spec) or grows(op, inputs, arguments, x):
            continue
        moved = list(inputs) if moved is None else moved
        moved[i] = filled(builder, 1, x.spec) if core is None else core
        number *= inner
    if moved is None:
        return None
    y = builder.emit(op, tuple(moved), arguments)
    return scaled(builder, y, number) if y.spec.differentiable else None


def grows(op: Op, inputs: Inputs, arguments: Arguments, x: Variable) -> bool:
    """Whether `op` makes a product of matrices that is larger than its factor `x`: the gradient of a weight in a small
    batch, say. To multiply that by a number takes longer than to multiply `x`."""
    return op is F.batch_matmul and op.infer(inputs, arguments)[0].size > x.size


def _linear(op: Op) -> Form:
    """Form of an op that is linear in some input."""
    return lambda builder, inputs, arguments: freed(builder, op, inputs, arguments)


@canonical(F.batch_matmul)
def _batch_matmul(builder: Builder, inputs: Inputs, arguments: Arguments) -> Variable | None:
    y = freed(builder, F.batch_matmul, inputs, arguments)
    if y is not None:
        return y
    flags, given = list(arguments), list(inputs)
    for i, x in enumerate(inputs):
        # A transpose of the matrices is part of the product.
        f = x.parent
        if f is not None and f.order and f.op is F.transpose:
            axes = _order(f.arguments[0], x.ndim)
            if axes == (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2):
                given[i], flags[i] = f.inputs[0], not flags[i]
    if tuple(flags) == arguments:
        return None
    turned: Variable = builder.emit(F.batch_matmul, tuple(given), tuple(flags))
    return turned


@canonical(F.where)
def _where(builder: Builder, inputs: Inputs, arguments: Arguments) -> Variable | None:
    condition, x_true, x_false = inputs
    if not alike((x_true, x_false)):
        return None
    if x_true is x_false:
        (spec,) = F.where.infer(inputs, arguments)
        return x_true if spec is x_true.spec else None
    (a, first), (b, second) = split(x_true), split(x_false)
    if (a == b or is_zero(x_true) or is_zero(x_false)) and (number := a or b) != 1 and movable(number, x_true.spec):
        # What both sides have in common moves out.
        branches = [
            x if is_zero(x) else filled(builder, 1, x.spec) if core is None else core
            for x, core in ((x_true, first), (x_false, second))
        ]
        return scaled(builder, builder.emit(F.where, (condition, *branches), arguments), number)
    return None


# ---------------------------------------------------------------- movement


@canonical(F.identity)
def _identity(builder: Builder, inputs: Inputs, arguments: Arguments) -> Variable | None:
    return inputs[0]


@canonical(F.cast)
def _cast(builder: Builder, inputs: Inputs, arguments: Arguments) -> Variable | None:
    # Numbers stay inside: a scale may be what makes the values fit the other dtype.
    (x,) = inputs
    if x.dtype == arguments[0]:
        return x
    number = number_of(x)
    (spec,) = F.cast.infer(inputs, arguments)
    return filled(builder, number, spec) if number is not None and spec.differentiable else None


def _moved(op: Op, compose: Callable[[Variable, Arguments, Arguments], Arguments]) -> Form:
    """Form of an op that only moves or repeats elements.

    Args:
        op: The op.
        compose: The arguments of the one that stands for two of it, from the first's input and both's arguments.
    """

    def form(builder: Builder, inputs: Inputs, arguments: Arguments) -> Variable | None:
        (x,) = inputs
        (spec,) = op.infer(inputs, arguments)
        if op is not F.transpose and spec is x.spec:
            return x
        if op is F.transpose and _order(arguments[0], x.ndim) == tuple(range(x.ndim)):
            return x
        number, core = split(x)
        if core is None:
            return filled(builder, number, spec)
        if not movable(number, spec):
            number, core = 1, x
        f = core.parent
        if f is not None and f.order and f.op is op:
            within = f.inputs[0]
            y = builder.emit(op, (within,), compose(within, f.arguments, arguments))
        elif number != 1:
            y = builder.node(op, (core,), arguments)
        else:
            return None
        return scaled(builder, y, number)

    return form


def _order(axes: tuple[int, ...] | None, ndim: int) -> tuple[int, ...]:
    return tuple(range(ndim))[::-1] if axes is None else tuple([a % ndim for a in axes])


def _second(x: Variable, first: Arguments, second: Arguments) -> Arguments:
    """The last shape is what counts."""
    return second


def _permuted(x: Variable, first: Arguments, second: Arguments) -> Arguments:
    inner = _order(first[0], x.ndim)
    return (tuple([inner[i] for i in _order(second[0], x.ndim)]),)


canonical_forms[F.reshape] = _moved(F.reshape, _second)
canonical_forms[F.broadcast] = _moved(F.broadcast, _second)
canonical_forms[F.transpose] = _moved(F.transpose, _permuted)


# ---------------------------------------------------------------- sums over axes


@canonical(F.sum)
def _sum(builder: Builder, inputs: Inputs, arguments: Arguments) -> Variable | None:
    (x,) = inputs
    if not x.spec.differentiable:
        return None
    (spec,) = F.sum.infer(inputs, arguments)
    if spec is x.spec:
        return x
    number, core = split(x)
    if core is None:
        total = number * (x.size // spec.size) if spec.size else 0
        return filled(builder, total, spec) if not total or collectable(total, spec) else None
    if not movable(number, spec):
        number, core = 1, x
    f = core.parent
    if f is not None and f.order and f.op is F.broadcast and spec.size:
        folded = _sum_of_broadcast(builder, f.inputs[0], core.shape, *arguments)
        if folded is not None:
            return scaled(builder, folded, number)
    if number == 1:
        return None
    return scaled(builder, builder.node(F.sum, (core,), arguments), number)


def _sum_of_broadcast(
    builder: Builder, x: Variable, shape: tuple[int, ...], axis: tuple[int, ...] | None, keepdims: bool
) -> Variable | None:
    """The sum over `axis` of `x` repeated to `shape`: a multiple of the sum over those of the axes that `x` has."""
    axes = axes_of(axis, len(shape))
    own = (1,) * (len(shape) - x.ndim) + x.shape
    repeated = [a for a in axes if own[a] != shape[a]]
    times = math.prod([shape[a] for a in repeated])
    if not collectable(times, x.spec):
        return None
    kept = tuple([n for a, n in enumerate(shape) if a not in axes])
    x = builder.emit(F.reshape, (x,), (own,))
    rest = tuple([a for a in axes if a not in repeated])
    if rest:
        x = builder.emit(F.sum, (x,), (rest, True))
    x = builder.emit(F.broadcast, (x,), (tuple([1 if a in axes else n for a, n in enumerate(shape)]),))
    if not keepdims:
        x = builder.emit(F.reshape, (x,), (kept,))
    return scaled(builder, x, times)


@canonical(F.mean)
def _mean(builder: Builder, inputs: Inputs, arguments: Arguments) -> Variable | None:
    (x,) = inputs
    (spec,) = F.mean.infer(inputs, arguments)
    if not x.spec.differentiable or not x.size:
        return None
    number, core = split(x)
    if core is None:
        return filled(builder, number, spec)
    f = core.parent
    if f is not None and f.order and f.op is F.broadcast:
        total = _sum(builder, inputs, arguments)
        if total is not None:
            return scaled(builder, total, exact(Fraction(spec.size, x.size)))
    return freed(builder, F.mean, inputs, arguments)


def complete() -> None:
    """Give every other linear op the form that moves numbers out of it."""
    for name in F.names():
        each = getattr(F, name)
        if isinstance(each, Op) and each.linear and each.linear != "together" and not each.several:
            canonical_forms.setdefault(each, _linear(each))


complete()
