"""Parts of physics-informed training, beside formulas written out in NumPy and derivatives in closed form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import nngrad as nn
import nngrad.functions as F
from nngrad import physics

few = settings(max_examples=25, deadline=None)
residuals_of_times = arrays(np.float64, st.tuples(st.integers(1, 6), st.integers(1, 4)), elements=st.floats(-5, 5))


@pytest.fixture(autouse=True)
def wide() -> Any:
    with jax.enable_x64(True):
        yield


def variable(array: Any) -> nn.Variable:
    return nn.Variable.from_numpy_array(np.asarray(array))


def of_all_kinds(function: Callable[[Any], Any], array: Any, expected: Any) -> None:
    """A function gives the same of a Variable, an array of JAX (under jit too) and one of NumPy, each in its kind."""
    of_numpy, of_variable, of_jax = function(array), function(variable(array)), function(jnp.asarray(array))
    assert isinstance(of_numpy, np.ndarray) and isinstance(of_variable, nn.Variable) and isinstance(of_jax, jax.Array)
    for found in of_numpy, of_variable.d, of_jax, jax.jit(function)(jnp.asarray(array)):
        assert found.dtype == array.dtype
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


# ---------------------------------------------------------------- features


def test_fourier_features() -> None:
    x, frequencies = np.array([[0.5, 0.25], [0.0, 1.0]]), np.array([[1.0, 0.5, 0.0], [0.0, 1.0, 2.0]])
    turns = np.array([[0.5, 0.5, 0.5], [0.0, 1.0, 2.0]])
    expected = np.concatenate([np.cos(2 * np.pi * turns), np.sin(2 * np.pi * turns)], axis=1)
    of_all_kinds(lambda x: physics.fourier_features(x, frequencies), x, expected)
    matrix = variable(frequencies)
    np.testing.assert_allclose(physics.fourier_features(variable(x), matrix).d, expected, atol=1e-12)
    assert physics.fourier_features(x.astype("f"), frequencies).dtype == np.float32


# ---------------------------------------------------------------- weights


@few
@given(residuals_of_times, st.floats(0, 3))
def test_causal_weights(residuals: Any, tolerance: float) -> None:
    losses = (residuals**2).mean(axis=1)
    expected = np.array([[np.exp(-tolerance * losses[:i].sum())] for i in range(len(losses))])
    np.testing.assert_allclose(physics.causal_weights(residuals, tolerance), expected, rtol=1e-12)


def test_weights_are_constants() -> None:
    """The gradient of a weighted loss is that with the weights' numbers; the same of JAX's."""
    x = np.random.default_rng(0).normal(size=(4, 3))
    for weigh in (
        lambda r: physics.causal_weights(r, 0.5),
        lambda r: physics.residual_attention(0.5 + r**2, r),
        lambda r: physics.balanced_weights([[r], [r**2, r]])[0],
    ):
        v, w = variable(x), np.asarray(weigh(x**3))
        (mine,) = nn.grad(F.sum(weigh(v**3) * (v**3) ** 2), v)
        np.testing.assert_allclose(mine.d, w * 6 * x**5, rtol=1e-11)
        jaxs = jax.grad(lambda x, weigh=weigh: jnp.sum(weigh(x**3) * (x**3) ** 2))(x)
        np.testing.assert_allclose(jaxs, w * 6 * x**5, rtol=1e-11)


def test_residual_attention() -> None:
    residuals, weights = np.array([[1.0], [-4.0], [0.0]]), np.array([[1.0], [2.0], [3.0]])
    expected = 0.9 * weights + 0.1 * np.array([[0.25], [1.0], [0.0]])
    of_all_kinds(lambda r: physics.residual_attention(weights if isinstance(r, np.ndarray) else
                                                      variable(weights) if isinstance(r, nn.Variable) else
                                                      jnp.asarray(weights), r, 0.9, 0.1), residuals, expected)
    np.testing.assert_allclose(physics.residual_attention(weights, 0 * residuals, 0.5), weights / 2)
    for _ in range(2000):
        weights = physics.residual_attention(weights, residuals, 0.9, 0.1)
    np.testing.assert_allclose(weights, [[0.25], [1.0], [0.0]], atol=1e-12)  # its bound is rate / (1 - decay) = 1


def test_balanced_weights() -> None:
    gradients = np.array([[3.0, 4.0], [0.0, 0.0], [6.0, 8.0]])
    of_all_kinds(lambda g: physics.balanced_weights([[g[0:1], g[0:1]], [g[1:2]], [g[2:3]]]), gradients,
                 np.array([(50**0.5 + 10) / 50**0.5, 1.0, (50**0.5 + 10) / 10]))
    tree = physics.balanced_weights([{"w": jnp.array([3.0]), "b": jnp.array(4.0)}, {"w": jnp.array([5.0])}])
    np.testing.assert_allclose(tree, [2.0, 2.0])


# ---------------------------------------------------------------- points


def test_no_digits_are_lost_where_jax_has_32_bits() -> None:
    """What compiled graphs give in float64 stays so, outside of enable_x64 too."""
    x = variable(np.array([[1.0], [2.0]]))
    wide = nn.compile(x * 1.0)
    with jax.enable_x64(False):
        array = wide()
        assert isinstance(array, jax.Array) and array.dtype == np.float64
        for found in (
            physics.fourier_features(array, [[0.25]]), physics.periodic_features(array, 4.0, 1),
            physics.causal_weights(array, 1.0), physics.residual_attention(array, array),
            physics.balanced_weights([[array], [array]]),
        ):  # fmt: skip
            assert found.dtype == np.float64
        np.testing.assert_allclose(physics.causal_weights(array, 1.0), np.exp([[0.0], [-1.0]]), rtol=1e-15)
        assert sorted(physics.resample(np.random.default_rng(0), array, 2).tolist()) == [0, 1]
        assert sorted(physics.resample(jax.random.key(0), np.asarray(array), 2).tolist()) == [0, 1]
        narrow = physics.causal_weights(jnp.ones((2, 1)), 1.0)
        assert isinstance(narrow, jax.Array) and narrow.dtype == np.float32


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: physics.fourier_features(x, np.ones((3, 4))), ValueError, "frequencies must be a matrix with a row"),
        (lambda x: physics.periodic_features(x, 2.0, 0), ValueError, "harmonics: must be 1 or more"),
        (lambda x: physics.causal_weights(x, -1.0), ValueError, "tolerance must not be negative"),
        (lambda x: physics.residual_attention(x[:1], x), ValueError, "shape of residuals"),
        (lambda x: physics.balanced_weights([]), ValueError, "at least one term"),
        (lambda x: physics.resample(np.random.default_rng(0), x, 6), ValueError, "count must be between 1"),
    ],
)  # fmt: skip
def test_refusals(call: Callable[[Any], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(np.ones((5, 2)))
