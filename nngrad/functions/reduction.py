"""Sums, means and other reductions over axes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any

import jax
import jax.numpy as jnp
from jax import lax

from ..graph import AnyArray, AnyShape, Array, Op, Spec, Variable, composite, op
from ..graph.arguments import Axes, one_of
from ..graph.value import made_together
from .arithmetic import floating, widened
from .axes import axes_of, reduces


def total(x: jax.Array, axes: tuple[int, ...]) -> jax.Array:
    """Sum over `axes`; 16-bit floats are added up as float32."""
    x = whole(x)
    return lax.convert_element_type(lax.reduce_sum(widened(x), axes), x.dtype)


def average(x: jax.Array, axes: tuple[int, ...]) -> jax.Array:
    """Mean of floating numbers over `axes`; 16-bit ones are averaged as float32."""
    y = lax.reduce_sum(widened(x), axes)
    y = lax.div(y, lax.full_like(y, reduced_count(x, axes)))
    return lax.convert_element_type(y, x.dtype)


def whole(x: jax.Array) -> jax.Array:
    """`x`, with booleans cast to int32."""
    return lax.convert_element_type(x, jnp.int32) if x.dtype == bool else x


def reduced_count(x: jax.Array | Variable | Spec, axes: tuple[int, ...]) -> int:
    """The number of elements reduced to one over `axes`."""
    n = 1
    for a in axes:
        n *= x.shape[a]
    return n


def kept(y: jax.Array, axes: tuple[int, ...], keepdims: bool) -> jax.Array:
    """`y` with its reduced axes kept at size 1 if `keepdims`."""
    return lax.expand_dims(y, axes) if keepdims else y


def spread(y: jax.Array, x: jax.Array, axes: tuple[int, ...]) -> jax.Array:
    """`y`, reduced over `axes`, broadcast back to the shape of `x`."""
    rest = tuple(i for i in range(x.ndim) if i not in axes)
    return lax.broadcast_in_dim(y, x.shape, rest)


# ---------------------------------------------------------------- sums and means


def _reduced(before: tuple[int, ...], axis: int | tuple[int, ...] | None, keepdims: bool) -> tuple[int, ...]:
    axes = axes_of(axis, len(before))
    return tuple([1 if a in axes else n for a, n in enumerate(before) if keepdims or a not in axes])


@op(
    linear=True, axes=reduces("axis", adds="sum"), reduction="add", precision="high", shape=_reduced,
)  # fmt: skip
def sum(x: Array, /, axis: Axes | None = None, keepdims: bool = False) -> jax.Array:
    """Sum over axes.

    Args:
        x: Any shape; booleans count as int32, and 16-bit floats are added in float32.
    """
    axes = axes_of(axis, x.ndim)
    return kept(total(x, axes), axes, keepdims)


@op(linear=True, axes=reduces("axis", adds="mean"), reduction="add", precision="high", shape=_reduced)
def mean(x: Array, /, axis: Axes | None = None, keepdims: bool = False) -> jax.Array:
    """Arithmetic mean over axes."""
    axes = axes_of(axis, x.ndim)
    return kept(average(floating(x), axes), axes, keepdims)


@composite
def reduce_sum(x: AnyShape, /) -> Variable:
    """Sum of all elements, a scalar."""
    return sum(x)


@composite
def reduce_mean(x: AnyShape, /) -> Variable:
    """Mean of all elements, a scalar."""
    return mean(x)


@composite
def reduce(x: AnyShape, /, op: Annotated[str, one_of("sum", "mean")] = "sum") -> Variable:
    """Sum or mean of all elements, a scalar.

    Args:
        op: "sum" or "mean".
    """
    return sum(x) if op == "sum" else mean(x)


@op(axes=reduces("axis"), precision="high")
def var(x: Array, /, axis: Axes | None = None, keepdims: bool = False) -> jax.Array:
    """Variance over axes: the mean of `(x - mean(x))^2`, without Bessel's correction."""
    axes = axes_of(axis, x.ndim)
    return kept(_variance(floating(x), axes), axes, keepdims)


@op(axes=reduces("axis"), precision="high")
def std(x: Array, /, axis: Axes | None = None, keepdims: bool = False) -> jax.Array:
    """Standard deviation over axes: the square root of `var`. Where it is 0, so is its gradient."""
    axes = axes_of(axis, x.ndim)
    x = floating(x)
    y = lax.sqrt(_variance(widened(x), axes))  # the variance may exceed 16 bits where the deviation fits
    return kept(lax.convert_element_type(y, x.dtype), axes, keepdims)


def _variance(x: jax.Array, axes: tuple[int, ...]) -> jax.Array:
    # Deviations are taken from the first element and then from their mean. That loses less when the mean
    # is large, and makes the variance of equal numbers exactly 0.
    if reduced_count(x, axes):
        first = lax.slice(x, (0,) * x.ndim, tuple(1 if i in axes else n for i, n in enumerate(x.shape)))
        x = lax.sub(x, lax.broadcast_in_dim(first, x.shape, tuple(range(x.ndim))))
    x = lax.sub(x, spread(average(x, axes), x, axes))
    return average(lax.mul(x, x), axes)


# ---------------------------------------------------------------- extrema


@op(type_name="Max", axes=reduces("axis"), reduction="max")
def amax(x: AnyArray, /, axis: Axes | None = None, keepdims: bool = False) -> jax.Array:
    """Maximum over axes; NaN propagates. Equal maxima share the gradient equally.

    Raises:
        ValueError: There are no elements.
    """
    axes = axes_of(axis, x.ndim)
    _check_nonempty(x, axes)
    return kept(lax.reduce_max(x, axes), axes, keepdims)


@op(type_name="Min", axes=reduces("axis"), reduction="min")
def amin(x: Array, /, axis: Axes | None = None, keepdims: bool = False) -> jax.Array:
    """Minimum over axes; NaN propagates. Equal minima share the gradient equally.

    Args:
        ...: As in `amax`.
    """
    axes = axes_of(axis, x.ndim)
    _check_nonempty(x, axes)
    return kept(lax.reduce_min(x, axes), axes, keepdims)


@op(axes=reduces("axis"))
def argmax(x: Array, /, axis: Axes | None = None, keepdims: bool = False) -> jax.Array:
    """Index of the first maximum over axes, as int32.

    Args:
        axis: One axis or several; the index counts along them flattened. None for all.
        ...: As in `amax`.
    """
    return _arg_extremum(lax.argmax, x, axis, keepdims)


@op(axes=reduces("axis"))
def argmin(x: Array, /, axis: Axes | None = None, keepdims: bool = False) -> jax.Array:
    """Index of the first minimum over axes, as int32.

    Args:
        axis: One axis or several; the index counts along them flattened. None for all.
        ...: As in `amax`.
    """
    return _arg_extremum(lax.argmin, x, axis, keepdims)


@composite
def max(
    x: Array, /, axis: Axes | None = None, keepdims: bool = False, with_index: bool = False, only_index: bool = False
) -> Variable | Any:
    """Maximum over axes; NaN propagates. Equal maxima share the gradient equally.

    Args:
        with_index: Whether the index of the first maximum is returned too, as in `argmax`.
        only_index: Whether only the index is returned.
        ...: As in `amax`.

    Returns:
        The maximum, or the pair of it and its index, or the index.
    """
    return values_or_indices(amax, argmax, with_index, only_index, x, axis, keepdims)


@composite
def min(
    x: Array, /, axis: Axes | None = None, keepdims: bool = False, with_index: bool = False, only_index: bool = False
) -> Variable | Any:
    """Minimum over axes; NaN propagates. Equal minima share the gradient equally.

    Args:
        with_index: Whether the index of the first minimum is returned too, as in `argmin`.
        ...: As in `max` and `amax`.

    Returns:
        The minimum, or the pair of it and its index, or the index.
    """
    return values_or_indices(amin, argmin, with_index, only_index, x, axis, keepdims)


def values_or_indices(values: Op, indices: Op, with_index: bool, only_index: bool, *arguments: Any) -> Any:
    """The result of `values`, of `indices`, or both, as the flags say."""
    if only_index:
        return indices(*arguments)
    y = values(*arguments)
    if not with_index:
        return y
    both = y, indices(*arguments)
    made_together(both)
    return both


def _arg_extremum(search: Callable[..., jax.Array], x: jax.Array, axis: Axes | None, keepdims: bool) -> jax.Array:
    axes = axes_of(axis, x.ndim)
    _check_nonempty(x, axes)
    rest = tuple(i for i in range(x.ndim) if i not in axes)
    flat = lax.reshape(lax.transpose(x, rest + axes), (*[x.shape[i] for i in rest], reduced_count(x, axes)))
    return kept(search(flat, len(rest), jnp.int32), axes, keepdims)


def _check_nonempty(x: jax.Array, axes: tuple[int, ...]) -> None:
    if reduced_count(x, axes) == 0:
        raise ValueError(f"cannot take an extremum over no elements: axes {axes} of x of shape {x.shape}")


# ---------------------------------------------------------------- products, norms


@op(axes=reduces("axis"), reduction="mul", precision="high")
def prod(x: Array, /, axis: Axes | None = None, keepdims: bool = False) -> jax.Array:
    """Product over axes. Its gradient contains no division, so it is right where elements are 0.

    Args:
        x: Any shape; booleans are taken as int32.
    """
    axes = axes_of(axis, x.ndim)
    return kept(lax.reduce_prod(whole(x), axes), axes, keepdims)


@op(axes=reduces("axis"), precision="high")
def norm(x: Array, /, p: float | None = None, axis: Axes | None = None, keepdims: bool = False) -> jax.Array:
    """The p-norm `(sum |x|^p)^(1/p)` over axes; for infinite p the largest `|x|`, or the smallest for -inf.

    Where it is 0, its gradient is 0, the smallest subgradient, and higher derivatives are those of a smooth function of
    it, or not finite; 0 if p is 1. Elsewhere a norm with p = 1 has the derivatives of `sum(abs(x))`. Elements that are
    all the largest (or smallest) share the gradient equally.

    Args:
        p: The order, at least 1 or infinite; None for 2.

    Raises:
        ValueError: `p` is below 1 and not -inf, or NaN; an axis is out of range or named twice; or `p` is infinite and
            there are no elements.
    """
    p = 2.0 if p is None else p
    if not (p >= 1 or p == -math.inf):
        raise ValueError(f"p must be at least 1, or -inf, got {p}")
    axes = axes_of(axis, x.ndim)
    if math.isinf(p):
        _check_nonempty(x, axes)
        return kept((lax.reduce_max if p > 0 else lax.reduce_min)(lax.abs(floating(x)), axes), axes, keepdims)
    x = floating(x)
    dtype = x.dtype
    x = lax.abs(widened(x))
    if p == 1:
        y = lax.reduce_sum(x, axes)
    elif p == 2:
        y = lax.sqrt(lax.reduce_sum(lax.mul(x, x), axes))
    else:
        powers = lax.integer_pow(x, int(p)) if p.is_integer() and p <= 64 else lax.pow(x, lax.full_like(x, p))
        y = lax.reduce_sum(powers, axes)
        y = lax.pow(y, lax.full_like(y, 1 / p))
    return kept(lax.convert_element_type(y, dtype), axes, keepdims)


@op(axes=reduces("axis"), precision="high")
def logsumexp(x: Array, /, axis: Axes | None = None, keepdims: bool = False) -> jax.Array:
    """`log(sum(exp(x)))` over axes, computed without overflow. If all are -inf, so is the result, with gradient 0."""
    axes = axes_of(axis, x.ndim)
    x = floating(x)
    top = lax.reduce_max(x, axes)
    top = lax.select(lax.is_finite(top), top, lax.full_like(top, 0))
    y = lax.log(total(lax.exp(lax.sub(x, spread(top, x, axes))), axes))
    return kept(lax.add(y, top), axes, keepdims)
