"""Numbers that change from one graph to the next: a backward emits and compiles nothing for them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nngrad as nn
import nngrad.functions as F
from nngrad.execution import fused
from tests.exact import exactly
from tests.test_properties import SETTINGS

X = np.array([0.3, 0.7, 1.1, -0.4])


@pytest.fixture(autouse=True)
def nothing_known() -> Iterator[None]:
    nn.executables.clear()
    yield
    nn.executables.clear()


@pytest.fixture
def emissions(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The requests that were emitted for a backward."""
    found: list[Any] = []
    emitted = fused.emitted

    def seen(request: Any) -> Any:
        found.append(request)
        return emitted(request)

    monkeypatch.setattr(importlib.import_module("nngrad.execution.fused"), "emitted", seen)
    return found


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
def test_gradients_are_right_for_every_number_and_emitted_once(form: str, emissions: list[Any]) -> None:
    build, reference = FORMS[form]
    numbers = np.array([0.31, 0.57, 2.5, 1e-3, -1.7, 0.57, 5.5])
    for c, expected in zip(numbers, exactly(jax.vmap(jax.grad(reference), (None, 0)), X, numbers), strict=True):
        np.testing.assert_allclose(gradient(build, float(c)), expected, rtol=1e-12, atol=1e-14)
    assert len(emissions) == 1


def test_numbers_that_matter_have_gradients_of_their_own(emissions: list[Any]) -> None:
    def build(x: nn.Variable, c: float) -> nn.Variable:
        return F.sum(F.relu(x)) + c * F.sum(F.log(x))

    for c in (0.2, 0.3, 0.0, 0.4, 0.0):
        g = gradient(build, c, np.array([0.0, 2.0]))
        # The gradient of 0 * log(x) is 0, even where that of log(x) is infinite.
        np.testing.assert_allclose(g[1], 1 + c / 2, rtol=1e-12)
        assert np.isinf(g[0]) == (c != 0)
    assert len(emissions) == 2


def test_whole_numbers_are_no_inputs(emissions: list[Any]) -> None:
    def build(x: nn.Variable, c: float) -> nn.Variable:
        return F.sum(F.sin(x * 3) * c)

    found = [gradient(build, c) for c in (0.7, 0.8, 0.9)]
    np.testing.assert_allclose(found[2], 0.9 * 3 * np.cos(3 * X), rtol=1e-14)
    assert len(emissions) == 1
    inputs = [x for x in emissions[0].outputs[0].parent.inputs[0].parent.inputs if x.parent is None]
    assert [x.shape for x in inputs] == [()]  # the number is a leaf, and 3 is not
    (product,) = [f for f in nn.graph.functions_of(emissions[0].outputs) if f.name == "mul_scalar"]
    assert product.args == {"val": 3}
    gradient(build, 2.0)
    assert len(emissions) == 2


def test_numbers_that_are_equal_are_one_input(emissions: list[Any]) -> None:
    def build(x: nn.Variable, numbers: tuple[float, float]) -> nn.Variable:
        a, b = numbers
        return F.sum(F.sin(x * a) * b)

    for a, b in [(0.3, 0.5), (0.3, 0.6), (0.4, 0.7), (0.7, 0.7), (0.9, 0.9), (0.6, 0.9)]:
        np.testing.assert_allclose(gradient(build, (a, b)), a * b * np.cos(a * X), rtol=1e-13)
    assert len(emissions) == 2


def test_the_first_backward_is_the_program_of_all_later_ones() -> None:
    def bits(numbers: list[float]) -> bytes:
        nn.executables.clear()
        return [gradient(FORMS["twice"][0], c) for c in numbers][-1].tobytes()

    assert bits([0.37]) == bits([0.9, 0.37]) == bits([0.37, 0.9, 0.37])


def test_integers_and_exponents_are_emitted_each_time(emissions: list[Any]) -> None:
    counts = np.array([1, 2, 3, 4], np.int32)
    for c in (0.3, 0.4, 0.6):
        g = gradient(lambda x, c: F.sum(x * F.mul_scalar(nn.Variable.from_numpy_array(counts), c)), c)
        np.testing.assert_allclose(g, counts * c, rtol=1e-6)
        g = gradient(lambda x, c: F.sum((x * x) ** c), c)
        np.testing.assert_allclose(g, 2 * c * np.abs(X) ** (2 * c - 1) * np.sign(X), rtol=1e-12)
    assert len(emissions) == 6


def test_a_number_that_is_too_large_for_its_dtype_is_infinite() -> None:
    def build(x: nn.Variable, c: float) -> nn.Variable:
        return F.sum(x * c)

    for c, expected in ((2.5, 2.5), (3.5, 3.5), (1e30, np.inf)):
        np.testing.assert_array_equal(gradient(build, c, np.ones(2, np.float16)), np.full(2, expected, np.float16))


@pytest.mark.parametrize("graph_order", [1, 2])
def test_numbers_below_and_above_gradients(graph_order: int, emissions: list[Any]) -> None:
    def build(x: nn.Variable, c: float) -> nn.Variable:
        y = F.sum(F.sin(x * x))
        for _ in range(graph_order):
            (gx,) = nn.grad(y, x)
            y = F.sum(F.tanh(gx) * c)
        return y

    def reference(x: Any, c: float) -> Any:
        def y(x: Any) -> Any:
            return jnp.sum(jnp.sin(x * x))

        for _ in range(graph_order):
            before = y

            def y(x: Any, before: Any = before) -> Any:
                return jnp.sum(jnp.tanh(jax.grad(before)(x)) * c)

        return y(x)

    numbers = np.array([0.41, 0.83, 1.7, 0.29])
    for c, expected in zip(numbers, exactly(jax.vmap(jax.grad(reference), (None, 0)), X, numbers), strict=True):
        np.testing.assert_allclose(gradient(build, float(c)), expected, rtol=1e-11, atol=1e-13)
    assert len(emissions) == 1


def test_what_a_graph_does_besides_is_done(emissions: list[Any]) -> None:
    """Running statistics are updated, persistent values kept, gradients stopped and seeds heeded, below the number."""
    rng = np.random.default_rng(0)
    data = rng.standard_normal((6, 3))
    statistics = []
    for c in (0.5, 0.7, 0.8):  # 0.9 is among the numbers of the running statistics, and they would be one input
        x = nn.Variable.from_numpy_array(data, need_grad=True)
        beta, gamma = (nn.Variable.from_numpy_array(np.full((1, 3), v)) for v in (0.0, 1.0))
        mean, variance = (nn.Variable.from_numpy_array(np.full((1, 3), v)) for v in (0.0, 1.0))
        scaled = x * c
        h = F.batch_normalization(scaled, beta, gamma, mean, variance, batch_stat=True)
        stopped = F.exp(scaled)
        stopped.need_grad = False
        stopped.persistent = True
        y = h * 0.0 + stopped * scaled
        y.forward()
        seed = rng.standard_normal((6, 3))
        y.backward(seed)
        np.testing.assert_allclose(x.g, seed * np.exp(c * data) * c, rtol=1e-12, atol=1e-12)
        assert not stopped.data.is_deferred
        np.testing.assert_allclose(stopped.d, np.exp(c * data), rtol=1e-12)
        np.testing.assert_allclose(y.d, np.exp(c * data) * c * data, rtol=1e-12)
        statistics.append(mean.d.copy())
        np.testing.assert_allclose(mean.d, 0.1 * c * data.mean(axis=0, keepdims=True), rtol=1e-6, atol=1e-12)
    assert len(emissions) == 1


def test_what_is_retained_is_emitted_once(emissions: list[Any]) -> None:
    for c in (0.3, 0.7, 0.9):
        x = nn.Variable.from_numpy_array(X, need_grad=True)
        h, one, other = F.sin(x), x * c, x * c
        one.need_grad = True
        y = F.sum(h * c + F.exp(one) * F.cos(other))
        y.forward()
        y.backward(retain_grad=True)
        np.testing.assert_allclose(h.g, np.full(4, c), rtol=1e-14)
        np.testing.assert_allclose(one.g, np.exp(c * X) * np.cos(c * X), rtol=1e-14)
        np.testing.assert_allclose(other.g, -np.exp(c * X) * np.sin(c * X), rtol=1e-14)
        np.testing.assert_allclose(x.g, c * np.cos(X) + c * (one.g + other.g), rtol=1e-14)
    assert len(emissions) == 1


numbers = st.floats(-3, 3, allow_subnormal=False).filter(lambda c: abs(c) > 1e-3)


def of_three(m: Any, x: Any, c: Any) -> Any:
    return m.sum((c[0] - m.sin(x * c[1])) * m.exp(0.1 * x) + c[2] * x + c[0])


slopes = jax.vmap(jax.grad(partial(of_three, jnp)), (None, 0))


@settings(SETTINGS, max_examples=15)
@given(st.lists(st.tuples(numbers, numbers, numbers), min_size=3, max_size=5))
def test_numbers_in_any_places(triples: list[tuple[float, float, float]]) -> None:
    for c, expected in zip(triples, exactly(slopes, X, np.array(triples)), strict=True):
        np.testing.assert_allclose(gradient(partial(of_three, F), c), expected, rtol=1e-11, atol=1e-13)
