"""Networks of other kinds: of graphs, of electrons, and deep ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .agreement import Model, filled
from .linen import INDICES, Transformer, of

RNG = np.random.default_rng(0)
SENDERS, RECEIVERS = np.asarray([0, 1, 2, 3, 0, 2]), np.asarray([1, 2, 3, 0, 2, 1])
GRAPHS = np.asarray([0, 0, 1, 1])
"""The graph that each node is in."""


def described(*shapes: tuple[int, ...]) -> list[Any]:
    return [jax.ShapeDtypeStruct(shape, np.float64) for shape in shapes]


def messages(given: Any) -> Any:
    """A message-passing network in the manner of jraph's: edges, nodes and globals in turn, by segment sums."""
    (edge_weights, node_weights, global_weights), nodes, edges = given
    globals_ = jnp.zeros((2, 2))
    for _ in range(2):
        along = jnp.concatenate([edges, nodes[SENDERS], nodes[RECEIVERS]], axis=1)
        edges = jax.nn.silu(along @ edge_weights)
        received = jax.ops.segment_sum(edges, RECEIVERS, num_segments=4)
        largest = jax.ops.segment_max(edges, RECEIVERS, num_segments=4)
        nodes = jnp.tanh(jnp.concatenate([nodes, received * largest, globals_[GRAPHS]], axis=1) @ node_weights)
        means = jax.ops.segment_sum(nodes, GRAPHS, 2) / jnp.bincount(GRAPHS, length=2)[:, None]
        globals_ = jnp.tanh(means @ global_weights)
    return globals_, nodes


def attention_of_edges(given: Any) -> Any:
    """Attention over the edges that end at a node: a softmax by segments."""
    (query, key, value), nodes = given
    logits = jnp.sum((nodes @ query)[RECEIVERS] * (nodes @ key)[SENDERS], axis=1)
    largest = jax.ops.segment_max(logits, RECEIVERS, 4)
    weights = jnp.exp(logits - jax.lax.stop_gradient(largest)[RECEIVERS])
    weights = weights / jax.ops.segment_sum(weights, RECEIVERS, 4)[RECEIVERS]
    return jax.ops.segment_sum(weights[:, None] * (nodes @ value)[SENDERS], RECEIVERS, 4)


def log_of_wave_function(given: Any) -> Any:
    """log |psi| of electrons, for many walkers: a network that does not tell electrons apart, determinants for two
    spins, and exponential envelopes."""
    (first, second, orbitals, decay), walkers = given

    def one(positions: Any) -> Any:
        distances = jnp.linalg.norm(positions, axis=1, keepdims=True)
        between = positions[:, None] - positions[None]
        apart = jnp.sqrt(jnp.sum(between**2, -1) + jnp.eye(4)) * (1 - jnp.eye(4))
        h = jnp.concatenate([positions, distances, apart.mean(1, keepdims=True)], axis=1)
        h = jnp.tanh(h @ first)
        h = h + jnp.tanh(jnp.concatenate([h, jnp.broadcast_to(h.mean(0), h.shape)], axis=1) @ second)
        values = jnp.einsum("eh,hdo->deo", h, orbitals) * jnp.exp(-distances * jax.nn.softplus(decay))
        signs, logs = zip(
            *[jnp.linalg.slogdet(values[:, 2 * i : 2 * i + 2, 2 * i : 2 * i + 2]) for i in (0, 1)], strict=True
        )
        logarithm, _ = jax.nn.logsumexp(sum(logs), b=signs[0] * signs[1], return_sign=True)
        return logarithm

    return jax.vmap(one)(walkers)


MODELS: dict[str, Callable[[], Model]] = {
    "messages": lambda: Model(messages, filled((described((9, 3), (8, 3), (3, 2)), *described((4, 3), (6, 3))))),
    "attention of edges": lambda: Model(attention_of_edges, filled((described((3, 2), (3, 2), (3, 2)),
                                                                    *described((4, 3))))),
    "electrons": lambda: Model(log_of_wave_function, filled((described((5, 6), (12, 6), (6, 2, 4), (4,)),
                                                             *described((2, 4, 3))))),
}  # fmt: skip


def deep() -> Model:
    """A transformer of 12 layers, to count its equations and the time to open them."""
    return of(Transformer(12), INDICES)
