"""A small classifier, 64-128-10, batch 64, Adam: built once, and rebuilt from scratch on every step."""

from __future__ import annotations

import gc
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

from .peers import Parameters, dense_parameters, eager_step, jitted_step
from .timing import Contender, Row, medians, row, wait_for

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


def jax_step(parameters: Parameters, x: np.ndarray, t: np.ndarray) -> Contender:
    """The step with `jax.grad`."""

    def loss_of(p: list[Any], x: Any, t: Any) -> Any:
        scores = jax.nn.log_softmax(jax.nn.relu(x @ p[0] + p[1]) @ p[2] + p[3])
        return -jnp.mean(jnp.take_along_axis(scores, t, axis=1))

    return jitted_step(loss_of, optax.adam(RATE), parameters, [x, t])


def torch_step(parameters: Parameters, x: np.ndarray, t: np.ndarray) -> Contender:
    """The step in eager PyTorch."""
    import torch

    data, labels = torch.tensor(x), torch.tensor(t[:, 0].astype(np.int64))

    def loss_of(p: list[Any]) -> Any:
        return torch.nn.functional.cross_entropy(torch.relu(data @ p[0] + p[1]) @ p[2] + p[3], labels)

    return eager_step(loss_of, parameters, lr=RATE)


def held_by(make: Callable[[], Contender]) -> int:
    """Bytes of the arrays that a contender holds between its steps, and those it has last returned."""
    gc.collect()
    before = {id(a) for a in jax.live_arrays()}
    contender = make()
    for _ in range(5):
        result = contender()
    wait_for(result)
    gc.collect()
    return sum([a.nbytes for a in jax.live_arrays() if id(a) not in before])


def run(smoke: bool, torch: bool) -> list[Row]:
    """Lines of the table."""
    rng = np.random.default_rng(0)
    x, t = rng.normal(size=(64, 64)).astype("f"), rng.integers(0, 10, (64, 1)).astype(np.int32)
    parameters = dense_parameters(rng, 64, 128, 10)
    contenders: dict[str, Callable[[], Any]] = {
        "nngrad train_step": built_once(x, t),
        "nngrad rebuilt": rebuilt(x, t),
        "jitted JAX step": jax_step(parameters, x, t),
    }
    if torch:
        contenders["PyTorch eager"] = torch_step(parameters, x, t)
    times = medians(contenders, 2 if smoke else 31, 5 if smoke else 300)
    what = "classifier step 64-128-10, batch 64"
    rows = [row(what, times, "nngrad train_step", "jitted JAX step", 1.1)]
    ours, peer = held_by(lambda: built_once(x, t)), held_by(lambda: jax_step(parameters, x, t))
    rows.append(Row(f"{what}, memory held between steps", f"nngrad train_step: {ours / 1e6:.3f} MB",
                    f"jitted JAX step: {peer / 1e6:.3f} MB", ours / peer, 1.1))
    if torch:
        rows.append(row(f"{what}, graph rebuilt at each step", times, "nngrad rebuilt", "PyTorch eager", 1.0))
    return rows
