"""What functions cost, from shapes and dtypes alone, and what they read."""

from __future__ import annotations

import math

import nngrad.functions as F

from ...graph import Function, Op, Variable

PASSING: frozenset[Op] = frozenset({F.identity, F.unlink, F.update, F.recomputed})
"""Ops whose outputs are their inputs: output i is input i."""

VIEWS: frozenset[Op] = PASSING | {F.reshape}
"""Ops whose result lies in the memory of the first input."""

COSTLY: frozenset[Op] = frozenset({
    F.acos, F.acosh, F.asin, F.asinh, F.atan, F.atan2, F.atanh, F.binary_cross_entropy, F.cos, F.cosh, F.elu, F.erf,
    F.exp, F.gelu, F.log, F.log_sigmoid, F.logsumexp, F.mish, F.norm, F.pow2, F.r_pow_scalar, F.selu, F.sigmoid,
    F.sigmoid_cross_entropy, F.sin, F.sinc, F.sinh, F.softmax, F.softplus, F.sqrt, F.swish, F.tan, F.tanh,
})
"""Ops that take several times the arithmetic of a product for each element."""

_HEAVY_FAMILIES = ("nngrad.functions.linear", "nngrad.functions.convolution")
_LIGHT_IN_THEM = frozenset({F.embed, F.embed_filter_grad, F.half_lower})
_FIRST_ONLY = frozenset({F.after, F.recomputed, F.update})


def is_heavy(op: Op) -> bool:
    """Whether `op` does much arithmetic for each element: products of matrices, convolutions, and what users wrote."""
    if not op.module.startswith("nngrad."):
        return True
    return op.module in _HEAVY_FAMILIES and op not in _LIGHT_IN_THEM


def reads(f: Function) -> tuple[Variable, ...]:
    """The inputs that `f` computes its outputs from: not those that only say when, or whose gradient it carries."""
    return f.inputs[:1] if f.op in _FIRST_ONLY else f.inputs


def tokens(f: Function) -> tuple[Variable, ...]:
    """The inputs of `f` that only say when."""
    return f.inputs[1:] if f.op is F.after else ()


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
    return (8 if op in COSTLY else 1) * elements
