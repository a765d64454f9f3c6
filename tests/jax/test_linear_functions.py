"""What `nj.vjp`, `nj.linearize` and `nj.hessian` return, and what they take, as in JAX."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nngrad.jax as nj
from tests.slow import slow_but_every

X = np.linspace(0.2, 0.9, 3)
NONE = np.zeros((), jax.dtypes.float0)


@pytest.fixture(autouse=True)
def _in_64_bits() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def curve(x: Any) -> Any:
    return jnp.sin(x) * x**2


def of_parameters(p: Any) -> Any:
    return {"y": p["a"] ** 2 * p["b"], "z": (jnp.prod(p["a"]), p["b"])}


PARAMETERS = {"a": X, "b": 2.0}

AS_IN_JAX: dict[str, Callable[[Any], Any]] = {
    "vjp leaves jit": lambda m: jax.jit(lambda x: m.vjp(curve, x))(X)[1](X),
    "vjp is given to jit": lambda m: jax.jit(lambda pull, y: pull(y))(m.vjp(curve, X)[1], X),
    "vjp leaves jit with what it closes over": lambda m: jax.jit(lambda x: m.vjp(lambda y: curve(y) * x, x))(X)[1](X),
    "vjp leaves vmap": lambda m: jax.vmap(lambda pull: pull(1.0))(jax.vmap(lambda x: m.vjp(curve, x)[1])(X)),
    "vjp of rows": lambda m: jax.vmap(m.vjp(curve, X)[1])(np.eye(3)),
    "vjp of a pytree": lambda m: m.vjp(of_parameters, PARAMETERS)[1]({"y": X, "z": (3.0, 5.0)}),
    "linearize leaves jit": lambda m: jax.jit(lambda x: m.linearize(lambda y: curve(y) * x, x))(X)[1](X),
    "linearize is given to jit": lambda m: jax.jit(lambda along, t: along(t))(m.linearize(curve, X)[1], X),
    "gradient through vjp": lambda m: m.grad(lambda x: jnp.sum(m.vjp(curve, x)[1](x)[0]))(X),
    "gradient through linearize": lambda m: jax.grad(lambda x: jnp.sum(m.linearize(curve, x)[1](x)))(X),
    "hessian of an array": lambda m: m.hessian(curve)(X),
    "hessian of a pytree": lambda m: m.hessian(of_parameters)(PARAMETERS),
    "hessian of arrays by several": lambda m: m.hessian(lambda a, b: (a * b**3, b), (1, 0))(X, 2.0),
    "hessian of arrays under vmap": lambda m: jax.vmap(m.hessian(curve))(np.stack([X, 2 * X])),
    "hessian of arrays with auxiliary": lambda m: m.hessian(lambda x: (curve(x), {"x": x}), has_aux=True)(X),
    "jacrev": lambda m: m.jacrev(of_parameters)(PARAMETERS),
    "jacfwd": lambda m: m.jacfwd(lambda x: (curve(x), {"x": x}), has_aux=True)(X),
    "an index of NumPy's": lambda m: m.grad(lambda a, b: a * b**2, argnums=np.int64(-1))(2.0, 3.0),
}


@pytest.mark.parametrize("name", slow_but_every(3, AS_IN_JAX))
def test_as_in_jax(name: str) -> None:
    found, wanted = [AS_IN_JAX[name](module) for module in (nj, jax)]
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12), found, wanted)
    assert [a.dtype for a in jax.tree.leaves(found)] == [a.dtype for a in jax.tree.leaves(wanted)]


def drawing(x: Any, key: Any) -> Any:
    key, now = jax.random.split(key)
    return jnp.sum(x * jax.random.normal(now, x.shape)), {"key": key, "wave": jnp.exp(1j * x)}


@pytest.mark.parametrize("around", [lambda f: f, jax.jit, lambda f: jax.vmap(f, (0, None))], ids=["", "jit", "vmap"])
def test_keys_and_complex_numbers_are_results_beside(around: Callable[..., Any]) -> None:
    x, key = np.stack([X, 2 * X]), jax.random.key(3)
    for name in ("grad", "value_and_grad"):
        found, wanted = [around(getattr(m, name)(drawing, has_aux=True))(x, key) for m in (nj, jax)]
        assert jax.tree.structure(found) == jax.tree.structure(wanted)
        for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
            assert a.dtype == b.dtype
            plain = [jax.random.key_data(v) if jnp.issubdtype(v.dtype, jax.dtypes.prng_key) else v for v in (a, b)]
            np.testing.assert_allclose(*plain, rtol=1e-12)
    y, moved = nj.jvp(lambda x: (jnp.exp(1j * x), key), (X,), (X,))
    np.testing.assert_allclose(moved[0], 1j * X * np.exp(1j * X), rtol=1e-12)
    assert moved[1].dtype == jax.dtypes.float0 and jnp.issubdtype(y[1].dtype, jax.dtypes.prng_key)


def test_whole_numbers_have_float0() -> None:
    y, pull = nj.vjp(lambda x, n: (x * n, n), X, 3)
    (gx, gn) = pull((X, NONE))
    np.testing.assert_allclose(gx, 3 * X)
    assert gn.dtype == jax.dtypes.float0 and gn.shape == ()
    (moved, none) = nj.linearize(lambda x, n: (x * n, n), X, 3)[1](X, NONE)
    np.testing.assert_allclose(moved, 3 * X)
    assert none.dtype == jax.dtypes.float0
    y, moved = nj.jvp(lambda n: n * X, (3,), (NONE,))
    np.testing.assert_array_equal(y, 3 * X)
    np.testing.assert_array_equal(moved, 0 * X)
    np.testing.assert_array_equal(nj.vjp(lambda x: jnp.sum(x > 0), X)[1](NONE)[0], 0 * X)


@pytest.mark.parametrize(("wrong", "error", "message"), [
    (lambda: nj.jvp(lambda x, n: x * n, (X, 3), (X, 1)), TypeError, r"jvp: leaf 1 of the tangents must be float0\[\]"),
    (lambda: nj.vjp(jnp.sin, X)[1](X, X), TypeError, r"vjp: expected 1 argument"),
    (lambda: nj.linearize(jnp.sin, X)[1](X[:1]), ValueError, r"linearize: leaf 0 of the tangents must be float64\[3\]"),
])  # fmt: skip
def test_vectors_that_do_not_fit_are_refused(wrong: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        wrong()
