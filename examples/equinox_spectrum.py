"""The largest eigenvalues of the Hessian of an Equinox network's loss, by the method of Lanczos.

A network of convolutions learns handwritten digits. The product of the Hessian of its loss with a vector is all that
Lanczos' method needs; the module is the argument, as Equinox has it, its arrays parted from the rest.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax_script
import numpy as np
import optax
from hessian_spectrum import digits

import nngrad as nn
import nngrad.jax as nj

STEPS = 60
"""Of Lanczos' method: so many products."""
TRAINING = 150
BOUND = 1e-3
TOP = 5
"""Eigenvalues that are compared with those of the full Hessian: the largest."""
CHANNELS = 4


class Network(eqx.Module):
    """Two layers of convolutions and a linear one, for one image."""

    first: eqx.nn.Conv2d
    second: eqx.nn.Conv2d
    last: eqx.nn.Linear
    activation: Callable[..., Any]

    def __init__(self, key: Any) -> None:
        keys = jax.random.split(key, 3)
        self.first = eqx.nn.Conv2d(1, CHANNELS, 3, stride=2, padding=1, key=keys[0])
        self.second = eqx.nn.Conv2d(CHANNELS, CHANNELS, 3, stride=2, padding=1, key=keys[1])
        self.last = eqx.nn.Linear(4 * CHANNELS, 10, key=keys[2])
        self.activation = jax.nn.gelu

    def __call__(self, image: Any) -> Any:
        h = self.activation(self.second(self.activation(self.first(image))))
        return self.last(h.reshape(-1))


def loss_of(module: Network, images: Any, labels: Any) -> Any:
    """The mean cross-entropy."""
    return optax.softmax_cross_entropy_with_integer_labels(jax.vmap(module)(images), labels).mean()


def trained(module: Network, images: Any, labels: Any) -> Network:
    """The network after some steps of Adam."""
    optimizer = optax.adam(1e-2)

    @eqx.filter_jit
    def step(module: Any, state: Any) -> Any:
        updates, state = optimizer.update(eqx.filter_grad(loss_of)(module, images, labels), state)
        return eqx.apply_updates(module, updates), state

    state = optimizer.init(eqx.filter(module, eqx.is_inexact_array))
    for _ in range(TRAINING):
        module, state = step(module, state)
    return module


def hvp_by_jax(f: Callable[..., Any], primals: Any, vectors: Any) -> Any:
    """The product of the Hessian of `f` and vectors: the derivative of the gradient along them."""
    return jax.jvp(jax.grad(f, tuple(range(len(primals)))), primals, vectors)[1]


def solve(steps: int, hvp: Callable[..., Any]) -> jax_script.Result:
    """The error is that of the largest eigenvalues, relative to the largest of all."""
    images, labels = digits()
    images, labels = jnp.asarray(images).reshape(-1, 1, 8, 8)[::4], jnp.asarray(labels)[::4, 0]
    module = trained(Network(jax.random.key(0)), images, labels)
    parameters, rest = eqx.partition(module, eqx.is_inexact_array)
    point, unflatten = jax.flatten_util.ravel_pytree(parameters)

    def loss(parameters: Any) -> Any:
        return loss_of(eqx.combine(parameters, rest), images, labels)

    @jax.jit
    def product(v: Any) -> Any:
        (result,) = hvp(loss, (parameters,), (unflatten(v),))  # the line that changes
        return jax.flatten_util.ravel_pytree(result)[0]

    def repeated() -> Iterator[Any]:
        for _ in range(steps):
            yield product(point)

    timing = jax_script.timed(repeated())
    start = np.random.default_rng(0).standard_normal(point.size)
    found = nn.lanczos(lambda v: np.asarray(product(jnp.asarray(v, jnp.float32))), k=steps, start=start).values
    hessian = np.asarray(jax.jit(jax.hessian(lambda p: loss(unflatten(p))))(point), np.float64)
    known = np.linalg.eigvalsh((hessian + hessian.T) / 2)[-TOP:]
    print(f"{point.size} parameters; the largest eigenvalues\n  Lanczos      {found[-TOP:]}\n  full Hessian {known}")
    return jax_script.Result(float(np.abs(found[-TOP:] - known).max() / known[-1]), timing)


if __name__ == "__main__":
    sys.exit(jax_script.main(solve, __doc__, STEPS, BOUND, nj.hvp, hvp_by_jax))
