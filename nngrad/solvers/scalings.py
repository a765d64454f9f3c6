"""Scalings of gradients in which nnabla and optax differ, or that optax does not have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from .solver import Transformation


class _Sum(NamedTuple):
    total: Any


def scale_by_root_of_sum(eps: float) -> Transformation:
    """Adagrad with `eps` outside the square root, where optax has it inside."""

    def update(grads: Any, state: _Sum, params: Any = None) -> tuple[Any, _Sum]:
        total = jax.tree.map(lambda v, g: v + g * g, state.total, grads)
        return jax.tree.map(lambda g, v: g / (jnp.sqrt(v) + eps), grads, total), _Sum(total)

    return Transformation(lambda params: _Sum(optax.tree.zeros_like(params)), update)


class _Moments(NamedTuple):
    count: Any
    mu: Any
    nu: Any
    nu_max: Any = ()


def scale_by_moments(b1: float, b2: float, step: Callable[[Any, Any, Any], Any], largest: bool) -> Transformation:
    """Scale by `step(m, v, t)`, from the averages m of gradients and v of their squares, without bias correction; with
    `largest` v is the largest so far."""

    def init(params: Any) -> _Moments:
        mu, nu, nu_max = (optax.tree.zeros_like(params) for _ in range(3))
        return _Moments(jnp.zeros([], jnp.int32), mu, nu, nu_max if largest else ())

    def update(grads: Any, state: _Moments, params: Any = None) -> tuple[Any, _Moments]:
        count = state.count + 1
        mu = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, state.mu, grads)
        nu = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g * g, state.nu, grads)
        nu_max = jax.tree.map(jnp.maximum, state.nu_max, nu) if largest else ()
        steps = jax.tree.map(lambda m, v: step(m, v, count.astype(m.dtype)), mu, nu_max if largest else nu)
        return steps, _Moments(count, mu, nu, nu_max)

    return Transformation(init, update)


def scale_by_amsgrad(b1: float, b2: float, eps: float, bias_correction: bool) -> Transformation:
    """AMSGRAD without bias correction, which optax always applies."""

    def step(m: Any, v: Any, t: Any) -> Any:
        d = m / (jnp.sqrt(v) + eps)
        return d * (jnp.sqrt(1 - b2**t) / (1 - b1**t)) if bias_correction else d

    return scale_by_moments(b1, b2, step, largest=True)
