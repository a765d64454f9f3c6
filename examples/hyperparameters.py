"""Hyperparameters learned by gradients: a penalty for each feature of a ridge regression.

The weights are the minimum of a loss on few data with many features, of which most say nothing. The gradient of their
error on other data, with respect to the logarithms of the penalties, goes through that minimum: it follows from the
equation that the minimum solves, and not from how L-BFGS found it. Ridge regression has a closed form to compare with.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import script

import nngrad as nn
import nngrad.functions as F
import nngrad.solvers as S

FEATURES, USEFUL = 30, 5
SEEN, VALIDATION = 40, 200
STEPS = 300
BOUND = 1e-6

Array = np.ndarray[Any, Any]


def data(rng: np.random.Generator, weights: Array, count: int) -> tuple[Array, Array]:
    """Features and targets, with noise as large as what the features say."""
    x = rng.standard_normal((count, FEATURES))
    y = x @ weights
    return x, y + np.linalg.norm(weights) * rng.standard_normal(count)


def fitted(x: Array, y: Array, log_penalties: nn.Variable) -> nn.Variable:
    """The weights with the smallest loss."""

    def loss(w: nn.Variable) -> nn.Variable:
        return F.mean((x @ w - y) ** 2) + F.sum(F.exp(log_penalties) * w**2)

    w: nn.Variable = nn.minimize(loss, np.zeros(FEATURES), tol=1e-11)[0]
    return w


def known_gradient(seen: tuple[Array, Array], validation: tuple[Array, Array], log_penalties: Array) -> Array:
    """The gradient of the error on other data, from the closed form of the weights."""
    (x, y), (others, targets) = seen, validation
    matrix = x.T @ x / len(y) + np.diag(np.exp(log_penalties))
    w = np.linalg.solve(matrix, x.T @ y / len(y))
    slope = 2 * others.T @ (others @ w - targets) / len(targets)
    return -np.linalg.solve(matrix, slope) * np.exp(log_penalties) * w


def solve(steps: int, out: Path) -> script.Result:
    """The error is that of the last gradient, relative to the one of the closed form in the L2 norm."""
    rng = np.random.default_rng(0)
    truth = np.where(np.arange(FEATURES) < USEFUL, 1.0, 0.0)
    seen, validation = data(rng, truth, SEEN), data(rng, truth, VALIDATION)
    log_penalties = nn.Variable.from_numpy_array(np.full(FEATURES, -3.0), need_grad=True)
    w = fitted(*seen, log_penalties)
    others, targets = validation
    loss = F.mean((others @ w - targets) ** 2)
    (gradient,) = nn.grad(loss, log_penalties)
    solver = S.Adam()
    step = nn.train_step(loss, {"log_penalties": log_penalties}, solver)
    before = w.d
    losses = script.train(step, solver, 0.2, steps, every=5)
    nn.forward_all([w, gradient])
    known = known_gradient(seen, validation, log_penalties.d)
    error = np.linalg.norm(gradient.d - known) / np.linalg.norm(known)
    print(f"error on other data {losses[0]:.3f} before, {losses[-1]:.3f} after")
    draw(losses, truth, before, w.d, out / "hyperparameters.png")
    return script.Result(losses, float(error))


def draw(losses: list[float], truth: Array, before: Array, after: Array, path: Path) -> None:
    """The error while the penalties are learned, and the weights with the first and with the last of them."""
    figure = script.figure(9, 3.5)
    left, right = figure.subplots(1, 2)
    left.plot(losses, color=script.BLUE)
    left.set(title="error on other data", xlabel="while penalties are learned")
    places = np.arange(FEATURES)
    right.bar(places, truth, color=script.GREY, alpha=0.4, label="true")
    right.plot(places, before, ".", color=script.ORANGE, label="one small penalty for all")
    right.plot(places, after, ".", color=script.BLUE, label="penalties learned")
    right.set(title="weights", xlabel="feature")
    right.legend(frameon=False)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    script.save(figure, path)


if __name__ == "__main__":
    sys.exit(script.main(solve, __doc__, STEPS, BOUND))
