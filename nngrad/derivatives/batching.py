"""Batching: apply each op with one more leading axis on some of its inputs, by its facts or by a form of its own
(`backward_registry/batching.py`). Also the sum of a function over that axis, computed from the sums of its inputs where
these suffice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import nngrad.functions as F
from backward_registry.batching import forms

from ..functions.bodies.mapping import mapped
from ..functions.contractions import contraction_like
from ..functions.operands import Operand, Shape, reshaped, size_of
from ..graph import Function, Variable, apply
from ..graph.axes import AxisMap, Indices
from ..graph.body_op import BodyOp


def in_batch(f: Function, operands: Sequence[Operand], read: Sequence[bool]) -> Any:
    """Apply `f` with one more axis; returns its output, or a tuple if it has several.

    Args:
        f: The function.
        operands: Its batched inputs.
        read: For each output, whether it is read. Others may be None.
    """
    op = f.op
    form = forms.get(op)
    result: Any
    if isinstance(op, BodyOp):
        result = op.batched(f, operands, read)
    elif form is not None:
        result = form(f, operands)
    elif op.diagonal:
        result = _product(f, operands) if is_product(f) else _diagonal(f, operands)
    elif op.axes is not None:
        result = _along_axes(f, op.axes, operands)
    else:
        result = None
    return mapped(f, operands) if result is None else result


def checked_count(batched: Mapping[Variable, Variable]) -> int:
    """The number K of values per leaf; raises unless it is the same for all leaves."""
    if not batched:
        raise ValueError("batched: expected at least one leaf with its values")
    counts = set()
    for x, value in batched.items():
        shape = value.shape[1:]
        if value.ndim != x.ndim + 1 or value.dtype != x.dtype or any(
            [n not in (1, m) for n, m in zip(shape, x.shape, strict=True)]
        ):
            raise ValueError(f"batched: expected values of {x.spec} stacked along a first axis, got {value.spec}")
        counts.add(value.shape[0])
    if len(counts) > 1:
        raise ValueError(f"batched: all leaves must have the same number of values, got {sorted(counts)}")
    return int(counts.pop())


def with_arguments(f: Function, **values: Any) -> tuple[Any, ...]:
    """The arguments of `f` with some replaced."""
    return tuple((f.args | values).values())


# ---------------------------------------------------------------- diagonal ops


def _diagonal(f: Function, operands: Sequence[Operand]) -> Any:
    """The op itself, on operands that broadcast along the axis."""
    ndim = f.specs[0].ndim
    return apply(f.op, tuple([operand.lined_up(ndim) for operand in operands]), f.arguments)


def _product(f: Function, operands: Sequence[Operand]) -> Any:
    """The product of the factors with the axis, times the product of the factors without it."""
    if len({operand.lead for operand in operands}) == 1:
        return _diagonal(f, operands)
    ndim = f.specs[0].ndim
    with_axis, without = by_leading_axis(f, operands)
    return times_factors(batched_product(with_axis, ndim), without, ndim)


Powers = list[tuple[Operand, int]]


def is_product(f: Function) -> bool:
    """True if `f` is a product of integer powers of floating operands of one dtype."""
    dtype = f.specs[0].dtype
    return f.op.powers is not None and all([x.spec.differentiable and x.dtype == dtype for x in f.inputs])


def powers_of(f: Function) -> tuple[int, ...]:
    """The power of each factor of a product."""
    assert f.op.powers is not None
    return f.op.powers(f)


def by_leading_axis(f: Function, operands: Sequence[Operand]) -> tuple[Powers, Powers]:
    """The factors of a product with the leading axis, and the factors without it."""
    factors = list(zip(operands, powers_of(f), strict=True))
    return [p for p in factors if p[0].lead], [p for p in factors if not p[0].lead]


def batched_product(factors: Powers, ndim: int) -> Variable:
    """The product of powers of operands, with `ndim` axes after the leading one."""
    values, powers = [operand.lined_up(ndim) for operand, _ in factors], tuple([power for _, power in factors])
    if powers == (1,):
        return values[0]
    y: Variable = F.mul2(*values) if powers == (1, 1) else F.monomial(*values, powers=powers)
    return y


def times_factors(x: Variable, factors: Powers, ndim: int) -> Variable:
    """`x` times the product of powers of operands without a leading axis."""
    if not factors:
        return x
    y: Variable
    if len(factors) == 1 and factors[0][1] == -1:
        y = F.div2(x, factors[0][0].value)
    else:
        y = F.mul2(x, batched_product(factors, ndim))
    return y


# ---------------------------------------------------------------- ops with axes


def _along_axes(f: Function, axes: AxisMap, operands: Sequence[Operand]) -> Any:
    """The op itself, with one more axis; None if it cannot take one."""
    indices = indices_of(f)
    if indices is not None:
        return contracted(f, operands, *indices)
    if axes.inputs is not None and any([operand.lead for i, operand in enumerate(operands) if i not in axes.inputs]):
        return None
    size, first = size_of(operands), operands[0]
    if axes.folded is not None:
        return _folded(f, axes, operands)
    if axes.leading is None:
        return None
    if axes.thin:
        (places,) = axes.places(f)
        values = [first.widened(thin=[a for a, b in enumerate(places) if b is not None])]
    elif axes.inputs is None:
        values = [operand.full(size) for operand in operands]
    else:
        values = [operand.widened() for operand in operands]
    return apply(f.op, tuple(values), with_arguments(f, **axes.leading(f, size, values[0].shape[first.lead :])))


def _folded(f: Function, axes: AxisMap, operands: Sequence[Operand]) -> Any:
    """The op with all rows of all elements along the axis folded into one batch."""
    assert axes.folded is not None
    size = size_of(operands)
    count = math.prod([*size, f.specs[0].shape[0]])
    values = []
    for i, operand in enumerate(operands):
        if axes.inputs is None or i in axes.inputs:
            values.append(reshaped(operand.full(size), (count, *operand.x.shape[1:])))
        else:
            values.append(operand.widened())
    y = apply(f.op, tuple(values), with_arguments(f, **axes.folded(f, count)))
    if not f.op.multiple_results:
        return reshaped(y, (*size, *f.specs[0].shape))
    return tuple([reshaped(result, (*size, *spec.shape)) for result, spec in zip(y, f.specs, strict=True)])


def indices_of(f: Function) -> Indices | None:
    """The indices of the inputs and the output, if `f` is a sum of products over indices of unique sizes; else None."""
    if f.op.axes is None or f.op.axes.indices is None:
        return None
    terms, output = f.op.axes.indices(f)
    sizes: dict[int, int] = {}
    for x, term in zip(f.inputs, terms, strict=True):
        if any([sizes.setdefault(i, n) != n for i, n in zip(term, x.shape, strict=True)]):
            return None
    return terms, output


def contracted(
    f: Function, operands: Sequence[Operand], terms: Sequence[Shape], output: Shape, keep_axis: bool = True
) -> Variable:
    """The contraction `f` of operands, with the leading axis as one more index, summed over unless `keep_axis`."""
    index = 1 + max([i for term in (*terms, output) for i in term], default=-1)
    added = [(index,) * operand.lead for operand in operands]
    extended = tuple([(*lead, *term) for lead, term in zip(added, terms, strict=True)])
    result = (index, *output) if keep_axis and any(added) else output
    return contraction_like(f, [operand.widened() for operand in operands], extended, result)


# ---------------------------------------------------------------- sums over the axis
# A function that is linear in the inputs with the axis commutes with the sum: then only the sum is propagated, and
# nothing is computed per element. Taylor-mode differentiation collapsed in this way gives the Laplacian (Li et
# al. 2024, "A computational framework for neural network-based variational Monte Carlo with Forward Laplacian"; Dangel
# et al. 2025, "Collapsing Taylor Mode Automatic Differentiation").

Moved = Sequence[bool]
"""For each input of a function, whether it has the leading axis."""


def commutes(f: Function, moved: Moved) -> bool:
    """True if the sum of `f` over the leading axis is determined by the sums of its inputs."""
    moved_specs = [x.spec for x, m in zip(f.inputs, moved, strict=True) if m]
    if not all([spec.differentiable for spec in (*moved_specs, *f.specs)]):
        return False
    if f.specs[0].dtype.itemsize > min([spec.dtype.itemsize for spec in moved_specs]):
        return False  # the sum would be taken in the wider dtype
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
    """True if `f` itself can sum over the axis, so that its individual elements need not be computed."""
    return is_product(f) or (indices_of(f) is not None and sum(moved) > 1)


def sum_of_sums(f: Function, operands: Sequence[Operand], moved: Moved, count: int) -> object:
    """The sum over `count` elements of `f`, which commutes with it, from the sums of the inputs with the axis and the
    other inputs as they are."""
    fixed = f.op.fixed(len(moved))
    if fixed is None:
        return in_batch(f, operands, [True] * len(f.specs))
    added = {f.op.offset: f.args[f.op.offset] * count} if f.op.offset else {}
    if f.op.weights:
        weights = zip(f.args[f.op.weights], moved, strict=True)
        added[f.op.weights] = tuple([weight if m else weight * count for weight, m in weights])
    else:
        operands = [
            operand if m or i in fixed else operand._replace(value=F.mul_scalar(operand.value, val=count))
            for i, (operand, m) in enumerate(zip(operands, moved, strict=True))
        ]
    if not added:
        return in_batch(f, operands, [True] * len(f.specs))
    return apply(f.op, tuple([operand.value for operand in operands]), with_arguments(f, **added))


def folded_sum(f: Function, operands: Sequence[Operand]) -> Variable:
    """The sum of `f`, which folds it, from each element of the inputs with the axis."""
    if is_product(f):
        ndim = f.specs[0].ndim
        with_axis, without = by_leading_axis(f, operands)
        return times_factors(F.sum(batched_product(with_axis, ndim), axis=0), without, ndim)
    indices = indices_of(f)
    assert indices is not None
    return contracted(f, operands, *indices, keep_axis=False)
