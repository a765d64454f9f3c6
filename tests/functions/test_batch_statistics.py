"""Batch normalisation: running statistics are updated once per forward, and gradients see the batch's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
import nngrad.solvers as S
from nngrad.graph import Variable
from tests.oracle import arrays_of, by_jax
from tests.refusals import refused

SHAPE = (1, 3, 1)
DATA = np.random.default_rng(0).standard_normal((4, 3, 2)) * 2 + 1
MEAN = DATA.mean((0, 2)).reshape(SHAPE)
UNBIASED = DATA.var((0, 2), ddof=1).reshape(SHAPE)


class Layer:
    """A batch normalisation with its leaves."""

    def __init__(self, dtype: Any = np.float64, **options: Any) -> None:
        self.x = Variable.from_numpy_array(DATA.astype(dtype), need_grad=True)
        self.beta = Variable.from_numpy_array(np.full(SHAPE, 0.5, dtype), need_grad=True)
        self.gamma = Variable.from_numpy_array(np.full(SHAPE, 1.5, dtype), need_grad=True)
        self.mean = Variable.from_numpy_array(np.zeros(SHAPE, dtype))
        self.variance = Variable.from_numpy_array(np.ones(SHAPE, dtype))
        self.y = F.batch_normalization(self.x, self.beta, self.gamma, self.mean, self.variance, **options)

    def check(self, updates: int, decay: float = 0.9, rtol: float = 1e-9) -> None:
        """The running statistics after `updates` updates from zeros and ones."""
        left = decay**updates
        np.testing.assert_allclose(self.mean.d, (1 - left) * MEAN, rtol=rtol, atol=1e-12)
        np.testing.assert_allclose(self.variance.d, left + (1 - left) * UNBIASED, rtol=rtol)


# ---------------------------------------------------------------- once per forward


READS: dict[str, Callable[[Layer], Any]] = {
    "nothing": lambda _: None,
    "y": lambda layer: layer.y.d,
    "y twice": lambda layer: (layer.y.d, layer.y.d),
    "mean": lambda layer: layer.mean.d,
    "variance, y": lambda layer: (layer.variance.d, layer.y.d),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_one_update_per_forward_whatever_is_read(read: Callable[[Layer], Any]) -> None:
    layer = Layer()
    for count in range(1, 4):
        layer.y.forward()
        read(layer)
        if read is not READS["nothing"]:
            layer.check(count)
    layer.check(3)


def test_forward_and_backward_update_once() -> None:
    layer = Layer()
    loss = F.sum(F.tanh(layer.y))
    for count in range(1, 4):
        loss.forward()
        loss.backward()
        layer.check(count)
    loss.forward()
    _ = loss.d
    loss.backward()
    loss.backward()
    layer.check(4)


def test_statistics_of_16_bit_batches_are_kept_in_float32() -> None:
    x = Variable.from_numpy_array((DATA * 300).astype(np.float16))
    mean, variance = Variable(SHAPE), Variable(SHAPE)
    y = F.batch_normalization(x, None, None, mean, variance, decay_rate=0.0)
    y.forward()
    assert y.dtype == np.float16 and np.isfinite(y.d).all()
    # The squares overflow float16, the statistics do not.
    np.testing.assert_allclose(variance.d, UNBIASED * 300**2, rtol=1e-2)


def test_statistics_in_another_layout() -> None:
    x, mean, variance = Variable.from_numpy_array(DATA), Variable((3,), dtype=np.float64), Variable((3, 1))
    F.batch_normalization(x, None, None, mean, variance, decay_rate=0.0).forward()
    np.testing.assert_allclose(mean.d, MEAN.ravel())
    np.testing.assert_allclose(variance.d.ravel(), UNBIASED.ravel(), rtol=1e-6)


def test_a_layer_that_is_used_twice_updates_twice() -> None:
    layer = Layer()
    again = F.batch_normalization(layer.x, layer.beta, layer.gamma, layer.mean, layer.variance)
    F.sum(layer.y + again).forward()
    layer.check(2)


@pytest.mark.parametrize("how", ["forward", "backward", "train_step", "body"])
def test_running_statistics_are_updated_in_the_order_of_the_calls(how: str) -> None:
    batches = [np.random.default_rng(i).standard_normal((4, 2)) + i for i in range(3)]
    mean, beta = (Variable.from_numpy_array(np.zeros((1, 2)), need_grad=trained) for trained in (False, True))

    def total(i: Any) -> Variable:
        """Calls for three batches, of which the first is at the greatest depth and the last at the least."""
        deep, middle, last = map(Variable.from_numpy_array, batches)
        inputs = F.tanh(F.tanh(deep)) * i + deep, F.sin(middle) * i + middle, last + i
        ys = [F.batch_normalization(x, beta, None, mean, axes=1, decay_rate=0.5) for x in inputs]
        return F.sum(F.add_n(*[y**2 for y in reversed(ys)]))

    loss = F.map(total, np.zeros(1)) if how == "body" else total(0.0)
    if how == "train_step":
        nn.train_step(loss, [beta], S.Sgd(0.1))()
    else:
        loss.forward()
    if how == "backward":
        loss.backward()
    first, second, third = (batch.mean(0) for batch in batches)
    np.testing.assert_allclose(mean.d[0], (first / 4 + second / 2 + third) / 2, rtol=1e-9)


# ---------------------------------------------------------------- gradients


def reference(x: Any, beta: Any, gamma: Any) -> tuple[Any, Any, Any]:
    """Batch normalisation with its statistics, in JAX."""
    m, v = jnp.mean(x, (0, 2), keepdims=True), jnp.var(x, (0, 2), keepdims=True)
    return (x - m) / jnp.sqrt(v + 1e-5) * gamma + beta, m, v


def test_a_constant_batch_has_finite_derivatives() -> None:
    x = Variable.from_numpy_array(np.ones((4, 2), np.float32))
    y, _, v = F.batch_normalization(x, output_stat=True)
    (gx,) = nn.grad(F.sum(y**2) + F.sum(v), x)
    (ggx,) = nn.grad(F.sum(gx**2), x)
    nn.forward_all([y, gx, ggx])
    assert np.isfinite(gx.d).all() and np.isfinite(ggx.d).all()


# ---------------------------------------------------------------- errors


def ones(*shape: int) -> Variable:
    """A leaf of ones."""
    return Variable.from_numpy_array(np.ones(shape, np.float32))


def test_tensor_normalization_takes_its_axes_first() -> None:
    beta, gamma = np.full((4, 1, 2), 0.5), np.arange(1.0, 9.0).reshape(4, 1, 2)
    x = Variable.from_numpy_array(DATA, need_grad=True)
    y, mean, variance = F.tensor_normalization(x, (0, -1), beta, gamma, 1e-3, True)

    def reference(x: Any) -> Any:
        return jnp.sum((gamma * (x - x.mean(1, keepdims=True)) / jnp.sqrt(x.var(1, keepdims=True) + 1e-3) + beta) ** 3)

    (g,) = nn.grad(F.sum(y**3), x)
    (gg,) = nn.grad(F.sum(F.sin(g)), x)
    slope = jax.grad(reference)
    first, second = by_jax(lambda x: (slope(x), jax.grad(lambda x: jnp.sum(jnp.sin(slope(x))))(x)), DATA)
    for found, expected, rtol, atol in zip(arrays_of(mean, variance, g, gg),
                                           (DATA.mean(1, keepdims=True), DATA.var(1, keepdims=True), first, second),
                                           (1e-7, 1e-7, 1e-9, 1e-8), (0, 0, 1e-9, 1e-8 * np.abs(second).max()),
                                           strict=True):  # fmt: skip
        np.testing.assert_allclose(found, expected, rtol=rtol, atol=atol)


test_errors_name_the_argument = refused([
    (lambda x: F.batch_normalization(x, axes=(3,)), ValueError, "batch_normalization: axes 3 is out of range"),
    (lambda x: F.fused_batch_normalization(x, nonlinearity="tanh"), ValueError, "nonlinearity"),
    (lambda x: F.layer_normalization(x, ones(4, 2)), ValueError, "beta"),
    (lambda x: F.instance_normalization(x, channel_axis=0), ValueError, "channel_axis and batch_axis"),
    (lambda x: F.group_normalization(x), TypeError, "num_groups"),
    (lambda x: F.tensor_normalization(x), TypeError, "axes"),
    (lambda x: F.weight_normalization(x, ones(2)), ValueError, "g must have 4 elements, as w has along dim, got"),
], given=lambda: Variable.from_numpy_array(DATA))
