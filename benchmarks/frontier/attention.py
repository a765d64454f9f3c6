"""Attention in memory linear in the length, beside all weights at once in JAX and PyTorch's; and a step of MeanFlow.

Orders 1 and 2 are gradients in query, key and value of sum(y^2), and of the squares of those. PyTorch's fused function
has no second derivative, so that it is asked for it without its fused kernels.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import nngrad as nn
import nngrad.functions as F

from ..memory.steps import Step, same_results, temporaries_of
from ..memory.table import memory_row
from ..timing import Row, forget, medians, row, wait_for

OURS, DENSE, TORCH = "F.attention", "jax.nn.dot_product_attention", "PyTorch"
Arrays = list[np.ndarray]


def ours(arrays: Arrays, order: int) -> Step:
    """By nngrad."""
    xs = [nn.Variable.from_numpy_array(a, need_grad=True) for a in arrays]
    ys = [F.attention(*xs)]
    for _ in range(order):
        ys = nn.grad(sum([F.sum(y * y) for y in ys]), xs)
    compiled = nn.compile(ys, xs)
    given = [jnp.asarray(a) for a in arrays]
    return Step(lambda: compiled(*given), nn.memory_report(ys).compiled or 0)


def dense(arrays: Arrays, order: int) -> Step:
    """By JAX, which has (batch, length, heads, size)."""

    def value(*xs: Any) -> Any:
        return [jnp.swapaxes(jax.nn.dot_product_attention(*[jnp.swapaxes(x, 1, 2) for x in xs]), 1, 2)]

    f: Callable[..., Any] = value
    for _ in range(order):
        def next_one(*xs: Any, below: Callable[..., Any] = f) -> Any:
            return jax.grad(lambda *xs: sum([jnp.sum(y * y) for y in below(*xs)]), (0, 1, 2))(*xs)
        f = next_one
    given = [jnp.asarray(a) for a in arrays]
    compiled = jax.jit(f).lower(*given).compile()
    return Step(lambda: compiled(*given), temporaries_of(compiled))


def in_torch(arrays: Arrays, order: int) -> Step:
    """By PyTorch."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    from ..memory.in_torch import peak

    xs = [torch.tensor(a, requires_grad=True) for a in arrays]

    def run() -> list[Any]:
        with sdpa_kernel(SDPBackend.MATH) if order > 1 else nullcontext():
            ys: Any = [torch.nn.functional.scaled_dot_product_attention(*xs)]
            for n in range(order):
                ys = torch.autograd.grad(sum([(y * y).sum() for y in ys]), xs, create_graph=n + 1 < order)
        return [y.detach() for y in ys]

    return Step(run, peak(run))


def lengths(smoke: bool, torch: bool) -> list[Row]:
    """Time and memory of each length and order."""
    rows = []
    for length in (8, 600) if smoke else (256, 512, 1024, 4096):
        rng = np.random.default_rng(0)
        arrays = [rng.standard_normal((1, 4, length, 8 if smoke else 64)).astype("f") for _ in range(3)]
        for order in (0, 1, 2):
            steps = {OURS: ours(arrays, order), DENSE: dense(arrays, order)}
            if torch:
                steps[TORCH] = in_torch(arrays, order)
            same_results(steps[OURS], {name: step for name, step in steps.items() if name != OURS}, 1e-4)
            times = medians({name: step.run for name, step in steps.items()}, 2 if smoke else 5, 1)
            what = f"attention, length {length}, order {order}"
            for name in [name for name in steps if name != OURS]:
                goals = (1.2, 0.1 if length == 4096 and order else None) if name == DENSE else (None, None)
                rows.append(row(what, times, OURS, name, goals[0]))
                if length > 512 and steps[name].temporaries:  # XLA's fused products on a CPU tell nothing of theirs
                    memory = steps[OURS].temporaries, name, steps[name].temporaries
                    rows.append(memory_row(what, OURS, *memory, goals[1]))
    return rows


# ---------------------------------------------------------------- MeanFlow


def weights(rng: np.random.Generator, width: int) -> Arrays:
    """Those of a network of z, t and t - r."""
    sizes = (4, width, width, width, 2)
    return [(rng.standard_normal(s) / s[0] ** 0.5).astype("f") for s in itertools.pairwise(sizes)]


def network(m: Any, swish: Any, ws: list[Any], z: Any, r: Any, t: Any) -> Any:
    """The average velocity, with F, `jax.numpy` or PyTorch."""
    h = F.concatenate(z, t, t - r, axis=1) if m is F else m.concatenate([z, t, t - r], axis=1)
    for w in ws[:-1]:
        h = swish(h @ w)
    return h @ ws[-1]


def mean_flow(smoke: bool, torch: bool) -> list[Row]:
    """The loss and the gradients of all weights: `examples/mean_flow.py`."""
    rng = np.random.default_rng(0)
    count = 8 if smoke else 512
    ws = weights(rng, 4 if smoke else 64)
    z, v = rng.standard_normal((2, count, 2)).astype("f")
    r, t = np.sort(rng.uniform(size=(2, count, 1)), axis=0).astype("f")

    def by_nngrad() -> Callable[..., Any]:
        own, points = [nn.Variable.from_numpy_array(w, need_grad=True) for w in ws], nn.Variable(z.shape)
        now = nn.Variable.from_numpy_array(t)
        u = network(F, F.swish, own, points, nn.Variable.from_numpy_array(r), now)
        (along,) = nn.jvp(u, [points, now], [v, np.ones_like(t)])
        loss = F.mean((u - F.unlink(v - (t - r) * along)) ** 2)
        return nn.compile([loss, *nn.grad(loss, own)], [points, *own])

    def by_jax() -> Callable[..., Any]:
        def loss(ws: Any, z: Any) -> Any:
            u, along = jax.jvp(lambda z, t: network(jnp, jax.nn.swish, ws, z, r, t), (z, t), (v, np.ones_like(t)))
            return jnp.mean((u - jax.lax.stop_gradient(v - (t - r) * along)) ** 2)

        compiled = jax.jit(jax.value_and_grad(loss))
        return lambda z, *ws: compiled(list(ws), z)

    def by_torch() -> Callable[..., Any]:
        import torch

        own = [torch.tensor(w, requires_grad=True) for w in ws]
        points, velocities, start, now = map(torch.tensor, (z, v, r, t))

        def step(*given: Any) -> list[Any]:
            pushed = (points, now), (velocities, torch.ones_like(now))
            u, along = torch.func.jvp(lambda z, t: network(torch, torch.nn.functional.silu, own, z, start, t), *pushed)
            loss = torch.mean((u - (velocities - (now - start) * along).detach()) ** 2)
            return [loss.detach(), *torch.autograd.grad(loss, own)]

        return step

    first, steps = {}, {}
    given = [jnp.asarray(a) for a in (z, *ws)]
    makers = {"nngrad": by_nngrad, "jax": by_jax} | ({TORCH: by_torch} if torch else {})
    for name, make in makers.items():
        forget()
        start = time.perf_counter()
        compiled = make()
        wait_for(compiled(*given))
        first[name] = time.perf_counter() - start
        steps[name] = Step(lambda compiled=compiled: compiled(*given), 0)
    same_results(steps["nngrad"], steps, 1e-4)
    times = medians({name: step.run for name, step in steps.items()}, *((2, 1) if smoke else (30, 10)))
    what = f"MeanFlow, {count} points: loss and gradients"
    return [
        line for name in makers if name != "nngrad" for line in
        (row(what, times, "nngrad", name, 1.0), row(f"{what}, first result", first, "nngrad", name))
    ]  # fmt: skip


def run(smoke: bool, torch: bool) -> list[Row]:
    """Lines of the table."""
    return [*lengths(smoke, torch), *mean_flow(smoke, torch)]
