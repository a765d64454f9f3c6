"""Drop-in transformations on models of Flax: `nngrad.jax` in place of JAX's own.

Models, points and the code around the transformations are the same for all: what differs is who differentiates.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

import nngrad.jax as nj

from .harness import Case, Way, in_jax
from .models import along, jet_last

BOTH = ("time", "first result")


def flax_network(widths: tuple[int, ...]) -> tuple[Callable[[Any, Any], Any], Any]:
    """A tanh network of one number: its function of parameters and a point, and parameters."""
    from flax import linen

    class Network(linen.Module):
        @linen.compact
        def __call__(self, x: Any) -> Any:
            for width in widths[1:-1]:
                x = jnp.tanh(linen.Dense(width)(x))
            return linen.Dense(1)(x)[..., 0]

    network = Network()
    return network.apply, network.init(jax.random.key(0), jnp.zeros(widths[0]))


def derivative(smoke: bool) -> Case:
    """The sixth derivative of a network of Flax at many points."""
    widths, batch, n = ((1, 8, 8, 1), 4, 3) if smoke else ((1, 64, 64, 64, 1), 1024, 6)
    apply, parameters = flax_network(widths)
    points = jnp.linspace(-1, 1, batch, dtype=jnp.float32)

    def u(t: Any) -> Any:
        return apply(parameters, t[None])

    def nested(derivative: Callable[..., Any]) -> Callable[..., Any]:
        f: Callable[..., Any] = u
        for _ in range(n):
            f = derivative(f)
        return f

    functions = {
        "nj.nth_derivative": nj.nth_derivative(u, n), "nested jax.grad": nested(jax.grad), "jet": jet_last(u, n),
        "nested jax.jvp": nested(along),
    }  # fmt: skip
    ways: dict[str, Way] = {name: partial(in_jax, jax.vmap(f), points) for name, f in functions.items()}
    what = f"derivative {n} of a Flax MLP {'-'.join(map(str, widths))}, {batch} points"
    return Case(what, ways, measures=BOTH)


def training_step(smoke: bool) -> Case:
    """The loss of a PINN of Flax and its gradient, with `grad` from one place or from the other: of the
    Kuramoto-Sivashinsky equation, u_t + u u_x + u_xx + u_xxxx."""
    widths, batch = ((2, 8, 8, 1), 4) if smoke else ((2, 64, 64, 64, 1), 512)
    apply, parameters = flax_network(widths)
    xs, ts = jax.random.normal(jax.random.key(1), (2, batch))

    def loss(grad: Callable[..., Any], parameters: Any) -> Any:
        def u(x: Any, t: Any) -> Any:
            return apply(parameters, jnp.stack([x, t]))

        def residual(x: Any, t: Any) -> Any:
            u_x = grad(u)
            u_xx = grad(u_x)
            return grad(u, 1)(x, t) + u(x, t) * u_x(x, t) + u_xx(x, t) + grad(grad(u_xx))(x, t)

        return jnp.mean(jax.vmap(residual)(xs, ts) ** 2)

    ways: dict[str, Way] = {
        f"from {name} import grad": partial(in_jax, jax.value_and_grad(partial(loss, lib.grad)), parameters)
        for name, lib in (("nngrad.jax", nj), ("jax", jax))
    }
    what = f"Kuramoto-Sivashinsky step, Flax MLP {'-'.join(map(str, widths))}, {batch} points"
    return Case(what, ways, measures=BOTH)


def cases(smoke: bool) -> Iterable[Case]:
    """Derivatives along a line, and a training step with one import changed."""
    return [derivative(smoke), training_step(smoke)] if importlib.util.find_spec("flax") is not None else []
