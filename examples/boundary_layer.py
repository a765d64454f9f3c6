"""A boundary layer: u' - 0.02 u'' = 1 between two walls, at points that are drawn anew where the residual is large.

Sixty points are few for a layer that takes up a fiftieth of the interval: a network can satisfy the equation at points
that miss it and be wrong everywhere. Drawing them anew moves the points to where the equation does not hold yet.
Two networks are trained beside it for as long, in turns: at points that stay, and at points drawn evenly at each step.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import script
from gauss_newton import network, weights

import nngrad as nn
import nngrad.solvers as S

STEPS = 200
BOUND = 1e-3
WIDE = 0.02
"""About how wide the layer is."""
POINTS, CANDIDATES, EVERY = 60, 1000, 2
"""Points of a step; of how many they are chosen, and after how many steps again."""
WIDTH, SEEDS = 12, 10
KINDS = "resampled", "fixed", "new"

Array = np.ndarray[Any, Any]


def solution(p: list[nn.Variable], x: nn.Variable) -> Any:
    """Is 0 at both walls."""
    return x * (1 - x) * network(p, 2 * x - 1)


def residual(u: Any, x: nn.Variable) -> Any:
    """Zero where u solves the equation."""
    u_x, u_xx = nn.derivatives(u, [(x,), (x, x)])
    return u_x - WIDE * u_xx - 1


def known(x: Any) -> Any:
    """The solution."""
    return x - np.expm1(x / WIDE) / np.expm1(1 / WIDE)


class Run:
    """A network in training, at points of one of KINDS."""

    def __init__(self, kind: str, seed: int) -> None:
        self.rng, self.kind = np.random.default_rng(seed), kind
        p = weights(self.rng, 1, WIDTH, WIDTH, 1)
        x, candidates, grid = (nn.Variable((n, 1), dtype=np.float64) for n in (POINTS, CANDIDATES, 1001))
        self.step = nn.train_step(
            residual(solution(p, x), x) / POINTS**0.5, p, S.GaussNewton(damping=1e-6), inputs=[x]
        )
        self.residual_at = nn.compile(residual(solution(p, candidates), candidates), [candidates])
        self.at = nn.compile(solution(p, grid), [grid])
        self.points = self.rng.uniform(size=(POINTS, 1))
        self.losses: list[float] = []
        self.seconds = 0.0
        self.places: list[Array] = []  # the points of each step
        self.residual_at(self.rng.uniform(size=(CANDIDATES, 1)))  # compiled before the time is taken

    def go_on(self) -> None:
        """A step; the first, which compiles, takes no time."""
        began = time.perf_counter()
        if self.kind == "new":
            self.points = self.rng.uniform(size=(POINTS, 1))
        elif self.kind == "resampled" and len(self.losses) % EVERY == 0:
            candidates = self.rng.uniform(size=(CANDIDATES, 1))
            density = np.abs(self.residual_at(candidates))[:, 0]
            density = density / density.mean() + 1  # as Wu et al., 2023
            self.points = candidates[self.rng.choice(CANDIDATES, POINTS, replace=False, p=density / density.sum())]
        self.losses.append(float(self.step(self.points)))
        self.seconds += (time.perf_counter() - began) * (len(self.losses) > 1)
        self.places.append(self.points)

    def found(self) -> Array:
        """The solution at 1001 places."""
        return np.asarray(self.at(np.linspace(0, 1, 1001)[:, None]))[:, 0]

    def error(self) -> float:
        """How far it is from the known one, relative, in the L2 norm."""
        exact = known(np.linspace(0, 1, 1001))
        return float(np.linalg.norm(self.found() - exact) / np.linalg.norm(exact))


def trained(steps: int, seed: int) -> list[Run]:
    """Three runs in the same time, of which the resampled one takes so many steps."""
    runs = [Run(kind, seed) for kind in KINDS]
    while len(runs[0].losses) < steps:
        min(runs, key=lambda run: run.seconds).go_on()
    return runs


def solve(steps: int, out: Path) -> script.Result:
    """The error is the median of all seeds."""
    runs = [trained(steps, seed) for seed in range(SEEDS)]
    errors = {kind: [each[i].error() for each in runs] for i, kind in enumerate(KINDS)}
    for i, kind in enumerate(KINDS):
        taken = sum(len(each[i].losses) for each in runs) / SEEDS
        print(
            f"{kind}: errors from {min(errors[kind]):.0e} to {max(errors[kind]):.0e}, median "
            f"{np.median(errors[kind]):.1e}, after {taken:.0f} steps"
        )
    draw(runs, errors, out / "boundary_layer.png")
    return script.Result(runs[0][0].losses, float(np.median(errors["resampled"])))


def draw(runs: list[list[Run]], errors: dict[str, list[float]], path: Path) -> None:
    """Solutions of the seed whose fixed points serve worst, where the resampled ones went, and errors of all seeds."""
    x = np.linspace(0, 1, 1001)
    colors = script.BLUE, script.GREY, script.ORANGE
    figure = script.figure(11, 3.3)
    left, middle, right = figure.subplots(1, 3)
    worst = runs[int(np.argmax(errors["fixed"]))]
    left.plot(x, known(x), color="black", linewidth=4, alpha=0.2, label="known")
    for run, color in zip(worst, colors, strict=True):
        left.plot(x, run.found(), color=color, linewidth=1.2, label=run.kind)
    left.set(title="u", xlabel="x")
    left.legend(frameon=False)
    for i, places in enumerate(worst[0].places):
        middle.plot(places, np.full(POINTS, i + 1), ".", color=script.BLUE, markersize=0.8)
    middle.set(title="points, resampled", xlabel="x", ylabel="step")
    for i, (kind, color) in enumerate(zip(KINDS, colors, strict=True)):
        right.plot(np.full(SEEDS, i), errors[kind], "o", color=color, alpha=0.6, markersize=5)
        right.plot([i - 0.25, i + 0.25], 2 * [np.median(errors[kind])], color=color)
    right.set(title=f"errors of {SEEDS} seeds, and medians", yscale="log", xlim=(-0.6, 2.6))
    right.set_xticks(range(3), KINDS)
    for axes in left, middle, right:
        axes.spines[["top", "right"]].set_visible(False)
    script.save(figure, path)


if __name__ == "__main__":
    sys.exit(script.main(solve, __doc__, STEPS, BOUND))
