"""Gradients of each sample of a batch: `nn.vmap` of `nn.grad`, `jax.vmap` of `jax.grad`, `torch.func`, and the Jacobian
of all losses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import nngrad as nn
import nngrad.functions as F

from .peers import Parameters, dense_parameters
from .timing import Contender, Row, medians, row

OURS, JACOBIAN, JAX, TORCH = "nn.vmap of nn.grad", "nn.jacobian", "jax.vmap of jax.grad", "torch.func"

Network = Callable[[Any, Any, list[Any], Any], Any]
"""The loss of one sample: `network(numpy, scan, parameters, x)`, with F or `jax.numpy`."""


def dense(m: Any, scan: Any, p: list[Any], x: Any) -> Any:
    """A tanh network."""
    del scan
    for w, b in zip(p[:-2:2], p[1:-2:2], strict=True):
        x = m.tanh(x @ w + b)
    return m.mean((x @ p[-2] + p[-1]) ** 2)


def recurrent(m: Any, scan: Any, p: list[Any], x: Any) -> Any:
    """A recurrent network, on a sequence."""
    w, v, h = p
    last, _ = scan(lambda h, x: (m.tanh(h @ w + x @ v), None), h, x)
    return m.mean(last**2)


def contenders(network: Network, parameters: Parameters, x: np.ndarray) -> dict[str, Contender]:
    """What computes the gradients of all samples, in all parameters; all are compared first."""
    p = [nn.Variable.from_numpy_array(a, need_grad=True) for a in parameters]
    leaf = nn.Variable(x.shape)
    each = nn.vmap(lambda x: nn.grad(network(F, F.scan, p, x), p))(leaf)
    losses = nn.vmap(lambda x: network(F, F.scan, p, x))(leaf)
    mapped = nn.compile(each, [leaf])
    rows = nn.compile([nn.jacobian(losses, w, batched=False) for w in p], [leaf])
    arrays, given = jnp.asarray(x), [jnp.asarray(a) for a in parameters]
    peer = jax.jit(jax.vmap(jax.grad(lambda p, x: network(jnp, lax.scan, p, x)), in_axes=(None, 0)))
    found = {OURS: lambda: mapped(arrays), JACOBIAN: lambda: rows(arrays), JAX: lambda: peer(given, arrays)}
    expected = peer(given, arrays)
    for name in (OURS, JACOBIAN):
        for a, b in zip(found[name](), expected, strict=True):
            np.testing.assert_allclose(np.asarray(a), b, rtol=1e-3, atol=1e-5)
    return found


def torch_contender(parameters: Parameters, x: np.ndarray) -> Contender:
    """The dense network in eager PyTorch."""
    import torch

    p, data = [torch.tensor(a) for a in parameters], torch.tensor(x)

    def loss(p: list[Any], x: Any) -> Any:
        for w, b in zip(p[:-2:2], p[1:-2:2], strict=True):
            x = torch.tanh(x @ w + b)
        return ((x @ p[-2] + p[-1]) ** 2).mean()

    mapped = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))
    return lambda: mapped(p, data)


def run(smoke: bool, torch: bool) -> list[Row]:
    """Lines of the table."""
    rng = np.random.default_rng(0)
    rounds, calls = (2, 1) if smoke else (25, 10)
    width, batch, steps = (8, 4, 3) if smoke else (128, 64, 50)
    parameters = dense_parameters(rng, 32, width, width, 10)
    x = rng.normal(size=(batch, 32)).astype("f")
    given = contenders(dense, parameters, x)
    if torch:
        given[TORCH] = torch_contender(parameters, x)
    times = medians(given, rounds, calls)
    what = f"gradients of each sample, MLP 32-{width}-{width}-10, batch {batch}"
    rows = [row(what, times, OURS, peer, 1.0) for peer in given if peer != OURS]

    n = width // 4
    parameters = [rng.normal(0, n**-0.5, (n, n)).astype("f"), rng.normal(0, 0.5, (4, n)).astype("f"), np.zeros(n, "f")]
    given = contenders(recurrent, parameters, rng.normal(size=(batch, steps, 4)).astype("f"))
    del given[JACOBIAN]  # hundreds of times as long
    times = medians(given, rounds, calls)
    what = f"gradients of each sample, scan of {steps} steps, width {n}, batch {batch}"
    return [*rows, *[row(what, times, OURS, peer, 1.0) for peer in given if peer != OURS]]
