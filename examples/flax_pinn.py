"""A physics-informed network in Flax: one import changes, and u_xxxx costs what it should.

The beam of Euler and Bernoulli: u_tt + u_xxxx = 0 for x in [0, pi], hinged at both ends, which moves as sin(x) cos(t).
The network is a Flax module, the training step optax's. All that differs from the code for JAX is where `grad` is from.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import jax_script
import numpy as np
import optax

import nngrad.jax as nj  # the line that changes: `from jax import grad` is `from nngrad.jax import grad`

STEPS = 1500
BOUND = 5e-3
POINTS = 512
WIDTH = 48

Grad = Callable[..., Callable[..., Any]]


class Network(nn.Module):
    """A network of a point, with the boundary and initial values by construction."""

    @nn.compact
    def __call__(self, x: Any, t: Any) -> Any:
        h = jnp.stack([x - np.pi / 2, t])
        for _ in range(3):
            h = nn.tanh(nn.Dense(WIDTH)(h))
        return jnp.sin(x) * (1 + t**2 * nn.Dense(1)(h)[0])


def residual(grad: Grad, model: Network, params: Any, x: Any, t: Any) -> Any:
    """u_tt + u_xxxx at a point."""

    def u(x: Any, t: Any) -> Any:
        return model.apply(params, x, t)

    u_xxxx = grad(grad(grad(grad(u))))
    u_tt = grad(grad(u, 1), 1)
    return u_tt(x, t) + u_xxxx(x, t)


def solve(steps: int, grad: Grad) -> jax_script.Result:
    """The error is that of u on a grid, relative, in the L2 norm."""
    model = Network()
    params = model.init(jax.random.key(0), 0.0, 0.0)
    optimizer = optax.adam(optax.cosine_decay_schedule(5e-3, steps))

    def loss(params: Any, points: Any) -> Any:
        each = jax.vmap(lambda x, t: residual(grad, model, params, x, t))
        return jnp.mean(each(points[:, 0] * np.pi, points[:, 1]) ** 2)

    @jax.jit
    def step(params: Any, state: Any, key: Any) -> Any:
        value, gradient = jax.value_and_grad(loss)(params, jax.random.uniform(key, (POINTS, 2)))
        updates, state = optimizer.update(gradient, state)
        return optax.apply_updates(params, updates), state, value

    def training() -> Iterator[Any]:
        nonlocal params
        state = optimizer.init(params)
        for key in jax.random.split(jax.random.key(1), steps):
            params, state, value = step(params, state, key)
            yield value

    timing = jax_script.timed(training())
    x, t = np.meshgrid(np.linspace(0, np.pi, 33), np.linspace(0, 1, 17))
    found = jax.vmap(model.apply, (None, 0, 0))(params, x.ravel(), t.ravel())
    known = (np.sin(x) * np.cos(t)).ravel()
    return jax_script.Result(float(np.linalg.norm(found - known) / np.linalg.norm(known)), timing)


if __name__ == "__main__":
    sys.exit(jax_script.main(solve, __doc__, STEPS, BOUND, nj.grad, jax.grad))
