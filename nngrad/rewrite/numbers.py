"""Constants of the graph, and exact numbers that multiply Variables."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

import nngrad.functions as F

from ..graph import Variable, op
from ..graph.arguments import DTypeName, Shape
from ..graph.spec import Spec

if TYPE_CHECKING:
    from .builder import Builder

Number = int | float | Fraction


@op(type_name="GradEndFunction")
def grad_end(*, shape: Shape, dtype: DTypeName):  # type: ignore[no-untyped-def]
    """Ones, the gradient of an output with respect to itself: where a gradient graph begins."""
    return F.constant.forward(val=1, shape=shape, dtype=dtype)


def exact(number: Number) -> Number:
    """A finite number as an int or a Fraction if it is a whole one or a short fraction; else the float that it is.

    `0.5` is a half, while `1.01` stands for a number that no float holds: exact arithmetic with it would be slow and
    would prove nothing.
    """
    if number.__class__ is int:
        return number
    if number.__class__ is float:
        if number.is_integer() and abs(number) < _WHOLE:
            return int(number)
        numerator, denominator = number.as_integer_ratio()
        return Fraction(numerator, denominator) if denominator <= _SHORT else number
    value = Fraction(number)
    return value.numerator if value.denominator == 1 else value


_WHOLE, _SHORT = 2**53, 2**20


def ratio(number: Number, divisor: Number) -> Number:
    """One number divided by another."""
    if divisor == -1:
        return -number
    if number.__class__ is float or divisor.__class__ is float:
        return number / divisor
    return exact(Fraction(number) / divisor)


def to_power(number: Number, power: int) -> Number | None:
    """A whole power of a number; None if it is out of the range of floats."""
    try:
        return float(number) ** power if number.__class__ is float else exact(Fraction(number) ** power)
    except OverflowError:
        return None


def magnitude(number: Number) -> Number:
    """Its absolute value."""
    return -number if number < 0 else number


def number_of(x: Variable) -> Number | None:
    """The number that fills `x`, if `x` is an emitted constant and the number finite.

    A constant that the user built is a Variable like any other: one may differentiate by it.
    """
    f = x.parent
    if f is None or not f.order:
        return None
    if f.op is grad_end:
        return 1
    if f.op is not F.constant:
        return None
    number = f.arguments[0]
    return exact(number) if math.isfinite(number) else None


def is_zero(x: Variable) -> bool:
    """Whether `x` is an emitted constant 0."""
    f = x.parent
    return f is not None and f.op is F.constant and not f.arguments[0] and f.order > 0


def filled(builder: Builder, number: Number, spec: Spec) -> Variable:
    """An emitted constant. Its zero has no sign, as in all that is exact."""
    y: Variable = builder.node(F.constant, (), (float(number) + 0.0, spec.shape, spec.dtype))
    return y


def collectable(number: Number, spec: Spec) -> bool:
    """Whether a product of numbers may stand for its factors: far from overflow and underflow, of bounded length."""
    if number.__class__ is Fraction and number.denominator.bit_length() > 512:
        return False
    limit = 2**8 if spec.dtype.itemsize == 2 else 2**64
    size = magnitude(number)
    return size <= limit and size * limit >= 1


def movable(number: Number, spec: Spec) -> bool:
    """Whether a number may move out of a linear function. In 16 bits none may: a scale is put where it is to keep the
    values that come after it from vanishing."""
    return spec.dtype.itemsize > 2 and collectable(number, spec)


def split(x: Variable) -> tuple[Number, Variable | None]:
    """`x` as a number and what it multiplies; as a number and None if it is a constant."""
    f = x.parent
    if f is None or f.op not in WITH_NUMBERS or not f.order:
        return 1, x
    number = number_of(x)
    if number is not None:
        return number, None
    if f.op is F.mul_scalar and math.isfinite(f.arguments[0]):
        return exact(f.arguments[0]), f.inputs[0]
    if f.op is F.linear_combination and len(f.inputs) == 1 and not f.arguments[1]:
        return exact(f.arguments[0][0]), f.inputs[0]
    return 1, x


WITH_NUMBERS = frozenset({grad_end, F.constant, F.mul_scalar, F.linear_combination})
"""The ops of constants, and of what is emitted as a number times a Variable."""


def scaled(builder: Builder, x: Variable, number: Number) -> Variable:
    """`number * x`, with the numbers of nested products collected."""
    if number == 1:
        return x
    inner, core = split(x)
    if core is None:
        if number * inner == 0 or collectable(number * inner, x.spec):
            return filled(builder, number * inner, x.spec)
    elif inner != 1 and collectable(number * inner, x.spec):
        x, number = core, number * inner
        if number == 1:
            return x
    if number == 0:
        return filled(builder, 0, x.spec)
    as_float = float(number)
    if as_float == number:
        y: Variable = builder.node(F.mul_scalar, (x,), (as_float,))
    else:
        y = builder.node(F.linear_combination, (x,), ((number,), 0))
    return y
