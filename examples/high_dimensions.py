"""Allen-Cahn and sine-Gordon equations on the unit ball in 100 to 100,000 dimensions, with the Laplacian estimated from
a few random directions (Shi, Hu, Lin and Kawaguchi, 2024, "Stochastic Taylor Derivative Estimator").

The equation is `laplacian u + f(u) = g` with f(u) = u - u^3 (Allen-Cahn) or sin(u) (sine-Gordon), and u = 0 on the
sphere, which holds by construction: u = (1 - |x|^2) network(x). The solution is prescribed, and g follows from it; it
does not split into functions of fewer coordinates: neighbouring coordinates interact in pairs or in triples. Points and
directions are drawn anew by each step, in its one executable.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import script

import nngrad as nn
import nngrad.functions as F
import nngrad.solvers as S

POINTS = 100
DIRECTIONS = 16
RATE = 2e-3
DIMENSION = 100
STEPS = 1500
BOUND = 1e-2
HELD_OUT = 1000
"""Points at which the solution is compared with the known one."""
EQUATIONS: dict[str, Callable[[nn.Variable], nn.Variable]] = {
    "allen-cahn": lambda u: u - u**3,
    "sine-gordon": F.sin,
}


class Interaction(NamedTuple):
    """w = sum_i c_i h(neighbours of coordinate i), and its derivatives at some points."""

    value: nn.Variable
    slope: nn.Variable
    """x . grad w"""
    laplacian: nn.Variable


def in_pairs(x: nn.Variable, seed: int) -> Interaction:
    """h(x, y) = sin(a) with a = x + cos(y) + y cos(x)."""
    c = coefficients(x.shape[1] - 1, seed)
    left, right = x[:, :-1], x[:, 1:]
    a = left + F.cos(right) + right * F.cos(left)
    by_left, by_right = 1 - right * F.sin(left), F.cos(left) - F.sin(right)
    curvature = F.cos(a) * (right * F.cos(left) + F.cos(right)) + F.sin(a) * (by_left**2 + by_right**2)
    slope = F.cos(a) * (left * by_left + right * by_right)
    return Interaction(summed(c * F.sin(a)), summed(c * slope), -summed(c * curvature))


def in_triples(x: nn.Variable, seed: int) -> Interaction:
    """h(x, y, z) = exp(x y z)."""
    c = coefficients(x.shape[1] - 2, seed)
    left, middle, right = x[:, :-2], x[:, 1:-1], x[:, 2:]
    product = left * middle * right
    of_terms = c * F.exp(product)
    squares = (middle * right) ** 2 + (left * right) ** 2 + (left * middle) ** 2
    return Interaction(summed(of_terms), summed(3 * of_terms * product), summed(of_terms * squares))


INTERACTIONS = {"pairs": in_pairs, "triples": in_triples}


def coefficients(count: int, seed: int) -> nn.Variable:
    """Standard normal ones."""
    return nn.Variable.from_numpy_array(np.random.default_rng(seed).standard_normal((1, count)).astype(np.float32))


def summed(terms: nn.Variable) -> nn.Variable:
    """For each point, of shape (points, 1)."""
    return F.sum(terms, axis=1, keepdims=True)


def in_ball(x: nn.Variable) -> nn.Variable:
    """1 - |x|^2, which is zero on the sphere."""
    return 1 - summed(x**2)


def known(x: nn.Variable, interaction: str, seed: int = 0) -> tuple[nn.Variable, nn.Variable]:
    """The solution (1 - |x|^2) w at some points, and its Laplacian."""
    w = INTERACTIONS[interaction](x, seed)
    return in_ball(x) * w.value, in_ball(x) * w.laplacian - 4 * w.slope - 2 * x.shape[1] * w.value


def points(count: int, dimension: int) -> nn.Variable:
    """Points of the ball, drawn anew at each forward: of any direction, and of any distance from 0 to 1."""
    along = F.randn(shape=(count, dimension))
    return F.rand(shape=(count, 1)) * along / F.sqrt(summed(along**2))


def solution(x: nn.Variable) -> nn.Variable:
    """The network, zero on the sphere."""
    return in_ball(x) * script.tanh_mlp(x, width=128)


def residual(u: nn.Variable, x: nn.Variable, equation: str, interaction: str, directions: int) -> nn.Variable:
    """Zero on average over directions where u solves the equation."""
    of_u = EQUATIONS[equation]
    exact, laplacian = known(x, interaction)
    return nn.laplacian(u, x, directions=directions) + of_u(u) - laplacian - of_u(exact)


def solve(
    steps: int, out: Path, dimension: int | None = None, equation: str = "sine-gordon", interaction: str = "pairs",
    directions: int = DIRECTIONS, unbiased: int = 0,
) -> script.Result:  # fmt: skip
    """The error is that of u, relative to u in the L2 norm."""
    dimension = dimension or DIMENSION
    nn.seed(0)
    with nn.parameter_scope("high_dimensions", scope=OrderedDict()):
        x = points(POINTS, dimension)
        u = solution(x)
        first = residual(u, x, equation, interaction, min(directions, dimension))
        # The square of one estimate is larger than that of the operator by the variance; the product of two is not.
        second = residual(u, x, equation, interaction, min(directions, dimension)) if unbiased else first
        solver = S.Adam()
        step = nn.train_step(F.mean(first * second), nn.get_parameters(), solver)
        losses = script.train(step, solver, RATE, steps)
        x = points(HELD_OUT, dimension)
        found, exact = solution(x), known(x, interaction)[0]
        nn.forward_all([found, exact])
    draw(found.d, exact.d, f"{equation} in {dimension:,} dimensions, {interaction}", out / "high_dimensions.png")
    return script.Result(losses, float(np.linalg.norm(found.d - exact.d) / np.linalg.norm(exact.d)))


def draw(found: np.ndarray, exact: np.ndarray, title: str, path: Path) -> None:
    """The network's solution against the known one at points held out."""
    figure = script.figure(4.4, 4)
    axes = figure.subplots()
    axes.plot([exact.min(), exact.max()], [exact.min(), exact.max()], color=script.GREY, linewidth=1)
    axes.plot(exact[:, 0], found[:, 0], ".", color=script.BLUE, markersize=3)
    axes.set(title=title, xlabel="known", ylabel="network")
    script.save(figure, path)


OPTIONS = {
    "dimension": (DIMENSION, "number of coordinates"),
    "equation": ("sine-gordon", " or ".join(EQUATIONS)),
    "interaction": ("pairs", "solution with interactions in " + " or ".join(INTERACTIONS)),
    "directions": (DIRECTIONS, "random directions for each Laplacian"),
    "unbiased": (0, "1 for the product of two independent estimates as the loss"),
}

if __name__ == "__main__":
    sys.exit(script.main(solve, __doc__, STEPS, BOUND, options=OPTIONS))
