"""Building gradient graphs: a chain of `h * 1.01` and `tanh` in turn, against tracing it with JAX."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

import nngrad as nn
import nngrad.functions as F
from nngrad.graph import functions_of

from .timing import Row, row, shown


def nngrad_chain(ops: int) -> tuple[nn.Variable, nn.Variable]:
    """The chain's input and the sum of its output."""
    x = h = nn.Variable((8, 8), need_grad=True)
    for _ in range(ops // 2):
        h = F.tanh(h * 1.01)
    return x, F.sum(h)


def jax_chain(ops: int) -> Callable[[Any], Any]:
    """The same as a function for JAX."""

    def chain(h: Any) -> Any:
        for _ in range(ops // 2):
            h = jnp.tanh(h * 1.01)
        return jnp.sum(h)

    return chain


def nngrad_times(ops: int, comes_again: bool = True) -> tuple[float, float, int]:
    """Seconds for the gradient and for the gradient of its sum, and functions in the latter; of a structure that is
    new, or one that `comes_again`, of which they are made from a known Block."""
    if not comes_again:
        nn.executables.clear()
    x, y = nngrad_chain(ops)
    start = time.perf_counter()
    (g,) = nn.grad([y], [x])
    middle = time.perf_counter()
    s = F.sum(g)
    again = time.perf_counter()
    (gg,) = nn.grad([s], [x])
    end = time.perf_counter()
    return middle - start, end - again, len(functions_of([gg]))


def jax_times(ops: int) -> tuple[float, float]:
    """Seconds to trace the gradient and the gradient of its sum."""
    chain, x = jax_chain(ops), jnp.ones((8, 8))
    first = jax.grad(chain)
    start = time.perf_counter()
    jax.make_jaxpr(first)(x)
    middle = time.perf_counter()
    jax.make_jaxpr(jax.grad(lambda v: jnp.sum(first(v))))(x)
    return middle - start, time.perf_counter() - middle


def python_calls(function: Callable[[], Any]) -> int:
    """How many functions of Python `function` calls in all: a figure that no other load on the machine disturbs."""
    count = 0

    def seen(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        function()
    finally:
        sys.setprofile(before)
    return count


def calls_per_op(ops: int) -> dict[str, tuple[float, float]]:
    """Calls of Python functions for each op of the chain, by the gradient and by the gradient of its sum."""
    x, y = nngrad_chain(ops)
    nn.grad([y], [x])  # what is remembered from one gradient to the next is there
    first = python_calls(lambda: nn.grad([y], [x]))
    s = F.sum(nn.grad([y], [x])[0])
    again = python_calls(lambda: nn.grad([s], [x]))
    chain, v = jax_chain(ops), jnp.ones((8, 8))
    gradient = jax.grad(chain)
    traced = python_calls(lambda: jax.make_jaxpr(gradient)(v))
    twice = python_calls(lambda: jax.make_jaxpr(jax.grad(lambda z: jnp.sum(gradient(z))))(v))
    return {"nngrad": (first / ops, again / ops), "make_jaxpr": (traced / ops, twice / ops)}


def torch_times(ops: int) -> tuple[float, float]:
    """Seconds for PyTorch to compute the gradient eagerly, with and of a graph."""
    import torch

    x = torch.ones(8, 8, requires_grad=True)
    h = x
    for _ in range(ops // 2):
        h = torch.tanh(h * 1.01)
    y = h.sum()
    start = time.perf_counter()
    (g,) = torch.autograd.grad(y, x, create_graph=True)
    middle = time.perf_counter()
    torch.autograd.grad(g.sum(), x)
    return middle - start, time.perf_counter() - middle


def run(smoke: bool, torch: bool) -> list[Row]:
    """Lines of the table."""
    ops, rounds = (100, 2) if smoke else (1600, 7)
    samples: dict[str, list[tuple[float, float]]] = {"nngrad": [], "nngrad, again": [], "make_jaxpr": []}
    if torch:
        samples["PyTorch eager"] = []
    for _ in range(rounds + 1):
        samples["nngrad"].append(nngrad_times(ops, comes_again=False)[:2])
    for _ in range(rounds + 3):  # what comes for the third time was recorded
        samples["nngrad, again"].append(nngrad_times(ops)[:2])
    del samples["nngrad, again"][:2]
    for _ in range(rounds + 1):
        samples["make_jaxpr"].append(jax_times(ops))
        if torch:
            samples["PyTorch eager"].append(torch_times(ops))
    rows = []
    for i, order in enumerate(("grad", "grad of grad")):
        times = {name: statistics.median(v[i] for v in values[1:]) for name, values in samples.items()}
        what = f"build {order}, chain of {ops:,} ops"
        for name in ("nngrad", "nngrad, again"):
            rows.append(row(what, times, name, "make_jaxpr", 0.05 if i == 0 else 0.037))
            if torch:
                rows.append(row(what, times, name, "PyTorch eager"))
    calls = calls_per_op(ops)
    for i, order in enumerate(("grad", "grad of grad")):
        ours, peer = calls["nngrad"][i], calls["make_jaxpr"][i]
        what = f"build {order}: Python calls per op of the chain"
        rows.append(Row(what, f"{ours:.0f}", f"make_jaxpr {peer:.0f}", ours / peer, None))
    sizes = (200, 1000) if smoke else (10_000, 100_000)
    small, large = (nngrad_times(n) for n in sizes)
    for i, order in enumerate(("grad", "grad of grad")):
        growth = (large[i] / sizes[1]) / (small[i] / sizes[0])
        what = f"build {order}: cost per op at {sizes[1]:,} ops over that at {sizes[0]:,} (1 is linear)"
        rows.append(Row(what, shown(large[i]), shown(small[i]), growth, None))
    return rows
