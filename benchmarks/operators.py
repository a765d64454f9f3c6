"""Differential operators: the Laplacian in 50 dimensions, and Hessian-vector products of a critic's loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import nngrad as nn

from . import critic
from .peers import Parameters, dense_parameters
from .tanh_mlp import Field, jax_mlp, nngrad_mlp, tanh_parameters
from .timing import Contender, Row, agreeing, medians, row

# ---------------------------------------------------------------- Laplacian


def nngrad_laplacian(parameters: Parameters, x: Any) -> Contender:
    """`nn.laplacian`."""
    p = [nn.Variable.from_numpy_array(a, need_grad=True) for a in parameters]
    leaf = nn.Variable(x.shape, need_grad=True)
    compiled = nn.compile(nn.laplacian(nngrad_mlp(p, leaf), leaf), [leaf])
    return lambda: compiled(x)


def jax_laplacian(laplacian: Callable[..., Any]) -> Callable[[Parameters, Any], Contender]:
    """Makes the contender that jits `laplacian(p, x)`."""

    def make(parameters: Parameters, x: Any) -> Contender:
        p = [jnp.asarray(a) for a in parameters]
        jitted = jax.jit(laplacian)
        return lambda: jitted(p, x)

    return make


def field(p: list[Any]) -> Field:
    """The network at one point, as a scalar."""
    return lambda x: jax_mlp(p, x)[0]


def traced_hessian(p: list[Any], x: Any) -> Any:
    """The trace of `jax.hessian` at each point."""
    return jax.vmap(lambda x: jnp.trace(jax.hessian(field(p))(x)))(x)


def summed_jet(p: list[Any], x: Any, directions: Any = None) -> Any:
    """The sum of the second derivatives along directions, those of the axes by default, each by Taylor mode."""
    from jax.experimental.jet import jet

    def second(x: Any, direction: Any) -> Any:
        return jet(field(p), (x,), ((direction, jnp.zeros_like(x)),))[1][1]

    if directions is None:
        directions = jnp.eye(x.shape[1], dtype=x.dtype)
    return jax.vmap(lambda x: jnp.sum(jax.vmap(second, (None, 0))(x, directions)))(x)


def forward_laplacian(p: list[Any], x: Any, directions: Any = None) -> Any:
    """Values, derivatives along directions (those of the axes by default) and the sums of the second ones, carried
    through the layers together; written by hand for this network.

    For h = tanh(a): the Laplacian of h is tanh'(a) lap(a) + tanh''(a) |grad a|^2 (Li et al. 2023,
    "Forward Laplacian").
    """
    first = p[0] if directions is None else directions @ p[0]
    batch, dimensions = len(x), len(first)
    a = x @ p[0] + p[1]
    gradient = jnp.broadcast_to(first, (batch, *first.shape))
    laplacian = jnp.zeros_like(a)
    for w, b in zip(p[2::2], p[3::2], strict=True):
        h = jnp.tanh(a)
        slope = 1 - h * h
        laplacian = slope * laplacian - 2 * h * slope * jnp.sum(gradient * gradient, axis=1)
        gradient = (slope[:, None] * gradient).reshape(batch * dimensions, -1) @ w
        gradient = gradient.reshape(batch, dimensions, -1)
        a, laplacian = h @ w + b, laplacian @ w
    return laplacian[:, 0]


def laplacian_rows(smoke: bool) -> list[Row]:
    """The Laplacian of a tanh MLP of 50 inputs."""
    widths, batch = ((5, 8, 8, 1), 4) if smoke else ((50, 768, 768, 512, 512, 1), 64)
    rng = np.random.default_rng(0)
    parameters = tanh_parameters(rng, *widths)
    x = jnp.asarray(rng.normal(size=(batch, widths[0])), "f")
    ours, goals = "nn.laplacian", {"trace of jax.hessian": 0.5, "jet, summed": 0.35, "forward Laplacian, by hand": None}
    routes = [traced_hessian, summed_jet, forward_laplacian]
    makers = {name: jax_laplacian(route) for name, route in zip(goals, routes, strict=True)}
    makers = {ours: nngrad_laplacian, **makers}
    contenders = {name: make(parameters, x) for name, make in makers.items()}
    agreeing(contenders, 1e-4)
    times = medians(contenders, 2 if smoke else 9, 1)
    what = f"Laplacian, MLP {'-'.join(map(str, widths))}, batch {batch}"
    return [row(what, times, ours, peer, goal) for peer, goal in goals.items() if ours in times]


# ---------------------------------------------------------------- Hessian-vector products


def hvp_rows(smoke: bool) -> list[Row]:
    """One gradient, and one Hessian-vector product, of the loss of the dense critic for all of its parameters."""
    rng = np.random.default_rng(0)
    data = [rng.normal(size=(64, 64)).astype("f"), rng.normal(size=(64, 64)).astype("f"), rng.random((64, 1), "f")]
    parameters = dense_parameters(rng, 64, 256, 256, 1)
    directions = [rng.normal(size=a.shape).astype("f") for a in parameters]
    contenders = {**nngrad_hvp(parameters, directions, data), **jax_hvp(parameters, directions, data)}
    agreeing({name: lambda run=run: run()[0] for name, run in contenders.items() if "gradient" not in name}, 1e-3)
    times = medians(contenders, 2 if smoke else 21, 2 if smoke else 20)
    what = "Hessian-vector product of the critic's loss, MLP 64-256-256-1, batch 64"
    return [
        row(what, times, "nn.hvp", "its gradient, by nn.grad", 2.5),
        row(what, times, "nn.hvp", "jax.jvp of jax.grad"),
        row(f"the same in JAX: {what}", times, "jax.jvp of jax.grad", "its gradient, by jax.grad"),
    ]


def nngrad_hvp(parameters: Parameters, directions: Parameters, data: list[np.ndarray]) -> dict[str, Contender]:
    """The gradient and the product in nngrad."""
    p = [nn.Variable.from_numpy_array(a, need_grad=True) for a in parameters]
    v = [nn.Variable.from_numpy_array(a) for a in directions]
    leaves = [nn.Variable(a.shape) for a in data]
    loss = critic.nngrad_loss(critic.nngrad_mlp, p, *leaves)
    gradient = nn.compile(nn.grad([loss], p), leaves)
    product = nn.compile(hessian_vector_product(loss, p, v), leaves)
    arrays = [jnp.asarray(a) for a in data]
    return {"its gradient, by nn.grad": lambda: gradient(*arrays), "nn.hvp": lambda: product(*arrays)}


def hessian_vector_product(loss: nn.Variable, p: list[nn.Variable], v: list[nn.Variable]) -> list[nn.Variable]:
    """`nn.hvp`."""
    return nn.hvp(loss, p, v)


def jax_hvp(parameters: Parameters, directions: Parameters, data: list[np.ndarray]) -> dict[str, Contender]:
    """The gradient and the product in JAX."""
    p, v, arrays = ([jnp.asarray(a) for a in group] for group in (parameters, directions, data))

    def slopes(p: list[Any], *arrays: Any) -> Any:
        return jax.grad(lambda p: critic.jax_loss(critic.jax_mlp, p, *arrays))(p)

    def along(p: list[Any], v: list[Any], *arrays: Any) -> Any:
        return jax.jvp(lambda p: slopes(p, *arrays), (p,), (v,))[1]

    gradient, product = jax.jit(slopes), jax.jit(along)
    return {
        "its gradient, by jax.grad": lambda: gradient(p, *arrays),
        "jax.jvp of jax.grad": lambda: product(p, v, *arrays),
    }


def run(smoke: bool, torch: bool) -> list[Row]:
    """Lines of the table."""
    return [*laplacian_rows(smoke), *hvp_rows(smoke)]
