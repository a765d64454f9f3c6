"""A small classifier, 64-128-10, batch 64, Adam, in each of nngrad's loops; and steps of next to nothing for
`growth`, which are the host's."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import nngrad.functions as F
import nngrad.solvers as S

from .harness import EARLY, Case, Way
from .models import Arrays, Parameters, classic_step, dense_parameters, eager_step, jitted_step, mlp, normal, train_step

RATE = 1e-3
WHAT = "classifier step 64-128-10, batch 64"


def nngrad_loss(p: list[Any], x: Any, t: Any) -> Any:
    """The cross entropy."""
    return F.mean(F.softmax_cross_entropy(mlp(F.relu, p, x), t))


def jax_loss(p: list[Any], x: Any, t: Any) -> Any:
    """The same in JAX."""
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(mlp(jax.nn.relu, p, x)), t, axis=1))


def torch_loss(p: list[Any], x: Any, t: Any) -> Any:
    """The same in PyTorch."""
    import torch

    return torch.nn.functional.cross_entropy(mlp(torch.relu, p, x), t[:, 0].long())


def arrays() -> tuple[Parameters, Arrays]:
    """Weights, samples and labels."""
    rng = np.random.default_rng(0)
    return dense_parameters(rng, 64, 128, 10), [normal(rng, 64, 64), rng.integers(0, 10, (64, 1)).astype("i")]


def ways(loss: Any, in_jax: Any, given: tuple[Parameters, Arrays]) -> dict[str, Way]:
    """Steps of nngrad and of JAX."""
    return {
        "nngrad train_step": lambda: train_step(loss, S.Adam(alpha=RATE), *given),
        "jitted JAX step": lambda: jitted_step(in_jax, optax.adam(RATE), *given),
        "nngrad, classic loop": lambda: classic_step(loss, S.Adam(alpha=RATE), *given),
    }


def numbers(count: int) -> tuple[Parameters, Arrays]:
    """So many parameters of one number, and what their sum is scaled by."""
    return [np.array(1 + i, "f") for i in range(count)], [np.array(1e-3, "f")]


def summed(p: list[Any], x: Any) -> Any:
    """Next to nothing: the sum of the parameters, scaled."""
    return functools.reduce(lambda a, b: a + b, p) * x


def cases(smoke: bool) -> Iterable[Case]:
    """The classifier, with its graph built once and anew at each step."""
    given = arrays()
    steps = ways(nngrad_loss, jax_loss, given)
    pairs = [(name, "jitted JAX step") for name in steps if name != "jitted JAX step"]
    yield Case(WHAT, steps, pairs, ("time", EARLY))
    yield Case(f"{WHAT}, graph rebuilt at each step", {
        "nngrad rebuilt": lambda: classic_step(nngrad_loss, S.Adam(alpha=RATE), *given, anew=True),
        "PyTorch eager": lambda: eager_step(torch_loss, *given, lr=RATE),
    })  # fmt: skip
