"""What is measured: computations with loops, each in nngrad, JAX and PyTorch, of the same arrays.

Each gives the same numbers in all three, but for rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import nngrad as nn
import nngrad.functions as F

from . import solutions

V = nn.Variable
Arrays = list[np.ndarray]


class Case(NamedTuple):
    """A computation, by each of those who do it."""

    title: str
    arrays: Callable[[bool], Arrays]
    """The arrays it starts from, float32; True asks for a tiny size."""
    in_nngrad: Callable[..., list[V]]
    """Variables of the arrays in, results out."""
    in_jax: dict[str, Callable[..., Any]]
    """Each of JAX's ways, by what it is called: arrays in, results out."""
    in_torch: Callable[..., list[Any]] | None = None
    """Tensors in, results out."""
    explodes: bool = False
    """Whether it is a derivative of such an order that nested gradients multiply."""


# ---------------------------------------------------------------- a recurrent critic


def recurrent_arrays(tiny: bool) -> Arrays:
    """Weights of the state, of the input and of the score, and a batch of sequences."""
    rng = np.random.default_rng(0)
    steps, batch, width = (3, 2, 4) if tiny else (200, 16, 64)
    weights = [rng.normal(0, width**-0.5, (width, width)).astype("f") for _ in range(2)]
    score = rng.normal(0, width**-0.5, (width, 1)).astype("f")
    return [*weights, score, rng.normal(size=(steps, batch, width)).astype("f")]


def nngrad_recurrent(w: V, u: V, score: V, xs: V) -> list[V]:
    """The mean score of a tanh network's last state, with a penalty on its gradient with respect to the sequence."""

    def step(h: V, x: V) -> tuple[V, None]:
        return F.tanh(h @ w + x @ u), None

    last, _ = F.scan(step, F.constant(0, shape=xs.shape[1:]), xs)
    scores = last @ score
    (slope,) = nn.grad(F.sum(scores), xs)
    loss = F.mean(scores) + F.mean((F.sum(slope**2, axis=(0, 2)) ** 0.5 - 1) ** 2)
    return [loss, *nn.grad(loss, [w, u, score])]


def jax_recurrent(*arrays: Any) -> Any:
    """The same in JAX."""

    def scores_of(p: Any, xs: Any) -> Any:
        w, u, score = p
        return lax.scan(lambda h, x: (jnp.tanh(h @ w + x @ u), None), jnp.zeros(xs.shape[1:]), xs)[0] @ score

    def loss_of(p: Any, xs: Any) -> Any:
        slope = jax.grad(lambda xs: jnp.sum(scores_of(p, xs)))(xs)
        return jnp.mean(scores_of(p, xs)) + jnp.mean((jnp.sum(slope**2, (0, 2)) ** 0.5 - 1) ** 2)

    loss, gradients = jax.value_and_grad(loss_of)(arrays[:3], arrays[3])
    return [loss, *gradients]


def torch_recurrent(w: Any, u: Any, score: Any, xs: Any) -> list[Any]:
    """The same in PyTorch."""
    import torch

    h = torch.zeros(xs.shape[1:])
    for x in xs.unbind():
        h = torch.tanh(h @ w + x @ u)
    scores = h @ score
    (slope,) = torch.autograd.grad(scores.sum(), xs, create_graph=True)
    loss = scores.mean() + ((slope.pow(2).sum((0, 2)).sqrt() - 1) ** 2).mean()
    return [loss, *torch.autograd.grad(loss, [w, u, score])]


# ---------------------------------------------------------------- derivatives through a loop


def scaled_arrays(tiny: bool) -> Arrays:
    """The weights, the sequence, and the number that scales it."""
    w, u, score, xs = recurrent_arrays(tiny)
    return [w, u, score, xs, np.array(0.3, "f")]


def nngrad_derivative(order: int) -> Callable[..., list[V]]:
    """The nth derivative of the sum of scores with respect to what the sequence is scaled by."""

    def derivative(w: V, u: V, score: V, xs: V, scale: V) -> list[V]:
        def step(h: V, x: V) -> tuple[V, None]:
            return F.tanh(h @ w + scale * (x @ u)), None

        last, _ = F.scan(step, F.constant(0, shape=xs.shape[1:]), xs)
        y = F.mean(last @ score)
        for _ in range(order):
            (y,) = nn.grad(y, scale)
        return [y]

    return derivative


def jax_scaled(w: Any, u: Any, score: Any, xs: Any) -> Callable[[Any], Any]:
    """The sum of scores as a function of the scale."""

    def function(scale: Any) -> Any:
        last, _ = lax.scan(lambda h, x: (jnp.tanh(h @ w + scale * (x @ u)), None), jnp.zeros(xs.shape[1:]), xs)
        return jnp.mean(last @ score)

    return function


def nested_grad(order: int) -> Callable[..., Any]:
    """The nth derivative by nested `jax.grad`."""

    def derivative(*arrays: Any) -> Any:
        function = jax_scaled(*arrays[:4])
        for _ in range(order):
            function = jax.grad(function)
        return [function(arrays[4])]

    return derivative


def nested_jvp(order: int) -> Callable[..., Any]:
    """The nth derivative by nested `jax.jvp`."""

    def along(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda x: jax.jvp(function, (x,), (jnp.ones_like(x),))[1]

    def derivative(*arrays: Any) -> Any:
        function = jax_scaled(*arrays[:4])
        for _ in range(order):
            function = along(function)
        return [function(arrays[4])]

    return derivative


# ---------------------------------------------------------------- learning to learn


def maml_arrays(tiny: bool) -> Arrays:
    """Weights and biases of a dense network 1-40-40-1, and two sets of points of a task."""
    rng = np.random.default_rng(0)
    width, count = (4, 3) if tiny else (40, 10)
    shapes = [(1, width), (width,), (width, width), (width,), (width, 1), (1,)]
    parameters = [rng.normal(0, shape[0] ** -0.5, shape).astype("f") * (len(shape) == 2) for shape in shapes]
    points = [rng.uniform(-2, 2, (count, 1)).astype("f") for _ in range(2)]
    return [*[p.astype("f") for p in parameters], points[0], np.sin(points[0]), points[1], np.sin(points[1])]


def dense(tanh: Callable[[Any], Any], p: Any, x: Any) -> Any:
    """The network, of whatever `tanh` takes."""
    w1, b1, w2, b2, w3, b3 = p
    return tanh(tanh(x @ w1 + b1) @ w2 + b2) @ w3 + b3


def nngrad_maml(steps: int) -> Callable[..., list[V]]:
    """The loss after steps of gradient descent on other points, and its gradients."""

    def results(*given: V) -> list[V]:
        p, (x, y, x_after, y_after) = list(given[:6]), given[6:]

        def loss(p: list[V], x: V, y: V) -> V:
            return F.mean((dense(F.tanh, p, x) - y) ** 2)

        def descend(_: V, p: list[V]) -> list[V]:
            return [w - 0.05 * g for w, g in zip(p, nn.grad(loss(p, x, y), p), strict=True)]

        after = loss(F.fori_loop(0, steps, descend, p), x_after, y_after)
        return [after, *nn.grad(after, p)]

    return results


def jax_maml(steps: int) -> Callable[..., Any]:
    """The same in JAX."""

    def loss(p: Any, x: Any, y: Any) -> Any:
        return jnp.mean((dense(jnp.tanh, p, x) - y) ** 2)

    def results(*given: Any) -> Any:
        p, (x, y, x_after, y_after) = list(given[:6]), given[6:]

        def after(p: Any) -> Any:
            def descend(p: Any, _: None) -> Any:
                return jax.tree.map(lambda w, g: w - 0.05 * g, p, jax.grad(loss)(p, x, y)), None

            return loss(lax.scan(descend, p, None, steps)[0], x_after, y_after)

        value, gradients = jax.value_and_grad(after)(p)
        return [value, *gradients]

    return results


def torch_maml(steps: int) -> Callable[..., list[Any]]:
    """The same in PyTorch."""

    def results(*given: Any) -> list[Any]:
        import torch

        start, (x, y, x_after, y_after) = list(given[:6]), given[6:]
        p = start
        for _ in range(steps):
            loss = (dense(torch.tanh, p, x) - y).pow(2).mean()
            gradients = torch.autograd.grad(loss, p, create_graph=True)
            p = [w - 0.05 * g for w, g in zip(p, gradients, strict=True)]
        after = (dense(torch.tanh, p, x_after) - y_after).pow(2).mean()
        return [after, *torch.autograd.grad(after, start)]

    return results


# ---------------------------------------------------------------- the list


def derivative_of(order: int) -> Case:
    """The nth derivative."""
    ways = {"nested jax.jvp": nested_jvp(order), "nested jax.grad": nested_grad(order)}
    return Case(
        f"derivative of order {order}, tanh network of 200 steps",
        scaled_arrays, nngrad_derivative(order), ways, explodes=order >= 4,
    )  # fmt: skip


CASES = {
    "critic": Case(
        "recurrent critic of 200 steps, gradient penalty",
        recurrent_arrays, nngrad_recurrent, {"jax.grad of lax.scan": jax_recurrent}, torch_recurrent,
    ),
    **{f"order {order}": derivative_of(order) for order in (1, 2, 4, 6)},
    **{
        f"maml {steps}": Case(
            f"MAML of {steps} inner steps",
            maml_arrays, nngrad_maml(steps), {"jax.grad of lax.scan": jax_maml(steps)}, torch_maml(steps),
        )
        for steps in (5, 50)
    },
    "equilibrium": Case(
        "deep equilibrium layer of 64, batch 64", solutions.equilibrium_arrays, solutions.nngrad_equilibrium,
        {"jax.custom_vjp": solutions.jax_equilibrium}, solutions.torch_equilibrium,
    ),
    "flow": Case(
        "neural ODE, 40 steps of Runge-Kutta, penalty at the start", solutions.flow_arrays, solutions.nngrad_flow,
        {"jax.grad of lax.scan": solutions.jax_flow}, solutions.torch_flow,
    ),
}  # fmt: skip
"""The cases by name."""

