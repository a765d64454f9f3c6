"""Sums as linear combinations with exact coefficients: like terms merge.

An emitted sum is identified by its *terms*: a coefficient for each distinct Variable, and a constant. So
`2 x y + 3 y x` is `5 x y`. A factor common to all coefficients stands outside of the sum, where it meets other numbers.

- Nested sums are merged if like terms meet; a sum without like terms refers to its operands, so that a long chain of
  additions costs no more than without canonical form.
- A function that the user built is a term, and is never taken apart.

Coefficients are ints and `Fraction`s if their source is exact, as 2 and 0.5 are, so nothing is rounded until the graph
runs; rounding would keep like terms from merging. A number such as 1.01 stays a float.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import nngrad.functions as F

from ..graph import Op, Variable
from ..graph.spec import Spec
from ..graph.thresholds import DEEPEST_SUM, MOST_TERMS
from .builder import Arguments, HashConsTable, Inputs, Number, declared, rewriting_rule
from .numbers import (
    WITH_NUMBERS,
    as_multiple,
    collectable,
    emitted_constant,
    is_exact,
    multiple,
    of_float,
    ratio,
    simplest,
)

Terms = dict[Variable, Number]
"""The coefficient of each term of a sum."""
Operands = Sequence[tuple[Variable, Number]]
"""The operands of a sum, each with its coefficient."""

SUMS = (F.add2, F.add_n, F.sub2, F.add_scalar, F.r_sub_scalar, F.linear_combination)
_SUMS = frozenset(SUMS)


@rewriting_rule("linear-combinations", *SUMS)
def as_linear_combination(table: HashConsTable, op: Op, inputs: Inputs, arguments: Arguments) -> Variable | None:
    """x - y = 1 x + -1 y, and all sums and differences likewise"""
    spec = inputs[0].spec
    if not spec.differentiable:
        return None
    for operand in inputs:
        if operand.spec is not spec:
            return None
    if not table.off and (op is F.add_scalar or op is F.r_sub_scalar):
        alone = _of_one(table, op, inputs, arguments, spec)
        if alone is not None:
            return alone
    summed = summands(op, inputs, arguments)
    result = None if summed is None else combination(table, *summed, spec)
    return table.node(op, inputs, arguments) if result is None else result


LIKE_TERMS = declared("like-terms", SUMS, "a x + b x = (a + b) x")
CONSTANT_TERMS = declared("constant-terms", SUMS, "(x + a) + b = x + (a + b) for numbers a and b, and x + 0 = x")
NESTED_SUMS = declared("sums-of-sums", SUMS, "(x + y) - x = y: sums are looked into, where terms meet")
COMMON_FACTORS = declared("common-factors", SUMS, "a x + a b y = a (x + b y)")
MULTIPLES = declared("multiples-of-sums", SUMS, "a x + a y = a (x + y), where x + y exists already")


def summands(op: Op, inputs: Inputs, arguments: Arguments) -> tuple[Operands, Number] | None:
    """The operands of a sum with their coefficients, and a constant; None if a number is not exact, or if the op is no
    sum."""
    if op not in _SUMS:
        return None
    if op is F.add2:
        return ((inputs[0], 1), (inputs[1], 1)), 0
    if op is F.sub2:
        return ((inputs[0], 1), (inputs[1], -1)), 0
    if op is F.add_n:
        return [(x, 1) for x in inputs], 0
    if op is F.linear_combination:
        coefficients, added = arguments
        if not (math.isfinite(added) and all(map(is_exact, coefficients))):
            return None
        return [(x, simplest(c)) for x, c in zip(inputs, coefficients, strict=True)], simplest(added)
    (added,) = arguments
    return (((inputs[0], 1 if op is F.add_scalar else -1),), of_float(added)) if math.isfinite(added) else None


def _of_one(table: HashConsTable, op: Op, inputs: Inputs, arguments: Arguments, spec: Spec) -> Variable | None:
    """The sum of a number and a Variable, if nothing can merge: the Variable is no sum, no multiple, and in no sum with
    a number yet. Else None."""
    (x,), (added,) = inputs, arguments
    f = x.parent
    key = frozenset(inputs)
    merging = f is not None and f.order and (f.op in _SUMS or f.op in WITH_NUMBERS)
    if merging or table.unread_sums or key in table.sums or not added or not math.isfinite(added):
        return None
    number = of_float(added)
    if not collectable(number, spec):
        return None
    y: Variable = table.node(op, inputs, arguments, spec.alone)
    terms: Terms = {x: 1 if op is F.add_scalar else -1}
    table.terms[y] = terms, number
    table.sums[key] = [(y, terms, number)]
    return y


def merged(table: HashConsTable, operands: Operands, added: Number, depth: int = 0) -> tuple[Terms, Number, bool, bool]:
    """The sum of `operands` and a constant as terms, with nested sums taken apart.

    Returns:
        The terms; the constant; whether like terms or constants have merged, or a term has vanished; and whether an
        operand is itself a sum.
    """
    terms: Terms = {}
    met = looked_into = False
    for x, coefficient in operands:
        f = x.parent
        if f is not None and f.order and f.op in WITH_NUMBERS:
            number, core = as_multiple(x)
            if core is None and CONSTANT_TERMS not in table.off:
                number *= coefficient
                met |= bool(added and number)
                added += number
                continue
            if core is not None:
                coefficient *= number
                x = core
                f = x.parent
        if not coefficient:
            met = True
        elif f is not None and f.op in _SUMS and f.order:
            number, has_met, is_sum = _enter_sum(table, terms, x, coefficient, depth)
            met |= has_met or bool(added and number)
            added += number
            looked_into |= is_sum
        else:
            met |= _enter(terms, x, coefficient)
    return terms, added, met, looked_into


def _enter(terms: Terms, x: Variable, coefficient: Number) -> bool:
    """Enter a term; returns whether there was a like term."""
    if x not in terms:
        terms[x] = coefficient
        return False
    coefficient += terms[x]
    if coefficient:
        terms[x] = coefficient
    else:
        del terms[x]
    return True


def _enter_sum(
    table: HashConsTable, terms: Terms, x: Variable, coefficient: Number, depth: int
) -> tuple[Number, bool, bool]:
    """Enter the terms of a sum. Returns its constant, whether like terms have merged, and whether it is a true sum."""
    inner, number = terms_of(table, x, depth)
    is_sum = bool(number) or len(inner) != 1
    if coefficient == 1 and terms.keys().isdisjoint(inner):
        terms.update(inner)
        return number, False, is_sum
    met = any([_enter(terms, term, c * coefficient) for term, c in inner.items()])
    return number and number * coefficient, met, is_sum


def terms_of(table: HashConsTable, x: Variable, depth: int = 0) -> tuple[Terms, Number]:
    """The terms of an emitted sum, and its constant."""
    known = table.terms.get(x)
    if known is not None:
        return known
    f = x.parent
    assert f is not None
    result: tuple[Terms, Number] = {x: 1}, 0
    summed = summands(f.op, f.inputs, f.arguments) if depth < DEEPEST_SUM and NESTED_SUMS not in table.off else None
    if summed is not None and _of_one_spec(x):
        terms, added, met, _ = merged(table, *summed, depth + 1)
        if len(terms) <= MOST_TERMS and not (met and LIKE_TERMS in table.off):
            result = terms, added
    table.terms[x] = result
    return result


def _of_one_spec(y: Variable) -> bool:
    """True if all operands of the emitted `y` have its shape and dtype."""
    return y.parent is not None and all([x.spec is y.spec for x in y.parent.inputs])


def combination(table: HashConsTable, operands: Operands, added: Number, spec: Spec) -> Variable | None:
    """The linear combination of `operands`, all of one spec, plus a constant; None if its numbers cannot be collected.
    """
    terms, constant_term, met, looked_into = merged(table, operands, added)
    if met and LIKE_TERMS in table.off:
        return None
    numbers = [*terms.values(), constant_term] if constant_term else list(terms.values())
    units = _UNITS.issuperset(numbers)
    if not units and not all([collectable(number, spec) for number in numbers]):
        return None
    if not terms:
        return emitted_constant(table, constant_term, spec)
    if len(numbers) == 1:
        return _of_term(table, terms)
    if table.unread_sums:
        _read(table)
    known = multiple_of_known(table, terms, constant_term, spec)
    if known is not None:
        y, factor = known
        return y if factor == 1 else multiple(table, y, factor)
    written = _shallow(operands, added) if looked_into and not met else (terms, constant_term)
    content = 1 if units else _content(numbers, spec)
    return _new_sum(table, written, terms, constant_term, content, spec)


def _of_term(table: HashConsTable, terms: Terms) -> Variable:
    """The sum of a single term."""
    ((x, coefficient),) = terms.items()
    return x if coefficient == 1 else multiple(table, x, coefficient)


def _new_sum(
    table: HashConsTable, written: tuple[Terms, Number], terms: Terms, added: Number, content: Number, spec: Spec
) -> Variable:
    """A new sum as `written`, without taking nested sums apart, with the factor `content` outside. From now on its
    `terms` identify it."""
    if COMMON_FACTORS in table.off:
        content = 1
    elif not added and next(iter(terms.values())) < 0:
        content = -content
    if len(written[0]) == 1 and not written[1]:
        return _of_term(table, written[0])
    if content != 1:
        written, (terms, added) = _divided(*written, content), _divided(terms, added, content)
    y = _sum(table, *written, spec)
    if len(terms) <= MOST_TERMS and NESTED_SUMS not in table.off:
        table.terms[y] = terms, added
    else:
        table.terms[y] = {y: 1}, 0
    table.sums.setdefault(frozenset(terms), []).append((y, terms, added))
    return y if content == 1 else multiple(table, y, content)


_UNITS = frozenset({1, -1})


def multiple_of_known(table: HashConsTable, terms: Terms, added: Number, spec: Spec) -> tuple[Variable, Number] | None:
    """An emitted sum of which the one with these terms and constant is a multiple, and the factor; or None."""
    for y, known, number in table.sums.get(frozenset(terms), ()):
        if terms == known and added == number:
            return y, 1
        if MULTIPLES in table.off:
            continue
        x, coefficient = next(iter(terms.items()))
        factor = ratio(coefficient, known[x])
        if factor.__class__ is float and abs(factor) != 1:
            continue  # multiples of floats depend on rounding
        if added and factor < 0:
            continue  # where 1 - x is 0, -(x - 1) is -0, and 1 / sqrt of it -inf
        same = added == factor * number and all([c == factor * known[x] for x, c in terms.items()])
        if same and collectable(factor, spec):
            return y, factor
    return None


def _read(table: HashConsTable) -> None:
    """Enter what was emitted earlier in the table of sums."""
    unread, table.unread_sums = table.unread_sums, []
    for y in unread:
        f = y.parent
        assert f is not None
        if f.op in _SUMS and y.spec.differentiable and as_multiple(y)[1] is y and _of_one_spec(y):
            terms, added = terms_of(table, y)
            if terms and y not in terms and multiple_of_known(table, terms, added, y.spec) is None:
                table.sums.setdefault(frozenset(terms), []).append((y, terms, added))


def _divided(terms: Terms, added: Number, content: Number) -> tuple[Terms, Number]:
    if content == -1:
        return {x: -c for x, c in terms.items()}, -added
    return {x: ratio(c, content) for x, c in terms.items()}, ratio(added, content)


def _shallow(operands: Operands, added: Number) -> tuple[Terms, Number]:
    """A sum's operands as its terms, and its constant, without taking nested sums apart."""
    terms: Terms = {}
    for x, coefficient in operands:
        number, core = as_multiple(x)
        if core is None:
            added += number * coefficient
        else:
            terms[core] = terms.get(core, 0) + number * coefficient
    return terms, added


def _content(numbers: list[Number], spec: Spec) -> Number:
    """The largest number of which all `numbers` are integer multiples, if these are small."""
    if 1 in numbers or -1 in numbers:
        return 1  # taking out 1/4 of x + y/4 would make more work
    fractions = [Fraction(c) for c in numbers if c.__class__ is not float]
    if len(fractions) < len(numbers):
        return 1
    common = math.lcm(*[c.denominator for c in fractions])
    content = Fraction(math.gcd(*[int(c * common) for c in fractions]), common)
    largest = max([abs(c) for c in fractions]) / content
    small = largest <= 2**20 and collectable(largest, spec) and collectable(content, spec)
    return simplest(content) if small else 1


def _sum(table: HashConsTable, terms: Terms, added: Number, spec: Spec) -> Variable:
    """Emit the sum of `terms` and a constant, by the simplest suitable op."""
    xs = tuple(terms) if len(terms) == 1 else _in_order(terms)
    coefficients = tuple(map(terms.__getitem__, xs))
    op: Op = F.linear_combination
    arguments: tuple[Any, ...] = (coefficients, added)
    if coefficients in _OF_ONE and float(added) == added:
        op, arguments = _OF_ONE[coefficients], (float(added),)
    elif not added:
        if coefficients == (-1, 1):
            xs, coefficients = xs[::-1], (1, -1)
        if coefficients == (1, -1):
            op, arguments = F.sub2, ()
        elif coefficients == (1,) * len(xs):
            op, arguments = (F.add2 if len(xs) == 2 else F.add_n), ()
    y: Variable = table.node(op, xs, arguments, spec.alone)
    return y


_OF_ONE: dict[tuple[Number, ...], Op] = {(1,): F.add_scalar, (-1,): F.r_sub_scalar}
"""The ops that add a number to a single term, by the term's coefficient."""


def _in_order(terms: Terms) -> tuple[Variable, ...]:
    """The terms in the order in which they become available, so that only the last addition waits for the last term.

    Broadcast terms come first: this saves a function in second gradients of normalisations. To the compiler it makes no
    difference.
    """
    ranked = []
    for i, x in enumerate(terms):
        f = x.parent
        ranked.append((True, -1, i, x) if f is None else (f.op is not F.broadcast, f.rank, i, x))
    ranked.sort()
    return tuple([entry[-1] for entry in ranked])
