"""Values along many directions as sums of a few terms, each diagonal in its own way.

The difference r_i - r_j of two particles moves with particle i and with particle j: the part of the former is diagonal
along the first axis of the pairs, that of the latter along the second. Added up, there would be a direction for each
particle; as a *sum of terms* each keeps its own diagonals. Linear functions act on each term separately. In the sum of
a product over the directions, the product of two terms is diagonal along both axes: it is zero except where the two
places coincide, i = j.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import nngrad.functions as F

from ..functions.operands import Operand
from ..graph import Function, Variable
from ..graph.axes import axes_carried
from .along import Along, Diagonals, is_linear_in, spread_out
from .batching import batched_product, is_product, powers_of, times_factors

Terms = tuple[Along, ...]
"""The terms of a sum; no two of them agree."""
Group = tuple[list[Along | None], list[Variable]]
"""For each input of a function, its value along the directions, or None; and its value without directions."""


def _agree(a: Diagonals, b: Diagonals) -> bool:
    """Whether no axis of the directions is diagonal along different axes in the two."""
    return all([p is None or q is None or p == q for p, q in zip(a, b, strict=True)])


def _common(a: Diagonals, b: Diagonals) -> Diagonals:
    return tuple([p if p == q else None for p, q in zip(a, b, strict=True)])


def one_value(terms: Terms, sizes: tuple[int, ...]) -> Along:
    """The sum of terms as a single value."""
    first, *others = terms
    for each in others:
        kept = _common(first.diagonals, each.diagonals)
        values = [spread_out(term, sizes, kept).value() for term in (first, each)]
        first = Along(F.add2(*values), first.x, kept)
    return first


def sum_of_terms(terms: Terms, sizes: tuple[int, ...]) -> Terms:
    """The same sum with agreeing terms added; as a single term if several do not save directions."""
    found: list[Along] = []
    for each in terms:
        for other in [other for other in found if _agree(other.diagonals, each.diagonals)]:
            if _agree(other.diagonals, each.diagonals):
                found.remove(other)
                each = one_value((other, each), sizes)
        found.append(each)
    common = found[0].diagonals
    for each in found:
        common = _common(common, each.diagonals)
    several = sum([_count(each.diagonals, sizes) for each in found])
    return tuple(found) if several < _count(common, sizes) else (one_value(tuple(found), sizes),)


def _count(diagonals: Diagonals, sizes: tuple[int, ...]) -> int:
    return math.prod([n for a, n in zip(diagonals, sizes, strict=True) if a is None])


# ---------------------------------------------------------------- through functions


def additive_groups(
    f: Function, given: Sequence[Terms | None], plain: Sequence[Variable], sizes: tuple[int, ...]
) -> list[Group]:
    """Split the inputs of `f` into groups over which it is additive. A single group, with the terms of each input
    summed, if `f` is not linear or nothing is gained.

    Args:
        f: The function.
        given: The terms of each input; None for an input that is the same in all directions.
        plain: The values of these inputs.
        sizes: The sizes of the axes of the directions.
    """
    moved = [i for i, terms in enumerate(given) if terms is not None]
    if len(moved) == 1 and _is_linear_in_one(f, moved[0]):
        (terms,) = [terms for terms in given if terms is not None]
        return [([None if other is None else each for other in given], [*plain]) for each in terms]
    keys = _carried(f, given)
    if keys is None or not is_linear_in(f, given, plain):
        return [([None if terms is None else one_value(terms, sizes) for terms in given], [*plain])]
    parts: list[tuple[Diagonals, list[tuple[int, Along]]]] = []
    for i, each, key in keys:
        members = [(i, each)]
        for other in [*parts]:
            if _agree(other[0], key):
                parts.remove(other)
                key, members = _common(other[0], key), other[1] + members
        parts.append((key, members))
    return [_group(given, plain, members, sizes) for _, members in parts]


def _is_linear_in_one(f: Function, i: int) -> bool:
    """Whether `f` is linear in input `i`, the only one with directions."""
    if f.op.multiple_results:
        return False
    return f.op.linear_in(i) or (is_product(f) and powers_of(f)[i] == 1)


def _carried(f: Function, given: Sequence[Terms | None]) -> list[tuple[int, Along, Diagonals]] | None:
    """Each term with its input and the diagonals that `f` carries it to; None if `f` declares no axes."""
    if f.op.multiple_results or (f.op.axes is None and not f.op.diagonal):
        return None
    places = axes_carried(f)
    return [
        (i, each, tuple([None if a is None else places[i][a] for a in each.diagonals]))
        for i, terms in enumerate(given) if terms is not None for each in terms
    ]


def _group(
    given: Sequence[Terms | None], plain: Sequence[Variable], members: list[tuple[int, Along]], sizes: tuple[int, ...]
) -> Group:
    """The `members` as inputs of a function, with zeros for inputs without a term among them."""
    alongs: list[Along | None] = [None] * len(given)
    values = [*plain]
    for k, terms in enumerate(given):
        own = tuple([each for i, each in members if i == k])
        if own:
            alongs[k] = one_value(own, sizes)
        elif terms is not None:
            x = terms[0].x
            values[k] = F.constant(val=0, shape=(1,) * x.ndim, dtype=x.dtype)
    return alongs, values


def summed_product(
    f: Function, given: Sequence[Terms | None], plain: Sequence[Variable], sizes: tuple[int, ...]
) -> Variable | None:
    """The sum over all directions of a product of two values along them, possibly the same one, and of values without
    directions; None if `f` is not such a product, or if all terms of one agree with all of the other.

    Args:
        f: The function, a product of powers.
        given: The terms of each input; None for an input that is the same in all directions.
        plain: The values of these inputs.
        sizes: The sizes of the axes of the directions.
    """
    powers = powers_of(f)
    moved = [i for i, terms in enumerate(given) if terms is not None for _ in range(max(powers[i], 0))]
    terms = _carried(f, given)
    if len(moved) != 2 or min([powers[i] for i, each in enumerate(given) if each is not None]) < 1 or terms is None:
        return None
    first, second = [[(each, key) for i, each, key in terms if i == k] for k in moved]
    if all([_agree(p, q) for _, p in first for _, q in second]):
        return None
    ndim, square = f.specs[0].ndim, moved[0] == moved[1]
    # Where the places coincide, terms may cancel, as in r_i - r_i: terms of the same scale are added first.
    by_scale: dict[tuple[Operand, ...], list[Variable]] = {}
    for k, (a, p) in enumerate(first):
        for m, (b, q) in enumerate(second):
            if square and m < k:
                continue
            scales = tuple([Operand(each.scale, each.x, 0) for each in (a, b) if each.scale is not None])
            y = _product_of(a, b, p, q, sizes, ndim)
            by_scale.setdefault(scales, []).append(F.mul_scalar(y, val=2) if square and m > k else y)
    parts = [
        times_factors(F.add_n(*values) if len(values) > 1 else values[0], [(each, 1) for each in scales], ndim)
        for scales, values in by_scale.items()
    ]
    others = [(Operand(x, f.inputs[i], 0), powers[i]) for i, x in enumerate(plain) if given[i] is None]
    return times_factors(F.add_n(*parts) if len(parts) > 1 else parts[0], others, ndim)


def _product_of(a: Along, b: Along, p: Diagonals, q: Diagonals, sizes: tuple[int, ...], ndim: int) -> Variable:
    """The sum over the directions of the product of two bases that are diagonal along its axes `p` and `q`."""
    kept = [m is not None and n is not None for m, n in zip(p, q, strict=True)]
    bases = [
        spread_out(each, sizes, tuple([d if k else None for d, k in zip(each.diagonals, kept, strict=True)])).operand()
        for each in (a, b)
    ]
    y: Variable = F.sum(batched_product([(bases[0], 2)] if a is b else [(each, 1) for each in bases], ndim), axis=0)
    for m, n, size in zip(p, q, sizes, strict=True):
        if m is not None and n is not None and m != n:
            same = F.matrix_diag(F.constant(val=1, shape=(size,), dtype=y.dtype))
            y = F.mul2(y, F.reshape(same, shape=tuple([size if axis in (m, n) else 1 for axis in range(ndim)])))
    return y
