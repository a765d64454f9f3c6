"""Exact quotients: a gradient divided by a length, where the algebra shows that the length is a factor.

The gradient of a function of a norm y is `gy x / y`, which has no value where y is 0. If the function is smooth there,
as `norm(x)**2` and `exp(-norm(x)**2)` are, y is a factor of gy, and the quotient is another expression, without
division. To find it, gy is expanded into a sum of products: of `(1 + y + y*y/3) exp(-y)`, a Matern kernel, it is
`(1 + 2/3 y) exp(-y) - (1 + y + y*y/3) exp(-y)`, of which only terms with y remain. Elsewhere in the graph products stay
as they are, since expanding them loses accuracy; here it avoids a difference of nearly equal numbers.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import nngrad.functions as F
from backward_registry import registry

from ..functions.array import filled_like, zeros_like
from ..graph import Function, Op, Variable
from ..graph.thresholds import MOST_EXPANDED
from .builder import Arguments, HashConsTable, Inputs, Number, rewriting_rule
from .numbers import WITH_NUMBERS, is_exact, multiple, number_of, of_float
from .products import product
from .sums import summands

Monomial = tuple[tuple[Variable, int], ...]
"""Powers of distinct Variables, in the order in which these were met first."""
Polynomial = dict[Monomial, Fraction]
"""The coefficient of each monomial."""


@rewriting_rule("exact-quotients", F.divided)
def _exact_quotient(table: HashConsTable, op: Op, inputs: Inputs, arguments: Arguments) -> Variable | None:
    """(a y) / y = a, and so for sums that have a factor y when they are expanded"""
    x, y = inputs
    if x.spec is not y.spec or not x.spec.differentiable or not _may_contain(x, y):
        return None
    expansion = Expansion(y, sums=False)
    terms = expansion.of(x)
    if terms is None or any([dict(monomial).get(y, 0) < 1 for monomial in terms]):
        expansion = Expansion(y, sums=True)
        terms = expansion.of(x)
    if terms is None:
        return None
    quotient: list[tuple[Variable, Fraction]] = []
    for monomial, coefficient in terms.items():
        factors = dict(monomial)
        if factors.get(y, 0) < 1:
            vanishing = expansion.vanishing(monomial) if arguments[0] else None
            limit = None if vanishing is None else _limit(vanishing, y)
            if vanishing is None or limit is None:
                return None
            factors[limit] = 1
            factors[vanishing] -= 1
            factors[y] = factors.get(y, 0) + 1
        factors[y] -= 1
        term = product(table, [(z, power) for z, power in factors.items() if power], x.spec)
        if term is None:
            return None
        quotient.append((term, coefficient))
    if not quotient:
        return zeros_like(x)
    zs, coefficients = zip(*quotient, strict=True)
    # The ratios of the coefficients are often numbers of the program, with which those of derivatives cancel.
    ratios = tuple([of_float(float(c / coefficients[0])) for c in coefficients])
    combined: Variable = zs[0] if len(zs) == 1 else F.linear_combination(*zs, coefficients=ratios)
    return multiple(table, combined, of_float(float(coefficients[0])))


def _may_contain(x: Variable, y: Variable) -> bool:
    """True if elementwise functions lead from `y`, or from what may be a copy of it, to `x`, as far as one looks."""
    waiting, seen = [x], 0
    while waiting and seen < MOST_EXPANDED:
        z, seen = waiting.pop(), seen + 1
        f, g = z.parent, y.parent
        if z is y or (f is not None and g is not None and f.op is g.op and f.arguments == g.arguments):
            return True
        if f is not None and f.op.diagonal:
            waiting += f.inputs
    return False


def _limit(x: Variable, y: Variable) -> Variable | None:
    """`x / y` for a function x of a multiple of y that is 0 where y is: there its slope. Of the quotient's own
    derivatives nothing is known there, but that the first is multiplied by 0 in a second derivative. None for a step,
    which has no slope there."""
    f = x.parent
    assert f is not None
    (argument,) = f.inputs
    one = filled_like(x, 1)
    known = registry.find(f.op)
    assert known is not None
    gradients = known.function(f, one)
    slope = gradients[0] if isinstance(gradients, tuple | list) else gradients
    if slope is None:
        return None
    known_there = F.unlink(slope * F.divided(argument, y)) + y**1.5  # whose second derivative is infinite
    limit: Variable = F.where(F.equal_scalar(y, val=0.0), known_there, F.divided(x, y))
    return limit


@lru_cache(maxsize=256)
def _is_zero_at_zero(op: Op, arguments: Arguments) -> bool:
    """True if an op on one Variable maps 0 to 0."""
    with jax.ensure_compile_time_eval():
        return bool(np.asarray(op.bind(arguments)(jnp.zeros((), jnp.float32))) == 0)


@lru_cache(maxsize=1024)
def _fraction(number: Number) -> Fraction:
    """A number exactly, or the short fraction that it is rounded from: 0.3333333333333333 is 1/3."""
    short = Fraction(number).limit_denominator(1024)
    return short if float(short) == number else Fraction(number)


class Expansion:
    """Expands functions into polynomials.

    Args:
        y: A Variable. What comes before it in the graph is not looked into.
        sums: Whether to look into sums, too.
    """

    def __init__(self, y: Variable, sums: bool) -> None:
        self.y = y
        self.sums = sums
        self.rank = -1 if y.parent is None else y.parent.rank
        self.place: dict[Variable, int] = {}
        self.done: dict[Variable, Polynomial] = {}

    def of(self, x: Variable) -> Polynomial | None:
        """The polynomial that equals `x`; None if it would be long."""
        stack = [x]
        while stack:
            z = stack[-1]
            if z in self.done:
                stack.pop()
                continue
            f = z.parent
            operands = self._operands(z, f)
            waiting = [operand for operand in operands if operand not in self.done]
            if waiting and len(self.done) + len(stack) < MOST_EXPANDED:
                stack += waiting
                continue
            if waiting:
                return None
            polynomial = self._combined(f, operands) if f is not None and operands else self._alone(z)
            if polynomial is None or len(polynomial) > MOST_EXPANDED:
                return None
            self.done[z] = polynomial
            stack.pop()
        return self.done[x]

    def vanishing(self, monomial: Monomial) -> Variable | None:
        """A factor that is 0 where `y` is, since it is such a function of a multiple of `y`; None if there is none."""
        for x, power in monomial:
            f = x.parent
            if power < 1 or f is None or len(f.inputs) != 1 or not f.op.diagonal or f.op.multiple_results:
                continue
            argument, known = self.of(f.inputs[0]), registry.find(f.op)
            linear = argument is not None and [dict(factors) for factors in argument] == [{self.y: 1}]
            if linear and known is not None and known.exact and _is_zero_at_zero(f.op, f.arguments):
                return x
        return None

    def _operands(self, x: Variable, f: Function | None) -> tuple[Variable, ...]:
        """The inputs of a sum, a product or a whole power; none if `x` is anything else, which is a factor."""
        if x is self.y or f is None or any([operand.spec is not x.spec for operand in f.inputs]):
            return ()
        if f.rank <= self.rank and f.op not in WITH_NUMBERS:
            return ()
        whole = f.op is F.square or (f.op is F.pow_scalar and f.arguments[0].is_integer() and abs(f.arguments[0]) <= 4)
        summed = summands(f.op, f.inputs, f.arguments)
        is_sum = summed is not None and (self.sums or (len(f.inputs) == 1 and not summed[1]))
        return f.inputs if whole or f.op.powers is not None or is_sum or f.op is F.mul_scalar else ()

    def _alone(self, x: Variable) -> Polynomial:
        f = x.parent
        is_number = f is not None and f.op is F.constant and is_exact(f.arguments[0])
        number = f.arguments[0] if f is not None and is_number else number_of(x)
        if number is not None:
            return {(): _fraction(number)} if number else {}
        if _is_copy(x, self.y):
            x = self.y
        self.place.setdefault(x, len(self.place))
        return {((x, 1),): Fraction(1)}

    def _combined(self, f: Function, operands: tuple[Variable, ...]) -> Polynomial | None:
        """The polynomial of a sum, a product or a power of polynomials."""
        expanded = [self.done[x] for x in operands]
        if f.op is F.mul_scalar:
            return _scaled(expanded[0], _fraction(f.arguments[0]))
        summed = summands(f.op, f.inputs, f.arguments)
        if summed is not None:
            added: list[tuple[Monomial, Fraction]] = [((), _fraction(summed[1]))]
            for terms, (_, coefficient) in zip(expanded, summed[0], strict=True):
                added += [(monomial, c * _fraction(coefficient)) for monomial, c in terms.items()]
            return _collected(added)
        powers: Any = (2,) if f.op is F.square else f.arguments if f.op is F.pow_scalar else f.op.powers(f)  # type: ignore[misc]
        result: Polynomial = {(): Fraction(1)}
        for x, terms, power in zip(operands, expanded, powers, strict=True):
            if power < 0:
                terms = _inverse(terms if len(terms) == 1 else self._alone(x))
            for _ in range(int(abs(power))):
                if len(result) * len(terms) > MOST_EXPANDED:
                    return None
                result = self._multiplied(result, terms)
        return result

    def _multiplied(self, a: Polynomial, b: Polynomial) -> Polynomial:
        products = []
        for first, c in a.items():
            for second, d in b.items():
                factors = dict(first)
                for x, power in second:
                    factors[x] = factors.get(x, 0) + power
                nonzero = [factor for factor in factors.items() if factor[1]]
                products.append((tuple(sorted(nonzero, key=lambda factor: self.place[factor[0]])), c * d))
        return _collected(products)


def _collected(terms: list[tuple[Monomial, Fraction]]) -> Polynomial:
    """The sum of terms. What is left of numbers that differ only by their own rounding, as 1 - 3 (1/3) does, is 0."""
    total: Polynomial = {}
    size: Polynomial = {}
    for monomial, c in terms:
        total[monomial] = total.get(monomial, Fraction(0)) + c
        size[monomial] = size.get(monomial, Fraction(0)) + abs(c)
    return {monomial: c for monomial, c in total.items() if abs(c) > size[monomial] * _ROUNDING}


_ROUNDING = Fraction(1, 2**48)


def _is_copy(x: Variable, y: Variable) -> bool:
    """True if `x` is computed as `y` is, from the same Variables: a program may compute a norm more than once."""
    pairs = [(x, y)]
    while pairs:
        a, b = pairs.pop()
        if a is b:
            continue
        f, g = a.parent, b.parent
        if f is None or g is None or f.op is not g.op or f.arguments != g.arguments or f.effects:
            return False
        if f.op.multiple_results or len(f.inputs) != len(g.inputs) or len(pairs) > MOST_EXPANDED:
            return False
        pairs += zip(f.inputs, g.inputs, strict=True)
    return True


def _inverse(terms: Polynomial) -> Polynomial:
    """1 / a monomial."""
    ((monomial, coefficient),) = terms.items()
    return {tuple([(x, -power) for x, power in monomial]): 1 / coefficient}


def _scaled(terms: Polynomial, number: Fraction) -> Polynomial:
    return {monomial: c * number for monomial, c in terms.items()} if number else {}
