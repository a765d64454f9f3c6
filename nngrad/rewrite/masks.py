"""Masks: keep selections of gradients outermost.

A mask is `where(c, g, 0)` or `where(c, 0, g)`: a gradient that passes in some places and is 0 in the others. `where`
itself emits masks, and so do functions that are flat in places, such as relu. The gradient of an elementwise function
in one place depends only on the incoming gradient in that place, and linearly:

    rule(where(c, g, 0)) = where(c, rule(g), 0)

Mathematically the two sides are equal. In floating point they differ where the derivative is infinite or NaN in a
masked place: on the left it is multiplied by 0, which makes NaN, on the right it is not selected. So the right side is
emitted, and `where(x > 0, sqrt(x), 0)` has the gradient 0 wherever x is not positive. This holds at every order, and in
forward mode too, which is the transpose of a gradient: there sqrt(relu(x)) would go wrong. The masked places stay the
same, though rule(g) may have more axes than g, as a product with a larger factor has. Sums, means, broadcasting and
reshaping let masks through as far as the condition can be reshaped accordingly.

Masks are moved only on the way to a function that may have such a derivative, and no more than a few at a time.
"""

from __future__ import annotations

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


def may_be_masked(g: Variable) -> bool:
    """Whether `g` may be behind a mask, or be a multiple of such a gradient: in canonical form numbers stand outside of
    selections."""
    f = g.parent
    if f is not None and f.inputs and f.op in WITH_NUMBERS:
        f = f.inputs[0].parent
    return f is not None and f.op.selects


def masks_of(g: Variable) -> tuple[list[Mask], Variable]:
    """Split `g` into the masks that it is behind, outermost first, and the gradient behind them."""
    masks: list[Mask] = []
    factor: Number = 1
    while len(masks) < MOST_MASKS:
        number, selection = as_multiple(g)
        if selection is None or selection.parent is None or not selection.parent.op.selects or _switched_off():
            break
        condition, yes, no = selection.parent.inputs
        holding = is_zero(no)
        inner = yes if holding else no
        if inner.spec is not g.spec or not (holding or is_zero(yes)):
            break
        masks.append(Mask(condition, condition_axes(condition.shape, g.shape), holding))
        g, factor = inner, factor * number
    return masks, g if factor == 1 else F.linear_combination(g, coefficients=(factor,))


def _switched_off() -> bool:
    """Whether masks stay where they are. `simplify(False)` still moves them, because which values are NaN depends on
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
    if not f.op.diagonal:
        carried = [(mask, _carried(mask, f)) for mask in masks]
        masks = [after for _, after in carried if after is not None]
        inner = behind([before for before, after in carried if after is None], inner)
    if not masks:
        return rule.function(f, gy)
    gxs = rule.function(f, inner)
    several = gxs if isinstance(gxs, tuple | list) else (gxs,)
    if f.op.diagonal and any([isinstance(gx, Variable) and gx.shape != gy.shape for gx in several]):
        return rule.function(f, gy)  # it was summed to the shape of a broadcast input, along which masks differ
    return [_put_back(masks, gx, inner, gy) for gx in several]


def _put_back(masks: list[Mask], gx: Any, inner: Variable, gy: Variable) -> Any:
    """`gx`, which the rule computed from `inner`, behind `masks`; masks of the rule itself come first."""
    if gx is inner:
        return gy
    if not isinstance(gx, Variable):  # no gradient, or an error for the checks of rules to report
        return gx
    own, gx = masks_of(gx)
    return behind([*own, *masks], gx)


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


def reduced(gx: Variable, shape: tuple[int, ...]) -> Variable:
    """`gx` summed to `shape`; masks that are constant along the summed axes stay outermost."""
    masks, inner = masks_of(gx)
    outer = [mask for mask in masks if _fits(mask.condition.shape, gx.shape, shape)]
    if not outer:
        y: Variable = F.sum_to(gx, shape=shape)
        return y
    inner = behind([mask for mask in masks if mask not in outer], inner)
    return behind(outer, F.sum_to(inner, shape=shape))


def _fits(condition: tuple[int, ...], full: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Whether a condition on an array of shape `full` is constant along the axes that are summed to get `shape`."""
    same = len(condition) == len(full) == len(shape)
    return same and all(c == 1 or n == m for c, n, m in zip(condition, full, shape, strict=True))
