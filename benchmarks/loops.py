"""Loops and implicit functions: `F.scan` and others beside the same computation in JAX and in eager PyTorch.

Each gives the same numbers in all three, but for rounding. The equilibrium layer in JAX is a `custom_vjp` of first
order. First results are everything from nothing to the first numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.sparse import linalg as sparse

import nngrad as nn
import nngrad.functions as F

from .harness import Case, Step, Way, in_jax, in_nngrad, in_torch
from .models import Arrays, dense_parameters, mlp, nested_grad, nested_jvp, normal, variables

V = nn.Variable


class Loop(NamedTuple):
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
    long: bool = False
    """Whether it takes too long to compile for a tiny run."""


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


def jax_derivative(derive: Callable[..., Any], order: int) -> Callable[..., Any]:
    """The nth derivative, nested by `derive`."""
    return lambda *arrays: [derive(jax_scaled(*arrays[:4]), order)(arrays[4])]


# ---------------------------------------------------------------- learning to learn


def maml_arrays(tiny: bool) -> Arrays:
    """Weights and biases of a dense network 1-40-40-1, and two sets of points of a task."""
    rng = np.random.default_rng(0)
    width, count = (4, 3) if tiny else (40, 10)
    points = [rng.uniform(-2, 2, (count, 1)).astype("f") for _ in range(2)]
    return [*dense_parameters(rng, 1, width, width, 1), points[0], np.sin(points[0]), points[1], np.sin(points[1])]


def nngrad_maml(steps: int) -> Callable[..., list[V]]:
    """The loss after steps of gradient descent on other points, and its gradients."""

    def results(*given: V) -> list[V]:
        p, (x, y, x_after, y_after) = list(given[:6]), given[6:]

        def loss(p: list[V], x: V, y: V) -> V:
            return F.mean((mlp(F.tanh, p, x) - y) ** 2)

        def descend(_: V, p: list[V]) -> list[V]:
            return [w - 0.05 * g for w, g in zip(p, nn.grad(loss(p, x, y), p), strict=True)]

        after = loss(F.fori_loop(0, steps, descend, p), x_after, y_after)
        return [after, *nn.grad(after, p)]

    return results


def jax_maml(steps: int) -> Callable[..., Any]:
    """The same in JAX."""

    def loss(p: Any, x: Any, y: Any) -> Any:
        return jnp.mean((mlp(jnp.tanh, p, x) - y) ** 2)

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
            loss = (mlp(torch.tanh, p, x) - y).pow(2).mean()
            gradients = torch.autograd.grad(loss, p, create_graph=True)
            p = [w - 0.05 * g for w, g in zip(p, gradients, strict=True)]
        after = (mlp(torch.tanh, p, x_after) - y_after).pow(2).mean()
        return [after, *torch.autograd.grad(after, start)]

    return results


# ---------------------------------------------------------------- a deep equilibrium layer

TOLERANCE = 1e-5
"""Of the equilibrium: the norm of what a further application changes, over that of the state."""
MOST_STEPS = 200


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
        return (jnp.linalg.norm(z - before) > TOLERANCE * jnp.linalg.norm(z)) & (step < MOST_STEPS)

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


# ---------------------------------------------------------------- linear systems


def system_arrays(tiny: bool) -> Arrays:
    """A factor of a matrix, its diagonal, and the right-hand side."""
    rng, n = np.random.default_rng(0), 8 if tiny else 1000
    return [normal(rng, n, n // 4, scale=0.3 * n**-0.5), normal(rng, n, scale=0.3), normal(rng, n)]


def nngrad_system(method: str | None, factor: V, diagonal: V, b: V) -> list[V]:
    """The mean square of the solution of (exp(d) + c c^T) x = b by products alone, and its gradients."""
    x, _ = nn.linear_solve(lambda v: F.exp(diagonal) * v + factor @ (v @ factor), b, method, tol=TOLERANCE)
    loss = F.mean(x * x)
    return [loss, *nn.grad(loss, [factor, diagonal, b])]


def jax_system(solve: Callable[..., Any], *arrays: Any) -> Any:
    """The same in JAX."""

    def loss(factor: Any, diagonal: Any, b: Any) -> Any:
        return jnp.mean(solve(lambda v: jnp.exp(diagonal) * v + factor @ (v @ factor), b, tol=TOLERANCE)[0] ** 2)

    value, gradients = jax.value_and_grad(loss, (0, 1, 2))(*arrays)
    return [value, *gradients]


# ---------------------------------------------------------------- the list


def derivative_of(order: int) -> Loop:
    """The nth derivative."""
    ways = {name: jax_derivative(derive, order) for name, derive in
            (("nested jax.jvp", nested_jvp), ("nested jax.grad", nested_grad))}  # fmt: skip
    what = f"derivative of order {order}, tanh network of 200 steps"
    return Loop(what, scaled_arrays, nngrad_derivative(order), ways, long=order >= 4)


def maml_of(steps: int) -> Loop:
    """Learning to learn."""
    ways = {"jax.grad of lax.scan": jax_maml(steps)}
    return Loop(f"MAML of {steps} inner steps", maml_arrays, nngrad_maml(steps), ways, torch_maml(steps), steps > 5)


LOOPS = [
    Loop("recurrent critic of 200 steps, gradient penalty", recurrent_arrays, nngrad_recurrent,
         {"jax.grad of lax.scan": jax_recurrent}, torch_recurrent),
    *[derivative_of(order) for order in (1, 2, 4, 6)], *[maml_of(steps) for steps in (5, 50)],
    Loop("deep equilibrium layer of 64, batch 64", equilibrium_arrays, nngrad_equilibrium,
         {"jax.custom_vjp": jax_equilibrium}),
    Loop("linear system of 1,000, in a loss", system_arrays, partial(nngrad_system, None),
         {f"jax, {solve.__name__}": partial(jax_system, solve) for solve in (sparse.gmres, sparse.bicgstab)}),
    Loop("linear system of 1,000 by cg, in a loss", system_arrays, partial(nngrad_system, "cg"),
         {"jax, cg": partial(jax_system, sparse.cg)}),
]  # fmt: skip


def ours(loop: Loop, arrays: Arrays) -> Step:
    """By nngrad."""
    leaves = variables(arrays)
    return in_nngrad(loop.in_nngrad(*leaves), leaves)


def eager(results: Callable[..., list[Any]], arrays: Arrays) -> Step:
    """By PyTorch."""
    import torch

    given = [torch.tensor(a, requires_grad=True) for a in arrays]
    return Step(in_torch(lambda: results(*given)).run)


def cases(smoke: bool) -> Iterable[Case]:
    """All loops."""
    for loop in [loop for loop in LOOPS if not (smoke and loop.long)]:
        arrays = loop.arrays(smoke)
        ways: dict[str, Way] = {"nngrad": partial(ours, loop, arrays)}
        ways |= {name: partial(in_jax, function, *arrays) for name, function in loop.in_jax.items()}
        if loop.in_torch is not None:
            ways["PyTorch eager"] = partial(eager, loop.in_torch, arrays)
        yield Case(loop.title, ways, measures=("time", "first result", "temporaries"), tolerance=2e-3)
