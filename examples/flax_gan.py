"""A generative adversarial network in Flax with a gradient penalty, as Gulrajani et al. have it (2017).

The critic's loss contains the norm of its gradient by its input, so that a step differentiates a gradient. The
generator learns a distribution of points in the plane, a Gaussian that is long and turned; mean and covariance of what
it draws are compared with those.
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

import nngrad.jax as nj

STEPS = 3000
BOUND = 0.2
BATCH = 256
WIDTH = 32
OF_CRITIC = 5
"""Steps of the critic for each one of the generator."""
MEAN, FACTOR = np.asarray([1.0, -0.5]), np.asarray([[1.2, 0.0], [0.8, 0.4]])

Grad = Callable[..., Callable[..., Any]]


class Network(nn.Module):
    """Two hidden layers."""

    results: int

    @nn.compact
    def __call__(self, x: Any) -> Any:
        for _ in range(2):
            x = nn.silu(nn.Dense(WIDTH)(x))
        return nn.Dense(self.results)(x)


CRITIC, GENERATOR = Network(1), Network(2)


def value(critic: Any, x: Any) -> Any:
    """What the critic says of one point."""
    return CRITIC.apply(critic, x)[0]


def loss_of_critic(grad: Grad, critic: Any, real: Any, drawn: Any, key: Any) -> Any:
    """How far apart the critic holds both kinds, with the penalty."""
    between = drawn + jax.random.uniform(key, (len(real), 1)) * (real - drawn)
    slopes = jax.vmap(grad(value, 1), (None, 0))(critic, between)  # the line that changes
    penalty = jnp.mean((jnp.sqrt(jnp.sum(slopes**2, axis=1) + 1e-12) - 1) ** 2)
    each = jax.vmap(value, (None, 0))
    return jnp.mean(each(critic, drawn)) - jnp.mean(each(critic, real)) + 10 * penalty


def solve(steps: int, grad: Grad) -> jax_script.Result:
    """The error is that of mean and covariance together, relative."""
    critic = CRITIC.init(jax.random.key(0), jnp.zeros(2))
    generator = GENERATOR.init(jax.random.key(1), jnp.zeros(2))
    of_critic = optax.adam(optax.cosine_decay_schedule(1e-3, OF_CRITIC * steps), 0.5, 0.9)
    of_generator = optax.adam(optax.cosine_decay_schedule(1e-3, steps), 0.5, 0.9)

    def drawn(generator: Any, key: Any, count: int = BATCH) -> Any:
        return GENERATOR.apply(generator, jax.random.normal(key, (count, 2)))

    @jax.jit
    def step(both: Any, states: Any, key: Any) -> Any:
        critic, generator = both

        def improved(carry: Any, key: Any) -> Any:
            critic, state = carry
            first, second, third = jax.random.split(key, 3)
            real = MEAN + jax.random.normal(first, (BATCH, 2)) @ FACTOR.T
            gradient = jax.grad(lambda c: loss_of_critic(grad, c, real, drawn(generator, second), third))(critic)
            updates, state = of_critic.update(gradient, state)
            return (optax.apply_updates(critic, updates), state), None

        key, last = jax.random.split(key)
        (critic, first), _ = jax.lax.scan(improved, (critic, states[0]), jax.random.split(key, OF_CRITIC))
        gradient = jax.grad(lambda g: -jnp.mean(jax.vmap(value, (None, 0))(critic, drawn(g, last))))(generator)
        updates, second = of_generator.update(gradient, states[1])
        return (critic, optax.apply_updates(generator, updates)), (first, second)

    def training() -> Iterator[Any]:
        nonlocal critic, generator
        states = of_critic.init(critic), of_generator.init(generator)
        for key in jax.random.split(jax.random.key(2), steps):
            (critic, generator), states = step((critic, generator), states, key)
            yield generator

    timing = jax_script.timed(training())
    points = np.asarray(drawn(generator, jax.random.key(3), 10_000))
    found = np.concatenate([points.mean(0), np.cov(points.T).ravel()])
    known = np.concatenate([MEAN, (FACTOR @ FACTOR.T).ravel()])
    print("mean and covariance", found.round(2), "known", known.round(2))
    return jax_script.Result(float(np.linalg.norm(found - known) / np.linalg.norm(known)), timing)


if __name__ == "__main__":
    sys.exit(jax_script.main(solve, __doc__, STEPS, BOUND, nj.grad, jax.grad))
