"""What the peers of a training step have in common: initial weights, and loops around a loss."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from .timing import Contender

Parameters = list[np.ndarray]


def dense_parameters(rng: np.random.Generator, *widths: int) -> Parameters:
    """Weights and biases of dense layers between neighbouring `widths`, in turn."""
    return [
        a for m, n in itertools.pairwise(widths)
        for a in (rng.normal(0, m**-0.5, (m, n)).astype("f"), np.zeros(n, "f"))
    ]


def jitted_step(
    loss_of: Callable[..., Any], optimizer: optax.GradientTransformation, parameters: Parameters, data: list[np.ndarray]
) -> Contender:
    """A step on `loss_of(parameters, *data)` as one writes it with `jax.grad`, jitted, with donated buffers."""

    def update(p: list[Any], state: Any, *arrays: Any) -> Any:
        loss, grads = jax.value_and_grad(loss_of)(p, *arrays)
        updates, state = optimizer.update(grads, state, p)
        return optax.apply_updates(p, updates), state, loss

    jitted = jax.jit(update, donate_argnums=(0, 1))
    p: Any = [jnp.array(a) for a in parameters]
    state, arrays = optimizer.init(p), [jnp.asarray(a) for a in data]

    def step() -> Any:
        nonlocal p, state
        p, state, loss = jitted(p, state, *arrays)
        return loss

    return step


def eager_step(loss_of: Callable[[list[Any]], Any], parameters: Parameters, **adam: Any) -> Contender:
    """A step on `loss_of(parameters)` in eager PyTorch, with Adam of the options `adam`."""
    import torch

    p = [torch.tensor(a, requires_grad=True) for a in parameters]
    optimizer = torch.optim.Adam(p, **adam)

    def step() -> Any:
        loss = loss_of(p)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step
