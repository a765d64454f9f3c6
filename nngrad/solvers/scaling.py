"""Scalings of gradients in which nnabla and optax differ."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from .solver import Transformation


class _Sum(NamedTuple):
    total: Any


def scale_by_root_of_sum(eps: float) -> Transformation:
    """Adagrad with `eps` outside the root, where optax has it inside."""

    def update(grads: Any, state: _Sum, params: Any = None) -> tuple[Any, _Sum]:
        total = jax.tree.map(lambda v, g: v + g * g, state.total, grads)
        return jax.tree.map(lambda g, v: g / (jnp.sqrt(v) + eps), grads, total), _Sum(total)

    return Transformation(lambda params: _Sum(optax.tree.zeros_like(params)), update)


class _Amsgrad(NamedTuple):
    count: Any
    mu: Any
    nu: Any
    nu_max: Any


def scale_by_amsgrad(b1: float, b2: float, eps: float, bias_correction: bool) -> Transformation:
    """AMSGRAD without a correction of the averages, where optax always corrects them."""

    def init(params: Any) -> _Amsgrad:
        mu, nu, nu_max = (optax.tree.zeros_like(params) for _ in range(3))
        return _Amsgrad(jnp.zeros([], jnp.int32), mu, nu, nu_max)

    def update(grads: Any, state: _Amsgrad, params: Any = None) -> tuple[Any, _Amsgrad]:
        count = state.count + 1
        mu = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, state.mu, grads)
        nu = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g * g, state.nu, grads)
        nu_max = jax.tree.map(jnp.maximum, state.nu_max, nu)

        def step(m: Any, v: Any) -> Any:
            d = m / (jnp.sqrt(v) + eps)
            if bias_correction:
                t = count.astype(d.dtype)
                d = d * (jnp.sqrt(1 - b2**t) / (1 - b1**t))
            return d

        return jax.tree.map(step, mu, nu_max), _Amsgrad(count, mu, nu, nu_max)

    return Transformation(init, update)
