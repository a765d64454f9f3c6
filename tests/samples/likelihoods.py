"""Samples of likelihoods."""

import jax
import jax.numpy as jnp
import jax.scipy.stats as stats

from . import between, real, sample, whole


def sampled(x, t, w, s, mean=True):
    """Class by class."""
    losses = []
    for i in range(x.shape[0]):
        p = jax.nn.softmax(jnp.stack([x[i] @ w[t[i]], *[x[i] @ w[k] for k in s[i]]]))
        losses.append(-jnp.log(p[0]) - jnp.sum(jnp.log(1 - p[1:])))
    return jnp.mean(jnp.stack(losses)) if mean else jnp.stack(losses)


SAMPLES = [
    sample("bernoulli_nll", between(0, 1, 2, 3), real(2, 3),
           ref=lambda x, y: -jnp.sum(x * jax.nn.log_sigmoid(y) + (1 - x) * jax.nn.log_sigmoid(-y))),
    sample("bernoulli_nll", between(0, 1, 3), real(3), reduce="no",
           ref=lambda x, y: -x * jax.nn.log_sigmoid(y) - (1 - x) * jax.nn.log_sigmoid(-y)),
    sample("gaussian_nll", real(3), real(3), real(3), reduce="no",
           ref=lambda x, m, v: -stats.norm.logpdf(x, m, jnp.exp(v / 2))),
    sample("gaussian_nll", real(2, 3), real(2, 3), real(2, 3),
           ref=lambda x, m, v: -jnp.sum(stats.norm.logpdf(x, m, jnp.exp(v / 2)))),
    sample("gaussian_kl_divergence", real(2, 3), real(2, 3), reduce="no",
           ref=lambda m, v: (m**2 + jnp.exp(v) - v - 1) / 2),
    sample("black_out", real(2, 2), whole(2, 0), real(3, 2), whole([0, 1], [1, 1]), ref=sampled),
    sample("black_out", real(2, 2), whole(2, 0), real(3, 2), whole([0, 1], [1, 1]), reduce="no", orders=2,
           ref=lambda *inputs: sampled(*inputs, mean=False)),
]
