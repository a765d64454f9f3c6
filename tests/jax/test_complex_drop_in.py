"""Complex numbers among the arguments and results of what `nngrad.jax` transforms, against JAX."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nngrad.jax as nj
from tests.slow import slow_but

RNG = np.random.default_rng(3)
X = RNG.standard_normal(3)
Z, W, MATRIX = [RNG.standard_normal(shape) + 1j * RNG.standard_normal(shape) for shape in ((3,), (3,), (3, 3))]


def number(z: Any) -> Any:
    """A real number of complex ones."""
    return jnp.sum(jnp.abs(jnp.sin(z) * W) ** 2)


def array(z: Any) -> Any:
    """Complex numbers of complex ones, by a holomorphic function."""
    return jnp.exp(z) * z[0] + MATRIX @ z


def wave(x: Any) -> Any:
    """Complex numbers of real ones."""
    return jnp.exp(1j * x) * x[0]


def pulled(result: tuple[Any, Callable[..., Any]], *cotangents: Any) -> Any:
    """What `vjp` or `linearize` gives."""
    return result[0], result[1](*cotangents)


def of_gradient(nj: Any, function: Callable[..., Any]) -> Callable[[Any], Any]:
    """A real number of a gradient."""
    return lambda z: jnp.sum(jnp.abs(nj.grad(function)(z)) ** 2)


CASES: dict[str, Callable[[Any], Any]] = {
    "grad": lambda nj: nj.grad(number)(Z),
    "value_and_grad, some of a pytree real":
        lambda nj: nj.value_and_grad(lambda p: number(p["z"] * p["x"]))({"z": Z, "x": X}),
    "grad by both": lambda nj: nj.grad(lambda x, z: jnp.real(jnp.sum(x * z**2)), (0, 1))(X, Z),
    "grad of a Python number": lambda nj: nj.grad(lambda z: jnp.abs(z) ** 3)(1 + 2j),
    "grad, holomorphic, has_aux":
        lambda nj: nj.grad(lambda z: (jnp.sum(array(z)), z * 2), holomorphic=True, has_aux=True)(Z),
    "third derivative, holomorphic":
        lambda nj: nj.grad(nj.grad(nj.grad(jnp.sin, holomorphic=True), holomorphic=True), holomorphic=True)(1 + 2j),
    "grad of grad of grad": lambda nj: nj.grad(of_gradient(nj, of_gradient(nj, number)))(Z),
    "jvp": lambda nj: nj.jvp(lambda z, x: (array(z) * x, x), (Z, X), (W, X)),
    "jvp of grad": lambda nj: nj.jvp(nj.grad(number), (Z,), (W,)),
    "vjp": lambda nj: pulled(nj.vjp(lambda z, x: (array(z) * x, jnp.abs(z)), Z, X), (W, X)),
    "linearize": lambda nj: pulled(nj.linearize(array, Z), W),
    "jacobian, holomorphic": lambda nj: (nj.jacfwd if nj is jax else nj.jacobian)(array, holomorphic=True)(Z),
    "jacobian to complex, by several":
        lambda nj: (nj.jacfwd if nj is jax else nj.jacobian)(lambda x, y: (wave(x) * y, x), (0, 1))(X, X + 1),
    "jacobian from complex": lambda nj: (nj.jacrev if nj is jax else nj.jacobian)(lambda z: jnp.abs(array(z)))(Z),
    "hessian, holomorphic": lambda nj: nj.hessian(lambda z: jnp.sum(array(z) * z), holomorphic=True)(Z),
    "under vmap": lambda nj: jax.vmap(nj.grad(number))(MATRIX),
    "under vmap, closing over complex": lambda nj: jax.vmap(lambda w: nj.grad(lambda x: number(x * w))(X))(MATRIX),
    "under jax.grad, closing over complex":
        lambda nj: jax.grad(lambda w: jnp.sum(nj.grad(lambda x: number(x * w))(X) ** 2))(W),
    "loop": lambda nj: nj.grad(lambda z: jnp.abs(jax.lax.scan(lambda c, t: (c * t + jnp.sin(c), c), z[0], z)[0]))(Z),
}  # fmt: skip


@pytest.mark.parametrize("case", slow_but([*CASES][::4], CASES))
def test_as_jax(case: str) -> None:
    with jax.enable_x64(True):
        ours, theirs = CASES[case](nj), CASES[case](jax)
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)


def test_single_precision() -> None:
    ours, theirs = [m.grad(lambda z: jnp.sum(jnp.abs(jnp.sin(z)) ** 2))(Z.astype(np.complex64)) for m in (nj, jax)]
    assert ours.dtype == theirs.dtype == np.complex64
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)


@pytest.mark.parametrize(("call", "message"), [
    (lambda: nj.grad(number, holomorphic=True)(X), "with holomorphic=True, arguments .* must be complex, got float64"),
    (lambda: nj.grad(number, holomorphic=True)(Z), "with holomorphic=True, results must be complex"),
    (lambda: nj.grad(lambda z: jnp.sum(z))(Z), "fun must return a floating scalar"),
    (lambda: nj.jacobian(array)(Z), "for a holomorphic fun pass holomorphic=True"),
    (lambda: nj.hessian(number)(Z), "for a holomorphic fun pass holomorphic=True"),
    (lambda: nj.jvp(array, (Z,), (X,)), r"leaf 0 of the tangents must be complex128\[3\]"),
])  # fmt: skip
def test_refused_as_by_jax(call: Callable[[], Any], message: str) -> None:
    with jax.enable_x64(True), pytest.raises(TypeError, match=message):
        call()


def test_cotangents_are_complex() -> None:
    with jax.enable_x64(True), pytest.raises(ValueError, match=r"leaf 0 of the cotangents must be complex128\[3\]"):
        nj.vjp(array, Z)[1](X)


def matrix(x: Any) -> Any:
    """A complex matrix of real numbers."""
    return MATRIX * x[0] + jnp.sin(MATRIX.T * x[1]) + 1j * x[2] * jnp.eye(3)


def of_slogdet(x: Any) -> Any:
    sign, size = jnp.linalg.slogdet(matrix(x))
    return size + 2 * jnp.real(sign) - jnp.angle(sign)


def triangular(x: Any, **how: Any) -> Any:
    right = matrix(x[::-1])[:2] if not how["left_side"] else matrix(x[::-1])[:, :2]
    return jnp.sum(jnp.abs(jax.lax.linalg.triangular_solve(matrix(x), right, **how)) ** 2)


@pytest.mark.parametrize("function", [
    of_slogdet,
    lambda x: jnp.sum(jnp.abs(jnp.linalg.inv(matrix(x)) - MATRIX) ** 2),
    lambda x: jnp.sum(jnp.abs(jnp.linalg.solve(matrix(x), x)) ** 2),
    lambda x: jnp.linalg.slogdet(jnp.exp(1j * jnp.outer(x, x) @ MATRIX.real))[1],
    functools.partial(triangular, left_side=True, transpose_a=True, conjugate_a=True, unit_diagonal=True),
    functools.partial(triangular, left_side=False, lower=True, transpose_a=True),
])  # fmt: skip
def test_functions_of_complex_matrices_are_opened(function: Callable[[Any], Any]) -> None:
    ours = nj.hessian(function)
    with jax.enable_x64(True):
        found, reference = ours(X), jax.jit(jax.hessian(function))(X)
    np.testing.assert_allclose(found, reference, rtol=1e-9, atol=1e-11 * np.abs(reference).max())
    assert "opaque" not in str(ours.report())


def test_a_real_result_beside_complex_ones_may_stay_opaque() -> None:
    @jax.custom_jvp
    def both(z: Any) -> Any:
        return z**2, jnp.abs(z) ** 2

    @both.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        (z,), (t,) = primals, tangents
        return both(z), (2 * z * t, 2 * jnp.real(jnp.conj(z) * t))

    for function in (lambda x: both(jnp.sum(x * Z))[1], lambda x: sum(map(jnp.real, both(jnp.sum(x * Z))))):
        with jax.enable_x64(True):
            found, reference = nj.hessian(function)(X), jax.hessian(function)(X)
        np.testing.assert_allclose(found, reference, rtol=1e-12)


def test_determinants_of_complex_matrices_have_the_derivatives_of_polynomials() -> None:
    """They are finite and right for singular matrices too: det(a + t b) by its values at roots of unity."""
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 4, 4, 4)) + 1j * rng.normal(size=(2, 4, 4, 4))
    for rank in range(1, 4):
        a[rank] = a[rank, np.arange(4) % rank]
    weights = rng.normal(size=4) + 1j * rng.normal(size=4)

    def along(t: Any) -> Any:
        return jnp.real(jnp.linalg.det(a + t * b) @ weights)

    roots = np.exp(2j * np.pi * np.arange(8) / 8)
    coefficients = np.fft.fft([np.linalg.det(a + t * b) @ weights for t in roots])[:4] / 8
    first = nj.grad(along)
    third = nj.grad(nj.grad(first))
    with jax.enable_x64(True):
        found = along(0.0), first(0.0), nj.grad(first)(0.0), third(0.0)
    np.testing.assert_allclose(found, coefficients.real * [1, 1, 2, 6], rtol=1e-10, atol=1e-11)
    assert "opaque" not in str(third.report())


def test_a_complex_laplacian_solves_as_often_as_a_real_one() -> None:
    def wave_function(x: Any) -> Any:
        sign, size = jnp.linalg.slogdet(jnp.exp(1j * jnp.outer(x, x + 1)) + jnp.eye(3, dtype="complex64"))
        return size + 1j * jnp.angle(sign)

    text = jax.jit(nj.laplacian(wave_function)).lower(jnp.float32(X)).compile().as_text() or ""
    assert text.count('custom_call_target="lapack_ctrsm') == 2


@pytest.mark.parametrize("is_real", [True, False])
def test_second_derivatives_of_eigenvalues_of_general_matrices(is_real: bool) -> None:
    """The sum of their cubes is a trace, and the largest absolute value no polynomial; JAX has first derivatives."""
    def of(x: Any) -> Any:
        return jnp.real(matrix(x)) if is_real else matrix(x)

    def trace(x: Any) -> Any:
        return jnp.real(jnp.trace(of(x) @ of(x) @ of(x)) * (1 + 1j))

    def cubes(x: Any) -> Any:
        return jnp.real(jnp.sum(jnp.linalg.eigvals(of(x)) ** 3) * (1 + 1j))

    def largest(x: Any) -> Any:
        return jnp.max(jnp.abs(jnp.linalg.eigvals(of(x))))

    with jax.enable_x64(True):
        found, reference = nj.hessian(cubes)(X), jax.jit(jax.hessian(trace))(X)
        second, slope = nj.hessian(largest)(X), jax.jit(jax.grad(largest))
        moved = [(slope(X + h) - slope(X - h)) / 2e-5 for h in 1e-5 * np.eye(3)]
    np.testing.assert_allclose(found, reference, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(second, moved, rtol=1e-6, atol=1e-6)
