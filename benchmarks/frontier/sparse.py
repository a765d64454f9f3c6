"""Sparse Hessians and Jacobians of 10,000 variables: a finite-element energy, and the defects of a collocation.

The peer is asdex where it is installed, else the dense matrix by JAX, which is for the tiny sizes of `--smoke` alone.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import nngrad as nn
import nngrad.functions as F

from ..timing import Contender, Row, forget, medians, row, wait_for

OURS, ASDEX, DENSE = "nngrad", "asdex", "jax, dense"
PEER = ASDEX if importlib.util.find_spec("asdex") else DENSE

Function = Callable[[Any, Any], Any]
"""`function(numpy, x)`, with F or `jax.numpy`."""


class Case(NamedTuple):
    """A function whose matrix is wanted."""

    name: str
    function: Function
    x: np.ndarray
    scalar: bool
    """Whether it is its Hessian that is wanted, and not its Jacobian."""


def elements(m: int) -> Case:
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

    return Case("Hessian of a finite-element energy", energy, x, True)


def collocation(steps: int) -> Case:
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

    return Case("Jacobian of a collocation", defects, np.random.default_rng(0).standard_normal((steps, 5)), False)


def ours(case: Case) -> Contender:
    """nngrad's elements of the matrix."""
    x = nn.Variable.from_numpy_array(case.x, need_grad=True)
    matrix = (nn.sparse_hessian if case.scalar else nn.sparse_jacobian)(case.function(F, x), x)
    compiled, given = nn.compile(matrix.values, [x]), jnp.asarray(case.x)  # an array of JAX's, as the peer has
    return lambda: compiled(given)


def peers(case: Case) -> Contender:
    """The peer's: asdex's elements, or all of them."""
    x = jnp.asarray(case.x)

    def function(x: Any) -> Any:
        return case.function(jnp, x)

    if PEER == DENSE:
        dense = jax.jit((jax.hessian if case.scalar else jax.jacobian)(function))
        return lambda: dense(x)
    import asdex

    kind = "hessian" if case.scalar else "jacobian"
    coloring = getattr(asdex, f"{kind}_coloring")(function, x)
    compiled = jax.jit(lambda x: getattr(asdex, f"{kind}_from_coloring")(function, coloring)(x).data)
    return lambda: compiled(x)


def run(smoke: bool, torch: bool) -> list[Row]:
    """Lines of the table."""
    rows = []
    with jax.enable_x64(True):
        for case in (elements(4 if smoke else 71), collocation(5 if smoke else 2000)):
            first, contenders = {}, {}
            for name, make in ((OURS, ours), (PEER, peers)):
                forget()
                start = time.perf_counter()
                contenders[name] = make(case)
                wait_for(contenders[name]())
                first[name] = time.perf_counter() - start
            times = medians(contenders, *((2, 1) if smoke else (20, 5)))
            what = f"{case.name}, {case.x.size} variables"
            rows += [
                row(what, times, OURS, PEER, 1.0),
                row(f"{what}: first result, with pattern and colours", first, OURS, PEER, 1.0),
            ]
    return rows
