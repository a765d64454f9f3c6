"""Products as monomials: like factors merge, and numbers stand outside.

An emitted product is identified by its *factors*: an integer power for each distinct Variable, in any order. So `x y`
and `y x` are one function, and `x x` is `x**2`. Numbers stand outside of products, where they meet other numbers.

Products are never expanded:

- They do not distribute over sums: `(1 - y*y) z` stays a product, since expanding it would lose accuracy.
- A product that is a factor stays one: `a (b c)` has the factors `a` and `b c`, which others may share. So the product
  rule yields Leibniz's: derivatives of order n are sums of n products of lower derivatives, and the graph of n orders
  grows as n^2. Expanded, there would be as many terms as partitions of n: for a tanh network of four layers some 490
  functions at order 10 in place of 290, at twenty times the building time; for other activations growth as 1.6^n.
- A function that the user built is a factor, and is never taken apart.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import nngrad.functions as F

from ..graph import Op, Variable
from ..graph.spec import Spec
from ..graph.thresholds import MOST_POWER
from .builder import Arguments, HashConsTable, Inputs, Number, declared, rewriting_rule
from .numbers import (
    ONES,
    WITH_NUMBERS,
    ZEROS,
    as_multiple,
    collectable,
    emitted_constant,
    is_exact,
    multiple,
    number_of,
    of_float,
    to_power,
)

Factors = dict[Variable, int]
"""The power of each factor of a product."""

PRODUCTS = (F.mul2, F.mul_n, F.div2, F.monomial, F.square, F.reciprocal, F.pow_scalar, F.r_div_scalar)


@rewriting_rule("monomials", *PRODUCTS)
def as_monomial(table: HashConsTable, op: Op, inputs: Inputs, arguments: Arguments) -> Variable | None:
    """x / y = x y**-1, and all products of powers likewise"""
    x = inputs[0]
    spec = x.spec
    if not spec.differentiable:
        return None
    for operand in inputs:
        if operand.spec is not spec:
            return None
    if op is F.mul2 or op is F.div2:
        result = _of_operands(table, op, inputs, spec)
    elif op is F.pow_scalar or op is F.r_div_scalar:
        result = _with_number(table, op, x, arguments[0])
    elif op is F.monomial:
        result = product(table, list(zip(inputs, arguments[0], strict=True)), spec)
    elif op is F.mul_n:
        result = product(table, [(operand, 1) for operand in inputs], spec)
    else:
        result = product(table, ((x, 2 if op is F.square else -1),), spec)
    return table.node(op, inputs, arguments) if result is None else result


ORDER = declared("order-of-factors", PRODUCTS, "x y = y x")
LIKE_FACTORS = declared("like-factors", PRODUCTS, "x**a x**b = x**(a + b)")
POWERS = declared("powers-of-powers", PRODUCTS, "(x**a)**b = x**(a b)")
LENGTHS = declared("lengths", PRODUCTS, "|x| d|x| = x dx: a norm times its derivative needs no division")
NUMBERS = declared("numbers-of-factors", PRODUCTS, "(a x) (b y) = a b (x y)")


_LENGTHS = frozenset({F.norm, F.std, F.sqrt})
_LOOKED_INTO = WITH_NUMBERS | _LENGTHS | {F.pow_scalar}
"""The ops of factors that may be numbers, multiples or powers, or may cancel."""


def _of_operands(table: HashConsTable, op: Op, inputs: Inputs, spec: Spec) -> Variable | None:
    """`x y` or `x / y`."""
    x, y = inputs
    f, g = x.parent, y.parent
    plain = (f is None or f.op not in _LOOKED_INTO) and (g is None or g.op not in _LOOKED_INTO)
    if plain and x is not y:
        return of_two(table, op, inputs, spec)
    if plain and op is F.mul2 and LIKE_FACTORS not in table.off:
        return table.node(F.pow_scalar, (x,), (2.0,), spec.alone)  # type: ignore[no-any-return]
    return product(table, ((x, 1), (y, 1 if op is F.mul2 else -1)), spec)


def _with_number(table: HashConsTable, op: Op, x: Variable, number: float) -> Variable | None:
    """`x ** number`, or `number / x`."""
    spec = x.spec
    if not is_exact(number):
        return None
    if op is F.r_div_scalar:
        inverse = product(table, ((x, -1),), spec)
        return inverse if inverse is None or number == 1 else multiple(table, inverse, of_float(number))
    if number.is_integer():
        return product(table, ((x, int(number)),), spec)
    base = number_of(x)
    if base is None or base <= 0 or not collectable(base, spec) or abs(number) > 8:
        return None
    power = of_float(float(base) ** number)
    return emitted_constant(table, power, spec) if collectable(power, spec) else None


def product(table: HashConsTable, operands: Sequence[tuple[Variable, int]], spec: Spec) -> Variable | None:
    """The product of powers of `operands`, all of one spec; None if they or their numbers cannot merge."""
    number: Number = 1
    factors: Factors = {}
    lengths: list[Variable] = []
    for x, power in operands:
        f = x.parent
        if f is not None and f.op in WITH_NUMBERS and f.order:
            split = _without_number(table, x, power, spec)
            if split is None:
                return None
            number *= split[0]
            if split[1] is None:
                continue
            x = split[1]
            f = x.parent
        if f is not None and f.op is F.pow_scalar and f.order and POWERS not in table.off:
            x, inside = power_of(x)
            power *= inside
        if f is not None and (f.op in _LENGTHS or (f.op is F.pow_scalar and f.arguments[0] == 0.5)):
            lengths.append(x)
        if not _entered(table, factors, x, power):
            return None
    if lengths and len(factors) > 1 and LENGTHS not in table.off:
        _cancel_lengths(table, factors, lengths)
    return _of_numbers(table, number, factors, spec)


def _cancel_lengths(table: HashConsTable, factors: Factors, lengths: list[Variable]) -> None:
    """Cancel each length with a factor that is divided by it, so that nothing is undefined where it is 0."""
    for y in lengths:
        for x in list(factors):
            if factors.get(y, 0) < 1:
                break
            whole = _without_length(table, x, y) if factors[x] == 1 and x is not y else None
            if whole is not None and whole not in factors:
                del factors[x]
                factors[y] -= 1
                factors |= {whole: 1}
        if factors.get(y) == 0:
            del factors[y]


def _without_length(table: HashConsTable, x: Variable, y: Variable) -> Variable | None:
    """`x y`, if the algebra shows that `x` is divided by the length `y`; else None. Through a norm, a derivative is a
    sum of `directed` values, and through a square root a product with a power of -1/2."""
    f, length = x.parent, y.parent
    assert length is not None
    if f is None or not f.order:
        return None
    if f.op is F.mul2 or f.op is F.monomial:
        inverse = table.known(F.pow_scalar, length.inputs, (-0.5,)) if len(length.arguments) < 2 else None
        powers = dict(zip(f.inputs, (1, 1) if f.op is F.mul2 else f.arguments[0], strict=True))
        if inverse is None or powers.pop(inverse, 0) != 1:
            return None
        return product(table, list(powers.items()), x.spec)
    path: list[Any] = []
    while f is not None and (f.op is F.reshape or f.op is F.sum):
        path.append(f)
        f = f.inputs[0].parent
    if f is None or f.op is not F.directed or not path:
        return None
    g, direction, spread = f.inputs
    while spread is not y:
        h = spread.parent
        if h is None or not (h.op is F.reshape or h.op is F.broadcast):
            return None
        spread = h.inputs[0]
    whole: Variable = table.emit(F.mul2, (g, direction), ())
    for f in reversed(path):
        whole = table.emit(f.op, (whole,), f.arguments)
    return whole


def _without_number(
    table: HashConsTable, x: Variable, power: int, spec: Spec
) -> tuple[Number, Variable | None] | None:
    """Split a power of `x` into a number and the Variable that remains in place of `x`, if any; None if its number is
    not finite."""
    off = table.off
    inner, core = as_multiple(x)
    if inner == 0 and power < 0:
        return None
    if inner == 0:
        return (0, None) if power and ZEROS not in off else (1, x)
    if inner == 1:
        return (1, None) if core is None and ONES not in off else (1, x)
    if NUMBERS in off:
        return 1, x
    powered = inner if power == 1 else to_power(inner, power)
    if powered is None:
        return None
    return (powered, core) if collectable(powered, spec) else (1, x)  # too large to be moved


def _entered(table: HashConsTable, factors: Factors, x: Variable, power: int) -> bool:
    """Try to enter a power of `x` among the factors of a product; returns whether that was possible."""
    if x in factors:
        if LIKE_FACTORS in table.off:
            return False
        power += factors[x]
        if not power:
            del factors[x]
            return True
    if power:
        factors[x] = power
    return -MOST_POWER <= power <= MOST_POWER


def _of_numbers(table: HashConsTable, number: Number, factors: Factors, spec: Spec) -> Variable | None:
    """A number times the product of factors; None if the number cannot be collected."""
    if number and number != 1 and not collectable(number, spec):
        return None
    if not number or not factors:
        return emitted_constant(table, number, spec)
    y = of_factors(table, factors, spec)
    return y if number == 1 else multiple(table, y, number)


def power_of(x: Variable) -> tuple[Variable, int]:
    """`x`, an output of `pow_scalar`, as an integer power of a Variable."""
    f = x.parent
    assert f is not None
    (power,) = f.arguments
    return (f.inputs[0], int(power)) if power.is_integer() and abs(power) <= MOST_POWER else (x, 1)


def of_factors(table: HashConsTable, factors: Factors, spec: Spec) -> Variable:
    """The product of factors: the existing one, or a new one of the simplest suitable op."""
    inputs, powers = tuple(factors), tuple(factors.values())
    y: Variable
    if len(powers) == 1:
        y = inputs[0] if powers == (1,) else table.node(F.pow_scalar, inputs, (float(powers[0]),), spec.alone)
        return y
    if powers == (1, 1):
        return of_two(table, F.mul2, inputs, spec)
    if powers == (1, -1):
        return of_two(table, F.div2, inputs, spec)
    if powers == (-1, 1):
        existing = None if ORDER in table.off else table.known(F.div2, inputs[::-1], ())
        y = table.node(F.monomial, inputs, (powers,), spec.alone) if existing is None else existing
        return y
    return _of_several(table, factors, spec)


def _of_several(table: HashConsTable, factors: Factors, spec: Spec) -> Variable:
    """The monomial of factors: the existing one, in any order, or a new one."""
    if table.unread_monomials:
        for known in table.unread_monomials:
            of_inputs = _factors_of(known)
            if of_inputs is not None:
                table.monomials.setdefault(_key(table, of_inputs), known)
        table.unread_monomials.clear()
    key = _key(table, factors)
    existing = table.monomials.get(key)
    if existing is None:
        powers = tuple(factors.values())
        existing = table.monomials[key] = table.node(F.monomial, tuple(factors), (powers,), spec.alone)
    return existing


def of_two(table: HashConsTable, op: Op, inputs: Inputs, spec: Spec) -> Variable:
    """The product or quotient of two Variables, which may exist in the other order."""
    existing: Variable | None = None
    if ORDER not in table.off:
        turned = inputs[::-1]
        existing = table.known(op, turned, ()) if op is F.mul2 else table.known(F.monomial, turned, ((-1, 1),))
    return table.node(op, inputs, (), spec.alone) if existing is None else existing


def _key(table: HashConsTable, factors: Factors) -> Hashable:
    return tuple(factors.items()) if ORDER in table.off else frozenset(factors.items())


def _factors_of(y: Variable) -> Factors | None:
    """The factors of an emitted product that is a monomial of operands of one spec; else None."""
    f = y.parent
    if f is None or f.op.powers is None or not y.spec.differentiable:
        return None
    powers = f.op.powers(f)
    if powers in _OF_TWO or not all([x.spec is y.spec for x in f.inputs]):
        return None
    factors = dict(zip(f.inputs, powers, strict=True))
    return factors if len(factors) == len(powers) else None


_OF_TWO = ((1, 1), (1, -1), (-1, 1))
"""The powers that are emitted as a product or quotient of two."""
