"""Zero coordinate shift: the residuals of equations that a DeepONet is to solve for many functions at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import nngrad.jax as nj

from ..reproducing.experiment import Experiment, Make, Point, Step, Table, in_jax, in_torch

SENSORS, WIDTH = 20, 48
OURS = "nngrad"
LOOP, VECTORISED, SHIFT = "PyTorch, loop", "PyTorch, vectorised", "PyTorch, ZCS"
JAX_VECTORISED, JAX_SHIFT = "JAX, vectorised", "JAX, ZCS"
Fields = list[dict[str, Any]]
"""Of each field that the network gives, its derivatives by the letters that they are by; '' for its values."""


class Equation(NamedTuple):
    """What the network is to make zero."""

    wanted: list[list[str]]
    """Derivatives of each field."""
    residual: Callable[[Fields], list[Any]]


def plate(fields: Fields) -> list[Any]:
    """Bending of a plate under a load of 1."""
    (u,) = fields
    return [u["xxxx"] + 2 * u["xxyy"] + u["yyyy"] - 1]


def stokes(fields: Fields) -> list[Any]:
    """Flow of which inertia is nothing, and continuity."""
    u, v, p = fields
    return [u["xx"] + u["yy"] - p["x"], v["xx"] + v["yy"] - p["y"], u["x"] + v["y"]]


EQUATIONS = {
    "reaction-diffusion": Equation(
        [["", "y", "xx"]], lambda fields: [f["y"] - 0.01 * f["xx"] - 0.01 * f[""] ** 2 for f in fields]
    ),
    "Burgers": Equation(
        [["", "x", "xx", "y"]], lambda fields: [f["y"] + f[""] * f["x"] - 0.01 * f["xx"] for f in fields]
    ),
    "Stokes": Equation([["x", "xx", "yy"], ["y", "xx", "yy"], ["x", "y"]], stokes),
    "plate": Equation([["xxxx", "xxyy", "yyyy"]], plate),
}  # fmt: skip


def of_order(order: int) -> Equation:
    """All derivatives by x up to some order, which are to be zero."""
    names = ["x" * n for n in range(1, order + 1)]
    return Equation([names], lambda fields: [fields[0][name] for name in names])


class Setting(NamedTuple):
    """Numbers that all methods have in common."""

    equation: Equation
    weights: list[list[np.ndarray]]
    """Of the branch and of the trunk of each field, in turn."""
    functions: np.ndarray
    x: np.ndarray
    y: np.ndarray


def setting(equation: Equation, functions: int, points: int, width: int = WIDTH) -> Setting:
    """Weights of three layers each, functions at their sensors, and points."""
    rng = np.random.default_rng(0)
    weights = [
        [rng.normal(0, m**-0.5, (m, n)).astype("f") for m, n in pairwise([first, width, width, width])]
        for _ in equation.wanted for first in (SENSORS, 2)
    ]  # fmt: skip
    x, y = rng.uniform(size=(2, points)).astype("f")
    return Setting(equation, weights, rng.normal(size=(functions, SENSORS)).astype("f"), x, y)


def field(of: Any, weights: Any, a: Any, x: Any, y: Any) -> Any:
    """One field of the functions `a`, (functions, points), at points that they share, or, where `x` has a row for each
    function, at points of their own. `of` is jax.numpy, or torch."""
    branch, trunk = weights
    h = of.stack([x, y], -1)
    for w, v in zip(branch, trunk, strict=True):
        a, h = of.tanh(a @ w), of.tanh(h @ v)
    return a @ h.T if x.ndim == 1 else of.einsum("fk,fpk->fp", a, h)


def fields_of(network: Callable[[Any, Any, Any], Any], weights: Any, wanted: list[list[str]]) -> list[Any]:
    """What `network(weights, names)` gives for each field."""
    return [network(weights[2 * i : 2 * i + 2], names) for i, names in enumerate(wanted)]


def loss_of(equation: Equation, fields: Fields) -> Any:
    """The mean square of the residuals."""
    return sum([(r**2).mean() for r in equation.residual(fields)])


def nested(names: list[str], value: Any, derivative: Callable[[Any, str], Any]) -> dict[str, Any]:
    """Derivatives by one letter after the other, each computed once; `value` and they may be functions."""
    known = {"": value}
    for name in names:
        for i in range(1, len(name) + 1):
            if name[:i] not in known:
                known[name[:i]] = derivative(known[name[: i - 1]], name[i - 1])
    return {name: known[name] for name in names}


# ---------------------------------------------------------------- JAX


def by_nngrad(s: Setting, w: Any, names: list[str]) -> dict[str, Any]:
    """`nj.derivatives`, of the network as one writes it."""
    network, points = partial(field, jnp, w, jnp.asarray(s.functions)), (jnp.asarray(s.x), jnp.asarray(s.y))
    named = [name for name in names if name]
    found = nj.derivatives(network, [tuple(["xy".index(letter) for letter in name]) for name in named])(*points)
    return dict(zip(named, found, strict=True)) | ({"": network(*points)} if "" in names else {})


def by_sums(f: Callable[[Any, Any], Any], letter: str) -> Callable[[Any, Any], Any]:
    """The derivative of each value of `f` by its own coordinates, as the gradient of their sum."""
    return jax.grad(lambda x, y: jnp.sum(f(x, y)), "xy".index(letter))


def jax_vectorised(s: Setting, w: Any, names: list[str]) -> dict[str, Any]:
    """Coordinates that are repeated for each function."""
    x, y = [jnp.broadcast_to(c, (len(s.functions), len(c))) for c in (s.x, s.y)]
    found = nested(names, partial(field, jnp, w, s.functions), by_sums)
    return {name: f(x, y) for name, f in found.items()}


def jax_shift(s: Setting, w: Any, names: list[str]) -> dict[str, Any]:
    """Derivatives of a weighed sum by the shift of all points, and the gradient of these by the weights."""

    def weighed(dummy: Any, zx: Any, zy: Any) -> Any:
        return jnp.sum(dummy * field(jnp, w, s.functions, s.x + zx, s.y + zy))

    ones = jnp.ones((len(s.functions), len(s.x)), "f")
    found = nested(names, weighed, lambda f, letter: jax.grad(f, 1 + "xy".index(letter)))
    return {name: jax.grad(f)(ones, 0.0, 0.0) for name, f in found.items()}


def of_jax(derivatives: Callable[..., dict[str, Any]], grad: Callable[..., Any], s: Setting) -> Step:
    """The gradient of the loss in the weights, by an executable."""
    weights = [[jnp.asarray(w) for w in layers] for layers in s.weights]
    return in_jax(
        grad(lambda w: loss_of(s.equation, fields_of(partial(derivatives, s), w, s.equation.wanted))), weights
    )


# ---------------------------------------------------------------- PyTorch


def torch_vectorised(t: Any, w: Any, names: list[str]) -> dict[str, Any]:
    """Coordinates that are repeated for each function."""
    import torch

    x, y = [c.expand(len(t.functions), -1).clone().requires_grad_() for c in (t.x, t.y)]
    u, by = field(torch, w, t.functions, x, y), {"x": x, "y": y}
    return nested(names, u, lambda u, letter: _slope(u.sum(), by[letter]))


def torch_loop(t: Any, w: Any, names: list[str]) -> dict[str, Any]:
    """One function after the other."""
    import torch

    x, y = [c.clone().requires_grad_() for c in (t.x, t.y)]
    found = [
        nested(names, field(torch, w, a[None], x, y)[0], lambda u, letter: _slope(u.sum(), {"x": x, "y": y}[letter]))
        for a in t.functions
    ]
    return {name: torch.stack([each[name] for each in found]) for name in names}


def torch_shift(t: Any, w: Any, names: list[str]) -> dict[str, Any]:
    """Derivatives of a weighed sum by the shift of all points, and the gradient of these by the weights."""
    import torch

    shift = {letter: torch.zeros((), requires_grad=True) for letter in "xy"}
    u = field(torch, w, t.functions, t.x + shift["x"], t.y + shift["y"])
    dummy = torch.ones_like(u, requires_grad=True)
    found = nested(names, (dummy * u).sum(), lambda f, letter: _slope(f, shift[letter]))
    return {name: _slope(f, dummy) if name else u for name, f in found.items()}


def _slope(y: Any, x: Any) -> Any:
    import torch

    return torch.autograd.grad(y, x, create_graph=True)[0]


def of_torch(derivatives: Callable[..., dict[str, Any]], s: Setting) -> Step:
    """The gradient of the loss in the weights, by eager PyTorch."""
    import torch

    t = s._replace(functions=torch.tensor(s.functions), x=torch.tensor(s.x), y=torch.tensor(s.y))
    weights = [[torch.tensor(w, requires_grad=True) for w in layers] for layers in s.weights]

    def run() -> Any:
        loss = loss_of(s.equation, fields_of(partial(derivatives, t), weights, s.equation.wanted))
        return torch.autograd.grad(loss, jax.tree.leaves(weights))

    return in_torch(run)


# ---------------------------------------------------------------- the grid


def makers(s: Setting, repeated: bool) -> dict[str, Make]:
    """The methods; those of JAX that repeat points for each function where they are asked for, since nested as often as
    the plate has it they take minutes to compile."""
    found: dict[str, Make] = {
        OURS: partial(of_jax, by_nngrad, nj.grad, s),
        JAX_SHIFT: partial(of_jax, jax_shift, jax.grad, s),
        SHIFT: partial(of_torch, torch_shift, s),
        VECTORISED: partial(of_torch, torch_vectorised, s),
        LOOP: partial(of_torch, torch_loop, s),
    }
    return found | ({JAX_VECTORISED: partial(of_jax, jax_vectorised, jax.grad, s)} if repeated else {})


def tables(smoke: bool) -> Iterable[Table]:
    """Functions, points, orders and equations."""
    burgers = EQUATIONS["Burgers"]
    if smoke:
        yield Table("u_x", "functions", [Point(2, makers(setting(of_order(1), 2, 3, 4), True), 1e-3)])
        return
    yield Table("Burgers, 128 points", "functions", [
        Point(n, makers(setting(burgers, n, 128), True), 1e-3) for n in (4, 16, 64)
    ])
    yield Table("Burgers, 8 functions", "points", [
        Point(n, makers(setting(burgers, 8, n), True), 1e-3) for n in (64, 512)
    ])
    yield Table("All derivatives by x, 8 functions, 128 points", "order", [
        Point(order, makers(setting(of_order(order), 8, 128), order < 3), 1e-3) for order in (1, 2, 3, 4)
    ])
    yield Table("Equations, 8 functions, 128 points", "equation", [
        Point(name, makers(setting(equation, 8, 128), False), 1e-3)
        for name, equation in EQUATIONS.items() if name != "Burgers"
    ])  # fmt: skip


EXPERIMENT = Experiment(
    title="Zero coordinate shift",
    paper="K. Leng, M. Shankar, J. Thiyagalingam: Zero coordinate shift: whetted automatic differentiation for "
    "physics-informed operator learning, 2023",
    url="https://arxiv.org/abs/2311.00860",
    ran=f"""
The gradient of the mean squared residual with respect to all weights. Branch and trunk have three layers of {WIDTH}
features with tanh, and a branch reads {SENSORS} sensors. Weights, functions and points are drawn with the seed 0.
Stokes flow has a branch and a trunk for each of its three fields. All methods compute the same numbers.

- *loop*: one function after the other, in PyTorch.
- *vectorised*: coordinates of shape (functions, points), and gradients of sums.
- *ZCS*: written from the paper's formulas, in eager PyTorch and in jitted JAX.
- *nngrad*: `nj.derivatives` of the JAX network as it is; nothing is shifted by hand.
""",
    differs="""
The paper measured on a GPU, with networks and batches too large for two cores; what carries over is how time and
memory grow. PyTorch runs eagerly, so call overhead dominates its smallest points, and ZCS in JAX is the closer
comparison. JAX has no vectorised line where it would take minutes to compile: for derivatives of order three and more,
and for the equations other than Burgers'.
""",
    ours=OURS,
    needs={LOOP: "torch", VECTORISED: "torch", SHIFT: "torch"},
    tables=tables,
    least=True,
)
