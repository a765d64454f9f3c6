"""Sparse Hessians and Jacobians of 10,000 variables: a finite-element energy, and the defects of a collocation."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

import nngrad as nn
import nngrad.functions as F

from .harness import Case, Step, in_jax, in_nngrad

Function = Callable[[Any, Any], Any]
"""`function(numpy, x)`, with F or `jax.numpy`."""


class Wanted(NamedTuple):
    """A function whose matrix is wanted."""

    name: str
    function: Function
    x: np.ndarray
    scalar: bool
    """Whether it is its Hessian that is wanted, and not its Jacobian."""


def elements(m: int) -> Wanted:
    """The energy of m x m nodes in the plane, joined to triangles that resist being stretched and turned over."""
    x = np.random.default_rng(0).standard_normal((m * m, 2))
    i, j = np.meshgrid(np.arange(m - 1), np.arange(m - 1), indexing="ij")
    corner = (i * m + j).ravel()
    triangles = np.concatenate([
        np.stack([corner, corner + 1, corner + m], 1), np.stack([corner + 1, corner + m, corner + m + 1], 1)
    ])  # fmt: skip

    def energy(m: Any, x: Any) -> Any:
        nodes = x[triangles]
        edges = nodes[:, 1:] - nodes[:, :1]
        area = edges[:, 0, 0] * edges[:, 1, 1] - edges[:, 0, 1] * edges[:, 1, 0]
        return m.sum(m.sum(edges**2, axis=(1, 2)) ** 2 + (area - 1) ** 2)

    return Wanted("Hessian of a finite-element energy", energy, x, True)


def collocation(steps: int) -> Wanted:
    """The defects of the trapezoidal rule for a pendulum on a cart, state (4) and force (1) at each step."""

    def slope(m: Any, x: Any) -> Any:
        angle, velocity, turning, force = x[:, 1], x[:, 2], x[:, 3], x[:, 4]
        sine, cosine = m.sin(angle), m.cos(angle)
        mass = 2 - cosine**2
        cart = (force + turning**2 * sine + 9.81 * sine * cosine) / mass
        pole = -(force * cosine + turning**2 * sine * cosine + 2 * 9.81 * sine) / mass
        slopes = (velocity, turning, cart, pole)
        return F.stack(*slopes, axis=1) if m is F else jnp.stack(slopes, axis=1)

    def defects(m: Any, x: Any) -> Any:
        f = slope(m, x)
        return x[1:, :4] - x[:-1, :4] - 0.01 * (f[1:] + f[:-1])

    return Wanted("Jacobian of a collocation", defects, np.random.default_rng(0).standard_normal((steps, 5)), False)


def ours(wanted: Wanted) -> Step:
    """nngrad's elements of the matrix."""
    x = nn.Variable.from_numpy_array(wanted.x, need_grad=True)
    matrix = (nn.sparse_hessian if wanted.scalar else nn.sparse_jacobian)(wanted.function(F, x), x)
    return in_nngrad(matrix.values, [x])


def by_asdex(wanted: Wanted) -> Step:
    """asdex's."""
    import asdex

    function = partial(wanted.function, jnp)
    kind = "hessian" if wanted.scalar else "jacobian"
    coloring = getattr(asdex, f"{kind}_coloring")(function, jnp.asarray(wanted.x))
    return in_jax(lambda x: getattr(asdex, f"{kind}_from_coloring")(function, coloring)(x).data, wanted.x)


def cases(smoke: bool) -> Iterable[Case]:
    """Both. First results are with pattern and colours; elements are not in the peer's order."""
    for wanted in (elements(4 if smoke else 71), collocation(5 if smoke else 2000)):
        ways = {"nngrad": partial(ours, wanted), "asdex": partial(by_asdex, wanted)}
        what = f"{wanted.name}, {wanted.x.size} variables"
        yield Case(what, ways, measures=("time", "first result"), tolerance=None, double=True)
