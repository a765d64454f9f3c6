"""One optimisation step of physics-informed networks: the residual of an equation at 2,048 points, and Adam."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import nngrad as nn
import nngrad.functions as F
import nngrad.solvers as S

from .harness import EARLY, Case, Contender, Way
from .models import (
    Arrays,
    Parameters,
    along,
    eager_step,
    jax_mlp,
    jitted_step,
    mlp,
    nngrad_mlp,
    tanh_parameters,
    taylor,
    train_step,
)

RATE = 1e-3
VISCOSITY = 0.01 / np.pi


class Equation(NamedTuple):
    """A differential equation for u(x, t)."""

    name: str
    order: int
    """That of the highest derivative in x."""
    residual: Callable[..., Any]
    """What is to be zero, of u, u_t, u_x, u_xx, ...; they may be Variables, or arrays of JAX or PyTorch."""


EQUATIONS = [
    Equation("Burgers", 2, lambda u, t, x, xx: t + u * x - VISCOSITY * xx),
    Equation("Korteweg-de Vries", 3, lambda u, t, x, xx, xxx: t + 6 * u * x + xxx),
    Equation("Kuramoto-Sivashinsky", 4, lambda u, t, x, xx, xxx, xxxx: t + u * x + xx + xxxx),
]


def arrays(smoke: bool) -> tuple[Parameters, Arrays]:
    """A network of two inputs, and points in space and time."""
    rng = np.random.default_rng(0)
    n, widths = (16, (2, 8, 8, 8, 1)) if smoke else (2048, (2, 64, 64, 64, 1))
    points = [rng.uniform(-1, 1, (n, 1)).astype("f"), rng.uniform(0, 1, (n, 1)).astype("f")]
    return tanh_parameters(rng, *widths), points


def nngrad_loss(equation: Equation, p: list[nn.Variable], x: nn.Variable, t: nn.Variable) -> nn.Variable:
    """The mean square of the residual, with derivatives by nested `nn.grad`."""
    u = nngrad_mlp(p, F.concatenate(x, t, axis=1))
    (u_t,) = nn.grad([u], [t])
    derivatives = [u]
    for _ in range(equation.order):
        derivatives += nn.grad([derivatives[-1]], [x])
    return F.mean(equation.residual(u, u_t, *derivatives[1:]) ** 2)


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


def jax_loss(derivatives: Callable[..., list[Any]], equation: Equation, p: list[Any], x: Any, t: Any) -> Any:
    """The same in JAX, with derivatives by the given route."""
    return jnp.mean(equation.residual(*derivatives(p, x, t, equation.order)) ** 2)


def torch_loss(equation: Equation, p: list[Any], x: Any, t: Any) -> Any:
    """The same in PyTorch: derivatives by nested `torch.autograd.grad`."""
    import torch

    x, t = (a.requires_grad_() for a in (x, t))
    u = mlp(torch.tanh, p, torch.cat([x, t], 1))
    u_x, u_t = torch.autograd.grad(u.sum(), [x, t], create_graph=True)
    derivatives = [u, u_t, u_x]
    for _ in range(equation.order - 1):
        derivatives += torch.autograd.grad(derivatives[-1].sum(), x, create_graph=True)
    return (equation.residual(*derivatives) ** 2).mean()


def ways(equation: Equation, given: tuple[Parameters, Arrays]) -> dict[str, Way]:
    """The step in each way."""
    routes = {"vmap of nested jax.grad": vmapped_grad, "nested jax.jvp": nested_jvp, "jet": jet}
    return {
        "nested nn.grad": lambda: train_step(partial(nngrad_loss, equation), S.Adam(alpha=RATE), *given),
        **{
            name: partial(jitted_step, partial(jax_loss, route, equation), optax.adam(RATE), *given)
            for name, route in routes.items()
        },
        "PyTorch eager": lambda: eager_step(partial(torch_loss, equation), *given, lr=RATE),
    }


def lbfgs_step(loss_of: Callable[..., Any], parameters: Parameters, data: Arrays) -> Contender:
    """A step of L-BFGS by optax, jitted, which keeps value and gradient of the last point of its line search."""
    solver = optax.lbfgs(linesearch=optax.scale_by_zoom_linesearch(20, initial_guess_strategy="one"))

    def loss(p: Any) -> Any:
        return loss_of(p, *data)

    @partial(jax.jit, donate_argnums=(0, 1))
    def update(p: Any, state: Any) -> Any:
        value, grad = optax.value_and_grad_from_state(loss)(p, state=state)
        updates, state = solver.update(grad, state, p, value=value, grad=grad, value_fn=loss)
        return optax.apply_updates(p, updates), state, value

    p: Any = [jnp.array(a) for a in parameters]
    state = jax.tree.map(jnp.array, solver.init(p))  # copies: buffers of its own are donated

    def step() -> Any:
        nonlocal p, state
        p, state, value = update(p, state)
        return value

    return step


def cases(smoke: bool) -> Iterable[Case]:
    """The equations, and L-BFGS on the first."""
    burgers, given = EQUATIONS[0], arrays(smoke)
    yield Case("Burgers step of L-BFGS, MLP 2-64-64-64-1, 2,048 points", {
        "nngrad": lambda: train_step(partial(nngrad_loss, burgers), S.LBFGS(), *given),
        "optax, nested jax.jvp": lambda: lbfgs_step(partial(jax_loss, nested_jvp, burgers), *given),
        "optax, jet": lambda: lbfgs_step(partial(jax_loss, jet, burgers), *given),
    }, measures=("time", EARLY))  # fmt: skip
    for equation in EQUATIONS[: 1 if smoke else None]:
        yield Case(f"{equation.name} step, MLP 2-64-64-64-1, 2,048 points", ways(equation, arrays(smoke)))
