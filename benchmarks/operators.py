"""Differential operators: the Laplacian in 50 dimensions, and Hessian-vector products of a critic's loss."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import nngrad as nn

from . import critic
from .harness import EARLY, Case, Step, in_jax, in_nngrad
from .models import Field, jax_mlp, nngrad_mlp, normal, tanh_parameters, variables


def field(p: list[Any]) -> Field:
    """The network at one point, as a scalar."""
    return lambda x: jax_mlp(p, x)[0]


def traced_hessian(p: list[Any], x: Any) -> Any:
    """The trace of `jax.hessian` at each point."""
    return jax.vmap(lambda x: jnp.trace(jax.hessian(field(p))(x)))(x)


def summed_jet(p: list[Any], x: Any, directions: Any = None, weights: Any = None, order: int = 2) -> Any:
    """The sum of the derivatives of an even order along directions, those of the axes by default, each by Taylor mode;
    perhaps weighted."""
    from jax.experimental.jet import jet

    def of_order(x: Any, direction: Any) -> Any:
        return jet(field(p), (x,), ((direction, *[jnp.zeros_like(x)] * (order - 1)),))[1][-1]

    directions = jnp.eye(x.shape[1], dtype=x.dtype) if directions is None else directions
    weights = jnp.ones(len(directions)) if weights is None else weights
    return jax.vmap(lambda x: weights @ jax.vmap(of_order, (None, 0))(x, directions))(x)


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


def laplacian(smoke: bool) -> Case:
    """Of a tanh MLP of 50 inputs."""
    widths, batch = ((5, 8, 8, 1), 4) if smoke else ((50, 768, 768, 512, 512, 1), 64)
    rng = np.random.default_rng(0)
    parameters, points = tanh_parameters(rng, *widths), normal(rng, batch, widths[0])

    def ours() -> Step:
        x = nn.Variable.from_numpy_array(points, need_grad=True)
        return in_nngrad(nn.laplacian(nngrad_mlp(variables(parameters), x), x), [x])

    routes = {"trace of jax.hessian": traced_hessian, "jet, summed": summed_jet,
              "forward Laplacian, by hand": forward_laplacian}  # fmt: skip
    peers = {name: partial(in_jax, route, parameters, points) for name, route in routes.items()}
    return Case(f"Laplacian, MLP {'-'.join(map(str, widths))}, batch {batch}", {"nn.laplacian": ours, **peers})


def hessian_vector_product(smoke: bool) -> Case:
    """Of the loss of the dense critic, for all of its parameters; and the gradients, for what a product is worth."""
    rng = np.random.default_rng(0)
    parameters, data = critic.dense(smoke)
    directions = [normal(rng, *a.shape) for a in parameters]

    def ours(product: bool) -> Step:
        p, leaves = variables(parameters), [nn.Variable.from_numpy_array(a) for a in data]
        loss = critic.nngrad_loss(critic.nngrad_mlp, p, *leaves)
        v = [nn.Variable.from_numpy_array(a) for a in directions]
        return in_nngrad(nn.hvp(loss, p, v) if product else nn.grad(loss, p), leaves)

    def slopes(p: list[Any], *data: Any) -> Any:
        return jax.grad(partial(critic.jax_loss, critic.jax_mlp))(p, *data)

    def along(p: list[Any], v: list[Any], *data: Any) -> Any:
        return jax.jvp(lambda p: slopes(p, *data), (p,), (v,))[1]

    gradients = "its gradient, by nn.grad", "its gradient, by jax.grad"
    return Case("Hessian-vector product of the critic's loss, MLP 64-256-256-1, batch 64", {
        "nn.hvp": partial(ours, True), "jax.jvp of jax.grad": partial(in_jax, along, parameters, directions, *data),
        gradients[0]: partial(ours, False), gradients[1]: partial(in_jax, slopes, parameters, *data),
    }, [("nn.hvp", "jax.jvp of jax.grad"), ("nn.hvp", gradients[0]), ("jax.jvp of jax.grad", gradients[1])],
        measures=("time", EARLY), tolerance=None)  # fmt: skip


def cases(smoke: bool) -> Iterable[Case]:
    """Both."""
    return [laplacian(smoke), hessian_vector_product(smoke)]
