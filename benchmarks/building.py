"""Building gradient graphs: a chain of `h * 1.01` and `tanh` in turn, against tracing it with JAX.

"Again" is a structure that came before, whose gradient is made from a known Block. PyTorch computes it as well.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

import nngrad as nn
import nngrad.functions as F

from .harness import Row, installed, row, shown

Both = tuple[float, float]
"""Seconds for the gradient, and for the gradient of its sum."""


def nngrad_times(ops: int, comes_again: bool = True) -> Both:
    """By `nn.grad`."""
    if not comes_again:
        nn.executables.clear()
    x = h = nn.Variable((8, 8), need_grad=True)
    for _ in range(ops // 2):
        h = F.tanh(h * 1.01)
    y = F.sum(h)
    start = time.perf_counter()
    (g,) = nn.grad([y], [x])
    middle = time.perf_counter()
    s = F.sum(g)
    again = time.perf_counter()
    nn.grad([s], [x])
    return middle - start, time.perf_counter() - again


def jax_times(ops: int) -> Both:
    """By `jax.make_jaxpr`."""

    def chain(h: Any) -> Any:
        for _ in range(ops // 2):
            h = jnp.tanh(h * 1.01)
        return jnp.sum(h)

    first, x = jax.grad(chain), jnp.ones((8, 8))
    start = time.perf_counter()
    jax.make_jaxpr(first)(x)
    middle = time.perf_counter()
    jax.make_jaxpr(jax.grad(lambda v: jnp.sum(first(v))))(x)
    return middle - start, time.perf_counter() - middle


def torch_times(ops: int) -> Both:
    """By eager PyTorch, with and of a graph."""
    import torch

    x = h = torch.ones(8, 8, requires_grad=True)
    for _ in range(ops // 2):
        h = torch.tanh(h * 1.01)
    y = h.sum()
    start = time.perf_counter()
    (g,) = torch.autograd.grad(y, x, create_graph=True)
    middle = time.perf_counter()
    torch.autograd.grad(g.sum(), x)
    return middle - start, time.perf_counter() - middle


def rows(smoke: bool) -> list[Row]:
    """Times, and how they grow."""
    ops, rounds = (100, 2) if smoke else (1600, 7)
    makers: dict[str, Callable[[], Both]] = {
        "nngrad": lambda: nngrad_times(ops, False), "nngrad, again": lambda: nngrad_times(ops),
        "make_jaxpr": lambda: jax_times(ops), "PyTorch eager": lambda: torch_times(ops),
    }  # fmt: skip
    # What comes for the third time was recorded.
    samples = {n: [make() for _ in range(rounds + 3)][3:] for n, make in makers.items() if installed(n)}
    sizes = (200, 1000) if smoke else (10_000, 100_000)
    small, large = (nngrad_times(n) for n in sizes)
    found = []
    for i, order in enumerate(("grad", "grad of grad")):
        times = {name: {"time": statistics.median([both[i] for both in several])} for name, several in samples.items()}
        found += [
            row(f"build {order}, chain of {ops:,} ops", "time", times, name, peer)
            for name in ("nngrad", "nngrad, again") for peer in list(samples)[2:]
        ]  # fmt: skip
        growth = (large[i] / sizes[1]) / (small[i] / sizes[0])
        what = f"build {order}: cost per op at {sizes[1]:,} ops over that at {sizes[0]:,} (1 is linear)"
        found.append(Row(what, shown(large[i]), shown(small[i]), growth))
    return found
