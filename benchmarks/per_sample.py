"""Gradients of each sample of a batch: `nn.vmap` of `nn.grad`, `jax.vmap` of `jax.grad` and `torch.func`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import nngrad as nn
import nngrad.functions as F

from .harness import Case, Step, Way, in_jax, in_nngrad, in_torch
from .models import Parameters, dense_parameters, mlp, normal, variables

OURS, JAX, TORCH = "nn.vmap of nn.grad", "jax.vmap of jax.grad", "torch.func"

Network = Callable[[Any, Any, list[Any], Any], Any]
"""The loss of one sample: `network(numpy, scan, parameters, x)`, with F or `jax.numpy`."""


def dense(m: Any, scan: Any, p: list[Any], x: Any) -> Any:
    """A tanh network."""
    return m.mean(mlp(m.tanh, p, x) ** 2)


def recurrent(m: Any, scan: Any, p: list[Any], x: Any) -> Any:
    """A recurrent network, on a sequence."""
    w, v, h = p
    last, _ = scan(lambda h, x: (m.tanh(h @ w + x @ v), None), h, x)
    return m.mean(last**2)


def ways(network: Network, parameters: Parameters, x: np.ndarray) -> dict[str, Way]:
    """The gradients of all samples, in all parameters."""

    def mapped() -> Step:
        p, leaf = variables(parameters), nn.Variable.from_numpy_array(x)
        return in_nngrad(nn.vmap(lambda x: nn.grad(network(F, F.scan, p, x), p))(leaf), [leaf])

    def by_jax() -> Step:
        return in_jax(jax.vmap(jax.grad(lambda p, x: network(jnp, lax.scan, p, x)), (None, 0)), parameters, x)

    def by_torch() -> Step:
        import torch

        p, data = [torch.tensor(a) for a in parameters], torch.tensor(x)
        of_all = torch.func.vmap(torch.func.grad(lambda p, x: network(torch, None, p, x)), in_dims=(None, 0))
        return in_torch(lambda: of_all(p, data))

    return {OURS: mapped, JAX: by_jax, TORCH: by_torch}


def cases(smoke: bool) -> Iterable[Case]:
    """Dense and recurrent."""
    rng = np.random.default_rng(0)
    width, batch, steps = (8, 4, 3) if smoke else (128, 64, 50)
    given = ways(dense, dense_parameters(rng, 32, width, width, 10), normal(rng, batch, 32))
    yield Case(f"gradients of each sample, MLP 32-{width}-{width}-10, batch {batch}", given)
    n = width // 4
    p = [normal(rng, n, n, scale=n**-0.5), normal(rng, 4, n, scale=0.5), np.zeros(n, "f")]
    given = ways(recurrent, p, normal(rng, batch, steps, 4))
    what = f"gradients of each sample, scan of {steps} steps, width {n}, batch {batch}"
    yield Case(what, {name: given[name] for name in (OURS, JAX)})  # PyTorch has no scan
