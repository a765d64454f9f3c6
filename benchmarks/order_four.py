"""Operators of order four: the bilaplacian of a tanh network, and the residual of a stream function, with the gradients
of losses of both."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import combinations
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import nngrad as nn
import nngrad.functions as F

from . import operators
from .harness import Case, Step, Way, in_jax, in_nngrad
from .models import Parameters, nngrad_mlp, tanh_parameters, variables
from .operators import field

Build = Callable[[list[nn.Variable], nn.Variable], nn.Variable]
"""What makes of parameters and points what is to be computed, as a graph."""
MEASURES = ("time", "arithmetic", "temporaries")
VISCOSITY = 0.1

# ---------------------------------------------------------------- the bilaplacian


def bilaplacian(p: list[nn.Variable], x: nn.Variable) -> nn.Variable:
    """`nn.bilaplacian`."""
    return nn.bilaplacian(nngrad_mlp(p, x), x)


def laplacian_of_laplacian(p: list[nn.Variable], x: nn.Variable) -> nn.Variable:
    """`nn.laplacian`, twice."""
    return nn.laplacian(nn.laplacian(nngrad_mlp(p, x), x), x)


def directions_of(dimensions: int) -> tuple[Any, Any]:
    """Directions, and weights with which the fourth derivatives along them add up to the bilaplacian."""
    unit = np.eye(dimensions, dtype="f")
    pairs = [unit[i] + sign * unit[j] for i, j in combinations(range(dimensions), 2) for sign in (1, -1)]
    weights = [(4 - dimensions) / 3] * dimensions + [1 / 6] * len(pairs)
    return jnp.asarray([*unit, *pairs]), jnp.asarray(weights, "f")


def collapsed_by_hand(p: Parameters, x: Any, along: tuple[Any, Any] | None = None) -> Any:
    """Collapsed Taylor mode, written for this network: derivatives of orders 1 to 3 along each direction, and the sum
    of the fourth ones (Dangel et al. 2025). `along` are other directions and weights than the bilaplacian's."""
    v, weights = along or directions_of(x.shape[1])
    weights = weights[:, None, None]
    a = x @ p[0] + p[1]
    first = jnp.broadcast_to((v @ p[0])[:, None], (len(v), *a.shape))
    second = third = jnp.zeros_like(first)
    fourth = jnp.zeros_like(a)
    for w, b in zip(p[2::2], p[3::2], strict=True):
        h = jnp.tanh(a)
        d1 = 1 - h * h
        d2 = -2 * h * d1
        d3 = -2 * (d1 * d1 + h * d2)
        d4 = -2 * (3 * d1 * d2 + h * d3)
        terms = d2 * (4 * first * third + 3 * second**2) + 6 * d3 * first**2 * second + d4 * first**4
        fourth = (d1 * fourth + jnp.sum(weights * terms, 0)) @ w
        third = (d1 * third + 3 * d2 * first * second + d3 * first**3) @ w
        second, first = (d1 * second + d2 * first * first) @ w, (d1 * first) @ w
        a = h @ w + b
    return fourth


def nested_laplacians(p: Parameters, x: Any) -> Any:
    """The trace of `jax.hessian` of the trace of `jax.hessian`, at each point."""

    def trace(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda x: jnp.trace(jax.hessian(f)(x))

    return jax.vmap(trace(trace(field(p))))(x)[:, None]


def summed_jet(p: Parameters, x: Any, along: tuple[Any, Any] | None = None) -> Any:
    """The sum of the fourth derivatives along directions, each by Taylor mode; `along` as in `collapsed_by_hand`."""
    return operators.summed_jet(p, x, *(along or directions_of(x.shape[1])), order=4)[:, None]


# ---------------------------------------------------------------- the equation of a stream function


def by_operators(p: list[nn.Variable], x: nn.Variable) -> nn.Variable:
    """The residual of the steady Navier-Stokes equation, by operators."""
    u = nngrad_mlp(p, x)
    vorticity = nn.laplacian(u, x)
    (slope,), (turning,) = nn.grad(u, x), nn.grad(vorticity, x)
    advection = slope[:, 1:] * turning[:, :1] - slope[:, :1] * turning[:, 1:]
    return advection - VISCOSITY * nn.laplacian(vorticity, x)


NAMES = ["x", "y", "xxx", "xyy", "xxy", "yyy", "xxxx", "xxyy", "yyyy"]


def residual(d: dict[str, nn.Variable]) -> nn.Variable:
    """The same, of partial derivatives, by the letters of what they are by, in turn."""
    advection = d["y"] * (d["xxx"] + d["xyy"]) - d["x"] * (d["xxy"] + d["yyy"])
    return advection - VISCOSITY * (d["xxxx"] + 2 * d["xxyy"] + d["yyyy"])


def by_derivatives(p: list[nn.Variable], x: nn.Variable) -> nn.Variable:
    """The residual of all partial derivatives at once, by `nn.derivatives`."""
    columns = {"x": x[:, :1], "y": x[:, 1:]}
    u = nngrad_mlp(p, F.concatenate(*columns.values(), axis=1))
    found = nn.derivatives(u, [tuple([columns[c] for c in name]) for name in NAMES])
    return residual(dict(zip(NAMES, found, strict=True)))


# ---------------------------------------------------------------- the cases


def of_graph(build: Build, arrays: list[np.ndarray], gradient: bool) -> Step:
    """What a graph computes, or the gradient of its mean square by the parameters."""
    x, *p = variables(arrays)
    y = build(p, x)
    return in_nngrad(nn.grad(F.mean(y * y), p) if gradient else y, [x])


def of_function(function: Callable[[Any, Any], Any], arrays: list[np.ndarray], gradient: bool) -> Step:
    """The same of a function of JAX."""
    x, *p = arrays
    loss = jax.grad(lambda p, x: jnp.mean(function(p, x) ** 2))
    return in_jax(loss if gradient else function, p, x)


def both(
    what: str, graphs: dict[str, Build], functions: dict[str, Callable[..., Any]], sizes: tuple[int, int, int],
    smoke: bool,
) -> Iterable[Case]:
    """The values, and the gradients, which are all that a tiny run has."""
    (dimensions, batch, width), rng = sizes, np.random.default_rng(0)
    widths = (dimensions, *[width] * 3, 1)
    arrays = [rng.uniform(-1, 1, (batch, dimensions)).astype("f"), *tanh_parameters(rng, *widths)]
    for gradient in (True,) if smoke else (False, True):
        ways: dict[str, Way] = {name: partial(of_graph, build, arrays, gradient) for name, build in graphs.items()}
        ways |= {name: partial(of_function, f, arrays, gradient) for name, f in functions.items()}
        whole = f"{what}, MLP {'-'.join(map(str, widths))}, {batch:,} points{', gradient of a loss' * gradient}"
        yield Case(whole, ways, measures=MEASURES, tolerance=1e-3)


FEW, MANY = [(2, 1024, 48), (5, 512, 128)], [(3, 512, 64), (10, 512, 64), (50, 32, 64)]
"""Dimensions, points and widths: with all peers, and with those that many dimensions leave possible."""


def cases(smoke: bool) -> Iterable[Case]:
    """Bilaplacians, and the equation."""
    graphs: dict[str, Build] = {"nn.bilaplacian": bilaplacian}
    hand = {"collapsed Taylor mode by hand": collapsed_by_hand}
    more = {"nn.laplacian twice": laplacian_of_laplacian}
    for sizes in [(2, 4, 5)] if smoke else FEW:
        peers = {**hand, "jet, summed": summed_jet, "nested jax.hessian": nested_laplacians}
        yield from both("bilaplacian", graphs | more, hand if smoke else peers, sizes, smoke)
    for sizes in [] if smoke else MANY:
        yield from both("bilaplacian", graphs, hand, sizes, smoke)
    residuals: dict[str, Build] = {"by nn.derivatives": by_derivatives, "by nn.laplacian": by_operators}
    yield from both("Navier-Stokes", residuals, {}, (2, 4, 5) if smoke else (2, 1024, 48), smoke)
