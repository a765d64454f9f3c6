"""A small classifier, 64-128-10, batch 64, Adam: built once, and rebuilt from scratch on every step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
import nngrad.solvers as S

from .timing import Contender, Row, medians, row

RATE = 1e-3


def nngrad_loss(x: nn.Variable, t: nn.Variable) -> nn.Variable:
    """The classifier's loss; its parameters are those of the current scope."""
    h = F.relu(PF.affine(x, 128, name="hidden"))
    return F.mean(F.softmax_cross_entropy(PF.affine(h, 10, name="output"), t))


def built_once(x: np.ndarray, t: np.ndarray) -> Contender:
    """The graph is built once, and each step is one executable."""
    with nn.parameter_scope("built once"):
        x_leaf, t_leaf = nn.Variable(x.shape), nn.Variable(t.shape, dtype=t.dtype)
        loss = nngrad_loss(x_leaf, t_leaf)
        step = nn.train_step(loss, nn.get_parameters(), S.Adam(alpha=RATE), inputs=(x_leaf, t_leaf))
    arrays = jnp.asarray(x), jnp.asarray(t)
    return lambda: step(*arrays)


def rebuilt(x: np.ndarray, t: np.ndarray) -> Contender:
    """The graph is built, run and dropped at each step, as one writes it in nnabla."""
    with nn.parameter_scope("rebuilt"):
        nngrad_loss(nn.Variable(x.shape), nn.Variable(t.shape, dtype=t.dtype))
        solver = S.Adam(alpha=RATE)
        solver.set_parameters(nn.get_parameters())

    def step() -> Any:
        with nn.parameter_scope("rebuilt"):
            loss = nngrad_loss(nn.Variable.from_numpy_array(x), nn.Variable.from_numpy_array(t))
        loss.forward()
        solver.zero_grad()
        loss.backward()
        solver.update()
        return loss.data.array

    return step


def start() -> list[np.ndarray]:
    """Weights and biases for the peers."""
    rng = np.random.default_rng(0)
    sizes = [(64, 128), (128, 10)]
    return [a for m, n in sizes for a in (rng.normal(0, m**-0.5, (m, n)).astype("f"), np.zeros(n, "f"))]


def jax_step(x: np.ndarray, t: np.ndarray) -> Contender:
    """The step as one writes it with `jax.grad`, jitted, with donated buffers."""
    optimizer = optax.adam(RATE)

    def loss_of(p: list[Any], x: Any, t: Any) -> Any:
        scores = jax.nn.log_softmax(jax.nn.relu(x @ p[0] + p[1]) @ p[2] + p[3])
        return -jnp.mean(jnp.take_along_axis(scores, t, axis=1))

    def update(p: list[Any], state: Any, x: Any, t: Any) -> Any:
        loss, grads = jax.value_and_grad(loss_of)(p, x, t)
        updates, state = optimizer.update(grads, state, p)
        return optax.apply_updates(p, updates), state, loss

    jitted = jax.jit(update, donate_argnums=(0, 1))
    p: Any = [jnp.array(a) for a in start()]
    state, arrays = optimizer.init(p), (jnp.asarray(x), jnp.asarray(t))

    def step() -> Any:
        nonlocal p, state
        p, state, loss = jitted(p, state, *arrays)
        return loss

    return step


def torch_step(x: np.ndarray, t: np.ndarray) -> Contender:
    """The step in eager PyTorch."""
    import torch

    p = [torch.tensor(a, requires_grad=True) for a in start()]
    data, labels = torch.tensor(x), torch.tensor(t[:, 0].astype(np.int64))
    optimizer = torch.optim.Adam(p, lr=RATE)

    def step() -> Any:
        scores = torch.relu(data @ p[0] + p[1]) @ p[2] + p[3]
        loss = torch.nn.functional.cross_entropy(scores, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def run(smoke: bool, torch: bool) -> list[Row]:
    """Lines of the table."""
    rng = np.random.default_rng(0)
    x, t = rng.normal(size=(64, 64)).astype("f"), rng.integers(0, 10, (64, 1)).astype(np.int32)
    contenders: dict[str, Callable[[], Any]] = {
        "nngrad train_step": built_once(x, t),
        "nngrad rebuilt": rebuilt(x, t),
        "jitted JAX step": jax_step(x, t),
    }
    if torch:
        contenders["PyTorch eager"] = torch_step(x, t)
    times = medians(contenders, 2 if smoke else 31, 5 if smoke else 300)
    what = "classifier step 64-128-10, batch 64"
    rows = [row(what, times, "nngrad train_step", "jitted JAX step", 1.1)]
    if torch:
        rows.append(row(f"{what}, graph rebuilt at each step", times, "nngrad rebuilt", "PyTorch eager", 1.0))
    return rows
