"""What cases have in common: first weights, dense networks in each library, and training steps around a loss."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import nngrad as nn
import nngrad.functions as F
import nngrad.solvers as S

from .harness import Contender

Parameters = list[np.ndarray]
Arrays = list[np.ndarray]
Field = Callable[[Any], Any]
"""A function of JAX arrays."""


def normal(rng: np.random.Generator, *shape: int, scale: float = 1.0) -> np.ndarray:
    """Normal numbers in float32."""
    return (scale * rng.standard_normal(shape)).astype("f")


def dense_parameters(rng: np.random.Generator, *widths: int) -> Parameters:
    """Weights and biases of dense layers between neighbouring `widths`, in turn."""
    return [
        a for m, n in itertools.pairwise(widths)
        for a in (rng.normal(0, m**-0.5, (m, n)).astype("f"), np.zeros(n, "f"))
    ]


def dense_weights(rng: np.random.Generator, dtype: str, *widths: int) -> Parameters:
    """Weights without biases."""
    return [(rng.standard_normal(s) / s[0] ** 0.5).astype(dtype) for s in itertools.pairwise(widths)]


def tanh_parameters(rng: np.random.Generator, *widths: int) -> Parameters:
    """Weights and biases in turn. The biases are not zero, so that the network is no odd function."""
    p = dense_parameters(rng, *widths)
    return [a if a.ndim == 2 else rng.uniform(-0.5, 0.5, a.shape).astype("f") for a in p]


def variables(arrays: Sequence[np.ndarray]) -> list[nn.Variable]:
    """Leaves that hold the arrays and can be differentiated by."""
    return [nn.Variable.from_numpy_array(a, need_grad=True) for a in arrays]


def mlp(activation: Callable[[Any], Any], p: list[Any], x: Any) -> Any:
    """Dense layers with biases in what `activation` takes: Variables, or arrays of JAX or PyTorch."""
    for w, b in zip(p[:-2:2], p[1:-2:2], strict=True):
        x = activation(x @ w + b)
    return x @ p[-2] + p[-1]


def plain_mlp(activation: Callable[[Any], Any], ws: list[Any], x: Any) -> Any:
    """Dense layers without biases."""
    for w in ws[:-1]:
        x = activation(x @ w)
    return x @ ws[-1]


jax_mlp = functools.partial(mlp, jnp.tanh)
nngrad_mlp = functools.partial(mlp, F.tanh)


# ---------------------------------------------------------------- derivatives in JAX


def along(function: Field) -> Field:
    """The derivative of `function`, whose rows are independent, by forward mode: tangents of ones."""
    return lambda x: jax.jvp(function, (x,), (jnp.ones_like(x),))[1]


def taylor(function: Field, x: Any, order: int) -> tuple[Any, list[Any]]:
    """`function`, whose rows are independent, and its derivatives of the orders 1 to `order`, by `jet`.

    `jet` takes and gives derivatives, not Taylor coefficients: the path x + s has the derivatives 1, 0, 0, ...
    """
    from jax.experimental.jet import jet

    one, zero = jnp.ones_like(x), jnp.zeros_like(x)
    return jet(function, (x,), ((one, *[zero] * (order - 1)),))


def nested_grad(f: Field, order: int) -> Field:
    """`jax.grad` of `jax.grad`. The gradient of the sum is that of each row (this is smaller than `vmap`)."""
    for _ in range(order):
        f = jax.grad(lambda x, f=f: jnp.sum(f(x)))
    return f


def nested_jvp(f: Field, order: int) -> Field:
    """`jax.jvp` of `jax.jvp`."""
    for _ in range(order):
        f = along(f)
    return f


def jet_last(f: Field, order: int) -> Field:
    """The last of the derivatives that `jet` gives."""
    return lambda x: taylor(f, x, order)[1][-1]


# ---------------------------------------------------------------- training steps


def train_step(loss_of: Callable[..., Any], solver: S.Solver, parameters: Parameters, data: Arrays) -> Contender:
    """A step on `loss_of(parameters, *data)` by `nn.train_step`."""
    p, leaves = variables(parameters), [nn.Variable.from_numpy_array(a) for a in data]
    step = nn.train_step(loss_of(p, *leaves), {str(i): w for i, w in enumerate(p)}, solver, inputs=leaves)
    arrays = [jnp.asarray(a) for a in data]
    return lambda: step(*arrays)


def classic_step(
    loss_of: Callable[..., Any], solver: S.Solver, parameters: Parameters, data: Arrays, anew: bool = False
) -> Contender:
    """The same step as one writes it in nnabla, of a graph that is built once, or `anew` each time."""
    p, leaves = variables(parameters), [nn.Variable.from_numpy_array(a) for a in data]
    solver.set_parameters({str(i): w for i, w in enumerate(p)})
    built = loss_of(p, *leaves)

    def step() -> Any:
        loss = loss_of(p, *leaves) if anew else built
        loss.forward()
        solver.zero_grad()
        loss.backward()
        solver.update()
        return loss.data.array

    return step


def jax_update(loss_of: Callable[..., Any], optimizer: optax.GradientTransformation) -> Callable[..., Any]:
    """A step of parameters and the state of an optimizer, in JAX."""

    def update(p: list[Any], state: Any, *arrays: Any) -> Any:
        loss, grads = jax.value_and_grad(loss_of)(p, *arrays)
        updates, state = optimizer.update(grads, state, p)
        return optax.apply_updates(p, updates), state, loss

    return update


def jitted_step(
    loss_of: Callable[..., Any], optimizer: optax.GradientTransformation, parameters: Parameters, data: Arrays
) -> Contender:
    """The same step as one writes it with `jax.grad`, jitted, with donated buffers."""
    jitted = jax.jit(jax_update(loss_of, optimizer), donate_argnums=(0, 1))
    p: Any = [jnp.array(a) for a in parameters]
    state, arrays = optimizer.init(p), [jnp.asarray(a) for a in data]

    def step() -> Any:
        nonlocal p, state
        p, state, loss = jitted(p, state, *arrays)
        return loss

    return step


def eager_step(loss_of: Callable[..., Any], parameters: Parameters, data: Arrays, **adam: Any) -> Contender:
    """The same step in eager PyTorch, with Adam of the options `adam`."""
    import torch

    p, arrays = [torch.tensor(a, requires_grad=True) for a in parameters], [torch.tensor(a) for a in data]
    optimizer = torch.optim.Adam(p, **adam)

    def step() -> Any:
        loss = loss_of(p, *arrays)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step
