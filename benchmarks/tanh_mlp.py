"""The network that the benchmarks of higher derivatives share: dense layers with tanh between them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import nngrad as nn
import nngrad.functions as F

from .peers import Parameters, dense_parameters


def tanh_parameters(rng: np.random.Generator, *widths: int) -> Parameters:
    """Weights and biases in turn. The biases are not zero, so that the network is no odd function."""
    p = dense_parameters(rng, *widths)
    return [a if a.ndim == 2 else rng.uniform(-0.5, 0.5, a.shape).astype("f") for a in p]


def nngrad_mlp(p: list[nn.Variable], x: nn.Variable) -> nn.Variable:
    """The network in nngrad."""
    for w, b in zip(p[:-2:2], p[1:-2:2], strict=True):
        x = F.tanh(F.affine(x, w, b))
    return F.affine(x, p[-2], p[-1])


def mlp(tanh: Callable[[Any], Any], p: list[Any], x: Any) -> Any:
    """The network in the arrays that `tanh` takes: JAX's or PyTorch's."""
    for w, b in zip(p[:-2:2], p[1:-2:2], strict=True):
        x = tanh(x @ w + b)
    return x @ p[-2] + p[-1]


jax_mlp = functools.partial(mlp, jnp.tanh)
"""The network in JAX."""

Field = Callable[[Any], Any]
"""A function of JAX arrays."""


def along(function: Field) -> Field:
    """The derivative of `function`, whose rows are independent, by forward mode: tangents of ones."""
    return lambda x: jax.jvp(function, (x,), (jnp.ones_like(x),))[1]


def taylor(function: Field, x: Any, order: int) -> tuple[Any, list[Any]]:
    """`function`, whose rows are independent, and its derivatives of the orders 1 to `order`, by `jet`.

    `jet` takes and gives derivatives, not Taylor coefficients: the path x + s has the derivatives 1, 0, 0, ...
    """
    from jax.experimental.jet import jet

    one, zero = jnp.ones_like(x), jnp.zeros_like(x)
    return jet(function, (x,), ((one, *[zero] * (order - 1)),))
