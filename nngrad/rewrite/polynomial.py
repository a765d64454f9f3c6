"""Products as monomials, sums as linear combinations, with exact coefficients; like factors and like terms merge.

An emitted product is known by its *factors*: a whole power for each distinct Variable, in whatever order. An emitted
sum is known by its *terms*: a coefficient for each distinct Variable, and a constant. So `x y` and `y x` are one
function, `x x` is `x**2`, and `2 x y + 3 y x` is `5 x y`. Numbers stand outside of products and of sums, where they
meet the numbers of others.

What is emitted is no polynomial multiplied out:

- No product is distributed over a sum: `(1 - y*y) z` stays a product, since expanding it would lose accuracy.
- A product that is a factor stays one: `a (b c)` has the factors `a` and `b c`, which others may use. So the product
  rule gives Leibniz's: derivatives of order n are sums of n products of lower derivatives, and the graph of n orders
  grows as n^2. Multiplied out, terms would be as many as the partitions of n.
- Sums within sums are merged where terms meet; a sum of which no terms meet refers to its operands, so that a long
  chain of additions costs what it costs without canonical form.
- A function that the user built is a factor or a term, and is never looked into.

Coefficients are whole numbers and `Fraction`s where their source is exact, as 2 and 0.5 are, so nothing is rounded
until the graph runs; rounded ones would keep like terms from merging. A number such as 1.01 stays the float it is.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import nngrad.functions as F

from ..graph import Op, Variable, by_rank
from ..graph.spec import Spec
from .numbers import Number, collectable, exact, filled, ratio, scaled, split, to_power

if TYPE_CHECKING:
    from .builder import Builder

Factors = dict[Variable, int]
"""The power of each factor of a product."""
Terms = dict[Variable, Number]
"""The coefficient of each term of a sum."""

MOST_TERMS = 64
"""From how many distinct terms on a sum is itself a term."""
MOST_POWER = 64
"""Up to which power factors merge: so far a power is computed by multiplication."""
_DEEPEST = 16
"""How far into sums of sums one looks, where they are not in canonical form."""


POLYNOMIAL = frozenset({
    F.mul2, F.div2, F.pow_scalar, F.monomial,
    F.add2, F.add_n, F.sub2, F.add_scalar, F.r_sub_scalar, F.linear_combination,
})  # fmt: skip
"""The ops that products and sums are emitted as."""


def remember(builder: Builder, y: Variable) -> None:
    """Let `y`, which was emitted earlier, be found as the product or the sum that it is."""
    if split(y)[1] is not y or any([x.spec is not y.spec for x in y.parent.inputs]):  # type: ignore[union-attr]
        return
    factors = factors_of(y)
    if factors is not None:
        builder.products.setdefault(frozenset(factors.items()), y)
        return
    terms, constant = terms_of(builder, y)
    if terms and y not in terms and multiple_of_known(builder, terms, constant, y.spec) is None:
        builder.sums.setdefault(frozenset(terms), []).append((y, terms, constant))


# ---------------------------------------------------------------- products


def power_of(x: Variable) -> tuple[Variable, int]:
    """`x` as a whole power of a Variable."""
    f = x.parent
    if f is not None and f.order and f.op is F.pow_scalar:
        (power,) = f.arguments
        if power.is_integer() and abs(power) <= MOST_POWER:
            return f.inputs[0], int(power)
    return x, 1


def product(builder: Builder, operands: list[tuple[Variable, int]]) -> Variable | None:
    """The product of powers of `operands`, all of one spec; None where its numbers cannot be collected."""
    spec = operands[0][0].spec
    number: Number = 1
    factors: Factors = {}
    for x, power in operands:
        inner, core = split(x)
        if inner != 1:
            if inner == 0 and power < 0:
                return None
            scale = inner if power == 1 else to_power(inner, power)
            if scale is None:
                return None
            inner = scale
            if inner and not collectable(inner, spec):
                # A number that is too large to be moved stays where it is.
                inner, core = 1, x
            number *= inner
        if core is not None:
            base, inside = power_of(core)
            together = factors.get(base, 0) + inside * power
            if not -MOST_POWER <= together <= MOST_POWER:
                return None
            if together:
                factors[base] = together
            else:
                factors.pop(base, None)
    if number == 0:
        return filled(builder, 0, spec)
    if number != 1 and not collectable(number, spec):
        return None
    if not factors:
        return filled(builder, number, spec)
    key = frozenset(factors.items())
    y = builder.products.get(key)
    if y is None:
        y = builder.products[key] = _product(builder, factors)
    return scaled(builder, y, number)


def factors_of(y: Variable) -> Factors | None:
    """The factors of an emitted product; None if it is none."""
    f = y.parent
    assert f is not None
    if f.op is F.mul2:
        return dict.fromkeys(f.inputs, 1) if f.inputs[0] is not f.inputs[1] else {f.inputs[0]: 2}
    if f.op is F.div2 and f.inputs[0] is not f.inputs[1]:
        return {f.inputs[0]: 1, f.inputs[1]: -1}
    if f.op is F.monomial and len(set(f.inputs)) == len(f.inputs):
        return dict(zip(f.inputs, f.arguments[0], strict=True))
    base, power = power_of(y)
    return None if base is y else {base: power}


def _product(builder: Builder, factors: Factors) -> Variable:
    """The function that multiplies `factors`: the simplest there is."""
    (x, power), *others = factors.items()
    y: Variable
    if not others:
        y = x if power == 1 else builder.node(F.pow_scalar, (x,), (float(power),))
    elif len(others) == 1 and power == 1 and others[0][1] == 1:
        y = builder.node(F.mul2, (x, others[0][0]), ())
    elif len(others) == 1 and power == 1 and others[0][1] == -1:
        y = builder.node(F.div2, (x, others[0][0]), ())
    else:
        y = builder.node(F.monomial, tuple(factors), (tuple(factors.values()),))
    return y


# ---------------------------------------------------------------- sums


def terms_of(builder: Builder, x: Variable, depth: int = 0) -> tuple[Terms, Number]:
    """The terms of what `split` leaves of a Variable, and their constant."""
    f = x.parent
    if f is None or not f.order or f.op not in _SUMS:
        return {x: 1}, 0
    known = builder.terms.get(x)
    if known is not None:
        return known
    result: tuple[Terms, Number] = {x: 1}, 0
    summed = _summands(f.op, f.inputs, f.arguments) if depth < _DEEPEST else None
    if summed is not None and all([each.spec is x.spec for each, _ in summed[0]]):
        merged: Terms = {}
        constant = summed[1]
        for each, coefficient in summed[0]:
            constant += gather(builder, merged, each, coefficient, depth + 1)[1]
        if len(merged) <= MOST_TERMS:
            result = merged, constant
    builder.terms[x] = result
    return result


_SUMS = frozenset({F.add2, F.add_n, F.sub2, F.add_scalar, F.r_sub_scalar, F.linear_combination})


def _summands(
    op: Op, inputs: tuple[Variable, ...], arguments: tuple[Any, ...]
) -> tuple[list[tuple[Variable, Number]], Number] | None:
    """The operands of a sum with their coefficients, and a constant; None if the op makes no sum."""
    if op is F.linear_combination:
        return [(x, exact(c)) for x, c in zip(inputs, arguments[0], strict=True)], exact(arguments[1])
    if op is F.add2 or op is F.add_n:
        return [(x, 1) for x in inputs], 0
    if op is F.sub2:
        return [(inputs[0], 1), (inputs[1], -1)], 0
    if (op is F.add_scalar or op is F.r_sub_scalar) and math.isfinite(arguments[0]):
        return [(inputs[0], 1 if op is F.add_scalar else -1)], exact(arguments[0])
    return None


def gather(
    builder: Builder, into: Terms, x: Variable, coefficient: Number, depth: int = 0
) -> tuple[int, Number]:
    """Add `coefficient * x` to `into`; return of how many terms it consists, and its constant."""
    number, core = split(x)
    number *= coefficient
    if core is None:
        return 0, number
    terms, constant = terms_of(builder, core, depth)
    for each, c in terms.items():
        together = into.get(each, 0) + c * number
        if together:
            into[each] = together
        else:
            into.pop(each, None)
    return len(terms), constant * number


def combination(builder: Builder, operands: list[tuple[Variable, Number]], constant: Number = 0) -> Variable | None:
    """The sum of `operands`, all of one spec, each times its coefficient, and of a constant; None where its numbers
    cannot be collected."""
    spec = operands[0][0].spec
    merged: Terms = {}
    given, count, constants = constant, 0, 1 if constant else 0
    for x, coefficient in operands:
        size, number = gather(builder, merged, x, coefficient)
        count += size
        if number:
            constant += number
            constants += 1
    numbers = [*merged.values(), constant] if constant else list(merged.values())
    units = all([c == 1 or c == -1 for c in numbers])
    if not units and not all([collectable(c, spec) for c in numbers]):
        return None
    if not merged:
        return filled(builder, constant, spec)
    first, coefficient = next(iter(merged.items()))
    if len(numbers) == 1:
        return scaled(builder, first, coefficient)
    known = multiple_of_known(builder, merged, constant, spec)
    if known is not None:
        return scaled(builder, *known)
    content = 1 if units else _content(numbers, spec)
    if constant == 0 and coefficient < 0:
        content = -content
    unmerged = len(merged) == count and constants < 2
    plain = count == len(operands) and constants == (1 if given else 0)
    written = _shallow(operands, given) if unmerged and not plain else (merged, constant)
    y = _sum(builder, *_divided(*written, content))
    terms, number = _divided(merged, constant, content)
    builder.terms[y] = (terms, number) if len(terms) <= MOST_TERMS else ({y: 1}, 0)
    builder.sums.setdefault(frozenset(terms), []).append((y, terms, number))
    return scaled(builder, y, content)


def multiple_of_known(
    builder: Builder, terms: Terms, constant: Number, spec: Spec
) -> tuple[Variable, Number] | None:
    """An emitted sum of which this one, with `terms` and `constant`, is a multiple, and the factor; else None."""
    for y, own, number in builder.sums.get(frozenset(terms), ()):
        x, coefficient = next(iter(terms.items()))
        factor = ratio(coefficient, own[x])
        if factor.__class__ is float and abs(factor) != 1:
            continue  # what floats are multiples of depends on rounding
        if constant and factor < 0:
            continue  # where 1 - x is 0, -(x - 1) is -0, and 1 / sqrt of it -inf
        same = constant == factor * number and all([c == factor * own[x] for x, c in terms.items()])
        if same and collectable(factor, spec):
            return y, factor
    return None


def _divided(terms: Terms, constant: Number, content: Number) -> tuple[Terms, Number]:
    if content == 1:
        return terms, constant
    return {x: ratio(c, content) for x, c in terms.items()}, ratio(constant, content)


def _shallow(operands: list[tuple[Variable, Number]], constant: Number) -> tuple[Terms, Number]:
    """The operands of a sum as its terms, and its constant: that inside of an operand stays there."""
    terms: Terms = {}
    for x, coefficient in operands:
        number, core = split(x)
        if core is None:
            constant += number * coefficient
        else:
            terms[core] = terms.get(core, 0) + number * coefficient
    return terms, constant


def _content(numbers: list[Number], spec: Spec) -> Number:
    """The largest number of which all of `numbers` are whole multiples, if those are small."""
    if 1 in numbers or -1 in numbers:
        return 1  # taking out 1/4 of x + y/4 would make more work
    fractions = [Fraction(c) for c in numbers if c.__class__ is not float]
    if len(fractions) < len(numbers):
        return 1
    common = math.lcm(*[c.denominator for c in fractions])
    content = Fraction(math.gcd(*[int(c * common) for c in fractions]), common)
    largest = max([abs(c) for c in fractions]) / content
    small = largest <= 2**20 and collectable(largest, spec) and collectable(content, spec)
    return exact(content) if small else 1


def _is_whole(x: Variable) -> bool:
    return x.parent is None or x.parent.op is not F.broadcast


def _sum(builder: Builder, terms: Terms, constant: Number) -> Variable:
    """The function that adds up `terms` and a constant: the simplest there is."""
    # In the order in which they can be had, so that nothing waits for the last one but the last addition. What is
    # repeated along axes comes first: a sum that ends with it XLA takes for a function of one array, and computes anew
    # in each reader, from all that it is made of.
    xs = tuple(sorted(sorted(terms, key=by_rank), key=_is_whole)) if len(terms) > 1 else tuple(terms)
    coefficients = tuple([terms[x] for x in xs])
    op: Op = F.linear_combination
    arguments: tuple[Any, ...] = (coefficients, constant)
    if len(xs) == 1 and float(constant) == constant:
        if coefficients == (1,):
            op, arguments = F.add_scalar, (float(constant),)
        elif coefficients == (-1,):
            op, arguments = F.r_sub_scalar, (float(constant),)
    elif not constant:
        if coefficients == (-1, 1):
            xs, coefficients = xs[::-1], (1, -1)
        if coefficients == (1, -1):
            op, arguments = F.sub2, ()
        elif all([c == 1 for c in coefficients]):
            op, arguments = (F.add2 if len(xs) == 2 else F.add_n), ()
    y: Variable = builder.node(op, xs, arguments)
    return y
