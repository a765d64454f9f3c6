"""The bilaplacian: values against JAX, and how much is computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nngrad as nn
import nngrad.functions as F
import nngrad.jax as nj
from nngrad.execution.interpret import interpret
from nngrad.graph import Variable, functions_of
from tests.autodiff.test_properties import SETTINGS
from tests.slow import slow_but_every

RNG = np.random.default_rng(3)
W = RNG.standard_normal((3, 4)) / 2
V = RNG.standard_normal((4, 3)) / 2
POINTS = RNG.uniform(0.3, 1, (4, 3))

Field = Callable[[Any], Any]


def nested(f: Field) -> Field:
    """The trace of the Hessian of the trace of the Hessian."""

    def trace(f: Field) -> Field:
        return lambda x: jnp.trace(jax.hessian(f)(x), axis1=-2, axis2=-1)

    return trace(trace(f))


FIELDS: dict[str, tuple[Field, Field]] = {
    "network": (
        lambda x: F.sin(F.tanh(x @ W) @ V) @ np.ones((3, 1)),
        lambda x: jnp.sin(jnp.tanh(x @ W) @ V) @ np.ones((3, 1)),
    ),
    "several that move": (
        lambda x: x[:, 0] ** x[:, 1] * F.exp(x[:, 2]) / F.sin(x[:, 0]),
        lambda x: x[0] ** x[1] * jnp.exp(x[2]) / jnp.sin(x[0]),
    ),
    "several outputs": (
        lambda x: F.add_n(*[F.sin(z) * z for z in F.split(F.tanh(x @ W), axis=1)]),
        lambda x: jnp.sum(jnp.sin(jnp.tanh(x @ W)) * jnp.tanh(x @ W)),
    ),
    "linear": (lambda x: x @ W, lambda x: x @ W),
}


@pytest.mark.parametrize("name", slow_but_every(2, FIELDS))
def test_bilaplacians_are_those_of_jax(name: str) -> None:
    ours, theirs = FIELDS[name]
    x = Variable.from_numpy_array(POINTS)
    y = ours(x)
    (value,) = interpret([nn.bilaplacian(y, x)], {})
    with jax.enable_x64(True):
        wanted = np.asarray(jax.jit(jax.vmap(nested(theirs)))(jnp.asarray(POINTS)))
    size = max(1, np.abs(wanted).max())
    np.testing.assert_allclose(value, wanted.reshape(value.shape), rtol=1e-10, atol=1e-10 * size)


@pytest.mark.slow
@settings(SETTINGS, max_examples=4)
@given(st.integers(1, 5), st.lists(st.tuples(st.integers(-3, 3), st.lists(st.integers(0, 4), min_size=5, max_size=5)),
                                   min_size=1, max_size=3))
def test_bilaplacians_of_polynomials(d: int, terms: list[tuple[int, list[int]]]) -> None:
    """Sums of products of powers in d variables, of one point, whose derivatives are known."""
    point = np.linspace(0.4, 1.2, d)
    x = Variable.from_numpy_array(point)
    y = F.add_n(*[c * F.prod(x ** np.asarray(powers[:d], float)) for c, powers in terms])

    def derivative(powers: list[int], orders: np.ndarray) -> float:
        factors = [
            np.prod(np.arange(p - n + 1, p + 1)) * t ** (p - n) if n <= p else 0.0
            for p, n, t in zip(powers, orders, point, strict=False)
        ]
        return float(np.prod(factors))

    unit = 2 * np.eye(d, dtype=int)
    wanted = sum(c * derivative(powers, unit[i] + unit[j]) for c, powers in terms for i in range(d) for j in range(d))
    for result in (nn.bilaplacian(y, x, batched=False), nn.laplacian(nn.laplacian(y, x, False), x, False)):
        np.testing.assert_allclose(interpret([result], {})[0], wanted, rtol=1e-9, atol=1e-9)


# ---------------------------------------------------------------- how much is computed


def test_many_dimensions_are_computed_together() -> None:
    x = Variable((2, 40))
    y = F.sum(F.tanh(F.tanh(x @ np.ones((40, 7), "f"))), axis=1)
    assert len(functions_of([nn.bilaplacian(y, x)])) < 400


def test_without_matrix_products_laplacians_are_nested() -> None:
    x = Variable((2, 6))
    distance = (1 + F.sum(x * x, axis=1)) ** -0.5
    assert len(functions_of([nn.bilaplacian(distance, x)])) < 80


def test_the_drop_in_transformation() -> None:
    with jax.enable_x64(True):
        points = jnp.asarray(POINTS)
        theirs = lambda x: jnp.sum(jnp.sin(jnp.tanh(x @ W) @ V))  # noqa: E731
        wanted = jax.jit(jax.vmap(nested(theirs)))(points)
        for ours in (nj.bilaplacian(theirs), nj.laplacian(nj.laplacian(theirs))):
            np.testing.assert_allclose(jax.jit(jax.vmap(ours))(points), wanted, rtol=1e-10)
