"""A deep equilibrium layer and a neural ordinary differential equation, each in nngrad, JAX and PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import nngrad as nn
import nngrad.functions as F

Arrays = list[np.ndarray]
V = nn.Variable

TOLERANCE = 1e-5
"""Of the equilibrium: the norm of what a further application changes, over that of the state."""
MOST_STEPS = 200


# ---------------------------------------------------------------- a deep equilibrium layer


def equilibrium_arrays(tiny: bool) -> Arrays:
    """The layer's weight, which contracts, and a batch."""
    rng = np.random.default_rng(0)
    batch, width = (3, 4) if tiny else (64, 64)
    w = rng.normal(0, 0.3 * width**-0.5, (width, width))
    return [w.astype("f"), rng.normal(size=(batch, width)).astype("f")]


def nngrad_equilibrium(w: V, x: V) -> list[V]:
    """The mean square of what the layer comes to, and its gradients."""
    start = F.constant(0, shape=x.shape)
    z, _ = nn.fixed_point(lambda z: F.tanh(z @ w + x), start, "iterate", tol=TOLERANCE, maxiter=MOST_STEPS)
    loss = F.mean(z * z)
    return [loss, *nn.grad(loss, [w, x])]


def iterated(function: Callable[[Any], Any], start: Any) -> Any:
    """The fixed point of a function, by applying it, in JAX."""

    def goes_on(state: Any) -> Any:
        z, before, step = state
        return (jnp.linalg.norm(z - before) > TOLERANCE * (1 + jnp.linalg.norm(z))) & (step < MOST_STEPS)

    return lax.while_loop(goes_on, lambda s: (function(s[0]), s[0], s[2] + 1), (function(start), start, 0))[0]


@jax.custom_vjp
def layer(w: Any, x: Any) -> Any:
    """What the layer comes to, as it is written for JAX: by hand, of first order and in reverse alone."""
    return iterated(lambda z: jnp.tanh(z @ w + x), jnp.zeros_like(x))


def layer_forward(w: Any, x: Any) -> Any:
    """The same, and what its gradient needs."""
    z = layer(w, x)
    return z, (w, x, z)


def layer_backward(kept: Any, gz: Any) -> Any:
    """The gradient: u = gz + (dz/dz)^T u, and u times the derivatives of one application."""
    w, x, z = kept
    _, pull = jax.vjp(lambda w, x, z: jnp.tanh(z @ w + x), w, x, z)
    u = iterated(lambda u: gz + pull(u)[2], gz)
    return pull(u)[:2]


layer.defvjp(layer_forward, layer_backward)


def jax_equilibrium(w: Any, x: Any) -> Any:
    """The same in JAX."""
    loss, gradients = jax.value_and_grad(lambda w, x: jnp.mean(layer(w, x) ** 2), (0, 1))(w, x)
    return [loss, *gradients]


def torch_equilibrium(w: Any, x: Any) -> list[Any]:
    """The same in PyTorch, with a hook where the gradient arrives."""
    import torch

    def iterate(function: Callable[[Any], Any], start: Any) -> Any:
        before, z = start, function(start)
        for _ in range(MOST_STEPS):
            if (z - before).norm() <= TOLERANCE * (1 + z.norm()):
                break
            before, z = z, function(z)
        return z

    with torch.no_grad():
        z = iterate(lambda z: torch.tanh(z @ w + x), torch.zeros_like(x))
    at = z.clone().requires_grad_()
    once_more = torch.tanh(at @ w + x)
    z = torch.tanh(z @ w + x)
    z.register_hook(
        lambda gz: iterate(lambda u: gz + torch.autograd.grad(once_more, at, u, retain_graph=True)[0], gz)
    )
    loss = (z * z).mean()
    return [loss, *torch.autograd.grad(loss, [w, x])]


# ---------------------------------------------------------------- a neural differential equation

INTERVALS = 40
"""Steps of Runge and Kutta's method, of one length, from 0 to 1."""


def flow_arrays(tiny: bool) -> Arrays:
    """Two layers of a field, and a batch of states."""
    rng = np.random.default_rng(0)
    batch, size, width = (3, 2, 4) if tiny else (64, 8, 64)
    shapes = [(size, width), (width,), (width, size), (size,)]
    field = [(rng.normal(0, shape[0] ** -0.5, shape) * (len(shape) == 2)).astype("f") for shape in shapes]
    return [*field, rng.normal(size=(batch, size)).astype("f")]


def field_of(tanh: Callable[[Any], Any], p: Any, y: Any) -> Any:
    """The field, of whatever `tanh` takes."""
    w1, b1, w2, b2 = p
    return tanh(y @ w1 + b1) @ w2 + b2


def nngrad_flow(*given: V) -> list[V]:
    """The mean square of where the states have got to, its squared gradient at the start, and gradients of the sum."""
    *p, y0 = given
    ys = nn.odeint(lambda y, t: field_of(F.tanh, p, y), y0, np.array([0, 1], "f"), method="rk4", steps=INTERVALS)
    loss = F.mean(ys[-1] ** 2)
    (slope,) = nn.grad(loss, y0)
    total = loss + F.sum(slope**2)
    return [total, *nn.grad(total, p)]


def stepped(tanh: Callable[[Any], Any], p: Any, y: Any) -> Any:
    """One step of Runge and Kutta's method."""
    h = 1 / INTERVALS
    k1 = field_of(tanh, p, y)
    k2 = field_of(tanh, p, y + h / 2 * k1)
    k3 = field_of(tanh, p, y + h / 2 * k2)
    k4 = field_of(tanh, p, y + h * k3)
    return y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def jax_flow(*given: Any) -> Any:
    """The same in JAX."""
    *p, y0 = given

    def loss(p: Any, y0: Any) -> Any:
        last, _ = lax.scan(lambda y, _: (stepped(jnp.tanh, p, y), None), y0, None, INTERVALS)
        return jnp.mean(last**2)

    def total(p: Any) -> Any:
        value, slope = jax.value_and_grad(loss, 1)(p, y0)
        return value + jnp.sum(slope**2)

    value, gradients = jax.value_and_grad(total)(p)
    return [value, *gradients]


def torch_flow(*given: Any) -> list[Any]:
    """The same in PyTorch."""
    import torch

    *p, y0 = given
    y = y0
    for _ in range(INTERVALS):
        y = stepped(torch.tanh, p, y)
    loss = (y * y).mean()
    (slope,) = torch.autograd.grad(loss, y0, create_graph=True)
    total = loss + (slope * slope).sum()
    return [total, *torch.autograd.grad(total, p)]
