"""Derivatives by coordinates that many functions share, of a DeepONet: `nj.derivatives`, and three ways of JAX.

The ways are zero coordinate shift in reverse mode, as its authors have it (Leng et al. 2023, arXiv 2311.00860: a scalar
shift of all points, and a dummy that weighs the values); the same forward, by nested `jax.jvp`; and
`jax.experimental.jet`. What is timed is the gradient of a loss of u_t and of the derivatives of u by x up to some
order, in the weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import nngrad.jax as nj

from .harness import Case, Way, in_jax
from .models import along, nested_jvp, normal, taylor

Network = Callable[[Any, Any, Any], Any]
"""The functions `a` at points: (functions, points)."""


def network(w: Any, a: Any, x: Any, t: Any) -> Any:
    """Of functions (functions, sensors) at points (points,)."""
    h = jnp.stack([x, t], -1)
    for branch, trunk in zip(*w, strict=True):
        a, h = jnp.tanh(a @ branch), jnp.tanh(h @ trunk)
    return a @ h.T


def zero_coordinate_shift(f: Network, a: Any, x: Any, t: Any, order: int) -> list[Any]:
    """Reverse mode by a shift of all coordinates, and by weights of all values."""

    def weighed(dummy: Any, dx: Any, dt: Any) -> Any:
        return jnp.sum(dummy * f(a, x + dx, t + dt))

    found, by_x = [jax.grad(weighed, 2)], weighed
    for _ in range(order):
        by_x = jax.grad(by_x, 1)
        found.append(by_x)
    return [jax.grad(g)(jnp.ones((len(a), len(x)), jnp.float32), 0.0, 0.0) for g in found]


def forward(f: Network, a: Any, x: Any, t: Any, order: int) -> list[Any]:
    """Forward mode along all points."""
    by_x = [nested_jvp(lambda x: f(a, x, t), n)(x) for n in range(1, order + 1)]
    return [along(lambda t: f(a, x, t))(t), *by_x]


def by_taylor(f: Network, a: Any, x: Any, t: Any, order: int) -> list[Any]:
    """Taylor mode along all points."""
    return [along(lambda t: f(a, x, t))(t), *taylor(lambda x: f(a, x, t), x, order)[1]]


def ours(f: Network, a: Any, x: Any, t: Any, order: int) -> list[Any]:
    """`nj.derivatives`."""
    wanted = [(1,), *[(0,) * n for n in range(1, order + 1)]]
    found: list[Any] = nj.derivatives(partial(f, a), wanted)(x, t)
    return found


def cases(smoke: bool) -> Iterable[Case]:
    """Orders 1 to 4."""
    functions, points, width = (3, 4, 5) if smoke else (50, 1000, 64)
    rng = np.random.default_rng(0)
    w = [[normal(rng, m, n, scale=m**-0.5) for m, n in pairwise([first, width, width, width])] for first in (20, 2)]
    a = normal(rng, functions, 20)
    x, t = rng.uniform(size=(2, points)).astype("f")
    for order in (2,) if smoke else (1, 2, 3, 4):
        routes = {
            "nngrad": ours, "zero coordinate shift in JAX": zero_coordinate_shift,
            "nested jax.jvp along all points": forward, "jax.experimental.jet": by_taylor,
        }  # fmt: skip

        def loss(route: Any, w: Any, order: int = order) -> Any:
            return sum([jnp.mean(d**2) for d in route(partial(network, w), a, x, t, order)])

        ways: dict[str, Way] = {
            name: partial(in_jax, (nj if name == "nngrad" else jax).grad(partial(loss, route)), w)
            for name, route in routes.items()
        }
        what = f"DeepONet, order {order}, {functions} functions, {points} points: gradient of the loss"
        yield Case(what, ways, measures=("time", "first result", "temporaries"))
