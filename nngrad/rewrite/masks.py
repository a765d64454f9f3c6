"""Masks: keep selections of gradients outermost.

A mask is `where(c, g, 0)` or `where(c, 0, g)`: a gradient that passes in some places and is 0 in the others. `where`
itself emits masks, and so do functions that are flat in places, such as relu. The gradient of an elementwise function
in one place depends only on the incoming gradient in that place, and linearly:

    rule(where(c, g, 0)) = where(c, rule(g), 0)

Mathematically the two sides are equal. In floating point they differ where the derivative is infinite or NaN in a
masked place: on the left it is multiplied by 0, which makes NaN, on the right it is not selected. So the right side is
emitted, and `where(x > 0, sqrt(x), 0)` has the gradient 0 wherever x is not positive. This holds at every order, and in
forward mode too, which is the transpose of a gradient: there sqrt(relu(x)) would go wrong. The masked places stay the
same, though rule(g) may have more axes than g, as a product with a larger factor has.

Functions that mix or move elements let masks through as well. Where the condition only needs to be reshaped, it is.
Otherwise an element of the input is masked if all elements of the output that depend on it are. For a linear function
with coefficients that are not negative, `rule(c)` is 0 just there. For other functions it suffices that the condition
fails everywhere along the axes that are mixed. The mask on the output then stays, within the one on the input. This
takes more functions, so it is done for conditions that the user's program contains, and not for those of rules. In the
same way, the sum of gradients behind different masks is masked where all of them are.

Masks are moved only on the way to a product or a function that is not linear: the derivative of any other is finite,
whatever its input. No more than a few are moved at a time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import nngrad.functions as F
from backward_registry import Rule

from ..functions.array import zeros_like
from ..functions.conditions import condition_at, condition_axes
from ..graph import Function, Op, Variable, apply, build_options
from ..graph.thresholds import MOST_MASKS
from .builder import Number, declared
from .numbers import WITH_NUMBERS, as_multiple, is_zero
from .sums import SUMS, summands


def takes_gradients(op: Op) -> bool:
    """backward rules of ops that are diagonal, or let a condition through"""
    return op.diagonal or op.axes is not None


MASKS = declared("masks-outermost", takes_gradients, "rule(where(c, g, 0)) = where(c, rule(g), 0)")


@dataclass(frozen=True, eq=False, slots=True)
class Mask:
    """A selection of a gradient where the condition holds (`holding`) or where it does not."""

    condition: Variable
    axes: tuple[int, ...]
    """The axes of the gradient that the condition's axes correspond to, counted from the last: the condition does not
    determine them, and the gradient put behind the mask may have more axes than the one taken out."""
    holding: bool

    @property
    def chooses(self) -> Variable:
        """A number for each element of the condition: 0 where nothing passes, else positive."""
        f = self.condition.parent
        if not self.holding:
            return F.logical_not(self.condition)
        if f is not None and f.op.predicate is not None:
            return self.condition
        return F.not_equal_scalar(self.condition, val=0.0)

    def over(self, shape: tuple[int, ...]) -> Variable:
        """`chooses`, reshaped to as many axes as `shape` has; they have its sizes or 1."""
        sizes = dict(zip(self.axes, self.condition.shape, strict=True))
        y: Variable = F.reshape(self.chooses, shape=tuple([sizes.get(a, 1) for a in range(-len(shape), 0)]))
        return y

    @property
    def key(self) -> tuple[Any, ...]:
        """A key that is equal for equal masks."""
        places = tuple([(a, n) for a, n in zip(self.axes, self.condition.shape, strict=True) if n != 1])
        return id(unshaped(self.condition)), places, self.holding

    def closed_elsewhere(self, g: Variable) -> Variable:
        """`g` behind this mask."""
        zeros = zeros_like(g)
        condition = condition_at(self.condition, self.axes, g.shape)
        y: Variable = F.where(condition, *((g, zeros) if self.holding else (zeros, g)))
        return y


def unshaped(condition: Variable) -> Variable:
    """The Variable that `condition` is reshaped from, or itself."""
    while condition.parent is not None and condition.parent.op is F.reshape:
        condition = condition.parent.inputs[0]
    return condition


def mask_of(chooses: Variable) -> Mask:
    """The mask that is 0 where `chooses` is."""
    return Mask(chooses, tuple(range(-chooses.ndim, 0)), True)


def is_users(condition: Variable) -> bool:
    """True if a condition is part of the user's program, or derived from one that is, and not made by a rule."""
    f = condition.parent
    while f is not None and f.order and f.inputs and (f.op.predicate is None or f.op in _CONNECTIVES):
        f = f.inputs[0].parent
    return f is None or not f.order


_CONNECTIVES = frozenset({F.not_equal_scalar, F.logical_not, F.logical_and, F.logical_or})


def may_be_masked(g: Variable) -> bool:
    """True if `g` may be behind a mask, or be a multiple of such a gradient: in canonical form numbers stand outside of
    selections."""
    f = g.parent
    if f is not None and f.inputs and f.op in WITH_NUMBERS:
        f = f.inputs[0].parent
    return f is not None and (f.op.selects or (f.op in SUMS and _is_sum_of_masked(f)))


def _is_sum_of_masked(f: Function) -> bool:
    """True if an emitted sum begins with a term behind a mask of the user's."""
    first = f.inputs[0].parent
    return f.order > 0 and len(f.inputs) > 1 and first is not None and first.op.selects and is_users(first.inputs[0])


def masks_of(g: Variable) -> tuple[list[Mask], Variable]:
    """Split `g` into the masks that it is behind, outermost first, and the gradient behind them."""
    masks: list[Mask] = []
    factor: Number = 1
    while len(masks) < MOST_MASKS:
        number, selection = as_multiple(g)
        if selection is None or selection.parent is None or _switched_off():
            break
        if not selection.parent.op.selects:
            if selection.parent.op in SUMS and _is_sum_of_masked(selection.parent):
                masks += _shared_by_terms(selection, selection.parent)
            break
        condition, yes, no = selection.parent.inputs
        holding = is_zero(no)
        inner = yes if holding else no
        if inner.spec is not g.spec or not (holding or is_zero(yes)):
            break
        masks.append(Mask(condition, condition_axes(condition.shape, g.shape), holding))
        g, factor = inner, factor * number
    return masks, g if factor == 1 else F.linear_combination(g, coefficients=(factor,))


def _shared_by_terms(g: Variable, f: Function) -> list[Mask]:
    """The mask of `g`, an emitted sum by `f`, if its terms are all behind masks of the user's."""
    summed = summands(f.op, f.inputs, f.arguments)
    if summed is None or summed[1]:
        return []
    terms = []
    for x, _ in summed[0]:
        masks = [mask for mask in masks_of(x)[0] if is_users(mask.condition)] if x.shape == g.shape else []
        if not masks:
            return []
        terms.append(_together(masks, g.shape))
    return [mask_of(functools.reduce(F.logical_or, terms))]


def _switched_off() -> bool:
    """True if masks stay where they are. `simplify(False)` still moves them, because which values are NaN depends on
    it.
    """
    without = build_options().emitting.simplify
    return without.__class__ is frozenset and MASKS in without


def behind(masks: Sequence[Mask], g: Variable) -> Variable:
    """`g` behind `masks`, the last of them innermost, without duplicates."""
    for mask in reversed({mask.key: mask for mask in masks}.values()):
        g = mask.closed_elsewhere(g)
    return g


def applied(op: Op, inputs: tuple[Variable, ...], arguments: tuple[Any, ...], index: int) -> Any:
    """Apply `op`, linear in the input `index`; masks that this input is behind stay outermost."""
    g = inputs[index]
    if op.multiple_results or not may_be_masked(g) or not op.diagonal:
        return apply(op, inputs, arguments)
    masks, g = masks_of(g)
    return behind(masks, apply(op, (*inputs[:index], g, *inputs[index + 1 :]), arguments))


def through_masks(rule: Rule, f: Function, gys: Sequence[Variable]) -> Any:
    """Apply the rule of `f` to gradients, with masks removed before and restored after it."""
    gy = gys[0]
    if len(gys) > 1 or not may_be_masked(gy) or not rule.exact:
        return rule.function(f, *gys)
    masks, inner = masks_of(gy)
    moved: list[list[Mask]] = [[] for _ in f.inputs]
    if not f.op.diagonal:
        carried = [(mask, _carried(mask, f)) for mask in masks]
        masks = [after for _, after in carried if after is not None]
        within = [before for before, after in carried if after is None]
        inner = behind(within, inner)
        moved = _moved(rule, f, [mask for mask in within if is_users(mask.condition)]) or moved
    if not masks and not any(moved):
        return rule.function(f, gy)
    gxs = rule.function(f, inner)
    several = gxs if isinstance(gxs, tuple | list) else (gxs,)
    if f.op.diagonal and any([isinstance(gx, Variable) and gx.shape != gy.shape for gx in several]):
        return rule.function(f, gy)  # it was summed to the shape of a broadcast input, along which masks differ
    every = [*moved, *[[] for _ in several[len(moved) :]]]  # a user's rule may return too many, which is reported later
    return [_put_back([*masks, *input_masks], gx, inner, gy) for gx, input_masks in zip(several, every, strict=False)]


def _moved(rule: Rule, f: Function, masks: list[Mask]) -> list[list[Mask]] | None:
    """The masks on the gradients of the inputs of `f`, which is not diagonal, that follow from `masks` on that of its
    output together: what no chosen element depends on is masked. None if nothing follows."""
    op, shape = f.op, f.specs[0].shape
    if not masks or op.axes is None:
        return None
    chooses = _together(masks, shape)
    if op.linear in (True, "together") and (op in _ADDING or op.view or op.axes.adds or op.update_keys is not None):
        counts = rule.function(f, F.broadcast(chooses, shape=shape))
        several = counts if isinstance(counts, tuple | list) else (counts,)
        return [[] if c is None else [mask_of(c)] for c in several]
    if len(f.inputs) != 1 or op.axes.before is not None:
        return None
    (places,) = op.axes.places(f)
    after = _carried(mask_of(_any(chooses, [b for b in range(len(shape)) if b not in places])), f)
    return None if after is None else [[after]]


_ADDING = frozenset({F.transpose, F.broadcast, F.flip, F.take_slices, F.take_points, F.put_points})
"""Linear ops that move, repeat or add elements."""


def _together(masks: Sequence[Mask], shape: tuple[int, ...]) -> Variable:
    """A number for each element of an array of this shape: 0 where some mask is."""
    return functools.reduce(F.logical_and, [mask.over(shape) for mask in masks])


def _any(chooses: Variable, axes: Sequence[int]) -> Variable:
    """The sum over `axes`, which stay with size 1: 0 where nothing is chosen."""
    axes = [a for a in axes if chooses.shape[a] != 1]
    y: Variable = F.sum(chooses, axis=tuple(axes), keepdims=True) if axes else chooses
    return y


def _put_back(masks: list[Mask], gx: Any, inner: Variable, gy: Variable) -> Any:
    """`gx`, which the rule computed from `inner`, behind `masks`; masks of the rule itself come first."""
    if gx is inner:
        return gy
    if not isinstance(gx, Variable):  # no gradient, or an error for the checks of rules to report
        return gx
    inner_masks, gx = masks_of(gx)
    return behind([*inner_masks, *masks], gx)


def _carried(mask: Mask, f: Function) -> Mask | None:
    """The mask on the gradient of the input of `f` that is equivalent to `mask` on that of its output; None if there is
    none, or none that is cheap."""
    condition, axes = mask.condition, f.op.axes
    if len(f.inputs) != 1 or axes is None:
        return None
    shape = condition.shape and axes.condition_before(f, condition.shape)
    if shape is None or shape == condition.shape:
        return None if shape is None else mask
    base = unshaped(condition)
    condition = base if base.shape == shape else F.reshape(base, shape=shape)
    return Mask(condition, tuple(range(-len(shape), 0)), mask.holding)


def summed(gradients: list[Variable], add: Callable[[list[Variable]], Variable]) -> Variable:
    """The sum of the gradients that have arrived at one Variable; masks that all are behind stay outermost."""
    if not may_be_masked(gradients[0]):
        return add(gradients)
    taken = [masks_of(g) for g in gradients]
    shared = frozenset.intersection(*[frozenset([mask.key for mask in masks]) for masks, _ in taken])
    if not shared:
        return add(gradients)
    inner = [behind([mask for mask in masks if mask.key not in shared], g) for masks, g in taken]
    return behind([mask for mask in taken[0][0] if mask.key in shared], add(inner))


def reduced(gx: Variable, shape: tuple[int, ...], masked: bool = False) -> Variable:
    """`gx` summed to `shape`; masks that are constant along the summed axes stay outermost. With `masked`, so does one
    where the others leave nothing to sum."""
    masks, inner = masks_of(gx)
    outer = [mask for mask in masks if _fits(mask.condition.shape, gx.shape, shape)]
    inside = [mask for mask in masks if mask not in outer]
    within = [mask for mask in inside if is_users(mask.condition)] if masked else []
    if within:
        chooses = _together(within, gx.shape)
        lead = len(gx.shape) - len(shape)
        sizes = [1 if s == 1 else c for c, s in zip(chooses.shape[lead:], shape, strict=True)]
        outer.append(mask_of(F.sum_to(chooses, shape=tuple(sizes))))
    if not outer:
        y: Variable = F.sum_to(gx, shape=shape)
        return y
    return behind(outer, F.sum_to(behind(inside, inner), shape=shape))


def _fits(condition: tuple[int, ...], full: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """True if a condition on an array of shape `full` is constant along the axes that are summed to get `shape`."""
    same = len(condition) == len(full) == len(shape)
    return same and all(c == 1 or n == m for c, n, m in zip(condition, full, shape, strict=True))
