"""Steps with gradients of gradients whose graph is built anew each time, against the same graph built once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

import nngrad as nn
import nngrad.functions as F
import nngrad.solvers as S

from . import critic, physics
from .harness import Case
from .models import classic_step, dense_parameters, mlp, normal


def maml_loss(p: list[nn.Variable], *data: nn.Variable) -> nn.Variable:
    """The loss on one set of points after a step of gradient descent on another."""
    x, y, x_after, y_after = data

    def loss(p: list[nn.Variable], x: nn.Variable, y: nn.Variable) -> nn.Variable:
        return F.mean(F.squared_error(mlp(F.relu, p, x), y))

    return loss([w - 0.01 * g for w, g in zip(p, nn.grad(loss(p, x, y), p), strict=True)], x_after, y_after)


def cases(smoke: bool) -> Iterable[Case]:
    """The critic, MAML and three equations."""
    rng = np.random.default_rng(0)
    maml = dense_parameters(rng, 1, 40, 40, 1), [normal(rng, 10, 1) for _ in range(4)]
    losses: dict[str, tuple[Callable[..., Any], Any]] = {
        "critic": (partial(critic.nngrad_loss, critic.nngrad_mlp), critic.dense(smoke)), "MAML": (maml_loss, maml),
    }  # fmt: skip
    for equation in physics.EQUATIONS[: 1 if smoke else None]:
        losses[equation.name] = partial(physics.nngrad_loss, equation), physics.arrays(smoke)
    for name, (loss, given) in losses.items():
        yield Case(f"{name} step", {
            way: partial(classic_step, loss, S.Adam(alpha=1e-4), *given, anew)
            for way, anew in (("built anew", True), ("built once", False))
        })  # fmt: skip
