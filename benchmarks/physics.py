"""One optimisation step of physics-informed networks: the residual of an equation at 2,048 points, and Adam."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import nngrad as nn
import nngrad.functions as F
import nngrad.solvers as S

from .peers import Parameters, eager_step, jitted_step
from .tanh_mlp import along, jax_mlp, mlp, nngrad_mlp, tanh_parameters, taylor
from .timing import Contender, Row, agreeing, medians, row

RATE = 1e-3
VISCOSITY = 0.01 / np.pi


class Equation(NamedTuple):
    """A differential equation for u(x, t)."""

    name: str
    order: int
    """That of the highest derivative in x."""
    residual: Callable[..., Any]
    """What is to be zero, of u, u_t, u_x, u_xx, ...; they may be Variables, or arrays of JAX or PyTorch."""
    goal: float
    """The wanted ratio to nested `jax.grad`."""


EQUATIONS = [
    Equation("Burgers", 2, lambda u, t, x, xx: t + u * x - VISCOSITY * xx, 0.65),
    Equation("Korteweg-de Vries", 3, lambda u, t, x, xx, xxx: t + 6 * u * x + xxx, 0.7),
    Equation("Kuramoto-Sivashinsky", 4, lambda u, t, x, xx, xxx, xxxx: t + u * x + xx + xxxx, 0.35),
]


def nngrad_loss(equation: Equation, p: list[nn.Variable], x: nn.Variable, t: nn.Variable) -> nn.Variable:
    """The mean square of the residual, with derivatives by nested `nn.grad`."""
    u = nngrad_mlp(p, F.concatenate(x, t, axis=1))
    (u_t,) = nn.grad([u], [t])
    derivatives = [u]
    for _ in range(equation.order):
        derivatives += nn.grad([derivatives[-1]], [x])
    return F.mean(equation.residual(u, u_t, *derivatives[1:]) ** 2)


def nngrad_step(equation: Equation, parameters: Parameters, points: list[np.ndarray]) -> Contender:
    """The step as nngrad has it."""
    p = [nn.Variable.from_numpy_array(a, need_grad=True) for a in parameters]
    x, t = (nn.Variable(a.shape) for a in points)
    loss = nngrad_loss(equation, p, x, t)
    step = nn.train_step(loss, {str(i): w for i, w in enumerate(p)}, S.Adam(alpha=RATE), inputs=(x, t))
    arrays = [jnp.asarray(a) for a in points]
    return lambda: step(*arrays)


def vmapped_grad(p: list[Any], x: Any, t: Any, order: int) -> list[Any]:
    """u, u_t, u_x, u_xx, ... as one usually has them: `vmap` of nested `jax.grad`."""

    def u(x: Any, t: Any) -> Any:
        return jax_mlp(p, jnp.stack([x, t]))[0]

    functions = [u]
    for _ in range(order):
        functions.append(jax.grad(functions[-1], 0))
    functions.insert(1, jax.grad(u, 1))
    return [jax.vmap(f)(x[:, 0], t[:, 0]) for f in functions]


def nested_jvp(p: list[Any], x: Any, t: Any, order: int) -> list[Any]:
    """u, u_t, u_x, u_xx, ... by nested `jax.jvp`."""
    functions = [lambda x: jax_mlp(p, jnp.concatenate([x, t], 1))]
    for _ in range(order):
        functions.append(along(functions[-1]))
    u, *derivatives = [f(x) for f in functions]
    return [u, time_derivative(p, x, t), *derivatives]


def jet(p: list[Any], x: Any, t: Any, order: int) -> list[Any]:
    """u, u_t, u_x, u_xx, ... by Taylor mode."""
    u, derivatives = taylor(lambda x: jax_mlp(p, jnp.concatenate([x, t], 1)), x, order)
    return [u, time_derivative(p, x, t), *derivatives]


def time_derivative(p: list[Any], x: Any, t: Any) -> Any:
    """u_t by forward mode."""
    return along(lambda t: jax_mlp(p, jnp.concatenate([x, t], 1)))(t)


def jax_step(
    derivatives: Callable[..., list[Any]], equation: Equation, parameters: Parameters, points: list[np.ndarray]
) -> Contender:
    """The step in JAX, with derivatives by the given route."""

    def loss_of(p: list[Any], x: Any, t: Any) -> Any:
        return jnp.mean(equation.residual(*derivatives(p, x, t, equation.order)) ** 2)

    return jitted_step(loss_of, optax.adam(RATE), parameters, points)


def torch_step(equation: Equation, parameters: Parameters, points: list[np.ndarray]) -> Contender:
    """The step in eager PyTorch: derivatives by nested `torch.autograd.grad`."""
    import torch

    x, t = (torch.tensor(a, requires_grad=True) for a in points)

    def loss_of(p: list[Any]) -> Any:
        u = mlp(torch.tanh, p, torch.cat([x, t], 1))
        u_x, u_t = torch.autograd.grad(u.sum(), [x, t], create_graph=True)
        derivatives = [u, u_t, u_x]
        for _ in range(equation.order - 1):
            derivatives += torch.autograd.grad(derivatives[-1].sum(), x, create_graph=True)
        return (equation.residual(*derivatives) ** 2).mean()

    return eager_step(loss_of, parameters, lr=RATE)


def run(smoke: bool, torch: bool) -> list[Row]:
    """Lines of the table."""
    rng = np.random.default_rng(0)
    n, widths = (16, (2, 8, 8, 8, 1)) if smoke else (2048, (2, 64, 64, 64, 1))
    parameters = tanh_parameters(rng, *widths)
    points = [rng.uniform(-1, 1, (n, 1)).astype("f"), rng.uniform(0, 1, (n, 1)).astype("f")]
    rows = []
    for equation in EQUATIONS:
        contenders = {"nested nn.grad": nngrad_step(equation, parameters, points)}
        routes = {"vmap of nested jax.grad": vmapped_grad, "nested jax.jvp": nested_jvp, "jet": jet}
        contenders |= {name: jax_step(route, equation, parameters, points) for name, route in routes.items()}
        if torch:
            contenders["PyTorch eager"] = torch_step(equation, parameters, points)
        agreeing(contenders, 1e-4)
        times = medians(contenders, 2 if smoke else 21, 1 if smoke else 2)
        what = f"{equation.name} step, MLP {'-'.join(map(str, widths))}, {n:,} points"
        best = min(("nested jax.jvp", "jet"), key=times.__getitem__)
        rows.append(row(what, times, "nested nn.grad", "vmap of nested jax.grad", equation.goal))
        rows.append(row(f"{what}, against the better of jvp and jet", times, "nested nn.grad", best, 1.0))
        if torch:
            rows.append(row(what, times, "nested nn.grad", "PyTorch eager"))
    return rows
