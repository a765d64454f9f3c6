"""Exact numbers that multiply Variables, and the constants in the graph that stand for them."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

import nngrad.functions as F
from backward_registry import non_differentiable

from ..graph import Op, Variable, op
from ..graph.arguments import DTypeName, NegativeZero, Shape
from ..graph.spec import Spec
from .builder import Arguments, HashConsTable, Inputs, Number, declared, form


@op(type_name="GradEndFunction")
def grad_end(*, shape: Shape, dtype: DTypeName):  # type: ignore[no-untyped-def]
    """Ones, the gradient of an output with respect to itself: the start of a gradient graph."""
    return F.constant.forward(val=1, shape=shape, dtype=dtype)


non_differentiable(grad_end)


# ---------------------------------------------------------------- numbers


def is_exact(number: Number) -> bool:
    """True if exact arithmetic can represent a number: it is finite, and not -0.0, since exact zeros have no sign."""
    return math.isfinite(number) and number.__class__ is not NegativeZero


def simplest(number: Number) -> Number:
    """A finite number as an int or a Fraction if it is whole or a short fraction; else the float itself."""
    if isinstance(number, int):
        return number
    if isinstance(number, float):
        return of_float(number)
    return number.numerator if number.denominator == 1 else number


@lru_cache(maxsize=4096)
def of_float(number: float) -> Number:
    """A finite float as an int or a Fraction if it is whole or a short fraction; else the float itself.

    `0.5` is a half, while `1.01` stands for a number that no float represents: exact arithmetic with it would be slow
    and would prove nothing.
    """
    if number.is_integer() and abs(number) < _WHOLE:
        return int(number)
    numerator, denominator = number.as_integer_ratio()
    return Fraction(numerator, denominator) if denominator <= _SHORT else number


_WHOLE, _SHORT = 2**53, 2**20


def ratio(number: Number, divisor: Number) -> Number:
    """The exact quotient of two numbers, or a float if either is one."""
    if divisor == 1:
        return number
    if divisor == -1:
        return -number
    if number.__class__ is float or divisor.__class__ is float:
        return number / divisor
    return simplest(Fraction(number) / divisor)


def to_power(number: Number, power: int) -> Number | None:
    """An integer power of a number; None if it is out of the range of floats."""
    try:
        return float(number) ** power if number.__class__ is float else simplest(Fraction(number) ** power)
    except OverflowError:
        return None


@lru_cache(maxsize=4096)
def collectable(number: Number, spec: Spec) -> bool:
    """True if a product of numbers may replace its factors: far from overflow and underflow, of bounded length."""
    limit = 2**8 if spec.dtype.itemsize == 2 else 2**64
    if isinstance(number, Fraction):
        numerator, denominator = number.as_integer_ratio()
        size = abs(numerator)
        return denominator.bit_length() <= 512 and size <= limit * denominator and size * limit >= denominator
    return 1 <= abs(number) * limit <= limit * limit


def movable(number: Number, spec: Spec) -> bool:
    """True if a number may move out of a linear function. In 16 bits none may: a scale is placed deliberately, to keep
    later values from vanishing."""
    return spec.dtype.itemsize > 2 and collectable(number, spec)


# ---------------------------------------------------------------- numbers in the graph


ONES = declared("ones", (F.mul_scalar, F.mul2, F.mul_n, F.monomial), "1 x = x")
ZEROS = declared("zeros", (F.mul_scalar, F.mul2, F.mul_n, F.div2, F.monomial), "0 x = 0")
NESTED = declared("nested-numbers", (F.mul_scalar,), "a (b x) = (a b) x")


def number_of(x: Variable) -> Number | None:
    """The number that fills `x`, if `x` is an emitted constant and the number exact; else None.

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
    return simplest(number) if is_exact(number) else None


def is_zero(x: Variable) -> bool:
    """True if `x` is an emitted constant 0, but not -0.0."""
    f = x.parent
    return f is not None and f.op is F.constant and f.arguments[0] == 0 and f.order > 0


def emitted_constant(table: HashConsTable, number: Number, spec: Spec) -> Variable:
    """An emitted constant. Its zero has no sign, as in all exact arithmetic."""
    y: Variable = table.node(F.constant, (), (float(number) + 0.0, spec.shape, spec.dtype), spec.alone)
    return y


WITH_NUMBERS = frozenset({grad_end, F.constant, F.mul_scalar, F.linear_combination})
"""The ops of constants, and of emitted multiples of Variables."""


def as_multiple(x: Variable) -> tuple[Number, Variable | None]:
    """Split `x` into a number and the Variable that it multiplies, which is None for a constant."""
    f = x.parent
    if f is None or f.op not in WITH_NUMBERS or not f.order:
        return 1, x
    if f.op is F.mul_scalar:
        number = f.arguments[0]
        return (of_float(number), f.inputs[0]) if is_exact(number) else (1, x)
    if f.op is F.linear_combination:
        coefficients, added = f.arguments
        plain = len(coefficients) == 1 and not added and is_exact(coefficients[0])
        return (simplest(coefficients[0]), f.inputs[0]) if plain else (1, x)
    filling = number_of(x)
    return (1, x) if filling is None else (filling, None)


def multiple(table: HashConsTable, x: Variable, number: Number) -> Variable:
    """`number * x`, with the numbers of nested products multiplied together."""
    off, f = table.off, x.parent
    if number == 1 and ONES not in off:
        return x
    if f is not None and f.op in WITH_NUMBERS and NESTED not in off:
        inner, core = as_multiple(x)
        together = number * inner
        if core is None and ((together == 0 and ZEROS not in off) or collectable(together, x.spec)):
            return emitted_constant(table, together, x.spec)
        if core is not None and core is not x and collectable(together, x.spec):
            x, number = core, together
            if number == 1 and ONES not in off:
                return x
    return _times(table, x, number)


def _times(table: HashConsTable, x: Variable, number: Number) -> Variable:
    if number == 0 and ZEROS not in table.off:
        return emitted_constant(table, 0, x.spec)
    as_float = float(number)
    exact = as_float == number
    y: Variable = table.node(
        F.mul_scalar if exact else F.linear_combination, (x,), (as_float,) if exact else ((number,), 0), x.spec.alone
    )
    return y


@form(F.mul_scalar)
def _multiple(table: HashConsTable, op: Op, inputs: Inputs, arguments: Arguments) -> Variable | None:
    (x,), (number,) = inputs, arguments
    if not x.spec.differentiable or not is_exact(number):
        return None
    return multiple(table, x, of_float(number))
