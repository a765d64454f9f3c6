"""Values along many directions at once, in the cheapest form.

The value of a function along K directions has a leading axis of size K. Two properties of such values are kept separate
for as long as possible:

- A *scale*: a factor common to all directions. The tangent of tanh(z) is that of z times 1 - tanh(z)**2, and its second
  derivative the square of the tangent times another factor. So sums over the directions are sums of squares of
  tangents, of which there are few, and no derivative is computed for each direction.
- *Diagonals*: a direction has an index along each axis of the moving input, (p, i) say for coordinate i of particle p.
  As long as a particle's value depends only on that particle, the value at particle q is zero in all directions but
  those with p = q. Then one direction for each i suffices: at each place q, the value in direction (q, i). Only mixing
  particles other than by a sum makes a value dense, with a direction for each p as well. (folx, by Gao, Koehler and
  Foster, keeps sparse Jacobians to the same end.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import nngrad.functions as F
from backward_registry.batching import forms

from ..functions.contractions import contraction_like
from ..functions.operands import Operand, Shape, reshaped
from ..graph import Function, Variable
from ..graph.axes import axes_carried
from ..rewrite.numbers import is_zero, number_of
from .batching import Powers, batched_product, in_batch, indices_of, is_product, powers_of

Diagonals = tuple[int | None, ...]
"""For each axis of the directions, the axis of a value along which it is diagonal, or None if the value's leading axis
includes it."""


class Along(NamedTuple):
    """A value along all directions: `base` times `scale`."""

    base: Variable
    """`(K, *own)`, with K counting the directions whose axes are not diagonal. It may be thin."""
    x: Variable
    """The Variable whose value it is."""
    diagonals: Diagonals
    scale: Variable | None = None
    """With as many axes as `x`, each of size 1 or of its size; None for ones."""

    def operand(self) -> Operand:
        """The base as an operand."""
        return Operand(self.base, self.x, 1)

    def value(self) -> Variable:
        """The product of base and scale; diagonals stay."""
        if self.scale is None:
            return self.base
        y: Variable = F.mul2(self.base, self.scale)
        return y

    def total(self) -> Variable:
        """The sum over all directions: along a diagonal, each place has only one nonzero direction."""
        y: Variable = F.sum(self.base, axis=0)
        return y if self.scale is None else F.mul2(y, self.scale)


def spread_out(along: Along, sizes: Shape, remaining: Diagonals) -> Along:
    """The same value with only the diagonals `remaining`: the others become dense directions."""
    if along.diagonals == remaining:
        return along
    out = [a for a, k in zip(along.diagonals, remaining, strict=True) if a is not None and k is None]
    operand = along.operand()
    base = operand.widened(thin=[a for a in range(along.x.ndim) if a not in out])
    axes = tuple(range(along.x.ndim))
    term, output = _with_directions(base, along.diagonals, remaining, sizes, axes, len(axes))
    y = F.contraction(term[0], terms=(term[1],), output=(*output, *axes))
    base = reshaped(y, (math.prod(y.shape[: len(output)]), *base.shape[1:]))
    return along._replace(base=base, diagonals=remaining)


def _with_directions(
    base: Variable, diagonals: Diagonals, remaining: Diagonals, sizes: Shape, axes: Sequence[int], first: int
) -> tuple[tuple[Variable, tuple[int, ...]], tuple[int, ...]]:
    """The base with a separate axis for each of its directions, and the indices of its axes: of the directions, from
    `first` on, and the others' `axes`. Also the indices of the directions that exist once only the diagonals
    `remaining` are left."""
    there = [d for d, a in enumerate(diagonals) if a is None]
    split = reshaped(base, (*[sizes[d] for d in there], *base.shape[1:]))
    directions = [
        first + d if a is None else axes[a]
        for d, (a, k) in enumerate(zip(diagonals, remaining, strict=True)) if k is None
    ]
    return (split, (*[first + d for d in there], *axes)), tuple(directions)


# ---------------------------------------------------------------- through functions


def shared_diagonals(f: Function, alongs: Sequence[Along | None], plain: Sequence[Variable]) -> Diagonals:
    """The diagonals that the output of `f` keeps: those that all inputs with directions have, and that `f` carries to
    one axis while mapping zero to zero. None of them if that cannot be shown, as in concatenations,
    slices and gathers along a diagonal, and loops."""
    moved = [i for i, along in enumerate(alongs) if along is not None]
    first = alongs[moved[0]]
    assert first is not None
    none: Diagonals = (None,) * len(first.diagonals)
    if (f.op.axes is None and not f.op.diagonal) or f.op.multiple_results or not _vanishes(f, alongs, plain):
        return none
    places = axes_carried(f)
    shared: list[int | None] = []
    for d, _ in enumerate(none):
        carried = set()
        for i in moved:
            along = alongs[i]
            assert along is not None
            a = along.diagonals[d]
            carried.add(None if a is None else places[i][a])
        shared.append(carried.pop() if len(carried) == 1 else None)
    taken = [a for a in shared if a is not None]
    return tuple(shared) if len(set(taken)) == len(taken) else none


def _vanishes(f: Function, alongs: Sequence[Along | None], plain: Sequence[Variable]) -> bool:
    """True if `f` is zero wherever the inputs with directions are."""
    moved = [along is not None for along in alongs]
    if any([f.op.linear_in(i) for i, m in enumerate(moved) if m]):
        return True
    if is_product(f):
        return min([power for power, m in zip(powers_of(f), moved, strict=True) if m]) > 0
    return is_linear_in(f, alongs, plain)


def is_linear_in(f: Function, values: Sequence[object], plain: Sequence[Variable]) -> bool:
    """True if `f` is jointly linear in all inputs with directions, those that are not None; the others are `plain`."""
    fixed = None if f.op.offset and f.args[f.op.offset] != 0 else f.op.fixed(len(values))
    if fixed is None:
        return False
    return all([
        (value is None) == (i in fixed) or (value is None and is_zero(x))
        for i, (value, x) in enumerate(zip(values, plain, strict=True))
    ])


def carried_to(along: Along, shared: Diagonals) -> Diagonals:
    """The diagonals of an input that become the diagonals `shared` of its function."""
    if all([b is None for b in shared]):
        return shared
    return tuple([None if b is None else a for a, b in zip(along.diagonals, shared, strict=True)])


def factored(f: Function, alongs: Sequence[Along | None], plain: Sequence[Variable], sizes: Shape) -> Along | None:
    """The output of `f` as base and scale; None if it does not act elementwise, or is neither a product nor linear.

    Args:
        f: The function.
        alongs: Each input's value along the directions; None for an input that is the same in all of them.
        plain: The values of these inputs.
        sizes: The sizes of the axes of the directions.
    """
    if not f.op.diagonal or len(f.specs) != 1 or f.op.reads not in (None, len(f.inputs)):
        return None
    spec = f.specs[0]
    moved = [along for along in alongs if along is not None]
    if not spec.differentiable or any([along.x.dtype != spec.dtype for along in moved]):
        return None
    shared = shared_diagonals(f, alongs, plain)
    if is_product(f):
        return _factored_product(f, alongs, plain, sizes, shared)
    if all([along.scale is None for along in moved]) or forms.get(f.op) is not None:
        return None
    only = [i for i, along in enumerate(alongs) if along is not None]
    if not (is_linear_in(f, alongs, plain) or (len(only) == 1 and f.op.linear_in(only[0]))):
        return None
    bases = {(along.operand().lined_up(spec.ndim), along.diagonals, along.x.ndim) for along in moved}
    if len(bases) != 1 or [a is None for a in shared] != [a is None for a in moved[0].diagonals]:
        return None
    ((base, _, _),) = bases
    scales = [
        Operand(x if along is None else _scale_of(along), g, 0)
        for along, x, g in zip(alongs, plain, f.inputs, strict=True)
    ]
    return Along(base, f.outputs[0], shared, _as_scale(in_batch(f, scales, [True]), spec.ndim))


def _scale_of(along: Along) -> Variable:
    if along.scale is not None:
        return along.scale
    ones: Variable = F.constant(val=1, shape=along.x.shape, dtype=along.x.dtype)
    return ones


def _as_scale(scale: Variable, ndim: int) -> Variable:
    return reshaped(scale, (*(1,) * (ndim - scale.ndim), *scale.shape))


def _factored_product(
    f: Function, alongs: Sequence[Along | None], plain: Sequence[Variable], sizes: Shape, shared: Diagonals
) -> Along | None:
    ndim, powers = f.specs[0].ndim, powers_of(f)
    bases: Powers = []
    scales: Powers = []
    for along, x, source, power in zip(alongs, plain, f.inputs, powers, strict=True):
        if along is None:
            scales.append((Operand(x, source, 0), power))
            continue
        if power < 1:
            return None
        along = spread_out(along, sizes, carried_to(along, shared))
        bases.append((along.operand(), power))
        if along.scale is not None:
            scales.append((Operand(along.scale, along.x, 0), power))
    base = batched_product(bases, ndim)
    scale = _as_scale(batched_product(scales, ndim), ndim) if scales else None
    return Along(base, f.outputs[0], shared, scale)


# ---------------------------------------------------------------- sums of products over indices

Sum = tuple[tuple[tuple[int, ...], ...], tuple[int | None, ...]]
"""The index of each axis of each factor, and of the output, where None is an axis of size 1."""


def _as_sum(f: Function) -> Sum | None:
    """The indices of `f`, if it is a sum of products over indices, or a sum or mean over axes."""
    indices = indices_of(f)
    if indices is not None or f.op.axes is None or not f.op.axes.adds:
        return indices
    places = axes_carried(f)[0]
    output = tuple([places.index(b) if b in places else None for b in range(f.specs[0].ndim)])
    return (tuple(range(len(places))),), output


def moved_out(f: Function, alongs: Sequence[Along | None], plain: Sequence[Variable], sizes: Shape) -> Along | None:
    """The output of a sum of products for one value that is diagonal along a summed index. Only the term at the
    direction's own place is not zero, so the index becomes a direction, and nothing is summed. None if `f` is not such
    a sum.

    Args, Returns:
        As in `factored`.
    """
    moved = [i for i, along in enumerate(alongs) if along is not None]
    as_sum = _as_sum(f)
    if as_sum is None or len(moved) != 1:
        return None
    (i,) = moved
    along = alongs[i]
    assert along is not None
    terms, output = as_sum
    indices = terms[i]
    remaining: Diagonals = tuple([None if a is None or indices[a] not in output else a for a in along.diagonals])
    if remaining == along.diagonals or _repeats(indices) or _repeats([b for b in output if b is not None]):
        return None
    others = {index for k, term in enumerate(terms) if k != i for index in term}
    gone = {indices[a] for a, k in zip(along.diagonals, remaining, strict=True) if a is not None and k is None}
    value = along.value()
    # A value that is constant along an axis need not have it if another factor has the index, or if the result is also
    # constant along it.
    thin = {
        index for index, n, m in zip(indices, value.shape[1:], along.x.shape, strict=True)
        if n == 1 != m and (index in others or (index in output and index not in gone))
    }
    value = Operand(value, along.x, 1).widened(thin=[a for a, index in enumerate(indices) if index in thin])
    first = 1 + max([index for term in terms for index in term], default=-1)
    (value, term), directions = _with_directions(value, along.diagonals, remaining, sizes, indices, first)
    left = [k for k, index in enumerate(term) if index not in thin]
    factors, given_terms = [*plain], [*terms]
    factors[i] = reshaped(value, tuple([value.shape[k] for k in left]))
    given_terms[i] = tuple([term[k] for k in left])
    repeated = thin - others
    result = tuple([b for b in output if b is not None and b not in repeated])
    y = _product(f, factors, given_terms, (*directions, *result), i)
    if f.op.axes is not None and f.op.axes.adds == "mean":
        y = F.mul_scalar(y, val=f.specs[0].size / f.inputs[0].size)
    shape = [1 if b in repeated else n for b, n in zip(output, f.specs[0].shape, strict=True)]
    diagonals = tuple([None if a is None else output.index(indices[a]) for a in remaining])
    return Along(reshaped(y, (math.prod(y.shape[: len(directions)]), *shape)), f.outputs[0], diagonals)


def _repeats(indices: Sequence[int]) -> bool:
    return len(set(indices)) != len(indices)


def _product(
    f: Function, factors: Sequence[Variable], terms: Sequence[tuple[int, ...]], output: tuple[int, ...], i: int
) -> Variable:
    """The sum of products that `f` becomes, without factor `i` if that is all ones: a unit vector selects."""
    if number_of(factors[i]) == 1 and len(factors) == 2 and {*terms[i]} <= {*terms[1 - i]}:
        factors, terms = [factors[1 - i]], [terms[1 - i]]
    y: Variable
    if len(factors) == 1 and sorted(terms[0]) == sorted(output):
        order = tuple([terms[0].index(index) for index in output])
        y = factors[0] if order == tuple(range(len(order))) else F.transpose(factors[0], axes=order)
    else:
        y = contraction_like(f, factors, terms, output)
    return y


def with_one_index(f: Function, alongs: Sequence[Along | None]) -> list[Diagonals]:
    """For each input of a sum of products, the diagonals that run along the same index in all inputs with directions,
    and so remain when the sum over the directions is taken as well."""
    as_sum = indices_of(f)
    assert as_sum is not None
    terms, _ = as_sum
    there = [
        [None if a is None else term[a] for a in along.diagonals]
        for along, term in zip(alongs, terms, strict=True) if along is not None
    ]
    same = [len(set(indices)) == 1 for indices in zip(*there, strict=True)]
    return [
        () if along is None else tuple([a if k else None for a, k in zip(along.diagonals, same, strict=True)])
        for along in alongs
    ]
