"""A Variable that is first read while JAX traces a function has its concrete value, then and afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F

X = np.array([0.5, -1.0, 2.0])
TRACES: dict[str, Callable[[Callable[[Any], Any]], Any]] = {
    "jit": lambda f: jax.jit(f)(1.0),
    "grad": lambda f: jax.grad(f)(1.0),
    "jit of grad": lambda f: jax.jit(jax.grad(f))(1.0),
    "vmap": lambda f: jax.vmap(f, axis_name="rows")(np.ones(2))[0],
    "scan": lambda f: jax.lax.scan(lambda c, _: (f(c), None), 1.0, None, length=1)[0],
}
"""Ways to trace `a -> a * y`, each with the value y."""
tracing = pytest.mark.parametrize("trace", TRACES.values(), ids=TRACES.keys())


def built(of: str) -> tuple[nn.Variable, nn.Variable, float]:
    """A leaf, a scalar that depends on it, and the scalar's value by NumPy."""
    x = nn.Variable.from_numpy_array(X, need_grad=True)
    y = F.sum(F.sin(x))
    if of == "value":
        return x, y, np.sin(X).sum()
    if of == "part":
        return x, F.split(F.exp(x))[1], np.exp(X[1])
    (g,) = nn.grad(y, x)
    if of == "gradient":
        return x, F.sum(g), np.cos(X).sum()
    return x, F.sum(nn.grad(F.sum(g), x)[0]), -np.sin(X).sum()


@tracing
@pytest.mark.parametrize("of", ["value", "part", "gradient", "second"])
def test_a_read_is_concrete(trace: Any, of: str) -> None:
    with jax.enable_x64(True):
        _, y, expected = built(of)
        found = trace(lambda a: a * y.d)
    assert not isinstance(y.data.raw(), jax.core.Tracer)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert y.d == built(of)[1].d  # to the bit what a first read outside gives


@tracing
def test_forward_and_functions_that_run_as_they_are_made(trace: Any) -> None:
    x, y, expected = built("value")
    made = []

    def run(a: Any) -> Any:
        y.forward()
        with nn.auto_forward():
            made.append(F.cos(x))
        return a * y.d

    with jax.enable_x64(True):
        np.testing.assert_allclose(trace(run), expected, rtol=1e-12)
    np.testing.assert_allclose(y.d, expected, rtol=1e-12)
    np.testing.assert_allclose(made[0].d, np.cos(X), rtol=1e-12)


@tracing
def test_noise_is_that_of_the_forward_around(trace: Any) -> None:
    noise = F.randn(shape=(3,))
    seen = []
    trace(lambda a: (seen.append(noise.d.copy()), a)[1])
    np.testing.assert_array_equal(seen[0], noise.d)


@tracing
def test_a_backward_is_refused_and_changes_nothing(trace: Any) -> None:
    x, y, _ = built("value")
    x.grad.zero()

    def run(a: Any) -> Any:
        y.backward()
        return a

    with pytest.raises(TypeError, match=r"backward cannot be called while JAX traces .* use .* nn\.to_jax"):
        trace(run)
    np.testing.assert_array_equal(x.g, np.zeros(3))
    y.backward()
    np.testing.assert_allclose(x.g, np.cos(X), rtol=1e-12)


@tracing
def test_a_tracer_is_refused_with_what_to_use(trace: Any) -> None:
    x, y, expected = built("value")

    def run(a: Any) -> Any:
        x.d = a * X
        return a * y.d

    with pytest.raises(TypeError, match=r"a Variable cannot hold"):
        trace(run)
    np.testing.assert_array_equal(x.d, X)
    np.testing.assert_allclose(y.d, expected, rtol=1e-12)
