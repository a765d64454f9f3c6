"""Ten derivatives of sin, and a network that learns sin together with its derivatives.

First the derivatives themselves, beside the closed form. Then a network is trained to have the first derivatives of
sin (Sobolev training; Czarnecki et al., 2017): they are graphs, so a loss is made of them. The orders above them, up to
ten, are drawn as they come.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import script

import nngrad as nn
import nngrad.functions as F
import nngrad.solvers as S

ORDERS = 10
TRAINED = 4
"""The highest derivative that the network is trained on."""
POINTS = 128
STEPS = 8000
BOUND = 1e-2

Array = np.ndarray[Any, Any]


def derivative_of_sin(x: Array, order: int) -> Array:
    """The closed form: each derivative is sin, moved by a quarter of its period."""
    return np.sin(x + order * np.pi / 2)


def relative_error(found: Array, known: Array) -> float:
    """The distance relative to `known`, in the L2 norm."""
    return float(np.linalg.norm(found - known) / np.linalg.norm(known))


def orders_of(y: nn.Variable, x: nn.Variable, highest: int) -> list[nn.Variable]:
    """y and its derivatives, up to the highest order; all of shape (n, 1)."""
    return [y, *nn.nth_derivative(y, x, highest)]


def solve(steps: int, out: Path) -> script.Result:
    """The error is the largest of those of sin and of the orders that the network was trained on."""
    rng = np.random.default_rng(0)
    nn.seed(0)
    grid = np.linspace(-np.pi, np.pi, 400, dtype=np.float32).reshape(-1, 1)
    known = [derivative_of_sin(grid.astype(np.float64), order) for order in range(ORDERS + 1)]

    x = nn.Variable.from_numpy_array(grid)
    sin = orders_of(F.sin(x), x, ORDERS)
    nn.forward_all(sin)
    exact = [relative_error(y.d, k) for y, k in zip(sin, known, strict=True)]
    print(f"sin: {nn.count(sin).functions} functions in the graph of {ORDERS} orders, error {max(exact):.1e}")

    with nn.parameter_scope("network", scope=OrderedDict()):
        x = nn.Variable((POINTS, 1))
        wanted = [nn.Variable((POINTS, 1)) for _ in range(TRAINED + 1)]
        orders = orders_of(script.tanh_mlp(x, width=32, hidden=2), x, TRAINED)
        loss = sum(F.mean((y - w) ** 2) for y, w in zip(orders, wanted, strict=True))
        solver = S.Adam()
        step = nn.train_step(loss, nn.get_parameters(), solver, inputs=(x, *wanted))

        def at_random_points() -> Any:
            points = rng.uniform(-np.pi, np.pi, (POINTS, 1))
            values = [derivative_of_sin(points, order) for order in range(TRAINED + 1)]
            return step(*[a.astype(np.float32) for a in (points, *values)])

        losses = script.train(at_random_points, solver, 1e-2, steps)
        x = nn.Variable.from_numpy_array(grid)
        found = orders_of(script.tanh_mlp(x, width=32, hidden=2), x, ORDERS)
        nn.forward_all(found)
    learned = [relative_error(y.d, k) for y, k in zip(found, known, strict=True)]
    print("network, by order:", " ".join(f"{e:.0e}" for e in learned))
    draw(grid, known, [y.d for y in found], exact, learned, out / "derivatives_of_sin.png")
    return script.Result(losses, max(*exact, *learned[: TRAINED + 1]))


def draw(
    grid: Array, known: list[Array], found: list[Array], exact: list[float], learned: list[float], path: Path
) -> None:
    """Some orders of the network beside those of sin, and the errors of all."""
    figure = script.figure(10, 3.5)
    left, right = figure.subplots(1, 2)
    for order, color in (0, script.GREY), (TRAINED - 1, script.ORANGE), (TRAINED + 2, script.BLUE):
        left.plot(grid, known[order], color=color, linewidth=4, alpha=0.35)
        left.plot(grid, found[order], color=color, linewidth=1.2, label=f"order {order}")
    left.set(title="closed form (broad), network (thin)", xlabel="x", ylim=(-1.6, 1.6))
    right.semilogy(range(ORDERS + 1), exact, "o-", color=script.GREY, label="sin")
    right.semilogy(range(ORDERS + 1), learned, "o-", color=script.BLUE, label=f"network, trained to order {TRAINED}")
    right.axvline(TRAINED + 0.5, color=script.GREY, linewidth=0.8, linestyle=":")
    right.set(title="error, relative, by order of the derivative", xlabel="order")
    for axes in (left, right):
        axes.legend(frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
    script.save(figure, path)


if __name__ == "__main__":
    sys.exit(script.main(solve, __doc__, STEPS, BOUND))
