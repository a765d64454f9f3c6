"""Poisson's equation and Allen and Cahn's to many digits, by Gauss-Newton steps on the residuals of a small network.

Each step solves a linear system with as many unknowns as there are points (energy natural gradient descent; Müller and
Zeinhofer, 2023). Adam trains the same network at the same points for as long, and stays behind by some digits. Boundary
conditions hold by construction.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import script

import nngrad as nn
import nngrad.functions as F
import nngrad.solvers as S

STEPS = 100
BOUND = 1e-5
LAYER = 0.5
"""How wide the layer is between both phases of Allen and Cahn's equation."""

Array = np.ndarray[Any, Any]


class Problem(NamedTuple):
    """An equation in points of a cube, (batch, dimension)."""

    name: str
    dimension: int
    points: int
    """At how many the equation is imposed."""
    width: int
    """Of the network's layers."""
    solution: Callable[[Any, nn.Variable], Any]
    """Of the network's values and the points; meets the boundary conditions."""
    residual: Callable[[Any, nn.Variable], Any]
    """What shall be zero, of u and the points, (batch, 1)."""
    known: Callable[[Any], Any]
    """The solution, of the points."""


def sines(x: Any) -> Any:
    """The product of sines, (batch, 1)."""
    return F.prod(F.sin(np.pi * x), axis=1, keepdims=True)


def front(x: Any) -> Any:
    """Between -1 and 1, where its ends are those of an interval of the line."""
    return F.tanh(x / (np.sqrt(2) * LAYER))


POISSON = Problem(
    "Poisson", 2, 300, 32,
    lambda value, x: F.prod(1 - x**2, axis=1, keepdims=True) * value,
    lambda u, x: nn.laplacian(u, x) + 2 * np.pi**2 * sines(x),
    sines,
)  # fmt: skip
ALLEN_CAHN = Problem(
    "Allen-Cahn", 1, 100, 8,
    lambda value, x: float(np.tanh(1 / (np.sqrt(2) * LAYER))) * x + (1 - x**2) * value,
    lambda u, x: LAYER**2 * nn.laplacian(u, x) + u - u**3,
    front,
)  # fmt: skip


def weights(rng: np.random.Generator, *sizes: int) -> list[nn.Variable]:
    """Matrices and biases of a network, in float64."""
    made = []
    for m, n in pairwise(sizes):
        made += [nn.Parameter(rng.standard_normal((m, n)) * np.sqrt(2 / (m + n))), nn.Parameter(np.zeros(n))]
    return made


def network(p: list[nn.Variable], x: nn.Variable) -> nn.Variable:
    """A tanh network."""
    h = x
    for w, b in zip(p[:-2:2], p[1:-2:2], strict=True):
        h = F.tanh(F.affine(h, w, b))
    return F.affine(h, *p[-2:])


class Run(NamedTuple):
    """How a network was trained."""

    losses: list[float]
    seconds: list[float]
    """When each step had been taken."""
    error: float


def trained(problem: Problem, solver: S.Solver, going_on: Callable[[list[float]], bool]) -> Run:
    """Train a network; the error is relative, in the L2 norm, at other points."""
    rng = np.random.default_rng(0)
    d = problem.dimension
    p = weights(rng, d, problem.width, problem.width, 1)
    x, others = (nn.Variable.from_numpy_array(rng.uniform(-1, 1, (n, d))) for n in (problem.points, 2000))
    residual = problem.residual(problem.solution(network(p, x), x), x) / np.sqrt(problem.points)
    loss = residual if solver.takes_residuals else F.sum(residual**2) / 2
    step = nn.train_step(loss, p, solver)
    losses, seconds = [float(step())], [0.0]
    began = time.perf_counter()
    while going_on(seconds):
        losses.append(float(step()))
        seconds.append(time.perf_counter() - began)
    found, known = problem.solution(network(p, others), others).d, problem.known(others).d
    return Run(losses, seconds, float(np.linalg.norm(found - known) / np.linalg.norm(known)))


def solve(steps: int, out: Path) -> script.Result:
    """The error is the larger one of both equations."""
    runs = {}
    for problem in (POISSON, ALLEN_CAHN):
        mine = trained(problem, S.GaussNewton(), lambda seconds: len(seconds) < steps)
        limit = mine.seconds[-1]
        adam = trained(problem, S.Adam(3e-3), lambda seconds, limit=limit: seconds[-1] < limit)
        runs[problem.name] = mine, adam
        print(f"{problem.name}: Gauss-Newton {mine.error:.1e} after {steps} steps in {limit:.1f} s; "
              f"Adam {adam.error:.1e} after {len(adam.losses):,} steps in {adam.seconds[-1]:.1f} s")
    draw(runs, out / "gauss_newton.png")
    return script.Result(runs["Poisson"][0].losses, max([mine.error for mine, _ in runs.values()]))


def draw(runs: dict[str, tuple[Run, Run]], path: Path) -> None:
    """The losses against time."""
    figure = script.figure(9, 3.2)
    for axes, (name, pair) in zip(figure.subplots(1, 2), runs.items(), strict=True):
        for run, label, color in zip(pair, ("Gauss-Newton", "Adam"), (script.BLUE, script.GREY), strict=True):
            axes.plot(run.seconds, run.losses, color=color, linewidth=1.2, label=f"{label}, error {run.error:.0e}")
        axes.set(title=name, xlabel="seconds", ylabel="loss", yscale="log")
        axes.legend(frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
    script.save(figure, path)


if __name__ == "__main__":
    sys.exit(script.main(solve, __doc__, STEPS, BOUND))
