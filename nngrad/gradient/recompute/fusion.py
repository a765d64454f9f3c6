"""What XLA on a CPU does with functions where memory is concerned: which it fuses, which it would rather keep.

The rules are those of its fusion pass ("instruction fusion"), in terms of nngrad's functions. Where they depend on how
an op is written for XLA, a list says so.
"""

from __future__ import annotations

import re
from importlib.metadata import version

import nngrad.functions as F

from ...graph import Function, Op
from ...graph.arguments import axes_of
from .costs import COSTLY

_MOVING: frozenset[Op] = frozenset({
    F.broadcast, F.concatenate, F.constant, F.flip, F.pad, F.put_slices, F.take_slices, F.transpose,
})
_FUSED: frozenset[Op] = _MOVING | {F.after, F.cast, F.where}
_FUSED_FAMILIES = (
    "nngrad.functions.activation", "nngrad.functions.arithmetic", "nngrad.functions.comparison",
    "nngrad.functions.elementwise",
)

_KEPT: frozenset[Op] = (COSTLY | {F.div2, F.r_div_scalar, F.reciprocal, F.softsign}) - {F.softmax}
"""Ops that XLA computes once if several loops read them."""

_OF_SEVERAL_PARTS: frozenset[Op] = frozenset({F.elu, F.gelu, F.leaky_relu, F.selu, F.softplus, F.swish})
"""Ops of one array whose last step combines several that are made of it."""

_ONE_BY_ONE: frozenset[Op] = frozenset({F.add_n, F.linear_combination, F.mul_n})
"""Ops that take in one input after the other."""

_CONVOLUTIONS: frozenset[Op] = frozenset({F.convolve, F.convolve_data_grad})


def is_fused(op: Op) -> bool:
    """Whether XLA can compute `op` within the loop of what reads its result."""
    return op in _FUSED or op.elementwise or op.broadcasts or op.module in _FUSED_FAMILIES


def is_kept(f: Function) -> bool:
    """Whether XLA would rather keep the result of `f`, a function that it can fuse, than compute it twice."""
    if f.op is F.pow_scalar:
        power = float(f.arguments[0])
        return power < 0 or not power.is_integer()
    return f.op in _KEPT


def keeps_places(op: Op) -> bool:
    """Whether each element that `op`, which XLA can fuse, gives is made of the elements at the same place."""
    return op not in _MOVING


def has_part(op: Op) -> bool:
    """Whether `op` first makes an array that several of its steps read, and its result, cheaply, from that."""
    return op is F.softmax


def combines_arrays(f: Function) -> bool:
    """Whether the last step of `f` combines several arrays of the size of its result."""
    if f.op in _OF_SEVERAL_PARTS:
        return True
    if f.op in (F.add2, F.add_n) and all([x.parent is not None and x.parent.op in _CONVOLUTIONS for x in f.inputs]):
        return False  # it runs in the convolutions' order of axes, so that turning them comes last
    whole = [x.size == f.specs[0].size and (x.parent is None or x.parent.op is not F.broadcast) for x in f.inputs]
    if f.op in _ONE_BY_ONE and not whole[-1]:
        return False  # it ends with a function of the sum so far
    if f.op is F.linear_combination and f.arguments[1] != 0:
        return False
    return len({x for x, is_whole in zip(f.inputs, whole, strict=True) if is_whole}) > 1


def combines_at_once(f: Function, operand: int) -> bool:
    """Whether `f` combines this of its inputs with others as it is, and does not multiply it by a number before."""
    return f.op is not F.linear_combination or abs(f.arguments[0][operand]) == 1


def copied_operands(f: Function) -> tuple[int, ...]:
    """Which operands of `f` XLA reads from a copy with turned axes.

    On a CPU convolutions have the channels last. Weights are stored in another order than they read, and the gradient
    of weights is a convolution that has the batch in place of the channels.
    """
    if f.op is F.convolve_filter_grad:
        return (0, 1)
    if f.op in _CONVOLUTIONS:
        return (1,) if f.args["channel_last"] else (0, 1)
    return ()


# ---------------------------------------------------------------- reductions

_REDUCTIONS: frozenset[Op] = frozenset({F.amax, F.amin, F.mean, F.prod, F.sum, F.sum_to})

_WINDOW = 32
"""XLA's own reductions go in several passes over an axis that is longer, and then they read from memory."""

_TO_LIBRARY: frozenset[Op] = (
    frozenset({F.amax, F.amin, F.mean, F.sum, F.sum_to})
    if tuple(map(int, re.findall(r"\d+", version("jaxlib"))[:3])) >= (0, 10, 2)
    else frozenset()
)
"""Reductions that XLA on a CPU gives to a library (YNNPACK), since jaxlib 0.10.2."""

_MANY = 4096
"""From how many elements on it does."""

_KNOWN_TO_LIBRARY: frozenset[Op] = frozenset({
    F.abs, F.absolute_error, F.add2, F.add_n, F.add_scalar, F.after, F.binary_cross_entropy, F.broadcast, F.cast,
    F.ceil, F.cosh, F.div2, F.erf, F.exp, F.floor, F.gelu, F.huber_loss, F.linear_combination, F.log, F.log_sigmoid,
    F.maximum2, F.maximum_scalar, F.minimum2, F.minimum_scalar, F.mish, F.mul2, F.mul_n, F.mul_scalar, F.pow2,
    F.pow_scalar, F.r_div_scalar, F.r_pow_scalar, F.r_sub_scalar, F.reciprocal, F.relu, F.sigmoid,
    F.sigmoid_cross_entropy, F.softplus, F.softsign, F.sqrt, F.square, F.squared_error, F.sub2, F.swish, F.tanh,
    F.tanh_shrink,
})
"""Ops that it computes on the way: tried one by one. Comparisons and what chooses by them are not among them."""


def computes_operands(f: Function) -> bool:
    """Whether XLA computes what `f` reads within the loop of `f`, unless something else has it in memory."""
    return is_fused(f.op) or (f.op in _REDUCTIONS and not is_in_library(f) and max(_reduced(f), default=0) <= _WINDOW)


def is_in_library(f: Function) -> bool:
    """Whether XLA has `f`, a reduction, done by a library, which computes on the way what it knows."""
    return f.op in _TO_LIBRARY and f.inputs[0].size >= _MANY


def is_known_to_library(op: Op) -> bool:
    """Whether the library that reduces can compute `op` on the way."""
    return op in _KNOWN_TO_LIBRARY


def _reduced(f: Function) -> list[int]:
    """How long the axes are that `f` reduces."""
    shape = f.inputs[0].shape
    if f.op is F.sum_to:
        kept = (1,) * (len(shape) - len(f.specs[0].shape)) + f.specs[0].shape
        return [n for n, m in zip(shape, kept, strict=True) if n != m]
    return [shape[a] for a in axes_of(f.args["axis"], len(shape))]
