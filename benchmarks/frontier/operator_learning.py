"""Derivatives by coordinates that many functions share, of a DeepONet: `nn.derivatives`, and four ways of JAX.

The ways are nested `jax.grad` of one function at one point, batched over both; zero coordinate shift in reverse mode,
as its authors have it (Leng et al. 2023, arXiv 2311.00860: a scalar shift of all points, and a dummy that weighs the
values); the same forward, by nested `jax.jvp`; and `jax.experimental.jet`. What is timed is the gradient of a loss of
u_t and of the derivatives of u by x up to some order, in the weights.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import jet

import nngrad.jax as nj

from ..timing import Row, forget, medians, row, wait_for

OURS, POINTWISE = "nngrad", "jax.grad, vmapped twice"
ZCS, FORWARD, JET = "zero coordinate shift in JAX", "nested jax.jvp along all points", "jax.experimental.jet"
Derivatives = Callable[[Any], list[Any]]


def weights(rng: np.random.Generator, sensors: int, width: int) -> Any:
    """Of a branch and of a trunk, three layers each."""
    return [
        [jnp.asarray(rng.normal(0, m**-0.5, (m, n)), "f") for m, n in pairwise([first, width, width, width])]
        for first in (sensors, 2)
    ]


def network(w: Any, a: Any, x: Any, t: Any) -> Any:
    """Of functions (functions, sensors) at points (points,): (functions, points)."""
    h = jnp.stack([x, t], -1)
    for branch, trunk in zip(*w, strict=True):
        a, h = jnp.tanh(a @ branch), jnp.tanh(h @ trunk)
    return a @ h.T


def pointwise(a: Any, x: Any, t: Any, order: int) -> Derivatives:
    """Of one function at one point, batched."""

    def derivatives(w: Any) -> list[Any]:
        def at(a: Any, x: Any, t: Any) -> Any:
            return network(w, a[None], x[None], t[None])[0, 0]

        found, f = [jax.grad(at, 2)], at
        for _ in range(order):
            f = jax.grad(f, 1)
            found.append(f)
        return [jax.vmap(jax.vmap(f, (None, 0, 0)), (0, None, None))(a, x, t) for f in found]

    return derivatives


def zero_coordinate_shift(a: Any, x: Any, t: Any, order: int) -> Derivatives:
    """Reverse mode by a shift of all coordinates, and by weights of all values."""
    ones = jnp.ones((len(a), len(x)), jnp.float32)

    def derivatives(w: Any) -> list[Any]:
        def weighed(dummy: Any, dx: Any, dt: Any) -> Any:
            return jnp.sum(dummy * network(w, a, x + dx, t + dt))

        found, f = [jax.grad(weighed, 2)], weighed
        for _ in range(order):
            f = jax.grad(f, 1)
            found.append(f)
        return [jax.grad(f)(ones, 0.0, 0.0) for f in found]

    return derivatives


def forward(a: Any, x: Any, t: Any, order: int) -> Derivatives:
    """Forward mode along all points."""

    def derivatives(w: Any) -> list[Any]:
        def along(f: Any) -> Any:
            return lambda x: jax.jvp(f, (x,), (jnp.ones_like(x),))[1]

        found, f = [jax.jvp(lambda t: network(w, a, x, t), (t,), (jnp.ones_like(t),))[1]], lambda x: network(w, a, x, t)
        for _ in range(order):
            f = along(f)
            found.append(f(x))
        return found

    return derivatives


def taylor(a: Any, x: Any, t: Any, order: int) -> Derivatives:
    """Taylor mode along all points."""

    def derivatives(w: Any) -> list[Any]:
        series = [jnp.ones_like(x), *[jnp.zeros_like(x)] * (order - 1)]
        _, by_x = jet.jet(lambda x: network(w, a, x, t), (x,), (series,))
        return [jax.jvp(lambda t: network(w, a, x, t), (t,), (jnp.ones_like(t),))[1], *by_x]

    return derivatives


def ours(a: Any, x: Any, t: Any, order: int) -> Derivatives:
    """`nj.derivatives`."""
    wanted = [(1,), *[(0,) * n for n in range(1, order + 1)]]
    return lambda w: nj.derivatives(lambda x, t: network(w, a, x, t), wanted)(x, t)


def rows_of(order: int, functions: int, points: int, width: int, smoke: bool) -> list[Row]:
    """The lines of one size: time, the first result, and memory by the compiler's account."""
    rng = np.random.default_rng(0)
    w = weights(rng, 20, width)
    a = jnp.asarray(rng.normal(size=(functions, 20)), "f")
    x, t = jnp.asarray(rng.uniform(size=(2, points)), "f")
    executables, first, kept = {}, {}, {}
    ways = {OURS: ours, ZCS: zero_coordinate_shift, FORWARD: forward, JET: taylor}
    if order == 1 or smoke:  # later it takes a hundred times as long as the others
        ways[POINTWISE] = pointwise
    for name, make in ways.items():
        derivatives = make(a, x, t, order)

        def loss(w: Any, derivatives: Derivatives = derivatives) -> Any:
            return sum([jnp.mean(d**2) for d in derivatives(w)])

        forget()
        start = time.perf_counter()
        compiled = jax.jit((nj if name == OURS else jax).grad(loss)).lower(w).compile()
        wait_for(compiled(w))
        first[name] = time.perf_counter() - start
        executables[name] = partial(compiled, w)
        kept[name] = compiled.memory_analysis().temp_size_in_bytes / 1e6
    expected = jax.tree.leaves(executables[ZCS]())
    for name, call in executables.items():
        for got, wanted in zip(jax.tree.leaves(call()), expected, strict=True):
            error = np.max(np.abs(got - wanted)) / np.max(np.abs(wanted))
            if not error <= 1e-3:
                raise ValueError(f"order {order}: the gradient by {name} differs by {error:.1e}")
    times = medians(executables, 2 if smoke else 15, 1 if smoke else 3)
    what = f"DeepONet, order {order}, {functions} functions, {points} points: gradient of the loss"
    lines = []
    for peer in executables:
        if peer != OURS:
            lines += [
                row(what, times, OURS, peer, 1.0), row(f"{what}, first result", first, OURS, peer),
                Row(f"{what}, temporaries", f"{OURS}: {kept[OURS]:.2f} MB", f"{peer}: {kept[peer]:.2f} MB",
                    kept[OURS] / max(kept[peer], 1e-6), None),
            ]  # fmt: skip
    return lines


def run(smoke: bool, torch: bool) -> list[Row]:
    """Lines of the table."""
    if smoke:
        return rows_of(2, 3, 4, 5, smoke)
    return [line for order in (1, 2, 3, 4) for line in rows_of(order, 50, 1000, 64, smoke)]
