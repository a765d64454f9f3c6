"""JAX's primitives, as each of its versions has them: which there are, and what becomes of them."""

from __future__ import annotations

import contextlib
import functools
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.scipy import special

import nngrad as nn
import nngrad.functions as F
from nngrad.extend import Variable
from tests.slow import slow_but_every

from . import primitives as installed
from .table import primitives

TABLE = {p.name: p for p in primitives()}
WRITE = "python -m tests.opening.primitives --write"


def test_each_primitive_is_known() -> None:
    run = subprocess.run(
        [sys.executable, "-m", installed.__name__], capture_output=True, text=True, timeout=300, check=True
    )
    names = set(run.stdout.split())
    unknown = sorted(names - TABLE.keys())
    assert not unknown, f"JAX {jax.__version__} has primitives that nobody has looked at: {unknown}; run `{WRITE}`"
    listed = {name for name, p in TABLE.items() if installed.version() in p.versions}
    if any([installed.version() in p.versions for p in TABLE.values()]):
        assert names == listed, f"run `{WRITE}`"


# ---------------------------------------------------------------- what is refused, opaque, opened


def refusal(function: Callable[..., Any]) -> str:
    with pytest.raises(TypeError) as caught:
        nn.from_jax(function)(Variable.from_numpy_array(np.ones(2, np.float32)))
    return str(caught.value)


def with_a_token(x: Any) -> Any:
    lax.create_token()
    return x


def with_a_reference(x: Any) -> Any:
    held = jax.new_ref(jnp.zeros(2))
    held[...] = 2 * x
    return held[...]


def test_what_is_no_array_is_refused() -> None:
    assert "from_jax(with_a_token): create_token works on" in refusal(with_a_token)
    if hasattr(jax, "new_ref"):
        message = refusal(with_a_reference)
        assert "from_jax(with_a_reference): " in message and "F.jax_function" in message
        y = F.jax_function(with_a_reference)(Variable.from_numpy_array(np.ones(2, np.float32)))
        np.testing.assert_array_equal(y.d, [2, 2])


def opened(function: Callable[..., Any], x: np.ndarray, orders: int = 2) -> Any:
    """The report of a function, after its value and derivatives along ones are those that JAX has."""

    def pushed(f: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x: jax.jvp(f, (x,), (jnp.ones_like(x),))[1]

    with jax.enable_x64(True):
        v = Variable.from_numpy_array(x, need_grad=True)
        g = nn.from_jax(function)
        ours, theirs = g(v), function
        np.testing.assert_allclose(ours.d, theirs(x), rtol=1e-13, atol=1e-14)
        for _ in range(orders):
            (ours,) = nn.grad([F.sum(ours)], [v])
            theirs = pushed(theirs)
            np.testing.assert_allclose(ours.d, theirs(x), rtol=1e-10, atol=1e-11)
    return g.report()


X = np.linspace(0.15, 0.85, 4)
one_minus_square = getattr(lax, "one_minus_square", lambda x: 1 - x * x)
NEWEST = {
    "log2": jnp.log2,
    "one_minus_square": one_minus_square,
    "polynomial": lambda x: jnp.polyval(jnp.array([0.3, -1.0, 2.0, 0.7]), x),
    "polynomial in both": lambda x: jnp.polyval(jnp.stack([x, x**2, jnp.ones(4), x]), x),
    "sinc": jnp.sinc,
    "derivative of tanh": jax.vmap(jax.grad(jnp.tanh)),
    "derivative of asin": jax.vmap(jax.grad(jnp.arcsin)),
    "derivative of acos": jax.vmap(jax.grad(jnp.arccos)),
    "derivative of atanh": jax.vmap(jax.grad(jnp.arctanh)),
    "expn": functools.partial(special.expn, 2),
    "log_ndtr": special.log_ndtr,
    "complex": lambda x: jnp.real(one_minus_square(x + 1j) * jnp.log2(x + 2j)),
}


@pytest.mark.parametrize("name", slow_but_every(4, NEWEST))
def test_new_primitives_are_opened(name: str) -> None:
    report = opened(NEWEST[name], X, orders=1 if name == "expn" else 3)
    assert not report.opaque, str(report)


@pytest.mark.skipif(jax.__version_info__ < (0, 10), reason="products into another dtype are newer")
def test_products_into_another_dtype_are_not_rounded_before() -> None:
    x = np.linspace(0.1, 0.9, 5).astype(np.float16)

    def product(x: Any) -> Any:
        return lax.mul(x, x, out_dtype=np.float32)

    y = nn.from_jax(product)(Variable.from_numpy_array(x))
    assert y.dtype == np.float32
    np.testing.assert_array_equal(y.d, x.astype(np.float32) ** 2)


def test_results_without_derivatives_are_opened() -> None:
    """Searching and finding are objects in the newest JAX too: what they compute stands for them."""
    x = Variable.from_numpy_array(np.array([0.3, 0.0, 0.6], np.float32), need_grad=True)
    found = nn.from_jax(lambda x: x * jnp.searchsorted(jnp.array([0.1, 0.5]), x) + jnp.nonzero(x, size=3)[0])
    y = found(x)
    np.testing.assert_array_equal(y.d, np.array([0.3, 2.0, 1.2], np.float32))
    np.testing.assert_array_equal(nn.grad([F.sum(y)], [x])[0].d, [1, 0, 2])
    assert not any([kept.differentiable for kept in found.report().opaque])


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("function", [jnp.linalg.det, lambda a: jnp.linalg.slogdet(a)[1], jnp.linalg.inv])
def test_small_matrices_are_opened(function: Callable[..., Any], size: int) -> None:
    a = np.eye(size) + np.cos(np.arange(size * size)).reshape(size, size) / 4
    report = opened(lambda x: jnp.sum(function(x)), a, orders=0)
    assert not report.opaque, str(report)


def test_values_beside_1_lose_no_digits() -> None:
    x = Variable.from_numpy_array(np.array([1 - 2.0**-40, 1e-300]), need_grad=True)
    y = F.one_minus_square(x)
    np.testing.assert_allclose(y.d, [2.0**-39 - 2.0**-80, 1], rtol=1e-15)
    np.testing.assert_allclose(nn.grad([F.sum(y)], [x])[0].d, [-2 + 2.0**-39, -2e-300], rtol=1e-15)
    t = Variable.from_numpy_array(np.array([1e-20]), need_grad=True)
    (slope,) = nn.grad([F.sum(F.atanh(t))], [t])
    np.testing.assert_allclose(nn.grad([F.sum(slope)], [t])[0].d, [2e-20], rtol=1e-14)


# ---------------------------------------------------------------- switches of the newest JAX

SWITCHES = ("jax_custom_jvp3", "jax_custom_vjp3", "jax_remat3")


@contextlib.contextmanager
def switched_on(which: str) -> Iterator[None]:
    """One of JAX's switches, or all of them, switched on."""
    names = [name for name in SWITCHES if which in (name, "all")]
    missing = [name for name in names if not hasattr(jax.config, name)]
    if missing:
        pytest.skip(f"JAX {jax.__version__} has no {', '.join(missing)}")
    before = {name: getattr(jax.config, name) for name in names}
    try:
        for name in names:
            jax.config.update(name, True)
        yield
    finally:
        for name, value in before.items():
            jax.config.update(name, value)


def functions_with_rules() -> dict[str, tuple[Callable[..., Any], str]]:
    """By name functions whose calls are written as objects, and what stays opaque."""
    scale = np.arange(1.0, 5.0)

    @jax.custom_jvp
    def by_jvp(x: Any) -> Any:
        return jnp.sin(x)

    by_jvp.defjvp(lambda primals, tangents: (by_jvp(*primals), tangents[0] * 2 * primals[0]))

    @functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
    def by_vjp(x: Any, n: int) -> Any:
        return jnp.sin(x) * n

    by_vjp.defvjp(lambda x, n: (by_vjp(x, n), x), lambda n, x, g: (g * x * n,))
    twice = functools.partial(by_vjp, n=2)
    return {
        "relu": (jax.nn.relu, ""), "silu": (jax.nn.silu, ""), "logaddexp": (lambda x: jnp.logaddexp(x, x**2), ""),
        "of a map": (jax.vmap(jax.nn.relu), ""), "by jvp": (by_jvp, ""), "by vjp": (twice, "custom_vjp_call"),
        "rematerialised": (jax.checkpoint(lambda x: jnp.sin(scale * by_jvp(x))), ""),
        "rematerialised by vjp": (jax.checkpoint(lambda x: jnp.exp(twice(x))), "custom_vjp_call"),
        "derivative of what is rematerialised": (jax.vmap(jax.grad(jax.checkpoint(lambda x: jnp.exp(jnp.sin(x))))), ""),
        "named": (lambda x: jnp.exp(checkpoint_name(x, "x")), ""),
        "in a loop": (lambda x: lax.scan(jax.checkpoint(lambda h, y: (by_jvp(h) * y, h)), x, x)[0], ""),
    }  # fmt: skip


@pytest.mark.parametrize("switch", slow_but_every(3, [*SWITCHES, "all"]))
@pytest.mark.parametrize("name", functions_with_rules())
def test_calls_that_are_written_as_objects(switch: str, name: str) -> None:
    function, opaque = functions_with_rules()[name]
    with jax.enable_x64(True):
        expected = function(X), jax.grad(lambda x: function(x).sum())(X)
        with switched_on(switch):
            x = Variable.from_numpy_array(X, need_grad=True)
            opened = nn.from_jax(function)
            y = opened(x)
            (g,) = nn.grad([F.sum(y)], [x])
            for ours, theirs in zip((y, g), expected, strict=True):
                np.testing.assert_allclose(ours.d, theirs, rtol=1e-12)
    assert {name for kept in opened.report().opaque for name in kept.primitives} == ({opaque} - {""})
