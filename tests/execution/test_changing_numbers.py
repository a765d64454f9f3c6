"""Numbers that change from one graph to the next: a backward compiles nothing for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st

import nngrad as nn
import nngrad.functions as F
from tests.exact import exactly

X = np.array([0.3, 0.7, 1.1, -0.4])


@pytest.fixture(autouse=True)
def nothing_known() -> Iterator[None]:
    nn.executables.clear()
    yield
    nn.executables.clear()


def gradient(build: Callable[[nn.Variable, Any], nn.Variable], number: Any, x: np.ndarray = X) -> np.ndarray:
    """The gradient of a new graph with a number in it."""
    leaf = nn.Variable.from_numpy_array(x, need_grad=True)
    y = build(leaf, number)
    y.forward()
    y.backward()
    return leaf.g.copy()


def with_constant(x: Any, c: float) -> Any:
    return F.sum(F.sin(x * F.constant(c, (4,), "float64")))


FORMS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "product": (lambda x, c: F.sum(F.sin(F.tanh(x) * c)), lambda x, c: jnp.sum(jnp.sin(jnp.tanh(x) * c))),
    "sum": (lambda x, c: F.sum(F.exp(x * x + c)), lambda x, c: jnp.sum(jnp.exp(x * x + c))),
    "difference": (lambda x, c: F.sum(F.sin(c - F.exp(x))), lambda x, c: jnp.sum(jnp.sin(c - jnp.exp(x)))),
    "quotient": (lambda x, c: F.sum(c / (2 + F.sin(x))), lambda x, c: jnp.sum(c / (2 + jnp.sin(x)))),
    "constant": (with_constant, lambda x, c: jnp.sum(jnp.sin(x * c))),
    "twice": (lambda x, c: F.sum(F.sin(x * c) * c + c * x), lambda x, c: jnp.sum(jnp.sin(x * c) * c + c * x)),
}


@pytest.mark.parametrize("form", FORMS)
def test_gradients_are_right_for_every_number_and_compiled_once(form: str) -> None:
    build, reference = FORMS[form]
    numbers = np.array([0.31, 0.57, 2.5, 1e-3, -1.7, 0.57, 5.5])
    for c, expected in zip(numbers, exactly(jax.vmap(jax.grad(reference), (None, 0)), X, numbers), strict=True):
        np.testing.assert_allclose(gradient(build, float(c)), expected, rtol=1e-12, atol=1e-14)
    assert nn.executables.info().misses == 1


def test_numbers_that_matter_have_gradients_of_their_own() -> None:
    def build(x: nn.Variable, c: float) -> nn.Variable:
        return F.sum(F.relu(x)) + c * F.sum(F.log(x))

    for c in (0.2, 0.3, 0.0, 0.4, 0.0):
        g = gradient(build, c, np.array([0.0, 2.0]))
        # The gradient of 0 * log(x) is 0, even where that of log(x) is infinite.
        np.testing.assert_allclose(g[1], 1 + c / 2, rtol=1e-12)
        assert np.isinf(g[0]) == (c != 0)


def test_a_number_that_is_too_large_for_its_dtype_is_infinite() -> None:
    def build(x: nn.Variable, c: float) -> nn.Variable:
        return F.sum(x * c)

    for c, expected in ((2.5, 2.5), (3.5, 3.5), (1e30, np.inf)):
        np.testing.assert_array_equal(gradient(build, c, np.ones(2, np.float16)), np.full(2, expected, np.float16))


numbers = st.floats(-3, 3, allow_subnormal=False).filter(lambda c: abs(c) > 1e-3)
