"""The sum of a function over the leading axis of its inputs, from the sums of those where that is enough.

A function that is linear in what has the axis commutes with the sum: then the sum is propagated, and nothing is
computed for each of the K elements. Taylor-mode differentiation collapsed in this way gives the Laplacian (Li et al.
2024, "A computational framework for neural network-based variational Monte Carlo with Forward Laplacian"; Dangel et al.
2025, "Collapsing Taylor Mode Automatic Differentiation").
"""

from __future__ import annotations

from collections.abc import Sequence

import nngrad.functions as F

from ..functions.operands import Operand
from ..graph import Function, Variable, apply
from ..graph.body_op import BodyOp
from .batching import (
    batched_product,
    by_leading_axis,
    contracted,
    in_batch,
    indices_of,
    is_product,
    powers_of,
    times_factors,
    with_arguments,
)

Moved = Sequence[bool]
"""For each input of a function whether it has the leading axis."""


def commutes(f: Function, moved: Moved) -> bool:
    """Whether the sum of `f` over the leading axis follows from the sums of its inputs."""
    given = [x.spec for x, m in zip(f.inputs, moved, strict=True) if m]
    if not all([spec.differentiable for spec in (*given, *f.specs)]):
        return False
    if f.specs[0].dtype.itemsize > min([spec.dtype.itemsize for spec in given]):
        return False  # the sum is taken in the wider dtype
    op = f.op
    fixed = op.fixed(len(moved))
    if fixed is not None:
        return not any([moved[i] for i in fixed])
    if sum(moved) != 1:
        return False
    index = list(moved).index(True)
    if isinstance(op, BodyOp):
        return op.commutes(f, index)
    return (is_product(f) and powers_of(f)[index] == 1) or op.linear_in(index)


def folds(f: Function, moved: Moved) -> bool:
    """Whether the sum is part of the function: of `f` itself each element need not be had."""
    return is_product(f) or (indices_of(f) is not None and sum(moved) > 1)


def sum_of_sums(f: Function, operands: Sequence[Operand], moved: Moved, count: int) -> object:
    """The sum of `f`, which commutes with it, over `count` elements, from the sums of the inputs that have the axis
    and from the other inputs as they are."""
    fixed = f.op.fixed(len(moved))
    if fixed is None:
        return in_batch(f, operands, [True] * len(f.specs))
    added = {f.op.offset: f.args[f.op.offset] * count} if f.op.offset else {}
    if f.op.weights:
        weights = zip(f.args[f.op.weights], moved, strict=True)
        added[f.op.weights] = tuple([weight if m else weight * count for weight, m in weights])
    else:
        operands = [
            each if m or i in fixed else each._replace(value=F.mul_scalar(each.value, val=count))
            for i, (each, m) in enumerate(zip(operands, moved, strict=True))
        ]
    if not added:
        return in_batch(f, operands, [True] * len(f.specs))
    return apply(f.op, tuple([each.value for each in operands]), with_arguments(f, **added))


def folded_sum(f: Function, operands: Sequence[Operand]) -> Variable:
    """The sum of `f`, which folds it, from each element of the inputs that have the axis."""
    if is_product(f):
        ndim = f.specs[0].ndim
        with_axis, without = by_leading_axis(f, operands)
        return times_factors(F.sum(batched_product(with_axis, ndim), axis=0), without, ndim)
    indices = indices_of(f)
    assert indices is not None
    return contracted(f, operands, *indices, kept=False)
