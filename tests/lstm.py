"""An LSTM of one layer without biases: written out step by step for nngrad, and as a loop for JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import nngrad.functions as F
from nngrad.extend import Variable


class InGraphs:
    product, sigmoid, tanh = F.batch_matmul, F.sigmoid, F.tanh
    join = staticmethod(lambda parts: F.concatenate(*parts, axis=1))


class InJax:
    product, sigmoid, tanh = jnp.matmul, jax.nn.sigmoid, jnp.tanh
    join = staticmethod(lambda parts: jnp.concatenate(parts, axis=1))


def cell(h: Any, c: Any, x: Any, w: Any, of: Any) -> tuple[Any, Any]:
    """A step, with as many units as there are inputs."""
    width = x.shape[1]
    z = of.product(of.join([x, h]), w)
    i, f, o, g = (z[:, k * width : (k + 1) * width] for k in range(4))
    c = of.sigmoid(f) * c + of.sigmoid(i) * of.tanh(g)
    return of.sigmoid(o) * of.tanh(c), c


def lstm_in_graphs(x: Variable, w: Variable) -> Variable:
    """The sum of squares of what it comes to, for x of shape (steps, batch, width) and w of (2 width, 4 width)."""
    h = c = Variable.from_numpy_array(np.zeros(x.shape[1:]))
    for t in range(x.shape[0]):
        h, c = cell(h, c, x[t], w, InGraphs)
    return F.sum(h * h)


def lstm_in_jax(x: Any, w: Any) -> Any:
    """The same."""
    zeros = jnp.zeros(x.shape[1:], x.dtype)
    return jnp.sum(lax.scan(lambda s, x: (cell(*s, x, w, InJax), None), (zeros, zeros), x)[0][0] ** 2)
