"""Creating and casting arrays, and the diagonals and triangles of matrices."""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..graph import AnyArray, Array, Variable, composite, op
from ..graph.arguments import DTypeName, Scalar, Shape, Size
from ..graph.engine import engine, provide
from ..graph.leaf import refuse_too_many
from ..graph.spec import FLOAT32
from . import axis_maps
from .axes import rowwise
from .factors import check_square
from .movement import broadcast, reshape

# ---------------------------------------------------------------- creation


def filled_like(x: Variable, val: float | Variable) -> Variable:
    """An array of the shape and dtype of `x` filled with `val`: a constant of the graph."""
    return constant(val=val, shape=x.shape, dtype=x.dtype)


@composite
def zeros_like(x: AnyArray, /) -> Variable:
    """Zeros in the shape and dtype of `x`, through which no gradient passes."""
    return filled_like(x, 0)


@composite
def ones_like(x: AnyArray, /) -> Variable:
    """Ones in the shape and dtype of `x`, through which no gradient passes."""
    return filled_like(x, 1)


@composite
def eye_like(x: Array, /, k: int = 0) -> Variable:
    """Matrices with 1 on a diagonal and 0 elsewhere, in the shape and dtype of `x`; no gradient passes.

    Args:
        x: Matrices, `(..., m, n)`, of any dtype.
        k: Which diagonal: 0 for the main one, above it if positive, below it if negative.

    Raises:
        ValueError: `x` has fewer than two axes.
    """
    return trilu(trilu(filled_like(x, 1), k=k), k=k, upper=False)


@op(
    fuses="moving", numbers=("val",),
    of_variables=lambda val, shape, dtype: broadcast(in_dtype(val, np.dtype(dtype)), shape=shape),
)  # fmt: skip
def constant(val: Scalar = 0, shape: Shape = (), dtype: DTypeName = FLOAT32) -> jax.Array:
    """An array filled with one number.

    Args:
        shape: The shape; by default that of a scalar.
        dtype: The dtype; by default float32.
    """
    return lax.full(shape, val, dtype)


provide(engine, {"constant": constant})


@op
def arange(start: float, stop: float, step: float = 1, dtype: DTypeName = FLOAT32) -> jax.Array:
    """`start`, `start + step`, ... up to `stop`, which is excluded.

    Args:
        start: The first number.
        stop: The end, which is excluded.
        step: The spacing, which may be negative; not 0.
        dtype: A floating dtype, in which each number is rounded once, or an integer dtype; by default float32.

    Returns:
        `(n,)` with `n = ceil((stop - start) / step)`, or 0 if that is negative.

    Raises:
        ValueError: `step` is 0; `dtype` is bool; or `dtype` is an integer dtype, and `start` or `step` is not whole or
            a number of the result does not fit.
    """
    if step == 0:
        raise ValueError("step must not be 0")
    n, target = max(math.ceil((stop - start) / step), 0), np.dtype(dtype)
    if target.kind in "iu":
        return _whole_numbers(start, step, n, target)
    wide = _wide(target, "arange")
    numbers = lax.add(lax.mul(lax.iota(wide, n), wide.type(step)), wide.type(start))
    return lax.convert_element_type(numbers, target)


def _whole_numbers(start: float, step: float, n: int, dtype: np.dtype[Any]) -> jax.Array:
    """`n` integers from `start` on."""
    if start != int(start) or step != int(step):
        raise ValueError(f"start and step must be whole numbers for dtype {dtype.name}, got {start:g} and {step:g}")
    first, last = int(start), int(start) + int(step) * max(n - 1, 0)
    bounds = np.iinfo(dtype)
    if not (bounds.min <= min(first, last) and max(first, last) <= bounds.max):
        raise ValueError(f"dtype {dtype.name} cannot hold the numbers from {first} to {last}")
    # Intermediate values that wrap around, such as a negative step in an unsigned dtype, wrap back.
    with np.errstate(over="ignore"):
        by, begin = (np.array(k % 2**64, np.uint64).astype(dtype) for k in (int(step), first))
    return lax.add(lax.mul(lax.iota(dtype, n), by), begin)


def _wide(dtype: np.dtype[Any], name: str) -> np.dtype[Any]:
    """The dtype in which to compute numbers that are then rounded once to `dtype`."""
    if dtype == np.bool_:
        raise ValueError(f"{name}: dtype must be floating or integer, got bool")
    return np.dtype(np.float64) if dtype == np.float64 else FLOAT32


@op
def linspace(start: float, stop: float, num: Size, dtype: DTypeName = FLOAT32) -> jax.Array:
    """`num` evenly spaced numbers from `start` to `stop`, both included.

    Args:
        start: The first number.
        stop: The last number; if `num` is 1 there is only `start`.
        num: The number of values.
        dtype: A floating dtype, in which each number is rounded once, or an integer dtype, in which numbers are rounded
            down as in NumPy; by default float32.

    Raises:
        ValueError: `num` is negative; `dtype` is bool; or `dtype` is an integer dtype too narrow for `start` or `stop`.
    """
    target = np.dtype(dtype)
    if target.kind in "iu":
        bounds = np.iinfo(target)
        if not (bounds.min <= min(start, stop) and max(start, stop) <= bounds.max):
            raise ValueError(f"dtype {target.name} cannot hold the numbers from {start:g} to {stop:g}")
        refuse_too_many(num, num=num)
        return jnp.asarray(np.linspace(start, stop, num, dtype=target))
    wide = _wide(target, "linspace")
    t = lax.div(lax.iota(wide, num), wide.type(num - 1 if num > 1 else 1))
    numbers = lax.add(lax.mul(lax.sub(wide.type(1), t), wide.type(start)), lax.mul(t, wide.type(stop)))
    return lax.convert_element_type(numbers, target)


@composite
def eye(n: Size, m: Size | None = None, k: int = 0, dtype: DTypeName = FLOAT32) -> Variable:
    """A matrix with 1 on a diagonal and 0 elsewhere, `(n, m)`.

    Args:
        n: The number of rows.
        m: The number of columns; by default `n`.
        k: Which diagonal: 0 for the main one, above it if positive, below it if negative.
        dtype: The dtype; by default float32.
    """
    return eye_like(constant(val=0, shape=(n, n if m is None else m), dtype=dtype), k=k)


@op(axes=rowwise(lambda f: (1, len(f.args["shape"]))))
def one_hot(x: Array, /, shape: Shape, dtype: DTypeName = FLOAT32) -> jax.Array:
    """1 at an index, 0 elsewhere.

    Args:
        x: Whole numbers `(..., k)`: each row along the last axis is an index into an array of `shape`.
            Negative indices count from the end; a row with an index that is out of range or not whole gives zeros.
        shape: The `k` sizes.

    Returns:
        An array `(..., *shape)`.

    Raises:
        ValueError: The last axis of `x` does not have one index for each size.
    """
    if x.ndim == 0 or x.shape[-1] != len(shape):
        raise ValueError(f"x must have last axis {len(shape)}, an index for each size in {shape}, got shape {x.shape}")
    lead, result = x.ndim - 1, x.shape[:-1] + shape
    hits = []
    for i, n in enumerate(shape):
        index = lax.index_in_dim(x, i, x.ndim - 1, keepdims=False)
        index = whole_indices(index)
        index = lax.select(lax.lt(index, lax.full_like(index, 0)), lax.add(index, lax.full_like(index, n)), index)
        index = lax.broadcast_in_dim(index, result, tuple(range(lead)))
        hits.append(lax.eq(index, lax.broadcasted_iota(jnp.int32, result, lead + i)))
    hit = functools.reduce(lax.bitwise_and, hits) if hits else lax.full(result, True)
    return lax.convert_element_type(hit, dtype)


@composite
def meshgrid(*x: Array, ij_indexing: bool = False) -> tuple[Variable, ...]:
    """Coordinate grids from the coordinates along each axis.

    Args:
        x: One array `(n_i,)` for each axis.
        ij_indexing: Whether the grid's axes come in the order of `x`; else the first two are exchanged.

    Returns:
        For each of `x` an array in the shape of the grid that varies along that axis only.

    Raises:
        ValueError: One of `x` does not have exactly one axis.
    """
    for i, coordinates in enumerate(x):
        if coordinates.ndim != 1:
            raise ValueError(f"x[{i}] must have one axis, got shape {coordinates.shape}")
    order = list(range(len(x)))
    if not ij_indexing and len(x) > 1:
        order[:2] = 1, 0
    grid = tuple(x[i].size for i in order)
    return tuple(
        broadcast(reshape(coordinates, shape=tuple(-1 if i == j else 1 for j in order)), shape=grid)
        for i, coordinates in enumerate(x)
    )


def whole_indices(indices: jax.Array) -> jax.Array:
    """`indices` as int32; a float that is not whole becomes an index that is out of range on every axis."""
    result = lax.convert_element_type(indices, jnp.int32)
    if not jnp.issubdtype(indices.dtype, jnp.floating):
        return result
    return lax.select(lax.eq(indices, lax.round(indices)), result, lax.full_like(result, np.iinfo(np.int32).max))


# ---------------------------------------------------------------- dtype and sizes


@op
def shape(x: AnyArray, /, start: int | None = None, end: int | None = None) -> jax.Array:
    """The shape of `x` as int32 `(n,)`, or its slice `[start:end]`.

    Args:
        start: The first axis; None for the first of all. Negative ones count from the end.
        end: The axis after the last; None for all remaining ones. Negative ones count from the end.
    """
    return lax.convert_element_type(np.asarray(x.shape[start:end], np.int32), jnp.int32)


@op(diagonal=True, linear=True)
def cast(x: AnyArray, /, dtype: DTypeName) -> jax.Array:
    """`x` in another dtype. The gradient comes back in the dtype of `x`.

    Args:
        dtype: The dtype, such as "float64" or `np.int32`.
    """
    return lax.convert_element_type(x, dtype)


def in_dtype(x: Variable, dtype: Any) -> Variable:
    """`x`, cast to `dtype` unless it already has that dtype."""
    y: Variable = x if x.dtype == dtype else cast(x, dtype=dtype)
    return y


def in_shape(x: Variable, shape: tuple[int, ...]) -> Variable:
    """`x`, reshaped unless it already has that shape."""
    return x if x.shape == shape else reshape(x, shape=shape)


def like_floats(y: Variable, x: Variable) -> Variable:
    """`y`, cast to the dtype of `x` if that is floating."""
    return in_dtype(y, x.dtype) if x.spec.differentiable else y


# ---------------------------------------------------------------- diagonals


@op(linear=True, axes=axis_maps.ON_DIAGONAL)
def matrix_diag(x: Array, /) -> jax.Array:
    """Square matrices with the given diagonals, and 0 elsewhere.

    Args:
        x: The diagonals, `(..., n)`.

    Returns:
        `(..., n, n)`.

    Raises:
        ValueError: `x` is a scalar.
    """
    if x.ndim == 0:
        raise ValueError("x must have at least one axis")
    wide = lax.broadcast_in_dim(x, (*x.shape, x.shape[-1]), tuple(range(x.ndim)))
    return lax.select(_band(wide.shape, 0, 0), wide, lax.full_like(wide, 0))


@op(linear=True, axes=rowwise("(n,n)->(n)"))
def matrix_diag_part(x: Array, /) -> jax.Array:
    """The diagonals `(..., n)` of square matrices.

    Args:
        x: The matrices, `(..., n, n)`.

    Raises:
        ValueError: The last two axes differ in size.
    """
    check_square(x)
    n = x.shape[-1]
    return lax.slice_in_dim(lax.reshape(x, (*x.shape[:-2], n * n)), 0, n * n, n + 1, x.ndim - 2)


@op(linear=True, axes=rowwise("(m,n)->(m,n)"))
def trilu(x: Array, /, k: int = 0, upper: bool = True) -> jax.Array:
    """The upper, or the lower, triangle of matrices, with 0 elsewhere.

    Args:
        x: The matrices, `(..., m, n)`.
        k: Which diagonal bounds the triangle: 0 for the main one, above it if positive, below it if negative.
        upper: Whether to return the upper triangle.

    Raises:
        ValueError: `x` has fewer than two axes.
    """
    if x.ndim < 2:
        raise ValueError(f"x must hold matrices in its last two axes, got shape {x.shape}")
    inside = _band(x.shape, k, None) if upper else _band(x.shape, None, k)
    return lax.select(inside, x, lax.full_like(x, 0))


def _band(shape: tuple[int, ...], low: int | None, high: int | None) -> jax.Array:
    """True where column - row is between `low` and `high`."""
    rows, columns = (lax.broadcasted_iota(jnp.int32, shape, len(shape) - i) for i in (2, 1))
    offset = lax.sub(columns, rows)
    inside = lax.full(shape, True)
    if low is not None:
        inside = lax.bitwise_and(inside, lax.ge(offset, lax.full_like(offset, low)))
    if high is not None:
        inside = lax.bitwise_and(inside, lax.le(offset, lax.full_like(offset, high)))
    return inside
