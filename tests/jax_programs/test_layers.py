"""Layers of Flax, losses of optax and attention over the edges of a graph: gradients of two orders against JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from .agreement import agree_to_order, package, total

pytestmark = pytest.mark.slow
RNG = np.random.default_rng(0)
SEQUENCES, LOGITS, OTHERS = [RNG.standard_normal(shape) for shape in ((2, 3, 4), (3, 4), (3, 4))]
CHANCES = np.exp(OTHERS) / np.exp(OTHERS).sum(-1, keepdims=True)
LABELS, TRUTHS = np.asarray([0, 3, 1]), (OTHERS > 0).astype(float)
SENDERS, RECEIVERS = np.asarray([0, 1, 2, 3, 0, 2]), np.asarray([1, 2, 3, 0, 2, 1])


def test_layers_of_flax() -> None:
    linen = package("flax.linen")
    layers = [
        linen.Conv(4, (3,), feature_group_count=2, kernel_dilation=2, padding="CIRCULAR"),
        linen.ConvTranspose(2, (3,), strides=(2,)), linen.BatchNorm(use_running_average=False), linen.GroupNorm(2),
        linen.WeightNorm(linen.Dense(3)), linen.MultiHeadDotProductAttention(2),
        linen.RNN(linen.LSTMCell(3, param_dtype=float)),
        linen.Sequential([linen.Dense(4), linen.PReLU(), linen.LayerNorm(), linen.softmax]),
    ]  # fmt: skip

    def all_of(params: Any, x: Any) -> Any:
        return sum([total(layer.apply(p, x, mutable=["batch_stats"])) for layer, p in zip(layers, params, strict=True)])

    with jax.enable_x64(True):
        params = [layer.init(jax.random.key(i), SEQUENCES) for i, layer in enumerate(layers)]
        params = jax.tree.map(lambda a: np.asarray(a, float) + 0.1, params)
    agree_to_order(2, all_of, params, SEQUENCES)


def test_losses_of_optax() -> None:
    losses = optax.losses

    def all_of(x: Any) -> Any:
        return total([
            optax.huber_loss(x, OTHERS), optax.cosine_distance(x, OTHERS), optax.log_cosh(x, OTHERS),
            optax.softmax_cross_entropy(x, CHANCES), losses.kl_divergence(x, CHANCES),
            losses.ranking_softmax_loss(x, CHANCES), optax.sigmoid_focal_loss(x, TRUTHS),
            losses.sparsemax_loss(x, TRUTHS), losses.hinge_loss(x, 2 * TRUTHS - 1),
            optax.softmax_cross_entropy_with_integer_labels(x, LABELS), losses.multiclass_hinge_loss(x, LABELS),
            optax.ctc_loss(x[None], np.zeros((1, 3)), np.asarray([[1, 2]]), np.zeros((1, 2))),
        ])  # fmt: skip

    agree_to_order(2, all_of, LOGITS)


def test_attention_over_edges() -> None:
    def attended(matrices: Any, nodes: Any) -> Any:
        query, key, value = matrices
        logits = jnp.sum((nodes @ query)[RECEIVERS] * (nodes @ key)[SENDERS], axis=1)
        weights = jnp.exp(logits - jax.lax.stop_gradient(jax.ops.segment_max(logits, RECEIVERS, 4))[RECEIVERS])
        weights = weights / jax.ops.segment_sum(weights, RECEIVERS, 4)[RECEIVERS]
        return total(jax.ops.segment_sum(weights[:, None] * (nodes @ value)[SENDERS], RECEIVERS, 4))

    agree_to_order(2, attended, [RNG.standard_normal((3, 2)) for _ in range(3)], RNG.standard_normal((4, 3)))
