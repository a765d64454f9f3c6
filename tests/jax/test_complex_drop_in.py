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


@pytest.mark.parametrize("case", slow_but([*CASES][::2], CASES))
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


@pytest.mark.parametrize("function", [of_slogdet, functools.partial(triangular, left_side=True, transpose_a=True)])
def test_functions_of_complex_matrices(function: Callable[[Any], Any]) -> None:
    ours = nj.hessian(function)
    with jax.enable_x64(True):
        found, reference = ours(X), jax.jit(jax.hessian(function))(X)
    np.testing.assert_allclose(found, reference, rtol=1e-9, atol=1e-11 * np.abs(reference).max())
