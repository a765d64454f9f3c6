"""Samples of losses of distances."""

import jax.numpy as jnp

from . import real, sample, whole


def contrast(x0, x1, y, margin=1.0):
    d = jnp.sqrt(jnp.sum((x0 - x1) ** 2, 1))
    return jnp.where(y == 1, d**2, jnp.maximum(margin - d, 0) ** 2) / 2


def clusters(x, labels, p, delta_v, delta_d, weights):
    """One instance and pixel after the other."""
    batch, k = x.shape[:2]
    size = (lambda v: jnp.sum(jnp.abs(v))) if p == 1 else (lambda v: jnp.sqrt(jnp.sum(v**2)))
    own = [[labels[n] == c + 1 for n in range(batch)] for c in range(k)]
    centres = [[jnp.sum(x[n] * own[c][n], (1, 2)) / max(own[c][n].sum(), 1) for n in range(batch)] for c in range(k)]
    pull = push = 0.0
    for c in range(k):
        pixels = [size(x[n, :, i, j] - centres[c][n]) for n in range(batch)
                  for i in range(x.shape[2]) for j in range(x.shape[3]) if own[c][n][i, j]]
        pull += sum(jnp.maximum(d - delta_v, 0) ** 2 for d in pixels) / max(len(pixels), 1)
        for e in range(c + 1, k):
            push += sum(jnp.maximum(2 * delta_d - size(centres[c][n] - centres[e][n]), 0) ** 2 for n in range(batch))
    return (weights[0] * pull / k, weights[1] * push / (k * (k - 1) / 2 * batch),
            weights[2] * sum(size(jnp.stack(each)) for each in centres) / (k * batch))


def cosine(axis):
    return lambda a, b: jnp.sum(a * b, axis) / jnp.sqrt(jnp.sum(a * a, axis) * jnp.sum(b * b, axis))


LABELS = [[1, 2, 2], [0, 1, 2]], [[2, 1, 1], [2, 2, 3]]

SAMPLES = [
    sample("mean_squared_error", real(2, 3), real(2, 3), ref=lambda a, b: jnp.mean((a - b) ** 2)),
    sample("mean_absolute_error", real(2, 3), real(2, 3), ref=lambda a, b: jnp.mean(jnp.abs(a - b))),
    sample("cdist", real(2, 2, 3), real(3, 3), p=3,
           ref=lambda a, b: jnp.sum(jnp.abs(a[:, :, None] - b[None, None]) ** 3, -1) ** (1 / 3)),
    sample("cosine_similarity", real(2, 3), real(1, 3), ref=cosine(1)),
    sample("cosine_similarity", real(3, 2), real(3, 2), axis=0, eps=9.0, ref=lambda a, b: jnp.sum(a * b, 0) / 81,
           note="short"),
    sample("contrastive", real(3, 2), real(3, 2), whole(1, 0, 0), margin=2.0,
           ref=lambda a, b, y: jnp.mean(contrast(a, b, y, 2.0))),
    sample("contrastive", real(3, 2), real(3, 2), whole(1, 0, 0), reduce="no", ref=contrast),
    sample("triplet", real(3, 2), real(3, 2), real(3, 2),
           ref=lambda a, p, n: jnp.mean(jnp.maximum(jnp.sum((a - p) ** 2 - (a - n) ** 2, 1) + 0.2, 0))),
    sample("triplet", real(3, 2), real(3, 2), real(3, 2), margin=0.7, reduce="no",
           ref=lambda a, p, n: jnp.maximum(jnp.sum((a - p) ** 2 - (a - n) ** 2, 1) + 0.7, 0)),
    sample("cross_covariance", real(3, 2), real(3, 1), reduce="no",
           ref=lambda y, z: (y - y.mean(0)).T @ (z - z.mean(0)) / 3),
    sample("cross_covariance", real(3, 2), real(3, 2),
           ref=lambda y, z: jnp.sum(((y - y.mean(0)).T @ (z - z.mean(0)) / 3) ** 2) / 2),
    sample("discriminative_margin_based_clustering_loss", real(2, 2, 2, 3), whole(*LABELS), delta_v=0.1, delta_d=1.5,
           max_embedding_dim=2, ref=lambda x, t: clusters(x, t, 1, 0.1, 1.5, (1, 1, 0.001))),
    sample("discriminative_margin_based_clustering_loss", real(2, 2, 2, 3), whole(*LABELS), delta_v=0.3, delta_d=1.0,
           max_embedding_dim=2, norm=2, alpha=2.0, beta=3.0, gamma=0.5,
           ref=lambda x, t: clusters(x, t, 2, 0.3, 1.0, (2, 3, 0.5))),
]
