"""Operators of order four: the bilaplacian, and one step of two equations of order four, of a tanh network."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import nngrad as nn
import nngrad.functions as F

from .operators import field
from .peers import Parameters
from .tanh_mlp import nngrad_mlp, tanh_parameters
from .timing import Contender, Row, agreeing, medians, row

Build = Callable[[list[nn.Variable], nn.Variable], nn.Variable]
"""What makes of parameters and points what is to be computed, as a graph."""


# ---------------------------------------------------------------- the bilaplacian


def bilaplacian(p: list[nn.Variable], x: nn.Variable) -> nn.Variable:
    """`nn.bilaplacian`."""
    return nn.bilaplacian(nngrad_mlp(p, x), x)


def laplacian_of_laplacian(p: list[nn.Variable], x: nn.Variable) -> nn.Variable:
    """`nn.laplacian`, twice."""
    return nn.laplacian(nn.laplacian(nngrad_mlp(p, x), x), x)


def nested(p: list[nn.Variable], x: nn.Variable) -> nn.Variable:
    """The Laplacian of the Laplacian, not known as a bilaplacian: all directions are one chunk."""
    return nn.laplacian(nn.laplacian(nngrad_mlp(p, x), x), x, chunk=x.shape[1])


def expansion(p: list[nn.Variable], x: nn.Variable) -> nn.Variable:
    """The sum of its fourth partial derivatives, by `nn.derivatives`."""
    columns = [x[:, i : i + 1] for i in range(x.shape[1])]
    pairs = list(combinations(columns, 2))
    u = nngrad_mlp(p, F.concatenate(*columns, axis=1))
    found = nn.derivatives(u, [(z,) * 4 for z in columns] + [(z, z, t, t) for z, t in pairs])
    return F.add_n(*found[: len(columns)], *[2 * each for each in found[len(columns) :]])


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
    from jax.experimental.jet import jet

    v, weights = along or directions_of(x.shape[1])

    def fourth(x: Any, direction: Any) -> Any:
        zero = jnp.zeros_like(x)
        return jet(field(p), (x,), ((direction, zero, zero, zero),))[1][3]

    return jax.vmap(lambda x: weights @ jax.vmap(fourth, (None, 0))(x, v))(x)[:, None]


# ---------------------------------------------------------------- equations


def navier_stokes(p: list[nn.Variable], x: nn.Variable) -> nn.Variable:
    """The residual of the steady equation of a stream function, by operators."""
    u = nngrad_mlp(p, x)
    vorticity = nn.laplacian(u, x)
    (slope,), (turning,) = nn.grad(u, x), nn.grad(vorticity, x)
    advection = slope[:, 1:] * turning[:, :1] - slope[:, :1] * turning[:, 1:]
    return advection - VISCOSITY * nn.laplacian(vorticity, x)


def kuramoto_sivashinsky(p: list[nn.Variable], x: nn.Variable) -> nn.Variable:
    """The residual of the steady equation in two dimensions, by operators."""
    u = nngrad_mlp(p, x)
    (slope,) = nn.grad(u, x)
    laplacian = nn.laplacian(u, x)
    return 0.5 * F.sum(slope * slope, axis=1, keepdims=True) + laplacian + nn.laplacian(laplacian, x)


VISCOSITY = 0.1
Terms = dict[str, nn.Variable]
"""Partial derivatives, by the letters of what they are by, in turn."""


def navier_stokes_of(d: Terms) -> nn.Variable:
    """The residual of `navier_stokes`, of partial derivatives."""
    advection = d["y"] * (d["xxx"] + d["xyy"]) - d["x"] * (d["xxy"] + d["yyy"])
    return advection - VISCOSITY * (d["xxxx"] + 2 * d["xxyy"] + d["yyyy"])


def kuramoto_sivashinsky_of(d: Terms) -> nn.Variable:
    """The residual of `kuramoto_sivashinsky`, of partial derivatives."""
    return 0.5 * (d["x"] ** 2 + d["y"] ** 2) + d["xx"] + d["yy"] + d["xxxx"] + 2 * d["xxyy"] + d["yyyy"]


EQUATIONS: dict[str, tuple[Build, Callable[[Terms], nn.Variable], str]] = {
    "Navier-Stokes": (navier_stokes, navier_stokes_of, "x y xxx xyy xxy yyy xxxx xxyy yyyy"),
    "Kuramoto-Sivashinsky": (kuramoto_sivashinsky, kuramoto_sivashinsky_of, "x y xx yy xxxx xxyy yyyy"),
}


def by_derivatives(residual: Callable[[Terms], nn.Variable], names: list[str]) -> Build:
    """The residual of all partial derivatives at once, by `nn.derivatives`."""

    def build(p: list[nn.Variable], x: nn.Variable) -> nn.Variable:
        columns = {"x": x[:, :1], "y": x[:, 1:]}
        u = nngrad_mlp(p, F.concatenate(*columns.values(), axis=1))
        found = nn.derivatives(u, [tuple([columns[c] for c in name]) for name in names])
        return residual(dict(zip(names, found, strict=True)))

    return build


def by_nested_grad(residual: Callable[[Terms], nn.Variable], names: list[str]) -> Build:
    """The residual of partial derivatives by `nn.grad` of sums, nested."""

    def build(p: list[nn.Variable], x: nn.Variable) -> nn.Variable:
        columns = {"x": x[:, :1], "y": x[:, 1:]}
        known = {"": nngrad_mlp(p, F.concatenate(*columns.values(), axis=1))}
        for name in names:
            for order in range(1, len(name) + 1):
                if name[:order] not in known:
                    (known[name[:order]],) = nn.grad(F.sum(known[name[: order - 1]]), columns[name[order - 1]])
        return residual(known)

    return build


def by_columns(residual: Callable[[Terms], nn.Variable], names: list[str]) -> Build:
    """The residual of partial derivatives by nested `nn.grad` by the points, of each of which a column is taken."""

    def build(p: list[nn.Variable], x: nn.Variable) -> nn.Variable:
        known = {"": nngrad_mlp(p, x)}
        for name in names:
            for order in range(1, len(name) + 1):
                if name[:order] not in known:
                    (slope,) = nn.grad(known[name[: order - 1]], x)
                    known |= {name[: order - 1] + c: slope[:, i : i + 1] for i, c in enumerate("xy")}
        return residual(known)

    return build


# ---------------------------------------------------------------- measuring


class Case:
    """What is computed of parameters and points, and the gradient of its mean square."""

    def __init__(self, parameters: Parameters, points: Any) -> None:
        self.arrays = [points, *[jnp.asarray(a) for a in parameters]]
        self.values: dict[str, Any] = {}
        self.gradients: dict[str, Any] = {}

    def ours(self, name: str, build: Build) -> None:
        """Enter a graph."""
        x, *p = [nn.Variable(a.shape, need_grad=True) for a in self.arrays]
        y = build(p, x)
        self.values[name] = jax.jit(nn.to_jax(y, [x, *p]))
        self.gradients[name] = jax.jit(nn.to_jax(nn.grad(F.mean(y * y), p), [x, *p]))

    def theirs(self, name: str, function: Callable[[Any, Any], Any]) -> None:
        """Enter a function of JAX."""
        self.values[name] = jax.jit(lambda x, *p: function(list(p), x))
        gradient = jax.grad(lambda p, x: jnp.mean(function(list(p), x) ** 2))
        self.gradients[name] = jax.jit(lambda x, *p: gradient(p, x))

    def rows(self, what: str, ours: str, goals: dict[str, float | None], rounds: int) -> list[Row]:
        """Times, floating-point operations and temporary memory of both, beside each of the peers."""
        found = []
        for of, functions in (("", self.values), (", gradient of a loss", self.gradients)):
            contenders: dict[str, Contender] = {
                name: (lambda run=run: run(*self.arrays)) for name, run in functions.items()
            }
            if not of:
                agreeing(contenders, 1e-4)
            times = medians(contenders, rounds, 1)
            sizes = {name: compiled_size(run, self.arrays) for name, run in functions.items()}
            for peer, goal in goals.items():
                found.append(row(f"{what}{of}", times, ours, peer, goal))
                for i, unit in enumerate(("Mflop", "MiB")):
                    a, b = sizes[ours][i], sizes[peer][i]
                    found.append(Row(f"{what}{of}: {unit}", f"{ours}: {a:.1f}", f"{peer}: {b:.1f}", a / b, goal))
        return found


def compiled_size(run: Any, arrays: list[Any]) -> tuple[float, float]:
    """Millions of floating-point operations, and MiB of temporary memory, as the compiler counts them."""
    compiled = run.lower(*arrays).compile()
    return compiled.cost_analysis()["flops"] / 1e6, compiled.memory_analysis().temp_size_in_bytes / 2**20


FEW, MANY = [(2, 1024, 48), (5, 512, 128)], [(3, 512, 64), (10, 512, 64), (50, 32, 64)]
"""Dimensions, points and widths: with all peers, and with those that many dimensions leave possible."""


def run(smoke: bool, torch: bool) -> list[Row]:
    """Lines of the table."""
    rng = np.random.default_rng(0)
    rounds = 1 if smoke else 5
    rows = []
    for dimensions, batch, width in [(2, 4, 5)] if smoke else FEW:
        widths = (dimensions, *[width] * 3, 1)
        case = Case(tanh_parameters(rng, *widths), jnp.asarray(rng.uniform(-1, 1, (batch, dimensions)), "f"))
        case.ours("nn.bilaplacian", bilaplacian)
        case.ours("nn.laplacian twice", laplacian_of_laplacian)
        case.ours("its expansion by nn.derivatives", expansion)
        case.theirs("collapsed Taylor mode by hand", collapsed_by_hand)
        case.theirs("jet, summed", summed_jet)
        case.theirs("nested jax.hessian", nested_laplacians)
        what = f"bilaplacian, MLP {'-'.join(map(str, widths))}, {batch:,} points"
        rows += case.rows(what, "nn.bilaplacian", dict.fromkeys(list(case.values)[2:], 1.0), rounds)
        rows += case.rows(what, "nn.laplacian twice", {"nn.bilaplacian": 1.05}, rounds)
    for dimensions, batch, width in [(5, 4, 5)] if smoke else MANY:
        widths = (dimensions, *[width] * 3, 1)
        case = Case(tanh_parameters(rng, *widths), jnp.asarray(rng.uniform(-1, 1, (batch, dimensions)), "f"))
        case.ours("nn.bilaplacian", bilaplacian)
        case.ours("nested nn.laplacian", nested)
        case.theirs("collapsed Taylor mode by hand", collapsed_by_hand)
        what = f"bilaplacian, MLP {'-'.join(map(str, widths))}, {batch:,} points"
        goals = {"nested nn.laplacian": None, "collapsed Taylor mode by hand": 1.0}
        rows += case.rows(what, "nn.bilaplacian", goals, rounds)
    for name, (operators, residual, listed) in EQUATIONS.items():
        batch, width = (4, 5) if smoke else (1024, 48)
        widths = (2, *[width] * 3, 1)
        case = Case(tanh_parameters(rng, *widths), jnp.asarray(rng.uniform(-1, 1, (batch, 2)), "f"))
        case.ours("by nn.derivatives", by_derivatives(residual, listed.split()))
        case.ours("by nested nn.grad", by_nested_grad(residual, listed.split()))
        case.ours("by columns of nn.grad", by_columns(residual, listed.split()))
        case.ours("by nn.laplacian", operators)
        what = f"{name}, MLP {'-'.join(map(str, widths))}, {batch:,} points"
        for ours in ("by nested nn.grad", "by columns of nn.grad", "by nn.laplacian"):
            rows += case.rows(what, ours, {"by nn.derivatives": 1.0 if "grad" in ours else None}, rounds)
    return rows
