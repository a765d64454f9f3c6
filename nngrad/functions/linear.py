"""Matrix products, embedding, and inverses, determinants and Cholesky factors of matrices."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..graph import Array, Function, NdArray, Variable, apply, composite, op
from ..graph.arguments import MatmulPrecision, Shape, Target, as_shape
from ..graph.axes import AxisMap, Indices, Places
from ..graph.facts import unknown
from .arithmetic import add2, alike, floating, is_floating, mul2, widened
from .axes import axis_of, contracts, rowwise
from .factors import check_square, inverse, nan_of_matrix
from .movement import reshape, split, stack, transpose

# ---------------------------------------------------------------- products of matrices


def _matrix_indices(f: Function) -> Indices:
    """The indices of rows, of the sum, and of columns; then those of leading axes."""
    batch = range(3, len(f.specs[0].shape) + 1)
    a, b = [tuple(batch)[len(batch) - (x.ndim - 2) :] for x in f.inputs]
    turned_a, turned_b, _ = f.arguments
    return ((*a, *((1, 0) if turned_a else (0, 1))), (*b, *((2, 1) if turned_b else (1, 2)))), (*batch, 0, 2)


def _multiplied(
    a: tuple[int, ...], b: tuple[int, ...], transpose_a: bool, transpose_b: bool, matmul_precision: str | None
) -> tuple[int, ...] | None:
    m, k = a[-2:][::-1] if transpose_a else a[-2:]
    l, n = b[-2:][::-1] if transpose_b else b[-2:]  # noqa: E741
    return (*np.broadcast_shapes(a[:-2], b[:-2]), m, n) if k == l else None


@op(
    linear="each", axes=contracts(_matrix_indices), precision="low", shape=_multiplied,
    cost=lambda f: 2 * f.specs[0].size * f.inputs[0].shape[-2 if f.args["transpose_a"] else -1],
)  # fmt: skip
def batch_matmul(
    a: Array, b: Array, /, transpose_a: bool = False, transpose_b: bool = False,
    matmul_precision: MatmulPrecision | None = None,
) -> jax.Array:
    """Products of the matrices in the last two axes of `a` and `b`, each optionally transposed first.

    Args:
        a: (*batch, m, k), or (*batch, k, m) if `transpose_a`.
        b: (*batch, k, n), or (*batch, n, k) if `transpose_b`.
        transpose_a: Whether to transpose the matrices of `a`.
        transpose_b: Whether to transpose those of `b`.

    Returns:
        (*batch, m, n), with the leading axes of both broadcast together.
    """
    if a.ndim < 2 or b.ndim < 2:
        raise ValueError(f"a and b must have at least 2 axes each, got shapes {a.shape} and {b.shape}")
    a, b = alike(a, b)
    k, l = a.shape[-2 if transpose_a else -1], b.shape[-1 if transpose_b else -2]  # noqa: E741
    if k != l:
        raise ValueError(
            f"cannot multiply a of shape {a.shape} by b of shape {b.shape}: {k} columns do not match {l} rows "
            f"(transpose_a={transpose_a}, transpose_b={transpose_b})"
        )
    if b.ndim > 2 and a.shape[:-2] != b.shape[:-2]:
        try:
            batch = jnp.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        except ValueError:
            raise ValueError(f"leading axes of a, {a.shape}, and b, {b.shape}, do not broadcast") from None
        a, b = (x if x.shape[:-2] == batch else jnp.broadcast_to(x, (*batch, *x.shape[-2:])) for x in (a, b))
    # Matrices in b alone need no batch axes: a's leading axes count as more rows.
    axes = tuple(range(b.ndim - 2))
    if b.ndim == 2 and transpose_a and a.ndim > 2:
        a, transpose_a = jnp.swapaxes(a, -1, -2), False
    contracted = ((a.ndim - (2 if transpose_a else 1),), (b.ndim - (1 if transpose_b else 2),))
    return lax.dot_general(a, b, (contracted, (axes, axes)), precision=matmul_precision)


@composite
def affine(x: Array, weight: Array, bias: Array | None = None, /, base_axis: int = 1) -> Variable:
    """`x @ weight + bias`, with the axes of `x` from `base_axis` on flattened into one.

    Args:
        x: (*batch, *in), with `base_axis` batch axes.
        weight: (prod(in), *out).
        bias: `out`; None for no bias.
        base_axis: The first of the axes that are flattened; negative ones count from the end of the axes of x.

    Returns:
        (*batch, *out).
    """
    y: Variable
    shape, w = x.spec.shape, weight.spec.shape
    if base_axis == 1 and len(shape) == 2 and len(w) == 2 and shape[1] == w[0]:
        batch, out = shape[:1], w[1:]
        y = apply(batch_matmul, (x, weight), (False, False, None))
    else:
        if not -len(shape) <= base_axis <= len(shape):
            raise ValueError(f"base_axis {base_axis} is out of range for x of shape {shape}")
        base_axis = base_axis + len(shape) if base_axis < 0 else base_axis
        batch, out, size = shape[:base_axis], w[1:], math.prod(shape[base_axis:])
        if not w or w[0] != size:
            raise ValueError(f"weight must have {size} rows for x of shape {shape} with base_axis={base_axis}, got "
                             f"shape {w}")
        # Batch axes stay separate, since XLA partitions a reshape only along its first axis: to be merged with others,
        # one that is sharded over devices would be gathered.
        if shape != (*batch, size) or not batch:
            x = reshape(x, shape=(*batch, size) if batch else (1, size))
        if len(w) != 2:
            weight = reshape(weight, shape=(size, math.prod(out)))
        y = batch_matmul(x, weight)
        if y.spec.shape != (*batch, *out):
            y = reshape(y, shape=(*batch, *out))
    if bias is not None:
        if bias.spec.shape != out:
            raise ValueError(f"bias must be of shape {out}, got {bias.spec.shape}")
        y = apply(add2, (y, bias))
    return y


@composite
def cross(x0: Array, x1: Array, /, axis: int = -1) -> Variable:
    """The cross product of vectors of three components, as NumPy's `cross`.

    Args:
        x0: The first vectors, with three components along `axis`.
        x1: The second vectors, of a shape that broadcasts with that of `x0`.
        axis: The axis of the components, of both and of the result.
    """
    for name, x in (("x0", x0), ("x1", x1)):
        if x.shape[axis_of(axis, x.ndim)] != 3:
            raise ValueError(f"{name} must have three components along axis {axis}, got shape {x.shape}")
    a, b = split(x0, axis=axis), split(x1, axis=axis)
    return stack(*[a[i - 2] * b[i - 1] - a[i - 1] * b[i - 2] for i in range(3)], axis=axis)


@composite
def dot(a: Array, b: Array, /, out: Target | None = None) -> Variable | Any:
    """NumPy's `dot`: sums products over the last axis of `a` and the second last of `b`, or its only one.

    Args:
        a: (*p, k), or a number, which multiplies `b`.
        b: (*q, k, n) or (k,), or a number.
        out: An NdArray or a Variable of the result's shape. The product is computed at once and written to it, and
            nothing is returned.

    Returns:
        (*p, *q, n); (*p) where `b` has one axis.

    Raises:
        TypeError: `out` is neither an NdArray nor a Variable.
        ValueError: The axes that are multiplied differ in size, or the result does not fit `out`.
    """
    y = _dot(a, b)
    if out is None:
        return y
    cell = out.cell if isinstance(out, Variable) else out
    if not isinstance(cell, NdArray):
        raise TypeError(f"out must be an NdArray or a Variable, got {type(out).__name__}")
    cell.copy_from(y.data)
    return None


def _dot(a: Variable, b: Variable) -> Variable:
    if a.ndim == 0 or b.ndim == 0:
        return mul2(a, b)
    y: Variable
    if a.ndim == b.ndim == 2:
        y = apply(batch_matmul, (a, b), (False, False, None))
        return y
    k = a.shape[-1]
    if k != b.shape[-2 if b.ndim > 1 else 0]:
        raise ValueError(f"dot: cannot multiply a of shape {a.shape} by b of shape {b.shape}")
    shape = (*a.shape[:-1], *b.shape[:-2], *b.shape[-1:]) if b.ndim > 1 else a.shape[:-1]
    rows = a if a.ndim == 2 else reshape(a, shape=(math.prod(a.shape[:-1]), k))
    if b.ndim > 2:
        b = transpose(b, axes=(b.ndim - 2, *range(b.ndim - 2), b.ndim - 1))
    if b.ndim != 2:
        b = reshape(b, shape=(k, math.prod(b.shape[1:])))
    y = batch_matmul(rows, b)
    return y if y.shape == shape else reshape(y, shape=shape)


@composite
def matmul(a: Array, b: Array, /) -> Variable:
    """NumPy's `matmul`, the operator `@`: products of the matrices in the last two axes; leading axes broadcast.

    Args:
        a: (*batch, m, k); or (k,), which counts as a row; that axis is then dropped.
        b: (*batch, k, n); or (k,), which counts as a column; that axis is then dropped.

    Returns:
        (*batch, m, n), without the dropped axes.
    """
    m, n = a.ndim, b.ndim
    y: Variable
    if m > 1 and n > 1:
        y = apply(batch_matmul, (a, b), (False, False, None))
        return y
    if m == 0 or n == 0:
        raise ValueError(f"a and b must have at least one axis, got shapes {a.shape} and {b.shape}. Use * for scalars")
    if m > 1 or n == 1:
        return _dot(a, b)
    y = batch_matmul(reshape(a, shape=(1, a.shape[0])), b)
    return reshape(y, shape=(*y.shape[:-2], y.shape[-1]))


# ---------------------------------------------------------------- embedding


def _rows(x0: Any, count: int) -> Any:
    """`x0` as row numbers; `count` stands for anything that is not one of `count` rows."""
    rows = lax.convert_element_type(x0, jnp.int64 if x0.dtype.itemsize == 8 else jnp.int32)
    valid = lax.bitwise_and(lax.ge(rows, lax.full_like(rows, 0)), lax.lt(rows, lax.full_like(rows, count)))
    if is_floating(x0):
        valid = lax.bitwise_and(valid, lax.eq(x0, lax.round(x0)))
    return jnp.where(valid, rows, count)


def _embedded(f: Function) -> tuple[Places, Places]:
    x0, w = f.inputs
    return tuple(range(x0.ndim)), (None, *range(x0.ndim, x0.ndim + w.ndim - 1))


@op(linear="each", axes=AxisMap(places=_embedded, leading=lambda f, size, shape: {}, inputs=(0,)))
def embed(x0: Array, w: Array, /) -> jax.Array:
    """Embedding lookup `w[x0]`: the rows of `w` at the indices `x0`.

    Values of `x0` are only known when the graph runs. One that is negative, not whole, or at least `w.shape[0]` gives a
    row of NaN (of the lowest value if `w` holds integers), and no gradient.

    Args:
        x0: Row numbers, of any shape: whole numbers of an integer or floating dtype.
        w: (rows, *row).

    Returns:
        (*x0.shape, *row).

    Raises:
        ValueError: `w` has no axes.
    """
    if w.ndim < 1:
        raise ValueError("w must have at least one axis")
    if w.size == 0 or x0.size == 0:  # jnp.take refuses the former
        outside = jnp.nan if is_floating(w) else jnp.iinfo(jnp.int32 if w.dtype == bool else w.dtype).min
        return lax.full((*x0.shape, *w.shape[1:]), outside, w.dtype)
    return jnp.take(w, _rows(x0, w.shape[0]), axis=0, mode="fill")


@op(linear=True)
def embed_filter_grad(gy: Array, x0: Array, /, shape: Shape) -> jax.Array:
    """The transpose of `embed` in `w`: the rows of `gy` added to zeros at the indices `x0`.

    Args:
        gy: A gradient of what `embed` returns: (*x0.shape, *row).
        x0: Row numbers, as in `embed`; those that are not rows of the result are ignored.
        shape: The shape of `w` and of the result: (rows, *row).
    """
    shape = as_shape(shape)
    if not shape or gy.shape != (*x0.shape, *shape[1:]):
        raise ValueError(f"gy must have the shape of embed(x0, w) for x0 {x0.shape} and w {shape}, got {gy.shape}")
    return jnp.zeros(shape, gy.dtype).at[_rows(x0, shape[0])].add(gy, mode="drop")


# ---------------------------------------------------------------- functions of matrices


def square_matrices(x: Any) -> Any:
    """`x`, in a dtype in which matrices can be factored: at least float32."""
    check_square(x)
    return widened(floating(x))


def _by_elimination(function: Callable[[Any], Any], x: Any) -> jax.Array:
    a = square_matrices(x)
    (y,) = nan_of_matrix(a, function(a))
    return lax.convert_element_type(y, floating(x).dtype)


@op(axes=rowwise("(n,n)->(n,n)"), cost=unknown, precision="high")
def batch_inv(x: Array, /) -> jax.Array:
    """The inverse of each matrix in the last two axes.

    Args:
        x: (*batch, n, n). A singular matrix gives values that are infinite or NaN.

    Raises:
        ValueError: The matrices are not square.
    """
    return _by_elimination(inverse, x)


@op(axes=rowwise("(n,n)->()"), cost=unknown, precision="high")
def batch_det(x: Array, /) -> jax.Array:
    """The determinant of each matrix in the last two axes.

    Its derivatives of every order are those of a polynomial, and exact for singular matrices too (`batch_cofactor`).

    Args:
        x: (*batch, n, n).
        ...: As in `batch_inv`.

    Returns:
        (*batch).
    """
    return _by_elimination(jnp.linalg.det, x)


@op(axes=rowwise("(n,n)->()"), cost=unknown, precision="high")
def batch_logdet(x: Array, /) -> jax.Array:
    """log |det| of each matrix in the last two axes; -inf for a singular one.

    Args:
        ...: As in `batch_det`.

    Returns:
        (*batch).
    """
    return _by_elimination(lambda a: jnp.linalg.slogdet(a)[1], x)


@op(axes=rowwise("(n,n)->(n,n)"), cost=unknown, precision="high")
def batch_cholesky(x: Array, /, upper: bool = False) -> jax.Array:
    """The Cholesky factor of each symmetric positive definite matrix in the last two axes.

    Its gradient is symmetric: that of a function of the symmetric part of `x` (Murray, 2016, arXiv:1602.07527).

    Args:
        x: (*batch, n, n); only the symmetric part is used. The factor is NaN where it is not positive definite.
        upper: Whether to return the upper factor U of x = U' U instead of the lower one, L of x = L L'.
        ...: As in `batch_inv`.
    """
    y = jnp.linalg.cholesky(square_matrices(x), upper=upper, symmetrize_input=True)
    return lax.convert_element_type(y, floating(x).dtype)
