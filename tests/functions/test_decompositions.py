"""Matrices that are singular or have equal eigenvalues: what is smooth there has its derivatives."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

import nngrad as nn
import nngrad.functions as F
import nngrad.jax as nj
from tests.oracle import by_jax
from tests.together import Test, at_once

from_ = nn.Variable.from_numpy_array
TURN = np.linalg.qr(np.random.default_rng(0).standard_normal((4, 4)))[0]
TWICE = TURN @ np.diag([1.0, 1.0, 2.0, 3.0]) @ TURN.T
DIAGONAL = np.diag([2.0, 2.0, 2.0, 5.0])
SHEAR = np.random.default_rng(1).standard_normal((4, 4))


def gradients(f: Callable[[nn.Variable], nn.Variable], x: Any, orders: int = 1) -> list[nn.Variable]:
    """The gradient, the gradient of its product with fixed numbers, and so on."""
    leaf = from_(x)
    found, y = [], f(leaf)
    for _ in range(orders):
        found += nn.grad([y], [leaf])
        y = F.sum(found[-1] * SHEAR[: x.shape[0], : x.shape[1]])
    return found


def expected(f: Callable[[Any], Any], x: Any, orders: int) -> list[Any]:
    found, h = [], f
    for _ in range(orders):
        found.append(g := jax.grad(h))
        h = lambda x, g=g: jnp.sum(g(x) * SHEAR[: x.shape[0], : x.shape[1]])  # noqa: E731
    return by_jax(lambda x: [g(x) for g in found], x)


def leibniz(x: Any) -> Any:
    """The determinant as a polynomial: a sum over permutations."""
    n = x.shape[0]
    ways = np.array(list(itertools.permutations(range(n))))
    signs = [(-1) ** sum(a > b for a, b in itertools.combinations(way, 2)) for way in ways]
    return jnp.sum(jnp.array(signs) * functools.reduce(operator.mul, [x[i, ways[:, i]] for i in range(n)]))


@at_once
@pytest.mark.parametrize("n, rank", [(3, 0), (3, 1), (4, 1)])
def test_determinants_of_singular_matrices_are_polynomials(n: int, rank: int) -> Test:
    x = SHEAR[:n, :rank] @ SHEAR[:rank, :n]
    for g, reference in zip((yield gradients(F.batch_det, x, 3)), expected(leibniz, x, 3), strict=True):
        np.testing.assert_allclose(g, reference, rtol=1e-9, atol=1e-12)


@at_once
@pytest.mark.parametrize("x", [TWICE, DIAGONAL, np.eye(4), np.zeros((4, 4))])
def test_symmetric_functions_of_equal_eigenvalues_have_their_gradient(x: Any) -> Test:
    squares, singular, total = yield (
        *gradients(lambda x: F.sum(F.batch_eigh(x)[0] ** 2), x),
        *gradients(lambda x: F.sum(F.batch_svd(x)[1] ** 2), x),
        *gradients(lambda x: F.sum(F.exp(F.batch_eigh(x)[0])), x),
    )
    values, vectors = np.linalg.eigh(x)
    np.testing.assert_allclose(squares, 2 * x, atol=1e-12)
    np.testing.assert_allclose(singular, 2 * x, atol=1e-12)
    np.testing.assert_allclose(total, vectors @ np.diag(np.exp(values)) @ vectors.T, rtol=1e-12, atol=1e-12)


@at_once
def test_projections_on_equal_eigenvalues_have_their_gradient() -> Test:
    """The projection is 1 - (x - 1) (5 x - 13) / 2 at eigenvalues 1, 1, 2, 3 ... and has the derivative of a contour
    integral: of each pair of a vector inside and one outside, over the difference of their eigenvalues."""
    def of_first_two(x: nn.Variable) -> nn.Variable:
        v = F.batch_eigh(x)[1][:, :2]
        return F.sum(v @ F.transpose(v) * SHEAR)

    (g,) = yield gradients(of_first_two, TWICE)
    w, v = np.linalg.eigh(TWICE)
    inner = v.T @ (SHEAR + SHEAR.T) @ v / 2
    weights = [[1 / (w[i] - w[j]) if (i < 2) != (j < 2) else 0 for j in range(4)] for i in range(4)]
    signs = np.where(np.arange(4) < 2, 1, -1)[:, None]
    np.testing.assert_allclose(g, v @ (inner * weights * signs) @ v.T, atol=1e-10)


def cube(x: Any, name: str) -> Any:
    """`x x' x`, as a function of values and vectors."""
    if name == "batch_eigh":
        w, v = F.batch_eigh(x)
        return F.einsum(v, w**3, v, equation="ik,k,jk->ij")
    u, s, vh = F.batch_svd(x)
    return F.batch_matmul(u * F.reshape(s**3, (1, -1)), vh)


RANK_1, EQUAL_AND_0 = np.outer([1.0, 2.0, 3.0, 4.0], [1.0, -1.0, 0.5]), np.diag([2.0, 2.0, 0.0, 0.0])


@at_once
@pytest.mark.parametrize("name, x", [
    ("batch_eigh", TWICE), ("batch_eigh", EQUAL_AND_0), ("batch_svd", EQUAL_AND_0), ("batch_svd", RANK_1),
    ("batch_svd", RANK_1.T),
])  # fmt: skip
def test_functions_of_matrices_at_equal_values_to_second_order_in_both_modes(name: str, x: Any) -> Test:
    own = SHEAR[: x.shape[0], : x.shape[1]]
    symmetric = (lambda x: (x + x.T) / 2) if name == "batch_eigh" else lambda x: x

    def plain(x: Any) -> Any:
        x = symmetric(x)
        return jnp.sum(own[::-1] * (x @ x.T @ x)) + jnp.sum((x @ x.T @ x) ** 2) / 2

    def ours(x: nn.Variable) -> nn.Variable:
        y = cube(x, name)
        return F.sum(own[::-1] * y) + F.sum(y**2) / 2

    first, second = expected(plain, x, 2)
    leaf = from_(x)
    (slope,) = nn.jvp(ours(leaf), leaf, own)
    *found, along, twice = yield *gradients(ours, x, 2), slope, *nn.jvp(slope, leaf, own)
    np.testing.assert_allclose(found, [first, second], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose([along, twice], [np.sum(first * own), np.sum(second * own)], rtol=1e-9)


@at_once
def test_the_hessian_of_what_does_not_depend_on_vectors_of_equal_eigenvalues() -> Test:
    """The eigenvector of 5 beside three equal eigenvalues: that of a projection, known from a contour integral."""
    x = from_(DIAGONAL)
    (second,) = yield (nn.hessian(F.sum(F.batch_eigh(x)[1][:, 3]) ** 2, x, batched=False),)
    ones, e = np.ones(4), np.eye(4)
    symmetric = [(np.outer(e[i], e[j]) + np.outer(e[j], e[i])) / 2 for i in range(4) for j in range(4)]
    p, r = np.outer(e[3], e[3]), np.diag([1, 1, 1, 0]) / 3  # the projection, and the reduced resolvent
    moved = lambda a, b: (  # noqa: E731
        p @ a @ r @ b @ r + r @ a @ p @ b @ r + r @ a @ r @ b @ p - p @ a @ p @ b @ r @ r - p @ a @ r @ r @ b @ p
        - r @ r @ a @ p @ b @ p
    )  # fmt: skip
    reference = [[ones @ (moved(a, b) + moved(b, a)) @ ones for b in symmetric] for a in symmetric]
    np.testing.assert_allclose(second.reshape(16, 16), reference, atol=1e-12)


@at_once
@pytest.mark.parametrize("scale", [1e-20, 1e20])
def test_second_derivatives_by_the_svd_do_not_depend_on_scale(scale: float) -> Test:
    def curvature(x: Any, dtype: str) -> nn.Variable:
        leaf = from_(x, dtype=dtype)
        return nn.hessian(F.sum(F.batch_svd(leaf)[1]), leaf, batched=False)

    x = SHEAR[:3, :2]
    at_one, scaled = yield curvature(x, "float64"), curvature(x * scale, "float32")
    np.testing.assert_allclose(scaled.astype(np.float64) * scale, at_one, atol=1e-5)


GAPS = np.array([0, 1e-14, 1e-12, 1e-9, 1e-7, 1e-6, 1e-5, 1e-4, 1e-2])


def with_gaps(turn: Any) -> Any:
    """Matrices with the eigenvalues 1, 1 + gap, 2 and 3."""
    return np.stack([(turn * [1, 1 + gap, 2, 3]) @ turn.conj().T for gap in GAPS])


def slope_of_root(x: Any, weights: Any) -> Any:
    """The gradient of `Re trace(weights^H sqrt(x))`: g with sqrt(x) g + g sqrt(x) = weights, if these are Hermitian."""
    roots = [scipy.linalg.sqrtm(each) for each in x]
    return np.stack([scipy.linalg.solve_sylvester(r, r, (weights + weights.conj().T) / 2) for r in roots])


@at_once
@pytest.mark.parametrize("dtype, rtol", [("float64", 1e-9), ("float32", 5e-5)])
def test_first_gradients_near_equal_values_lose_no_digits(dtype: str, rtol: float) -> Test:
    x, c = with_gaps(TURN), SHEAR
    leaf = from_(x, dtype=dtype)
    w, v = F.batch_eigh(leaf)
    root = F.matmul(v * F.reshape(F.sqrt(w), shape=(len(GAPS), 1, 4)), F.swapaxes(v, -1, -2))
    turned = from_(x @ TURN, dtype=dtype)
    u, s, vh = F.batch_svd(turned)
    cube = F.matmul(u * F.reshape(s**3, shape=(len(GAPS), 1, 4)), vh)
    of_root, of_cube = yield *nn.grad(F.sum(root * c), leaf), *nn.grad(F.sum(cube * c), turned)
    np.testing.assert_allclose(of_root, slope_of_root(x, c), rtol=rtol, atol=rtol)
    y, t = x @ TURN, (0, 2, 1)
    reference = c @ y.transpose(t) @ y + y @ c.T @ y + y @ y.transpose(t) @ c
    np.testing.assert_allclose(of_cube, reference, rtol=rtol, atol=40 * rtol)


@pytest.mark.parametrize("dtype, rtol", [("float64", 1e-9), ("float32", 5e-5)])
def test_hermitian_matrices_near_equal_eigenvalues(dtype: str, rtol: float) -> None:
    turn = np.linalg.qr(SHEAR + 1j * SHEAR[::-1].T)[0]
    x, c = with_gaps(turn), SHEAR + 1j * np.roll(SHEAR, 1)

    def f(real: Any, imaginary: Any) -> Any:
        w, v = jnp.linalg.eigh(jax.lax.complex(real, imaginary))
        return jnp.sum(jnp.real(c.conj().astype(v.dtype) * ((v * jnp.sqrt(w)[:, None]) @ v.conj().swapaxes(-1, -2))))

    with jax.enable_x64(True):
        real, imaginary = nj.grad(f, (0, 1))(jnp.asarray(x.real, dtype), jnp.asarray(x.imag, dtype))
    np.testing.assert_allclose(np.asarray(real) + 1j * np.asarray(imaginary), slope_of_root(x, c), rtol=rtol, atol=rtol)


@at_once
def test_what_has_no_derivative_at_equal_values_is_nan_and_not_wrong() -> Test:
    x = from_(TWICE)
    v = F.batch_eigh(x)[1]
    third = gradients(lambda x: F.sum(cube(x, "batch_eigh") * SHEAR), TWICE, 3)[-1]
    largest = gradients(lambda x: F.batch_eigh(x)[0][1], TWICE, 2)[-1]
    nuclear = gradients(lambda x: F.sum(F.batch_svd(x)[1]), RANK_1, 2)[-1]
    found = yield third, largest, nuclear, *nn.grad(v[0, 0], x), *nn.jvp(v[0, 0], x, SHEAR)
    for y in found:
        assert np.isnan(y).all()


@at_once
def test_equal_values_in_bodies_of_loops() -> Test:
    """What a body returns in full is known, and what is made of its values and vectors outside is not."""
    xs = from_(TWICE[None])
    total = F.scan(lambda c, x: (c + F.sum(cube(x, "batch_eigh") * SHEAR), None), np.zeros(()), xs)[0]
    (ws, vs) = F.scan(lambda c, x: (c, F.batch_eigh(x)), np.zeros(()), xs)[1]
    outside = F.sum(F.einsum(vs[0], ws[0] ** 3, vs[0], equation="ik,k,jk->ij") * SHEAR)
    inside, unknown = yield *nn.grad(total, xs), *nn.grad(outside, xs)
    symmetric = (SHEAR + SHEAR.T) / 2
    powers = [np.linalg.matrix_power(TWICE, i) for i in range(3)]
    np.testing.assert_allclose(inside[0], sum([powers[i] @ symmetric @ powers[2 - i] for i in range(3)]), rtol=1e-9)
    assert np.isnan(unknown).all()


@at_once
@pytest.mark.parametrize("shape", [(0, 0), (2, 0, 0), (0, 3, 3)])
def test_derivatives_at_empty_matrices_are_empty(shape: tuple[int, ...]) -> Test:
    x = from_(np.zeros(shape))
    ys = [F.sum(F.sin(y)) for name in ("batch_eigh", "batch_svd") for y in getattr(F, name)(x)]
    for found in (yield [nn.grad(y, x)[0] for y in ys]):
        assert found.shape == shape


@at_once
def test_pseudoinverses_where_the_rank_is_less_than_both_sizes() -> Test:
    rng = np.random.default_rng(11)
    left, right = rng.standard_normal((4, 2)), rng.standard_normal((2, 3))
    a = nn.Variable.from_numpy_array(left, need_grad=True)
    ours = nn.grad(F.sum(F.batch_pinv(F.matmul(a, right)) ** 3), a)[0]
    first, second = yield ours, *nn.grad(F.sum(ours**2), a)
    theirs = jax.grad(lambda a: jnp.sum((jnp.linalg.pinv(right) @ jnp.linalg.inv(a.T @ a) @ a.T) ** 3))
    references = by_jax(lambda a: [theirs(a), jax.grad(lambda a: jnp.sum(theirs(a) ** 2))(a)], left)
    np.testing.assert_allclose(first, references[0], rtol=1e-9)
    np.testing.assert_allclose(second, references[1], rtol=1e-8)


@at_once
def test_rows_of_minus_infinity() -> Test:
    x = from_([[-np.inf, -np.inf], [0.0, -np.inf], [1.0, 1.0]])
    y = F.logsumexp(x, axis=1)
    (g,) = nn.grad([y], [x])
    found, first, second = yield y, g, *nn.grad([F.sum(g * np.array([1.0, 2.0]))], [x])
    np.testing.assert_allclose(found, [-np.inf, 0, 1 + np.log(2)], rtol=1e-6)
    np.testing.assert_allclose(first, [[0, 0], [1, 0], [0.5, 0.5]])
    np.testing.assert_allclose(second, [[0, 0], [0, 0], [-0.25, 0.25]], atol=1e-7)


@at_once
def test_the_angle_of_nothing_has_no_slope() -> Test:
    x0, x1 = from_(np.array([0.0, 1.0])), from_(np.array([0.0, 1.0]))
    first = nn.grad([F.atan2(x0, x1)], [x0, x1])
    found = yield *first, *nn.grad([F.sum(first[0])], [x0, x1])
    np.testing.assert_allclose(found, [[0, 0.5], [0, -0.5], [0, -0.5], [0, 0]], atol=1e-12)


@at_once
def test_the_norm_of_nothing_has_no_slope_and_no_curvature_that_is_a_number() -> Test:
    x = from_(np.zeros(3))
    (g,) = nn.grad([F.norm(x)], [x])
    slope, curvature = yield g, *nn.grad([F.sum(g * np.arange(3.0))], [x])
    assert not np.any(slope) and np.all(np.isnan(curvature))


def test_complex_numbers_are_said_to_be_none_of_its_business() -> None:
    for build in (lambda: from_(np.ones(2) * 1j), lambda: F.exp(np.ones(2) * 1j), lambda: nn.Variable((2,)) * 1j,
                  lambda: F.cast(from_([1.0]), "complex64")):
        with pytest.raises(TypeError, match=r"real and x\.imag as two arrays|real, integer or bool dtype"):
            build()


@pytest.mark.parametrize("n", [2, 4])
@at_once
def test_a_matrix_with_a_nan_gives_nan(n: int) -> Test:
    """On every platform: CUDA's elimination takes a NaN for a 0."""
    x = np.eye(n)
    x[0, 0] = np.nan
    a, b = from_(x), from_(np.ones((n, 1)))
    solved = F.batch_solve(a, b)
    found = [F.batch_det(a), F.batch_logdet(a), F.batch_inv(a), solved, *nn.grad(F.sum(solved), [a, b])]
    for y in (yield found):
        assert np.isnan(y).all()


@at_once
def test_exponentials_at_0_of_defective_matrices_and_along_long_directions() -> Test:
    """Second derivatives of traces: 0 has `tr(h h)`, a nilpotent matrix the terms of the power series."""
    weights = from_(np.array([[1.0, 2.0], [3.0, 4e9]]))
    zero, nilpotent = from_(np.zeros((2, 2))), from_(np.array([[0.0, 1.0], [0.0, 0.0]]))
    (g,) = nn.grad([F.sum(F.batch_expm(zero) * weights)], [zero])
    (gg,) = nn.grad([F.sum(g * g)], [zero])
    (h,) = nn.grad([F.sum(F.batch_expm(nilpotent) * from_(np.eye(2)))], [nilpotent])
    got = yield F.batch_expm(zero), g, gg, F.batch_expm(nilpotent), h, F.batch_expm(from_(np.zeros((3, 0, 0))))
    a = weights.d  # g = a + (x' a + a x') / 2 + ..., so g * g has the gradient a a' + a' a
    for one, other in zip(got, [np.eye(2), a, a @ a.T + a.T @ a, np.eye(2) + nilpotent.d,
                                (np.eye(2) + nilpotent.d).T, np.zeros((3, 0, 0))], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)
