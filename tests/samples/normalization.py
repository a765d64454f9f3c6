"""Samples of normalisations."""

import jax
import jax.numpy as jnp

from . import fixed, positive, real, sample


def standardised(x, axes, eps=1e-5):
    m = jnp.mean(x, axes, keepdims=True)
    v = jnp.var(x, axes, keepdims=True)
    return (x - m) / jnp.sqrt(v + eps), m, v


def grouped(x, groups, eps=1e-5):
    y, m, v = standardised(x.reshape(x.shape[0], groups, -1, *x.shape[2:]), tuple(range(2, x.ndim + 1)), eps)
    return y.reshape(x.shape), m, v


def divided_by_norm(x, p, axes):
    return x / jnp.sum(jnp.abs(x) ** p, axes, keepdims=True) ** (1 / p)


def spectral(matrix, u, itr, eps=1e-12):
    """The matrix divided by its largest singular value, and the vector after that many steps."""
    for _ in range(itr):
        v = jax.lax.stop_gradient(matrix.T @ u)
        v = v / jnp.sqrt(v @ v + eps)
        u = jax.lax.stop_gradient(matrix @ v)
        u = u / jnp.sqrt(u @ u + eps)
    return matrix / (u @ matrix @ v), u


SAMPLES = [
    sample("layer_normalization", real(2, 3, 2), real(1, 3, 2), real(1, 3, 2),
           ref=lambda x, b, g: standardised(x, (1, 2))[0] * g + b),
    sample("layer_normalization", real(2, 3, 2), batch_axis=(0, 1), output_stat=True,
           ref=lambda x: standardised(x, (2,))),
    sample("layer_normalization", real(3, 2), real(3, 1), batch_axis=-1, eps=0.1,
           ref=lambda x, b: standardised(x, (0,), 0.1)[0] + b),
    sample("instance_normalization", real(2, 2, 3), real(1, 2, 1), real(2, 2, 1),
           ref=lambda x, b, g: standardised(x, (2,))[0] * g + b, note="adaptive"),
    sample("instance_normalization", real(2, 3, 2), channel_axis=-1, output_stat=True,
           ref=lambda x: standardised(x, (1,))),
    sample("group_normalization", real(2, 4, 2), real(1, 4, 1), real(1, 4, 1), num_groups=2,
           ref=lambda x, b, g: grouped(x, 2)[0] * g + b),
    sample("group_normalization", real(2, 4), num_groups=2, output_stat=True, ref=lambda x: grouped(x, 2)),
    sample("group_normalization", real(3, 4, 2), num_groups=2, channel_axis=1, batch_axis=2,
           ref=lambda x: jnp.moveaxis(grouped(jnp.moveaxis(x, 2, 0).swapaxes(1, 2), 2)[0].swapaxes(1, 2), 0, 2)),
    sample("weight_standardization", real(2, 3, 2), channel_axis=-2, output_stat=True,
           ref=lambda w: standardised(w, (0, 2))),
    sample("weight_normalization", real(2, 3), positive(3), dim=1,
           ref=lambda w, g: g * w / jnp.linalg.norm(w, axis=0, keepdims=True)),
    sample("norm_normalization", real(2, 3, 2), axes=(0, -1), ref=lambda x: divided_by_norm(x, 2, (0, 2))),
    sample("norm_normalization", real(2, 3), p=3.0, ref=lambda x: divided_by_norm(x, 3, (0, 1))),
    sample("spectral_norm", real(3, 2, 2), real(3), itr=2, output_u=True, numeric=False,
           ref=lambda w, u: (lambda y, u: (y.reshape(w.shape), u))(*spectral(w.reshape(3, 4), u, 2))),
    sample("spectral_norm", real(4, 3), real(3), dim=1, test=True, numeric=False,
           ref=lambda w, u: spectral(w.T, u, 1)[0].T),
    sample("spectral_norm", real(2, 3, 2), real(1, 3), dim=-2, numeric=False,
           ref=lambda w, u: spectral(w.swapaxes(0, 1).reshape(3, 4), u[0], 1)[0].reshape(3, 2, 2).swapaxes(0, 1)),
    sample("instance_normalization", real(3, 2, 2), batch_axis=2, eps=0.1, orders=2,
           ref=lambda x: standardised(x, (0,), 0.1)[0]),
    sample("group_normalization", real(2, 3, 4), num_groups=2, channel_axis=-1, eps=0.1, orders=2,
           ref=lambda x: grouped(x.swapaxes(1, 2), 2, 0.1)[0].swapaxes(1, 2)),
    sample("weight_standardization", real(2, 3), eps=0.1, orders=2, ref=lambda w: standardised(w, (1,), 0.1)[0]),
    sample("weight_normalization", real(2, 3), positive(2), eps=0.1, orders=2,
           ref=lambda w, g: g[:, None] * w / jnp.sqrt(jnp.sum(w**2, 1, keepdims=True) + 0.1)),
    sample("norm_normalization", fixed([0.3, -0.4], [3.0, 4.0]), axes=1, eps=2.0, orders=2,
           ref=lambda x: x / jnp.array([[2.0], [1.0]]) / jnp.where(x > 1, jnp.linalg.norm(x[1]), 1)),
    sample("spectral_norm", real(3, 2), real(3), eps=0.3, numeric=False, orders=2,
           ref=lambda w, u: spectral(w, u, 1, 0.3)[0]),
]
