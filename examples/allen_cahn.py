"""Allen and Cahn's equation, u_t = 1e-4 u_xx + 5 (u - u^3), with sharp fronts, which plain training misses.

A plain network, trained by Adam with conditions as terms of the loss, stays far from the solution, for the equation
also holds near wrong steady states. Here the features are periodic, the form of the solution has its initial value,
later times count once earlier ones are solved, and each step is one of Gauss and Newton.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import script
from gauss_newton import network, weights
from kuramoto_sivashinsky import Etdrk4

import nngrad as nn
import nngrad.functions as F
import nngrad.solvers as S

STEPS = 90
BOUND = 1e-3
DIFFUSION = 1e-4
POINTS, TIMES = 2000, 40
"""Points at which the equation is imposed, drawn anew at each step; and how many intervals of time they are in."""
WIDTH, HARMONICS = 24, 8
TOLERANCE = 10.0
"""Of the causal weights."""

Array = np.ndarray[Any, Any]


def initial(x: Any) -> Any:
    """The value at t = 0."""
    return x**2 * F.cos(np.pi * x)


def solution(p: list[nn.Variable], x: nn.Variable, t: nn.Variable) -> Any:
    """Periodic, and right at t = 0."""
    waves = np.pi * x * np.arange(1.0, HARMONICS + 1)  # with the period 2
    features = F.concatenate(F.cos(waves), F.sin(waves), 2 * t - 1, axis=1)
    return initial(x) + t * network(p, features)


def residual(u: Any, x: nn.Variable, t: nn.Variable) -> Any:
    """Zero where u solves the equation."""
    u_t, u_xx = nn.derivatives(u, [(t,), (x, x)])
    return u_t - DIFFUSION * u_xx - 5 * (u - u**3)


def points(rng: np.random.Generator) -> tuple[Array, Array]:
    """x and t, (POINTS, 1) each, in the order of the intervals of time."""
    shape = TIMES, POINTS // TIMES
    times = (np.arange(TIMES)[:, None] + rng.uniform(size=shape)) / TIMES
    return rng.uniform(-1, 1, (POINTS, 1)), times.reshape(-1, 1)


def causal(residuals: Array) -> Array:
    """A weight for each time, a row of residuals, that is near 1 once earlier times are solved (Wang et al., 2022)."""
    losses = np.mean(residuals**2, axis=1, keepdims=True)
    return np.exp(-TOLERANCE * (np.cumsum(losses, axis=0) - losses))


def known(times: int = 101, modes: int = 512, every: int = 10) -> tuple[Array, Array, Array]:
    """Places and times of a grid, and the spectral solution there, (times, places)."""
    x = 2 * np.arange(modes) / modes - 1
    wave = np.pi * np.arange(modes // 2 + 1)
    v = np.fft.rfft(x**2 * np.cos(np.pi * x))
    step = 1 / (every * (times - 1))
    advance = Etdrk4(5 - DIFFUSION * wave**2, step, lambda v: -5 * np.fft.rfft(np.fft.irfft(v) ** 3))
    rows = [np.fft.irfft(v)]
    for _ in range(times - 1):
        for _ in range(every):
            v = advance(v)
        rows.append(np.fft.irfft(v))
    return x[:: modes // 256], np.linspace(0, 1, times), np.array(rows)[:, :: modes // 256]


class Run(NamedTuple):
    """How a network was trained."""

    losses: list[float]
    seconds: list[float]
    """When each of the errors was measured, without the time that this took."""
    errors: list[float]
    found: Array
    """The solution in the end, on the grid of `known`."""


def trained(
    step: Callable[[], Any], u: Any, inputs: list[nn.Variable], going_on: Callable[[int, float], bool], every: int
) -> Run:
    """Call `step` as long as `going_on` says, of the number of steps and of seconds; the first one compiles."""
    x, t, exact = known()
    t, x = (a.reshape(-1, 1).astype(inputs[0].dtype) for a in np.meshgrid(t, x, indexing="ij"))
    at, seconds, losses, found = nn.compile(u, inputs), 0.0, [float(step())], np.empty(0)
    run = Run(losses, [], [], found)
    while going_on(len(losses), seconds):
        began = time.perf_counter()
        losses.append(float(step()))
        seconds += time.perf_counter() - began
        if len(losses) % every == 0 or not going_on(len(losses), seconds):
            found = np.concatenate([at(*a) for a in zip(np.split(x, 101), np.split(t, 101), strict=True)])
            found = found.reshape(exact.shape)
            run.seconds.append(seconds)
            run.errors.append(float(np.linalg.norm(found - exact) / np.linalg.norm(exact)))
    return run._replace(found=found)


def with_kit(steps: int) -> Run:
    """Periodic features, a hard initial condition, causal weights and Gauss-Newton steps."""
    rng = np.random.default_rng(0)
    p = weights(rng, 2 * HARMONICS + 1, WIDTH, WIDTH, 1)
    x, t, roots = (nn.Variable((POINTS, 1), dtype=np.float64) for _ in range(3))
    r = residual(solution(p, x, t), x, t)
    residual_at = nn.compile(r, [x, t])
    solver = S.GaussNewton(damping=1e-7)
    step = nn.train_step(roots * r / POINTS**0.5, p, solver, inputs=[x, t, roots])

    def at_new_points() -> Any:
        places, times = points(rng)
        by_time = np.asarray(residual_at(places, times)).reshape(TIMES, -1)
        each = np.broadcast_to(causal(by_time), by_time.shape)
        return step(places, times, each.reshape(-1, 1) ** 0.5)

    return trained(at_new_points, *grid_of(lambda x, t: solution(p, x, t), np.float64), lambda n, _: n < steps, 5)


def plain(limit: float) -> Run:
    """A network of x and t, conditions as terms of the loss, and Adam, for so many seconds."""
    rng = np.random.default_rng(0)
    p = [nn.Parameter(w.d.astype(np.float32)) for w in weights(rng, 2, 64, 64, 64, 1)]
    x, t = (nn.Variable((POINTS, 1)) for _ in range(2))

    def u(x: Any, t: Any) -> Any:
        return network(p, F.concatenate(x, 2 * t - 1, axis=1))

    ends = u(0 * x + 1, t) - u(0 * x - 1, t)
    loss = F.mean(residual(u(x, t), x, t) ** 2) + F.mean(100 * (u(x, 0 * t) - initial(x)) ** 2) + F.mean(ends**2)
    step = nn.train_step(loss, p, S.Adam(1e-3), inputs=[x, t])

    def at_new_points() -> Any:
        return step(*[a.astype(np.float32) for a in points(rng)])

    return trained(at_new_points, *grid_of(u, np.float32), lambda _, seconds: seconds < limit, 100)


def grid_of(u: Callable[..., Any], dtype: Any) -> tuple[Any, list[nn.Variable]]:
    """The solution at as many points as there are places in `known`, and the Variables for them."""
    x, t = (nn.Variable((256, 1), dtype=dtype) for _ in range(2))
    return u(x, t), [x, t]


def solve(steps: int, out: Path) -> script.Result:
    """The error is that of u, relative to u in the L2 norm."""
    mine = with_kit(steps)
    adam = plain(mine.seconds[-1])
    for name, run in ("the kit", mine), ("plain", adam):
        print(f"{name}: error {run.errors[-1]:.1e} after {len(run.losses):,} steps in {run.seconds[-1]:.1f} s")
    draw(mine, adam, out / "allen_cahn.png")
    return script.Result(mine.losses, mine.errors[-1])


def draw(mine: Run, adam: Run, path: Path) -> None:
    """The network's solution, how far it is off, and errors against time."""
    x, t, exact = known()
    figure = script.figure(11, 3.3)
    left, middle, right = figure.subplots(1, 3)
    for axes, values, title, colors in (
        (left, mine.found, "Allen-Cahn: network", "viridis"),
        (middle, np.abs(mine.found - exact), "absolute error", "magma"),
    ):
        image = axes.pcolormesh(t, x, values.T, cmap=colors, shading="gouraud", rasterized=True)
        figure.colorbar(image, ax=axes)
        axes.set(title=title, xlabel="t", ylabel="x")
    for run, label, color in (mine, "kit, Gauss-Newton", script.BLUE), (adam, "plain, Adam", script.GREY):
        right.plot(run.seconds, run.errors, color=color, linewidth=1.2, label=f"{label}:\n{len(run.losses):,} steps")
    right.set(title="relative error", xlabel="seconds", yscale="log")
    right.legend(frameon=False, loc="upper right", bbox_to_anchor=(1, 0.95), fontsize=8, handlelength=1)
    right.spines[["top", "right"]].set_visible(False)
    script.save(figure, path)


if __name__ == "__main__":
    sys.exit(script.main(solve, __doc__, STEPS, BOUND))
