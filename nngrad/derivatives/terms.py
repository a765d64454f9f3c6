"""Values along many directions as sums of a few terms, each diagonal in its own way.

The difference r_i - r_j of two particles moves with particle i and with particle j: the part of the former is diagonal
along the first axis of the pairs, that of the latter along the second. Added up, there would be a direction for each
particle; as a *sum of terms* each keeps its own diagonals. Linear functions act on each term separately. In the sum of
a product over the directions, the product of two terms is diagonal along both axes: it is zero except where the two
places coincide, i = j.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import nngrad.functions as F

from ..functions.operands import Operand, Shape
from ..graph import Function, Variable
from ..graph.axes import axes_carried
from .along import Along, Diagonals, is_linear_in, spread_out
from .batching import batched_product, is_product, powers_of, times_factors

Terms = tuple[Along, ...]
"""The terms of a sum; no two have the same diagonals."""
Group = tuple[list[Along | None], list[Variable]]
"""For each input of a function, its value along the directions, or None; and its value without directions."""


def one_value(terms: Sequence[Along], sizes: Shape) -> Along:
    """The sum of terms as a single value."""
    if len(terms) == 1:
        return terms[0]
    common = _common([term.diagonals for term in terms])
    return Along(F.add_n(*[spread_out(term, sizes, common).value() for term in terms]), terms[0].x, common)


def sum_of_terms(terms: Sequence[Along], sizes: Shape) -> Terms:
    """The same sum, with terms of the same diagonals added; a single term if several do not save directions."""
    several = {term.diagonals: [other for other in terms if other.diagonals == term.diagonals] for term in terms}
    groups = several.values() if _save(several, sizes) else [terms]
    return tuple([one_value(group, sizes) for group in groups])


def _save(several: Iterable[Diagonals], sizes: Shape) -> bool:
    """True if terms with these diagonals have fewer directions than their sum."""
    counts = [
        math.prod([n for a, n in zip(diagonals, sizes, strict=True) if a is None])
        for diagonals in (_common([*several]), *{*several})
    ]
    return sum(counts[1:]) < counts[0]


def _common(several: Sequence[Diagonals]) -> Diagonals:
    return tuple([axes[0] if len({*axes}) == 1 else None for axes in zip(*several, strict=True)])


# ---------------------------------------------------------------- through functions


def additive_groups(
    f: Function, inputs: Sequence[Terms | None], plain: Sequence[Variable], sizes: Shape
) -> list[Group]:
    """The inputs of `f` in groups over which it is additive: a single one if `f` is not linear or nothing is gained.

    Args:
        f: The function.
        inputs: The terms of each input; None for an input that is the same in all directions.
        plain: The values of these inputs.
        sizes: The sizes of the axes of the directions.
    """
    terms = [(i, term) for i, several in enumerate(inputs) for term in several or ()]
    groups = [terms]
    carried = _carried(f, inputs)
    if len({i for i, _ in terms}) == 1 and _is_linear_in_one(f, terms[0][0]):
        groups = [[term] for term in terms]
    elif carried is not None and is_linear_in(f, inputs, plain):
        diagonals = [key for several in carried for key in several]
        if _save(diagonals, sizes):
            groups = [
                [term for term, key in zip(terms, diagonals, strict=True) if key == common]
                for common in dict.fromkeys(diagonals)
            ]
    return [_group(inputs, plain, group, sizes) for group in groups]


def _is_linear_in_one(f: Function, i: int) -> bool:
    """True if `f` is linear in input `i`, the only one with directions."""
    return not f.op.multiple_results and (f.op.linear_in(i) or (is_product(f) and powers_of(f)[i] == 1))


def _carried(f: Function, inputs: Sequence[Terms | None]) -> list[list[Diagonals]] | None:
    """For each term of each input, the diagonals that `f` carries its own to; None if `f` declares no axes."""
    if f.op.multiple_results or (f.op.axes is None and not f.op.diagonal):
        return None
    places = axes_carried(f)
    return [
        [tuple([None if a is None else places[i][a] for a in term.diagonals]) for term in terms or ()]
        for i, terms in enumerate(inputs)
    ]


def _group(
    inputs: Sequence[Terms | None], plain: Sequence[Variable], group: Sequence[tuple[int, Along]], sizes: Shape
) -> Group:
    """The terms of a group as inputs of a function, with zeros for inputs that have only other terms."""
    alongs: list[Along | None] = []
    values = [*plain]
    for i, several in enumerate(inputs):
        terms = [term for k, term in group if k == i]
        alongs.append(one_value(terms, sizes) if terms else None)
        if several and not terms:
            x = several[0].x
            values[i] = F.constant(val=0, shape=(1,) * x.ndim, dtype=x.dtype)
    return alongs, values


def summed_product(
    f: Function, inputs: Sequence[Terms | None], plain: Sequence[Variable], sizes: Shape
) -> Variable | None:
    """The sum over all directions of a product of two values along them, possibly the same one, and of values without
    directions; None if `f` is not such a product, or if no two terms are diagonal along different axes. The arguments
    are those of `additive_groups`.
    """
    powers, carried = powers_of(f), _carried(f, inputs)
    moved = [i for i, terms in enumerate(inputs) if terms for _ in range(max(powers[i], 0))]
    if carried is None or len(moved) != 2 or any([powers[i] < 1 for i, terms in enumerate(inputs) if terms]):
        return None
    first, second = [[*zip(inputs[i] or (), carried[i], strict=True)] for i in moved]
    pairs = [
        (a, b, [*zip(p, q, sizes, strict=True)], 1 + (moved[0] == moved[1] and m > k))
        for k, (a, p) in enumerate(first) for m, (b, q) in enumerate(second) if moved[0] != moved[1] or m >= k
    ]
    if not any([_masks(axes) for _, _, axes, _ in pairs]):
        return None
    ndim = f.specs[0].ndim
    # Where the places coincide, terms may cancel, as in r_i - r_i: products of the same scales are added first.
    by_scales: dict[tuple[tuple[Operand, int], ...], list[Variable]] = {}
    for a, b, axes, count in pairs:
        bases = []
        for term in (a, b):
            both = [None if p is None or q is None else d for d, (p, q, _) in zip(term.diagonals, axes, strict=True)]
            bases.append(spread_out(term, sizes, tuple(both)).operand())
        y: Variable = F.sum(batched_product([(bases[0], 2)] if a is b else [(base, 1) for base in bases], ndim), axis=0)
        for p, q, n in _masks(axes):
            same = F.matrix_diag(F.constant(val=1, shape=(n,), dtype=y.dtype))
            y = F.mul2(y, F.reshape(same, shape=tuple([n if axis in (p, q) else 1 for axis in range(ndim)])))
        scales = tuple([(Operand(term.scale, term.x, 0), 1) for term in (a, b) if term.scale is not None])
        by_scales.setdefault(scales, []).append(F.mul_scalar(y, val=count))
    ys = [times_factors(F.add_n(*products), [*scales], ndim) for scales, products in by_scales.items()]
    others = [(Operand(x, f.inputs[i], 0), powers[i]) for i, x in enumerate(plain) if inputs[i] is None]
    return times_factors(F.add_n(*ys), others, ndim)


def _masks(axes: Sequence[tuple[int | None, int | None, int]]) -> list[tuple[int, int, int]]:
    """The axes that must coincide for the product of two terms not to be zero, and their sizes."""
    return [(p, q, n) for p, q, n in axes if p is not None and q is not None and p != q]
