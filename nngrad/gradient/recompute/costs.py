"""What functions cost, from shapes and dtypes alone: arithmetic, and how XLA runs them where memory is concerned."""

from __future__ import annotations

import math
import re
from importlib.metadata import version
from typing import Any

import nngrad.functions as F

from ...graph import Function, Op, Variable
from ...graph.arguments import axes_of

PASSING: frozenset[Op] = frozenset({F.identity, F.unlink, F.update, F.recomputed})
"""Ops whose outputs are their inputs: output i is input i."""

VIEWS: frozenset[Op] = PASSING | {F.reshape}
"""Ops whose result lies in the memory of the first input."""

_HEAVY_FAMILIES = ("nngrad.functions.linear", "nngrad.functions.convolution")
_LIGHT_IN_THEM = frozenset({F.embed, F.embed_filter_grad, F.half_lower})

_COSTLY: frozenset[Op] = frozenset(
    getattr(F, name)
    for name in (
        "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cos", "cosh", "elu", "erf", "exp", "gelu", "log",
        "logsumexp", "norm", "pow2", "selu", "sigmoid", "sin", "sinc", "sinh", "softmax", "softplus", "sqrt", "swish",
        "tan", "tanh",
    )
    if isinstance(getattr(F, name, None), Op)
)
"""Elementwise ops that XLA computes once and keeps, where it would compute a cheap one anew for each reader."""

_MOVING: frozenset[Op] = frozenset({
    F.broadcast, F.cast, F.concatenate, F.constant, F.flip, F.pad, F.put_slices, F.recomputed, F.after, F.take_slices,
    F.transpose, F.where,
})
_FUSED_FAMILIES = ("nngrad.functions.arithmetic", "nngrad.functions.comparison", "nngrad.functions.elementwise",
                   "nngrad.functions.activation")


_REDUCTIONS: frozenset[Op] = frozenset({F.sum, F.mean, F.amax, F.amin, F.prod})
"""Ops that reduce over the axes in their argument `axis`, all of them if it is None."""

_REDUCED_BY_LIBRARY = tuple(map(int, re.findall(r"\d+", version("jaxlib"))[:3])) >= (0, 10, 2)
"""Whether XLA on a CPU gives reductions to a library (YNNPACK), which finds in memory what it reduces.

Since jaxlib 0.10.2. XLA's own loops, before that, compute what they reduce on the way."""

_WINDOW = 32
"""XLA's own reductions go in several passes over an axis that is longer, and then they too read from memory."""


def is_heavy(op: Op) -> bool:
    """Whether `op` does much arithmetic for each element: products of matrices, convolutions, and what users wrote."""
    if not op.module.startswith("nngrad."):
        return True
    return op.module in _HEAVY_FAMILIES and op not in _LIGHT_IN_THEM


def is_fused(op: Op) -> bool:
    """Whether XLA computes `op` within the loop of what reads its result."""
    return op in _MOVING or op.elementwise or op.broadcasts or op.module in _FUSED_FAMILIES


def is_costly(f: Function) -> bool:
    """Whether XLA would rather keep the result of `f`, a function that it can fuse, than compute it twice."""
    if f.op is F.pow_scalar:
        return not float(f.arguments[0]).is_integer() or abs(f.arguments[0]) > 3
    return f.op in _COSTLY or f.op in (F.div2, F.r_div_scalar)


def is_reduction(op: Op) -> bool:
    """Whether `op` sums, or otherwise reduces, over axes."""
    return op.module == "nngrad.functions.reduction" or op is F.sum_to


def computes_operands(f: Function) -> bool:
    """Whether XLA computes what `f` reads within the loop of `f`, unless something else has it in memory."""
    if is_fused(f.op):
        return True
    if _REDUCED_BY_LIBRARY or f.op not in _REDUCTIONS:
        return False
    shape = f.inputs[0].shape
    return all([shape[a] <= _WINDOW for a in axes_of(f.args["axis"], len(shape))])


def is_product(f: Function) -> bool:
    """Whether `f` multiplies, elementwise."""
    return f.op in (F.mul2, F.square, F.mul_scalar) or (f.op is F.pow_scalar and f.arguments[0] == 2)


def is_scaling(f: Function) -> bool:
    """Whether `f` multiplies by a number of the graph."""
    return f.op is F.mul_scalar


def multipliers(f: Function) -> tuple[Any, ...]:
    """The whole numbers by which `f` multiplies products of arrays that it adds.

    In front of a reduction, XLA's library does all of that, and takes the numbers as arrays; it leaves fractions, which
    come of means, to XLA. Found by comparison with XLA's own account, on batch normalisation.
    """
    if f.op is not F.linear_combination or not all([x.parent is not None and is_product(x.parent) for x in f.inputs]):
        return ()
    return tuple([c for c in f.arguments[0] if isinstance(c, int) and abs(c) != 1])


def copied_operands(f: Function) -> dict[int, bool]:
    """Which operands of `f` XLA reads from a copy with turned axes, and whether it makes the copy as soon as it can.

    On a CPU convolutions have the channels last. Weights are stored in another order than they read, and the gradient
    of weights is a convolution that has the batch in place of the channels.
    """
    if f.op is F.convolve_filter_grad:
        return {0: True, 1: True}
    if f.op is F.convolve or f.op is F.convolve_data_grad:
        return {1: True} if f.args["channel_last"] else {0: False, 1: True}
    return {}


_FIRST_ONLY = frozenset({F.after, F.recomputed, F.update})


def reads(f: Function) -> tuple[Variable, ...]:
    """The inputs that `f` computes its outputs from: not those that only say when, or whose gradient it carries."""
    return f.inputs[:1] if f.op in _FIRST_ONLY else f.inputs


def tokens(f: Function) -> tuple[Variable, ...]:
    """The inputs of `f` that only say when."""
    return f.inputs[1:] if f.op is F.after else ()


def is_sum_of_many(f: Function) -> bool:
    """Whether `f` adds more than two arrays."""
    return f.op is F.add_n and len(f.inputs) > 2


def arithmetic(f: Function) -> int:
    """About how many additions and multiplications `f` takes."""
    op, out = f.op, f.specs[0].size
    if op in PASSING or op is F.reshape or op is F.after:
        return 0
    if op is F.batch_matmul:
        a = f.inputs[0].shape
        return 2 * out * a[-2 if f.args["transpose_a"] else -1]
    if op is F.convolve:
        return 2 * out * math.prod(f.inputs[1].shape[1:])
    if op is F.convolve_data_grad:
        return 2 * f.inputs[0].size * math.prod(f.inputs[1].shape[1:])
    if op is F.convolve_filter_grad:
        return 2 * f.inputs[0].size * math.prod(f.specs[0].shape[1:])
    if op is F.contraction:
        sizes = {i: n for x, term in zip(f.inputs, f.args["terms"], strict=True)
                 for i, n in zip(term, x.shape, strict=True)}
        return 2 * math.prod(sizes.values())
    elements = max([out, *[x.size for x in f.inputs]])
    if is_heavy(op):
        return 32 * elements
    return (8 if op in _COSTLY else 1) * elements
