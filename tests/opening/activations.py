"""All of jax.nn."""

from __future__ import annotations

import jax
import numpy as np

from .rows import POSITIVE, RNG, X, Y, row, rows_of

MASK = np.asarray([[1, 1, 0, 1], [0, 1, 1, 1], [1, 0, 1, 1]], bool)
QUERY, KEY = RNG.standard_normal((2, 1, 3, 2, 2))

ROWS = [
    *rows_of(jax.nn, "jax.nn.", "celu elu gelu hard_sigmoid hard_silu hard_swish hard_tanh identity leaky_relu "
             "log_sigmoid log_softmax logmeanexp logsumexp mish relu relu6 selu sigmoid silu soft_sign softmax "
             "softplus sparse_plus sparse_sigmoid squareplus standardize swish tanh glu", X),
    row("jax.nn.log1mexp", lambda x: jax.nn.log1mexp(x), POSITIVE),
    row("jax.nn.gelu(approximate=False)", lambda x: jax.nn.gelu(x, approximate=False), X),
    row("jax.nn.softmax(where=)", lambda x: jax.nn.softmax(x, where=MASK), X),
    row("jax.nn.logsumexp(b=)", lambda x, y: jax.nn.logsumexp(x, axis=1, b=y**2, return_sign=True)[0], X, Y),
    row("jax.nn.one_hot", lambda x: jax.nn.one_hot((x[0] > 0).astype(int), 3) * x[1, :3], X),
    row("jax.nn.dot_product_attention", lambda q, k: jax.nn.dot_product_attention(q, k, q + k, is_causal=True),
        QUERY, KEY, single=True),
]  # fmt: skip
