"""The sum of a function over the leading axis of its inputs, from the sums of those where that is enough.

A function that is linear in what has the axis commutes with the sum: then the sum is propagated, and nothing is
computed for each of the K elements. Taylor-mode differentiation collapsed in this way gives the Laplacian (Li et al.
2024, "A computational framework for neural network-based variational Monte Carlo with Forward Laplacian"; Dangel et al.
2025, "Collapsing Taylor Mode Automatic Differentiation").
"""

from __future__ import annotations

from collections.abc import Sequence

import nngrad.functions as F

from ..graph import Function, Variable, apply
from .batching import Operand, batched_form, changed, contracted, is_monomial, multiplied, parted, powers_of, scaled
from .mapped import mapped

Moved = Sequence[bool]
"""For each input of a function whether it has the leading axis."""


def commutes(f: Function, moved: Moved) -> bool:
    """Whether the sum of `f` over the leading axis follows from the sums of its inputs."""
    if not all([x.spec.differentiable for x, m in zip(f.inputs, moved, strict=True) if m]) or not all(
        [spec.differentiable for spec in f.specs]
    ):
        return False
    op = f.op
    if op.linear == "together" or op in (F.linear_combination, F.add_scalar, F.r_sub_scalar, F.split):
        return True
    if op is F.where:
        return not moved[0]
    if op is F.cast:  # the sum is taken in the wider dtype
        return f.specs[0].dtype.itemsize <= f.inputs[0].dtype.itemsize
    if sum(moved) != 1:
        return False
    index = list(moved).index(True)
    if op is mapped:
        of, _, batched = f.arguments
        return bool(of.linear_in(index) and batched[index])
    return (is_monomial(f) and powers_of(f)[index] == 1) or op.linear_in(index)


def folds(f: Function, moved: Moved) -> bool:
    """Whether the sum is part of the function: of `f` itself each element need not be had."""
    return is_monomial(f) or (_as_contraction(f) is not None and sum(moved) > 1)


def sum_of_sums(f: Function, operands: Sequence[Operand], moved: Moved, count: int) -> object:
    """The sum of `f`, which commutes with it, over `count` elements, from the sums of the inputs that have the axis
    and from the other inputs as they are."""
    if f.op is F.linear_combination:
        coefficients = tuple([c if m else c * count for c, m in zip(f.arguments[0], moved, strict=True)])
        values = [each.value for each in operands]
        return F.linear_combination(*values, coefficients=coefficients, constant=f.arguments[1] * count)
    if f.op in (F.add_scalar, F.r_sub_scalar):
        return apply(f.op, (operands[0].value,), changed(f, val=f.args["val"] * count))
    if f.op.linear == "together" or f.op is F.where:
        fixed = (0,) if f.op is F.where else ()
        operands = [
            each if m or i in fixed else each._replace(value=F.mul_scalar(each.value, val=count))
            for i, (each, m) in enumerate(zip(operands, moved, strict=True))
        ]
    return batched_form(f.op)(f, operands)


def folded_sum(f: Function, operands: Sequence[Operand]) -> Variable:
    """The sum of `f`, which folds it, from each element of the inputs that have the axis."""
    if is_monomial(f):
        ndim = f.specs[0].ndim
        with_axis, without = parted(f, operands)
        return scaled(F.sum(multiplied(with_axis, ndim), axis=0), without, ndim)
    contraction = _as_contraction(f)
    assert contraction is not None
    return contracted(operands, *contraction, kept=False)


def _as_contraction(f: Function) -> tuple[tuple[tuple[int, ...], ...], tuple[int, ...]] | None:
    """The indices of the inputs and of the result, if `f` is a sum of products over indices."""
    if f.op is F.contraction:
        return f.args["terms"], f.args["output"]
    if f.op is not F.batch_matmul or f.inputs[0].shape[:-2] != f.inputs[1].shape[:-2]:
        return None
    batch = tuple(range(3, f.specs[0].ndim + 1))
    a, b = ((1, 0) if f.args["transpose_a"] else (0, 1)), ((2, 1) if f.args["transpose_b"] else (1, 2))
    return ((*batch, *a), (*batch, *b)), (*batch, 0, 2)
