"""Attention in memory linear in the length, beside all weights at once in JAX and PyTorch's; and a step of MeanFlow.

Orders 1 and 2 are gradients in query, key and value of sum(y^2), and of the squares of those. PyTorch's fused function
has no second derivative, so that it is asked for it without its fused kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import nngrad as nn
import nngrad.functions as F

from .harness import Case, Step, in_jax, in_nngrad, in_torch
from .models import Arrays, dense_weights, normal, plain_mlp, variables


def ours(arrays: Arrays, order: int) -> Step:
    """By nngrad."""
    xs = variables(arrays)
    ys = [F.attention(*xs)]
    for _ in range(order):
        ys = nn.grad(sum([F.sum(y * y) for y in ys]), xs)
    return in_nngrad(ys, xs)


def dense(arrays: Arrays, order: int) -> Step:
    """By JAX, which has (batch, length, heads, size)."""

    def value(*xs: Any) -> Any:
        return [jnp.swapaxes(jax.nn.dot_product_attention(*[jnp.swapaxes(x, 1, 2) for x in xs]), 1, 2)]

    f: Callable[..., Any] = value
    for _ in range(order):
        f = jax.grad(lambda *xs, f=f: sum([jnp.sum(y * y) for y in f(*xs)]), (0, 1, 2))
    return in_jax(f, *arrays)


def by_torch(arrays: Arrays, order: int) -> Step:
    """By PyTorch."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    xs = [torch.tensor(a, requires_grad=True) for a in arrays]

    def run() -> Any:
        with sdpa_kernel(SDPBackend.MATH) if order > 1 else nullcontext():
            ys: Any = [torch.nn.functional.scaled_dot_product_attention(*xs)]
            for n in range(order):
                ys = torch.autograd.grad(sum([(y * y).sum() for y in ys]), xs, create_graph=n + 1 < order)
        return ys

    return in_torch(run)


def mean_flow(smoke: bool) -> Case:
    """The loss of MeanFlow and the gradients of all weights: `examples/mean_flow.py`."""
    rng = np.random.default_rng(0)
    count, width = (8, 4) if smoke else (512, 64)
    ws = dense_weights(rng, "f", 4, width, width, width, 2)
    z, v = normal(rng, 2, count, 2)
    r, t = np.sort(rng.uniform(size=(2, count, 1)), axis=0).astype("f")

    def by_nngrad() -> Step:
        own, points, now = variables(ws), nn.Variable.from_numpy_array(z), nn.Variable.from_numpy_array(t)
        u = plain_mlp(F.swish, own, F.concatenate(points, now, now - r, axis=1))
        (along,) = nn.jvp(u, [points, now], [v, np.ones_like(t)])
        loss = F.mean((u - F.unlink(v - (t - r) * along)) ** 2)
        return in_nngrad([loss, *nn.grad(loss, own)], [points, *own])

    def loss(ws: Any, z: Any) -> Any:
        def network(z: Any, t: Any) -> Any:
            return plain_mlp(jax.nn.swish, ws, jnp.concatenate([z, t, t - r], axis=1))

        u, along = jax.jvp(network, (z, t), (v, np.ones_like(t)))
        return jnp.mean((u - jax.lax.stop_gradient(v - (t - r) * along)) ** 2)

    ways = {"nngrad": by_nngrad, "jax": partial(in_jax, jax.value_and_grad(loss), ws, z)}
    return Case(f"MeanFlow, {count} points: loss and gradients", ways, measures=("time", "first result"))


def cases(smoke: bool) -> Iterable[Case]:
    """Lengths and orders."""
    for length in (600,) if smoke else (256, 512, 1024, 4096):
        rng = np.random.default_rng(0)
        arrays = [normal(rng, 1, 4, length, 8 if smoke else 64) for _ in range(3)]
        for order in (0, 1, 2):
            yield Case(f"attention, length {length}, order {order}", {
                "F.attention": partial(ours, arrays, order),
                "jax.nn.dot_product_attention": partial(dense, arrays, order),
                "PyTorch": partial(by_torch, arrays, order),
            }, measures=("time", "temporaries"))  # fmt: skip
    yield mean_flow(smoke)
