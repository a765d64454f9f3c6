"""Backward rules of reductions."""

import math
from collections.abc import Callable

import jax.numpy as jnp

import nngrad.functions as F
from nngrad.functions.array import filled_like, in_dtype, zeros_like
from nngrad.functions.axes import axes_of
from nngrad.functions.moments import accurate
from nngrad.functions.reduction import reduced_count
from nngrad.graph import Function, Variable

from .rules import backward, non_differentiable


def kept_shape(f: Function) -> tuple[int, ...]:
    """The shape of the result of `f` with `keepdims`."""
    shape = f.inputs[0].shape
    axes = axes_of(f.args["axis"], len(shape))
    return tuple(1 if i in axes else n for i, n in enumerate(shape))


def spread(f: Function, gy: Variable) -> Variable:
    """`gy`, a reduction's result or its gradient, broadcast over the reduced axes to the shape of `f`'s input."""
    return F.broadcast(F.reshape(gy, shape=kept_shape(f)), shape=f.inputs[0].shape)


def along_length(f: Function, gy: Variable, x: Variable) -> Variable:
    """`gy x / y` for a length y, the result of `f`, and 0 where y is 0. If gy has a factor y, this is smooth there;
    otherwise its derivatives there are not finite, as there are none."""
    (y,) = f.outputs
    quotient = F.divided(gy, y, limits=True)
    if quotient.parent is None or quotient.parent.op is not F.divided:
        return spread(f, quotient) * x
    return F.directed(spread(f, gy), x, spread(f, y))


# ---------------------------------------------------------------- sums and means


@backward(F.sum)
def sum_backward(f: Function, gy: Variable) -> Variable:
    """dy/dx = 1"""
    return spread(f, gy)


@backward(F.mean)
def mean_backward(f: Function, gy: Variable) -> Variable | None:
    """dy/dx = 1/n for each of the n elements of a mean"""
    (x,) = f.inputs
    return spread(f, gy) * (gy.size / x.size) if x.size else None


def deviation(f: Function) -> Variable:
    """x - mean(x)"""
    (x,) = f.inputs
    return x - F.broadcast(F.mean(x, axis=f.args["axis"], keepdims=True), shape=x.shape)


@backward(F.var)
def var_backward(f: Function, gy: Variable) -> Variable | None:
    """dy/dx = 2/n (x - mean(x))"""
    (x,) = f.inputs
    return spread(f, gy) * deviation(f) * (2 * gy.size / x.size) if x.size else None


@backward(F.std)
def std_backward(f: Function, gy: Variable) -> Variable | None:
    """dy/dx = (x - mean(x)) / (n y), and 0 where y is 0"""
    (x,) = f.inputs
    return along_length(f, gy, deviation(f)) * (gy.size / x.size) if x.size else None


# ---------------------------------------------------------------- extrema


def extremum_backward(f: Function, gy: Variable) -> Variable:
    """dy/dx = 1/m at each of the m elements equal to y, 0 elsewhere; NaN where y is NaN"""
    return at_extrema(f, f.inputs[0], gy, F.greater if f.op is F.amin else F.less)


def at_extrema(f: Function, x: Variable, gy: Variable, falls_short: Callable[..., Variable]) -> Variable:
    """`gy` shared by the elements of `x` that do not fall short of the result of `f`. It selects instead of
    multiplying, so that an infinite gradient leaves no NaN on the others."""
    (y,) = f.outputs
    here = F.logical_not(falls_short(x, spread(f, y)))
    # 16 bits do not hold a count.
    ties = F.sum(accurate(here), axis=f.args["axis"], keepdims=f.args["keepdims"])
    ties = F.where(F.isnan(y), filled_like(ties, math.nan), ties)
    return F.where(here, spread(f, in_dtype(in_dtype(gy, ties.dtype) / ties, gy.dtype)), zeros_like(x))


backward(F.amax)(extremum_backward)
backward(F.amin)(extremum_backward)
non_differentiable(F.argmax, F.argmin)


# ---------------------------------------------------------------- products, norms


@backward(F.prod)
def prod_backward(f: Function, gy: Variable) -> Variable:
    """dy/dx = the product of the other elements: those before times those after, without division"""
    (x,) = f.inputs
    axes = axes_of(f.args["axis"], x.ndim)
    if len(axes) == 0:
        return gy
    # The reduced axes, flattened, come last.
    order = tuple(i for i in range(x.ndim) if i not in axes) + axes
    back = tuple(order.index(i) for i in range(x.ndim))
    turned = F.transpose(x, axes=order)
    flat = F.reshape(turned, shape=(*turned.shape[: x.ndim - len(axes)], reduced_count(x, axes)))
    before = F.cumprod(flat, axis=-1, exclusive=True)
    after = F.cumprod(flat, axis=-1, exclusive=True, reverse=True)
    return spread(f, gy) * F.transpose(F.reshape(before * after, shape=turned.shape), axes=back)


def sign(x: Variable) -> Variable:
    """1, -1, or 0 at 0, through which no gradient passes."""
    return F.greater_scalar(x, val=0) - F.less_scalar(x, val=0)


@backward(F.norm)
def norm_backward(f: Function, gy: Variable) -> Variable:
    """dy/dx = sign(x) (|x| / y)^(p - 1), and 0 where y is 0, as in `along_length`; for p = 1 that of |x| at each other
    element; for infinite p sign(x) / m at m elements of size y"""
    (x,), (y,) = f.inputs, f.outputs
    p = 2.0 if f.args["p"] is None else f.args["p"]
    if math.isinf(p):
        return at_extrema(f, F.abs(x), gy, F.less if p > 0 else F.greater) * sign(x)
    if p == 2:
        return along_length(f, gy, x)
    if p == 1:
        g = spread(f, F.where(F.equal_scalar(y, val=0), zeros_like(gy), gy))
        return F.where(F.greater_equal_scalar(x, val=0.0), g, -g)
    # A whole power needs no absolute value. A broken power of 0 has infinite derivatives; the sign takes it out.
    whole = p.is_integer()
    size = x if whole else F.where(F.equal_scalar(x, val=0), filled_like(x, 1), F.abs(x))
    flips = filled_like(x, 1) if whole and p % 2 == 0 else sign(x)
    quotient = F.divided(gy, y ** (p - 1), limits=True)
    if quotient.parent is None or quotient.parent.op is not F.divided:
        return spread(f, quotient) * size ** (p - 1) * flips
    safe = spread(f, F.where(F.equal_scalar(y, val=0), filled_like(y, 1), y))
    return F.directed(spread(f, gy) * (size / safe) ** (p - 2) * (flips if whole else flips**2), x, spread(f, y))


@backward(F.logsumexp)
def logsumexp_backward(f: Function, gy: Variable) -> Variable | None:
    """dy/dx = e / sum(e) with e = exp(x - max(x)): exp(x - y) would inherit the rounding error of a large y. Where all
    is -inf, the sum is 0, and so are the derivatives"""
    (x,), axis = f.inputs, f.args["axis"]
    if not x.size:
        return None
    # No gradient passes the maximum: the quotient does not depend on it.
    top = F.maximum_scalar(F.max(x, axis=axis, keepdims=True), val=float(jnp.finfo(x.dtype).min))
    e = F.exp(x - F.unlink(top))
    # The largest e is 1: where they do not sum to that, they are all 0.
    total = F.maximum_scalar(F.sum(e, axis=axis, keepdims=True), val=0.5)
    return spread(f, gy) * (e / total)
