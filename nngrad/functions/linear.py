"""Matrix products, contractions, embedding and functions of matrices."""

from __future__ import annotations

import functools
import math
from typing import Any

import jax.numpy as jnp
from jax import lax

from ..graph import Function, NdArray, Variable, apply, composite, op
from ..graph.arguments import Shape, Static
from ..graph.axes import AxisMap, Indices, Places, contracts, rowwise
from ..graph.facts import unknown
from .arithmetic import add2, alike, floating, is_floating, mul2, widened
from .movement import reshape, transpose

Tuples = tuple[tuple[int, ...], ...]

# ---------------------------------------------------------------- products of matrices


def _matrix_indices(f: Function) -> Indices:
    """Rows, what is summed over, columns; and then the leading axes."""
    batch = range(3, len(f.specs[0].shape) + 1)
    a, b = [tuple(batch)[len(batch) - (x.ndim - 2) :] for x in f.inputs]
    turned_a, turned_b = f.arguments
    return ((*a, *((1, 0) if turned_a else (0, 1))), (*b, *((2, 1) if turned_b else (1, 2)))), (*batch, 0, 2)


def _matrix_cost(f: Function) -> int:
    return 2 * f.specs[0].size * f.inputs[0].shape[-2 if f.args["transpose_a"] else -1]


@op(linear="each", axes=contracts(_matrix_indices), cost=_matrix_cost)
def batch_matmul(a, b, /, transpose_a: bool = False, transpose_b: bool = False):
    """Products of the matrices in the last two axes of `a` and `b`, each transposed first if it is so asked.

    Both have at least two axes; the leading ones are broadcast together.
    """
    if a.ndim < 2 or b.ndim < 2:
        raise ValueError(f"a of shape {a.shape} and b of shape {b.shape} must have at least 2 axes each")
    a, b = alike(a, b)
    k, l = a.shape[-2 if transpose_a else -1], b.shape[-1 if transpose_b else -2]  # noqa: E741
    if k != l:
        raise ValueError(
            f"a of shape {a.shape} and b of shape {b.shape} do not multiply: {k} columns meet {l} rows "
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
    return lax.dot_general(a, b, (contracted, (axes, axes)))


@composite
def affine(x, weight, bias=None, /, base_axis: int = 1):
    """`x @ weight + bias`, where the axes of `x` from `base_axis` on count as one.

    Args:
        x: (*batch, *in), with `base_axis` batch axes.
        weight: (prod(in), *out).
        bias: `out`.
        base_axis: Where the axes that are flattened begin; from the end of the axes of x if negative.

    Returns:
        (*batch, *out).
    """
    shape, w = x.spec.shape, weight.spec.shape
    if base_axis == 1 and len(shape) == 2 and len(w) == 2 and shape[1] == w[0]:
        batch, out = shape[:1], w[1:]
        y = apply(batch_matmul, (x, weight), (False, False))
    else:
        if not -len(shape) <= base_axis <= len(shape):
            raise ValueError(f"affine: base_axis {base_axis} is out of range for x of shape {shape}")
        base_axis = base_axis + len(shape) if base_axis < 0 else base_axis
        batch, out, size = shape[:base_axis], w[1:], math.prod(shape[base_axis:])
        if not w or w[0] != size:
            raise ValueError(
                f"affine: weight of shape {w} must have {size} rows for x of shape {shape} with base_axis={base_axis}"
            )
        x = reshape(x, shape=(math.prod(batch), size))
        if len(w) != 2:
            weight = reshape(weight, shape=(size, math.prod(out)))
        y = batch_matmul(x, weight)
        if y.spec.shape != (*batch, *out):
            y = reshape(y, shape=(*batch, *out))
    if bias is None:
        return y
    if bias.spec.shape != out:
        raise ValueError(f"affine: bias must have shape {out}, got {bias.spec.shape}")
    return apply(add2, (y, bias))


@composite
def dot(a, b, /, out: Static | None = None):
    """NumPy's `dot`: the product of the last axis of `a` with the last but one of `b`, or with its only one.

    (*p, k) and (*q, k, n) give (*p, *q, n); (*p, k) and (k,) give (*p); a number multiplies the other.

    Args:
        out: An NdArray or a Variable of the result's shape. The product is computed at once and put there, and
            nothing is returned.
    """
    y = _dot(a, b)
    if out is None:
        return y
    cell = out.cell if isinstance(out, Variable) else out
    if not isinstance(cell, NdArray):
        raise TypeError(f"dot: out must be an NdArray or a Variable, got {type(out).__name__}")
    cell.copy_from(y.data)
    return None


def _dot(a: Variable, b: Variable) -> Variable:
    if a.ndim == 0 or b.ndim == 0:
        return mul2(a, b)
    if a.ndim == b.ndim == 2:
        return apply(batch_matmul, (a, b), (False, False))
    k = a.shape[-1]
    if k != b.shape[-2 if b.ndim > 1 else 0]:
        raise ValueError(f"dot: a of shape {a.shape} and b of shape {b.shape} do not multiply")
    shape = (*a.shape[:-1], *b.shape[:-2], *b.shape[-1:]) if b.ndim > 1 else a.shape[:-1]
    rows = a if a.ndim == 2 else reshape(a, shape=(math.prod(a.shape[:-1]), k))
    if b.ndim > 2:
        b = transpose(b, axes=(b.ndim - 2, *range(b.ndim - 2), b.ndim - 1))
    if b.ndim != 2:
        b = reshape(b, shape=(k, math.prod(b.shape[1:])))
    y = batch_matmul(rows, b)
    return y if y.shape == shape else reshape(y, shape=shape)


@composite
def matmul(a, b, /):
    """NumPy's `matmul`, what `@` does: products of the matrices in the last two axes, leading axes broadcast.

    A vector on the left counts as a row, one on the right as a column, and that axis is dropped again.
    """
    if a.ndim == 0 or b.ndim == 0:
        raise ValueError(f"matmul: a of shape {a.shape} and b of shape {b.shape} must have axes; use * for numbers")
    if a.ndim > 1 and b.ndim > 1:
        return apply(batch_matmul, (a, b), (False, False))
    if a.ndim > 1 or b.ndim == 1:
        return dot(a, b)
    y = batch_matmul(reshape(a, shape=(1, a.shape[0])), b)
    return reshape(y, shape=(*y.shape[:-2], y.shape[-1]))


# ---------------------------------------------------------------- contractions


def _indices_of(f: Function) -> Indices:
    return f.args["terms"], f.args["output"]


def _index_cost(f: Function) -> int:
    terms = zip(f.inputs, f.args["terms"], strict=True)
    sizes = {i: n for x, term in terms for i, n in zip(term, x.shape, strict=True)}
    return 2 * math.prod(sizes.values())


@op(type_name="Einsum", linear="each", axes=contracts(_indices_of), cost=_index_cost)
def contraction(*x, terms: Static, output: Static):
    """Sum of products over indices: what `einsum` is made of.

    `terms` has a tuple of index numbers for each of `x`, one for each of its axes, and `output` those of the
    result. What an index that occurs twice in one term takes is the diagonal; one that occurs twice in `output`
    puts the values on the diagonal of zeros.
    """
    _check_indices([each.shape for each in x], terms, output)
    once = tuple(dict.fromkeys(output))
    y = jnp.einsum(*[part for pair in zip(x, terms, strict=True) for part in pair], once)
    if len(once) == len(output):
        return y
    sizes = dict(zip(once, y.shape, strict=True))
    shape = tuple(sizes[i] for i in output)
    spread = lax.broadcast_in_dim(y, shape, [output.index(i) for i in once])
    kept = jnp.ones(shape, bool)
    for axis, i in enumerate(output):
        if output.index(i) != axis:
            here, first = (lax.broadcasted_iota(jnp.int32, shape, a) for a in (axis, output.index(i)))
            kept = lax.bitwise_and(kept, lax.eq(here, first))
    return lax.select(kept, spread, lax.full_like(spread, 0))


def _check_indices(shapes: list[tuple[int, ...]], terms: Any, output: Any) -> None:
    """Raise a ValueError unless `terms` and `output` name the axes of arrays of `shapes` by index numbers."""
    if not isinstance(terms, tuple) or len(terms) != len(shapes):
        raise ValueError(f"terms must be a tuple with one tuple for each of the {len(shapes)} inputs, got {terms!r}")
    for name, indices in [*((f"terms[{i}]", term) for i, term in enumerate(terms)), ("output", output)]:
        if not isinstance(indices, tuple) or not all(type(index) is int and index >= 0 for index in indices):
            raise ValueError(f"{name} must be a tuple of index numbers, got {indices!r}")
    sizes: dict[int, int] = {}
    for i, (term, shape) in enumerate(zip(terms, shapes, strict=True)):
        if len(term) != len(shape):
            raise ValueError(f"terms[{i}] must have an index for each axis of shape {shape}, got {term}")
        for index, n in zip(term, shape, strict=True):
            if sizes.setdefault(index, n) != n:
                raise ValueError(f"terms: index {index} stands for axes of sizes {sizes[index]} and {n}")
    if not sizes.keys() >= set(output):
        raise ValueError(f"output {output} has an index that is in none of the terms {terms}")


@composite
def einsum(*x, equation: str):
    """Einstein's summation over any number of Variables, `equation` as in NumPy.

    Indices are letters; one that is repeated within an operand takes its diagonal; `...` stands for axes that
    are broadcast together; without `->` the result has the indices that occur once, in alphabetical order.
    """
    terms, output, shapes = _indices(equation, tuple([each.spec.shape for each in x]))
    operands = tuple([
        each if each.spec.shape == shape else reshape(each, shape=shape) for each, shape in zip(x, shapes, strict=True)
    ])
    return apply(contraction, operands, (terms, output))


@functools.lru_cache(maxsize=1024)
def _indices(equation: str, shapes: Tuples) -> tuple[Tuples, tuple[int, ...], Tuples]:
    """The index numbers of each operand and of the result, and each operand's shape without the axes along which it
    is repeated."""

    def fail(why: str) -> ValueError:
        return ValueError(f"einsum: equation {equation!r}: {why}")

    inputs, arrow, result = equation.replace(" ", "").partition("->")
    texts = inputs.split(",")
    if len(texts) != len(shapes):
        raise fail(f"{len(texts)} operands are named, {len(shapes)} are given")
    for text in (*texts, result):
        letters = text.replace("...", "", 1)
        if not (letters.isalpha() and letters.isascii()) and letters:
            raise fail(f"{text!r} is not made of letters and one '...'")
    # Axes under an ellipsis have negative numbers, counted from the last: so they line up from the right.
    terms = []
    for text, shape in zip(texts, shapes, strict=True):
        before, dots, after = text.partition("...")
        hidden = len(shape) - len(before) - len(after)
        if hidden < 0 or (hidden and not dots):
            raise fail(f"{text!r} does not name the {len(shape)} axes of shape {shape}")
        terms.append((*map(ord, before), *range(-hidden, 0), *map(ord, after)))
    hidden = max(-min(0, *term, 0) for term in terms)
    ellipsis = tuple(range(-hidden, 0))
    if arrow:
        before, dots, after = result.partition("...")
        output = (*map(ord, before), *(ellipsis if dots else ()), *map(ord, after))
        named = [i for i in output if i > 0]
        if len(set(named)) < len(named):
            raise fail("an index occurs twice in the result")
        if hidden and not dots:
            raise fail("the result must have '...' for the axes that the operands' stands for")
    else:
        letters = inputs.replace(",", "").replace(".", "")
        output = (*ellipsis, *sorted(ord(c) for c in set(letters) if letters.count(c) == 1))
    sizes: dict[int, int] = {}
    for term, shape in zip(terms, shapes, strict=True):
        for i, n in zip(term, shape, strict=True):
            known = sizes.setdefault(i, n)
            if known != n:
                if i > 0 or 1 not in (known, n):
                    raise fail(f"index {chr(i) if i > 0 else '...'!r} has size {known} and {n}")
                sizes[i] = max(known, n) if 0 not in (known, n) else 0
    for i in output:
        if i not in sizes:
            raise fail(f"index {chr(i)!r} of the result is in no operand")
    numbers = {i: place for place, i in enumerate(dict.fromkeys(i for term in terms for i in term))}
    kept = [
        [(numbers[i], n) for i, n in zip(term, shape, strict=True) if n == sizes[i]]
        for term, shape in zip(terms, shapes, strict=True)
    ]
    return (
        tuple(tuple(i for i, _ in pairs) for pairs in kept),
        tuple(numbers[i] for i in output),
        tuple(tuple(n for _, n in pairs) for pairs in kept),
    )


# ---------------------------------------------------------------- embedding


def _rows(x0: Any, count: int) -> Any:
    """`x0` as row numbers, in which whatever is not a row of `count` is `count`."""
    rows = lax.convert_element_type(x0, jnp.int64 if x0.dtype.itemsize == 8 else jnp.int32)
    valid = lax.bitwise_and(lax.ge(rows, lax.full_like(rows, 0)), lax.lt(rows, lax.full_like(rows, count)))
    if is_floating(x0):
        valid = lax.bitwise_and(valid, lax.eq(x0, lax.round(x0)))
    return jnp.where(valid, rows, count)


def _embedded(f: Function) -> tuple[Places, Places]:
    x0, w = f.inputs
    return tuple(range(x0.ndim)), (None, *range(x0.ndim, x0.ndim + w.ndim - 1))


@op(linear="each", axes=AxisMap(places=_embedded, led=lambda f, size, shape: {}, inputs=(0,)))
def embed(x0, w, /):
    """`w[x0]`: the rows of `w` that `x0` names, of shape `x0.shape + w.shape[1:]`.

    `x0` holds whole numbers, of an integer or floating dtype. What it holds is not known until the graph runs: a
    number that is negative, not whole, or not smaller than `w.shape[0]` gives a row of NaN (of the lowest value if `w`
    holds integers), and no gradient.
    """
    if w.ndim < 1:
        raise ValueError("w must have at least one axis")
    if w.size == 0 or x0.size == 0:  # jnp.take makes nothing of the former
        outside = jnp.nan if is_floating(w) else jnp.iinfo(jnp.int32 if w.dtype == bool else w.dtype).min
        return lax.full((*x0.shape, *w.shape[1:]), outside, w.dtype)
    return jnp.take(w, _rows(x0, w.shape[0]), axis=0, mode="fill")


@op(linear=True)
def embed_filter_grad(gy, x0, /, shape: Shape):
    """The transpose of `embed`: an array of `shape`, zero but for the rows of `gy` added where `x0` says."""
    if not shape or gy.shape != (*x0.shape, *shape[1:]):
        raise ValueError(f"gy of shape {gy.shape} is not what embedding x0 of shape {x0.shape} in {shape} gives")
    return jnp.zeros(shape, gy.dtype).at[_rows(x0, shape[0])].add(gy, mode="drop")


# ---------------------------------------------------------------- functions of matrices


def _square(x: Any) -> Any:
    """`x` in a dtype in which matrices can be factored: float32 at least."""
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ValueError(f"x of shape {x.shape} must hold square matrices in its last two axes")
    return widened(floating(x))


@op(axes=rowwise("(n,n)->(n,n)"), cost=unknown)
def batch_inv(x, /):
    """The inverse of each matrix in the last two axes."""
    return lax.convert_element_type(jnp.linalg.inv(_square(x)), floating(x).dtype)


@op(axes=rowwise("(n,n)->()"), cost=unknown)
def batch_det(x, /):
    """The determinant of each matrix in the last two axes: shape (*batch,).

    Its gradient, the matrix of cofactors, is exact for singular matrices too; the derivatives beyond the first
    are by way of the inverse determinant and take matrices that are not singular.
    """
    return lax.convert_element_type(jnp.linalg.det(_square(x)), floating(x).dtype)


@op(axes=rowwise("(n,n)->(n,n)"), cost=unknown)
def batch_cofactor(x, /):
    """The matrix of cofactors of each matrix in the last two axes, which is det(x) inv(x)' where x has an inverse.

    By the singular value decomposition: cofactors are multiplicative, those of an orthogonal matrix are itself
    times its determinant, and those of a diagonal one are products of the other elements. No division occurs.
    """
    a = _square(x)
    u, s, v = jnp.linalg.svd(a, full_matrices=False)
    ones = jnp.ones_like(s[..., :1])
    below = jnp.cumprod(jnp.concatenate([ones, s[..., :-1]], -1), -1)
    above = jnp.cumprod(jnp.concatenate([ones, s[..., :0:-1]], -1), -1)[..., ::-1]
    sign = jnp.linalg.det(u) * jnp.linalg.det(v)
    y = (u * (below * above * sign[..., None])[..., None, :]) @ v
    return lax.convert_element_type(y, floating(x).dtype)


@op(axes=rowwise("(n,n)->()"), cost=unknown)
def batch_logdet(x, /):
    """log |det| of each matrix in the last two axes: shape (*batch,); -inf for a singular one."""
    return lax.convert_element_type(jnp.linalg.slogdet(_square(x))[1], floating(x).dtype)


@op(axes=rowwise("(n,n)->(n,n)"), cost=unknown)
def batch_cholesky(x, /, upper: bool = False):
    """The Cholesky factor of each symmetric positive definite matrix in the last two axes: the lower triangle L of
    x = L L', or the upper U of x = U' U. The symmetric part of x is taken; NaN where it is not positive definite.
    """
    y = jnp.linalg.cholesky(_square(x), upper=upper, symmetrize_input=True)
    return lax.convert_element_type(y, floating(x).dtype)


@op(linear=True, axes=rowwise("(n,n)->(n,n)"))
def half_lower(x, /):
    """The lower triangle of each matrix in the last two axes, with half of its diagonal, and zeros above."""
    _square(x)
    x = floating(x)
    row, column = (lax.broadcasted_iota(jnp.int32, x.shape, axis) for axis in (x.ndim - 2, x.ndim - 1))
    lower = lax.select(lax.gt(row, column), x, lax.full_like(x, 0))
    return lax.select(lax.eq(row, column), x * x.dtype.type(0.5), lower)
