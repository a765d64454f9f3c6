"""Eigenvalues, singular values, QR and LU factors, pseudoinverses, cofactors and exponentials of matrices."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.linalg import expm

from ..graph import Array, Function, Variable, composite, op
from ..graph.arguments import NotNegative
from .arithmetic import alike, floating, widened
from .array import eye, like_floats, one_hot, trilu
from .axes import rowwise
from .factors import check_square, lu_decomposition, tall_qr
from .linear import batch_matmul, square_matrices
from .moments import accurate
from .movement import concatenate
from .shaping import expand_dims, swapaxes
from .spectra import eigh, svd


@composite
def batch_eigh(x: Array, /) -> tuple[Variable, Variable]:
    """The eigenvalues and eigenvectors of each symmetric matrix in the last two axes: `x v = v diag(w)`.

    The gradient is symmetric: that of a function of the symmetric part of `x`. Where eigenvalues are equal up to
    rounding, their vectors are not unique. First and second derivatives of a function that does not depend on the
    choice, such as `v diag(f(w)) v'`, a projection, or a sum over these eigenvalues, are the limits as they become
    equal; where they differ so little that rounding would spoil quotients, an expansion around that limit. Third
    derivatives there are NaN. At equal eigenvalues so are all that depend on the choice; but the first derivative of a
    single one is that along its own vector. Within the body of a loop or a branch, second derivatives there are NaN,
    and first ones too if the vectors leave the body.

    Args:
        x: (*batch, n, n); only the symmetric part is used.

    Returns:
        The eigenvalues, (*batch, n), in ascending order, and the vectors, (*batch, n, n), in the columns. The sign of a
        vector is LAPACK's.

    Raises:
        ValueError: The matrices are not square.
    """
    check_square(x)
    w, v = eigh(accurate(x))
    return like_floats(w, x), like_floats(v, x)


@composite
def batch_svd(x: Array, /) -> tuple[Variable, Variable, Variable]:
    """The singular values and vectors of each matrix in the last two axes: `x = u diag(s) vh`.

    Where singular values are equal, or several are 0, or one is 0 and the matrix is not square, derivatives behave as
    those of `batch_eigh` at equal eigenvalues.

    Args:
        x: (*batch, m, n).

    Returns:
        `u`, (*batch, m, k) with k the smaller of m and n; `s`, (*batch, k), in descending order; and `vh`,
        (*batch, k, n). The signs of vectors are LAPACK's.

    Raises:
        ValueError: `x` has fewer than two axes.
    """
    u, s, vh = svd(_matrices_in(x))
    return like_floats(u, x), like_floats(s, x), like_floats(vh, x)


@composite
def batch_qr(x: Array, /) -> tuple[Variable, Variable]:
    """The QR factors of each matrix in the last two axes: `x = q r`, with `q' q = 1` and upper triangular `r`.

    It is differentiable if the first min(m, n) columns are linearly independent.

    Args:
        ...: As in `batch_svd`.

    Returns:
        `q`, (*batch, m, k) with k the smaller of m and n, and `r`, (*batch, k, n). The signs of the diagonal of `r` are
        LAPACK's.
    """
    wide = _matrices_in(x)
    m, n = x.shape[-2:]
    q, r = tall_qr(wide if m >= n else wide[..., :m])
    if m < n:
        r = concatenate(r, batch_matmul(q, wide[..., m:], transpose_a=True), axis=-1)
    return like_floats(q, x), like_floats(r, x)


@composite
def batch_lu(x: Array, /) -> tuple[Variable, Variable, Variable]:
    """The LU factors, with row exchanges, of each matrix in the last two axes: `x = p l u`.

    It is differentiable if the leading square block of `p' x` can be inverted; `p` has no gradient.

    Args:
        ...: As in `batch_svd`.

    Returns:
        The permutation `p`, (*batch, m, m); `l`, (*batch, m, k) with k the smaller of m and n, lower triangular with
        ones on its diagonal; and the upper triangular `u`, (*batch, k, n).
    """
    lu, _, permutation = lu_decomposition(_matrices_in(x))
    m, n = x.shape[-2:]
    k = min(m, n)
    lower = trilu(lu[..., :k], k=-1, upper=False) + eye(m, k, dtype=lu.dtype)
    rows = one_hot(expand_dims(permutation, -1), shape=(m,), dtype=lu.dtype)
    return like_floats(swapaxes(rows, -1, -2), x), like_floats(lower, x), like_floats(trilu(lu[..., :k, :]), x)


@op(axes=rowwise("(m,n)->(n,m)"), cost=lambda f: 10 * f.inputs[0].size * min(f.inputs[0].shape[-2:]), precision="high")
def batch_pinv(x: Array, /, rtol: NotNegative | None = None) -> jax.Array:
    """The Moore-Penrose pseudoinverse `p` of each matrix in the last two axes.

    `x p x = x` and `p x p = p`, and `x p` and `p x` are symmetric. Derivatives are those at constant rank; where the
    rank is less than both sizes, the pseudoinverse has no others.

    Args:
        x: (*batch, m, n), floating; 16-bit floats are decomposed in float32.
        rtol: Singular values of at most this times the largest count as 0; by default ten times the larger of m and n,
            times the machine epsilon of the dtype.

    Returns:
        (*batch, n, m).

    Raises:
        ValueError: `x` has fewer than two axes, or `rtol` is negative.
    """
    if x.ndim < 2:
        raise ValueError(f"x must have at least 2 axes, got shape {x.shape}")
    wide = widened(floating(x))
    y = jnp.linalg.pinv(wide, rtol=rtol)
    return lax.convert_element_type(y, floating(x).dtype)


def _matrices_in(x: Variable) -> Variable:
    """`x`, a stack of matrices, in a dtype in which they can be factored."""
    if x.ndim < 2:
        raise ValueError(f"x must have at least 2 axes, got shape {x.shape}")
    return accurate(x)


def _cofactor_cost(f: Function) -> int:
    """The decomposition and the changes of basis, and then a sum over one index for each input."""
    (*batch, n, _), order = f.inputs[0].shape, len(f.inputs)
    summed = math.factorial(order) * order * n**order + n ** (order + 1) if order > 1 else 0
    return math.prod(batch) * (8 * n**3 * order + summed)


@op(axes=rowwise("(n,n)->(n,n)"), cost=_cofactor_cost, precision="high")
def batch_cofactor(*x: Array) -> jax.Array:
    """The cofactors of matrices: first derivatives of determinants; or, along directions, higher derivatives.

    For one matrix it is det(x) inv(x)' where x has an inverse. For x, h1, ..., hk it is the derivative of the cofactor
    matrix of x along all of h1, ..., hk. That form is symmetric in the directions and closed under differentiation: its
    gradients are such forms with another direction, or one more.

    Let x = u s v, let P[i, j, ...] be the product of all singular values except i, j, ..., and take directions in these
    bases. The result is u y v det(u v), or its like with conjugates for complex matrices. Here `sum of y g` is the sum
    over all distinct i, j, ... of P[i, j, ...] times a determinant with rows and columns i, j, ...: its first row is
    from g and each other one from a direction. No division occurs. With k > 0 directions it takes n^(k + 2) operations.

    Args:
        x: (*batch, n, n), the matrices and then any number of directions, all of one shape.
    """
    if len({matrix.shape for matrix in x}) > 1:
        raise ValueError(f"matrices and directions must have the same shape, got {[matrix.shape for matrix in x]}")
    dtype = alike(*[floating(matrix) for matrix in x])[0].dtype
    return lax.convert_element_type(cofactors(*alike(*[square_matrices(matrix) for matrix in x])), dtype)


def cofactors(a: jax.Array, *directions: jax.Array) -> jax.Array:
    """`batch_cofactor` of real or complex matrices."""
    n, order = a.shape[-1], len(directions) + 1
    if order > n:
        return jnp.zeros_like(a)
    u, s, v = jnp.linalg.svd(a, full_matrices=False)
    u, v = u.conj(), v.conj()
    turned = [jnp.swapaxes(u, -1, -2) @ h @ jnp.swapaxes(v, -1, -2) for h in directions]
    diagonal, rest = jnp.zeros_like(a[..., 0]), jnp.zeros_like(a)
    letters = "abcdefghijklmnopqrstuvwxyz"[:order]
    products = _other_products(s, order)
    for columns in itertools.permutations(range(order)):
        terms = [f"...{letters}", *[f"...{letters[i]}{letters[columns[i]]}" for i in range(1, order)]]
        output = "...a" if columns[0] == 0 else f"...a{letters[columns[0]]}"
        sign = math.prod([1 if a < b else -1 for a, b in itertools.combinations(columns, 2)])  # of the permutation
        y = jnp.einsum(f"{','.join(terms)}->{output}", products, *turned) * sign
        diagonal, rest = (diagonal + y, rest) if columns[0] == 0 else (diagonal, rest + y)
    orientation = (jnp.linalg.det(u) * jnp.linalg.det(v)).conj()
    inner = rest + diagonal[..., None] * jnp.eye(n, dtype=a.dtype)
    result: jax.Array = (u @ inner @ v) * orientation[..., None, None]
    return result


def _other_products(s: Any, order: int) -> Any:
    """For each `order` distinct indices, the product of all of `s` except those; 0 where two indices are equal."""
    n = s.shape[-1]
    if order == 1:
        ones = jnp.ones_like(s[..., :1])
        below = jnp.cumprod(jnp.concatenate([ones, s[..., :-1]], -1), -1)
        return below * jnp.cumprod(jnp.concatenate([ones, s[..., :0:-1]], -1), -1)[..., ::-1]
    shape = (n,) * (order + 1)  # the last index runs over the factors
    index = [lax.broadcasted_iota(jnp.int32, shape, axis) for axis in range(order + 1)]
    is_left_out = functools.reduce(operator.or_, [index[i] == index[-1] for i in range(order)])
    factors = jnp.where(is_left_out, 1, s.reshape(*s.shape[:-1], *(1,) * order, n))
    pairs = itertools.combinations(index[:-1], 2)
    same = functools.reduce(operator.or_, [(i == j)[..., 0] for i, j in pairs])
    return jnp.where(same, 0, jnp.prod(factors, axis=-1))


def _exponential_cost(f: Function) -> int:
    (*batch, n, _), order = f.inputs[0].shape, len(f.inputs)
    size: int = n * 2 ** (order - 1)
    return 40 * math.prod(batch) * size**3


@op(axes=rowwise("(n,n)->(n,n)"), cost=_exponential_cost, precision="high")
def batch_expm(*x: Array) -> jax.Array:
    """The exponentials of matrices; or, along directions, their derivatives.

    For one matrix it is `1 + x + x x / 2 + ...`. For x, h1, ..., hk it is the derivative of that along all of h1, ...,
    hk, which is symmetric and linear in them: a block of the exponential of a triangular block matrix of 2^k blocks
    (Mathias 1996). So gradients are such forms of transposed matrices, for defective ones too.

    Args:
        x: (*batch, n, n), the matrices and then any number of directions, all of one shape. Where the sums of
            magnitudes in the columns exceed about 3e5 (float32: 2e5), the result is NaN.
    """
    if len({matrix.shape for matrix in x}) > 1:
        raise ValueError(f"matrices and directions must have the same shape, got {[matrix.shape for matrix in x]}")
    dtype = alike(*[floating(matrix) for matrix in x])[0].dtype
    a, *directions = alike(*[square_matrices(matrix) for matrix in x])
    n, count = a.shape[-1], 2 ** len(directions)
    whole, scale = jnp.einsum("...ab,st->...satb", a, np.eye(count, dtype=a.dtype)), lax.full(a.shape[:-2], 1, a.dtype)
    for i, h in enumerate(directions):
        size = jnp.abs(h).sum(-2).max(-1, initial=0)
        size = jnp.where(size == 0, 1, size)
        step = np.kron(np.kron(np.eye(2**i), [[0, 1], [0, 0]]), np.eye(count // 2 ** (i + 1))).astype(a.dtype)
        whole += jnp.einsum("...ab,st->...satb", h / size[..., None, None], step)
        scale *= size
    y = expm(lax.reshape(whole, (*a.shape[:-2], count * n, count * n)))[..., :n, (count - 1) * n :]
    return lax.convert_element_type(y * scale[..., None, None], dtype)
