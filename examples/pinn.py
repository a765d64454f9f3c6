"""Physics-informed networks (Raissi, Perdikaris and Karniadakis, 2019) for equations in one place x and time t.

A network is trained until it satisfies the equation at points drawn at random; its derivatives are gradients, and the
loss is made of them. Initial and boundary conditions hold by construction (Lagaris, Likas and Fotiadis, 1998): the
solution is sought as `u(x, 0) + t * (zero at the boundary) * network(x, t)`, so that the equation is all of the loss.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import script

import nngrad as nn
import nngrad.functions as F
import nngrad.solvers as S

POINTS = 1024
"""Points at which the equation is imposed, drawn anew at each step."""
RATE = 3e-3

Array = np.ndarray[Any, Any]


class Problem(NamedTuple):
    """An equation with its initial and boundary conditions."""

    name: str
    solution: Callable[[nn.Variable, nn.Variable], nn.Variable]
    """The network as a function of x and t, of shape (batch, 1) each; meets the initial and boundary conditions."""
    residual: Callable[[nn.Variable, nn.Variable, nn.Variable], nn.Variable]
    """What shall be zero, of u, x and t."""
    place: tuple[float, float]
    """The interval of x."""
    end: float
    """Time runs from 0 to this."""
    known: Callable[[Array, Array], Array]
    """The solution on a grid: of x with shape (columns,) and of t with shape (rows,), of shape (rows, columns)."""


def solve(problem: Problem, steps: int, picture: Path) -> script.Result:
    """Train the network and draw its solution; the error is that of u, relative to u in the L2 norm."""
    rng = np.random.default_rng(0)
    nn.seed(0)
    with nn.parameter_scope("pinn", scope=OrderedDict()):
        x, t = nn.Variable((POINTS, 1)), nn.Variable((POINTS, 1))
        u = problem.solution(x, t)
        loss = F.mean(problem.residual(u, x, t) ** 2)
        solver = S.Adam()
        step = nn.train_step(loss, nn.get_parameters(), solver, inputs=(x, t))

        def at_random_points() -> Any:
            places = rng.uniform(*problem.place, (POINTS, 1)).astype(np.float32)
            times = rng.uniform(0, problem.end, (POINTS, 1)).astype(np.float32)
            return step(places, times)

        losses = script.train(at_random_points, solver, RATE, steps)
        places, times = np.linspace(*problem.place, 201), np.linspace(0, problem.end, 101)
        found = on_grid(problem.solution, places, times)
    known = problem.known(places, times)
    draw(problem, places, times, found, known, picture)
    return script.Result(losses, float(np.linalg.norm(found - known) / np.linalg.norm(known)))


def on_grid(solution: Callable[..., nn.Variable], places: Array, times: Array) -> Array:
    """The network's solution on a grid, of shape (times, places)."""
    t, x = np.meshgrid(times, places, indexing="ij")
    u = solution(*[nn.Variable.from_numpy_array(a.reshape(-1, 1).astype(np.float32)) for a in (x, t)])
    return np.asarray(u.d).reshape(t.shape)


def draw(problem: Problem, places: Array, times: Array, found: Array, known: Array, path: Path) -> None:
    """The network's solution, how far it is off, and both at some times."""
    figure = script.figure(11, 3.3)
    left, middle, right = figure.subplots(1, 3)
    for axes, values, title, colors in (
        (left, found, f"{problem.name}: network", "viridis"),
        (middle, np.abs(found - known), "absolute error", "magma"),
    ):
        image = axes.pcolormesh(times, places, values.T, cmap=colors, shading="gouraud", rasterized=True)
        figure.colorbar(image, ax=axes)
        axes.set(title=title, xlabel="t", ylabel="x")
    for share, color in (0, script.GREY), (0.5, script.ORANGE), (1, script.BLUE):
        row = round(share * (len(times) - 1))
        right.plot(places, known[row], color=color, linewidth=4, alpha=0.35)
        right.plot(places, found[row], color=color, linewidth=1.2, label=f"t = {times[row]:g}")
    right.set_title("known (broad), network (thin)", fontsize="medium")
    right.set(xlabel="x", ylabel="u")
    right.set_ylim(top=known.max() + 0.2 * np.ptp(known))
    right.legend(frameon=False, loc="upper center", ncols=3, handlelength=1, columnspacing=1)
    right.spines[["top", "right"]].set_visible(False)
    script.save(figure, path)
