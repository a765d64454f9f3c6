"""A loss with the Laplacian from random directions, and its gradient, in up to 100,000 dimensions: time and memory.

The network, batch and number of directions are those of Shi, Hu, Lin and Kawaguchi (2024), "Stochastic Taylor
Derivative Estimator", whose formulation in JAX is written here from its formulas: unit vectors along coordinates
that `jax.random.choice` draws without replacement, each pushed to second order by `jet`, under `vmap`. Memory is what
the compiler allots beside arguments and results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import nngrad as nn
import nngrad.functions as F

from .harness import Case, in_jax
from .models import Parameters, jax_mlp, nngrad_mlp, tanh_parameters

Data = tuple[Any, Any, Any]
"""Points, what the equation is to give there, and a key."""


def of_nngrad(parameters: Parameters, data: Data, directions: int) -> Callable[..., Any]:
    """The loss and its gradient as nngrad has them, as a function of the parameters and the data."""
    p = [nn.Variable.from_numpy_array(a, need_grad=True) for a in parameters]
    x, wanted, key = (nn.Variable.from_numpy_array(np.asarray(a)) for a in data)
    u = (1 - F.sum(x**2, axis=1)) * F.reshape(nngrad_mlp(p, x), shape=x.shape[:1])
    loss = F.mean((nn.laplacian(u, x, directions=directions, seed=key) + F.sin(u) - wanted) ** 2)
    function: Callable[..., Any] = nn.to_jax([loss, *nn.grad(loss, p)], [*p, x, wanted, key])
    return lambda p, *data: function(*p, *data)


def of_jax(laplacian: Callable[..., Any]) -> Callable[..., Any]:
    """The loss and its gradient in JAX, with the Laplacian at a point by `laplacian(u, x, key)`."""

    def loss(p: list[Any], x: Any, wanted: Any, key: Any) -> Any:
        def u(x: Any) -> Any:
            return (1 - jnp.sum(x**2)) * jax_mlp(p, x)[0]

        residuals = jax.vmap(lambda x, g: laplacian(u, x, key) + jnp.sin(u(x)) - g)(x, wanted)
        return jnp.mean(residuals**2)

    return jax.value_and_grad(loss)


def from_jets(directions: int) -> Callable[..., Any]:
    """The mean of second derivatives along random coordinates, each by Taylor mode."""
    from jax.experimental.jet import jet

    def laplacian(u: Callable[[Any], Any], x: Any, key: Any) -> Any:
        chosen = jax.random.choice(jax.random.wrap_key_data(key), x.size, (directions,), replace=False)
        vectors = jax.nn.one_hot(chosen, x.size, dtype=x.dtype)
        second = jax.vmap(lambda v: jet(u, (x,), ((v, jnp.zeros_like(x)),))[1][1])
        return x.size / directions * jnp.sum(second(vectors))

    return laplacian


def problem(dimension: int, batch: int, width: int) -> tuple[Parameters, Data]:
    """Parameters of the network, and points of the unit ball."""
    rng = np.random.default_rng(0)
    along = rng.standard_normal((batch, dimension))
    points = rng.uniform(size=(batch, 1)) * along / np.linalg.norm(along, axis=1, keepdims=True)
    wanted = rng.standard_normal(batch)
    arrays = jnp.asarray(points, "f"), jnp.asarray(wanted, "f"), jax.random.key_data(jax.random.key(0))
    return tanh_parameters(rng, dimension, width, width, width, width, 1), arrays


def cases(smoke: bool) -> Iterable[Case]:
    """All coordinates of few dimensions, where both ways agree; then some of up to 100,000 dimensions."""
    sizes = [(100, 16), (1000, 16), (10_000, 16), (100_000, 16)]
    for dimension, directions in [(6, 6), *([(8, 2)] if smoke else sizes)]:
        agree, (batch, width) = dimension == directions, (4, 8) if smoke else (100, 128)
        parameters, data = problem(dimension, batch, width)
        functions: dict[str, Callable[[], Callable[..., Any]]] = {
            "nn.laplacian, directions": partial(of_nngrad, parameters, data, directions),
            "vmap of jet, random directions": partial(of_jax, from_jets(directions)),
        }  # fmt: skip
        ways = {name: lambda f=f, given=(parameters, *data): in_jax(f(), *given) for name, f in functions.items()}
        what = f"sine-Gordon loss and gradient, {dimension:,} dimensions, {directions} directions, batch {batch}"
        yield Case(what, ways, measures=("time", "temporaries"), tolerance=1e-3 if agree else None)
