"""The flow in a square cavity with a moving lid at Reynolds number 100, beside the table of Ghia, Ghia and Shin (1982).

The network gives the stream function psi and the pressure at a point: u = psi_y and v = -psi_x, so mass is conserved,
and the equations of momentum have third derivatives. Equations and boundary conditions are residuals of one system, for
steps of Levenberg and Marquardt (`S.GaussNewton`). The speed of the lid falls to 0 near its ends, where it would jump.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import script
from gauss_newton import network, weights

import nngrad as nn
import nngrad.functions as F
import nngrad.solvers as S

STEPS = 200
BOUND = 2e-2
REYNOLDS = 100
POINTS, ON_EACH_WALL = 500, 40
WIDTH = 24
BOUNDARY = 10.0
"""What squares of the residuals of the boundary conditions are multiplied by."""

U_ALONG_Y = np.array([
    [1.0, 1.0], [0.9766, 0.84123], [0.9688, 0.78871], [0.9609, 0.73722], [0.9531, 0.68717], [0.8516, 0.23151],
    [0.7344, 0.00332], [0.6172, -0.13641], [0.5, -0.20581], [0.4531, -0.2109], [0.2813, -0.15662], [0.1719, -0.1015],
    [0.1016, -0.06434], [0.0703, -0.04775], [0.0625, -0.04192], [0.0547, -0.03717], [0.0, 0.0],
])  # fmt: skip
"""y and u where x = 1/2: table I of Ghia, Ghia and Shin, "High-Re solutions for incompressible flow using the
Navier-Stokes equations and a multigrid method", 1982."""
V_ALONG_X = np.array([
    [1.0, 0.0], [0.9688, -0.05906], [0.9609, -0.07391], [0.9531, -0.08864], [0.9453, -0.10313], [0.9063, -0.16914],
    [0.8594, -0.22445], [0.8047, -0.24533], [0.5, 0.05454], [0.2344, 0.17527], [0.2266, 0.17507], [0.1563, 0.16077],
    [0.0938, 0.12317], [0.0781, 0.1089], [0.0703, 0.10091], [0.0625, 0.09233], [0.0, 0.0],
])  # fmt: skip
"""x and v where y = 1/2: table II."""

Array = np.ndarray[Any, Any]


def flow(p: list[nn.Variable], x: Any, y: Any) -> tuple[Any, Any]:
    """The stream function and the pressure, (points, 1) each."""
    both = network(p, F.concatenate(2 * x - 1, 2 * y - 1, axis=1))
    return both[:, 0:1], both[:, 1:2]


def velocity(psi: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """u and v."""
    psi_x, psi_y = nn.derivatives(psi, [(x,), (y,)])
    return psi_y, -psi_x


def momentum(psi: Any, pressure: Any, x: Any, y: Any) -> list[Any]:
    """What is zero where a steady flow conserves its momentum, along x and along y."""
    wanted = [(x,), (y,), (x, x), (x, y), (y, y), (x, x, x), (x, x, y), (x, y, y), (y, y, y)]
    psi_x, psi_y, xx, xy, yy, xxx, xxy, xyy, yyy = nn.derivatives(psi, wanted)
    p_x, p_y = nn.derivatives(pressure, [(x,), (y,)])
    return [
        psi_y * xy - psi_x * yy + p_x - (xxy + yyy) / REYNOLDS,
        psi_x * xy - psi_y * xx + p_y + (xxx + xyy) / REYNOLDS,
    ]


def walls(rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """x, y and the wanted u of points on the lid, the floor and both sides, (4 * ON_EACH_WALL, 1) each."""
    along = (rng.uniform(size=(4, ON_EACH_WALL)) + np.arange(ON_EACH_WALL)) / ON_EACH_WALL
    zero, one = np.zeros(ON_EACH_WALL), np.ones(ON_EACH_WALL)
    x, y = np.concatenate([*along[:2], zero, one]), np.concatenate([one, zero, *along[2:]])
    u = np.where(y == 1, 1 - np.cosh(25 * (x - 0.5)) / np.cosh(12.5), 0)
    return x[:, None], y[:, None], u[:, None]


def variables(*arrays: Array) -> list[nn.Variable]:
    """Variables of float64."""
    return [nn.Variable.from_numpy_array(np.asarray(a, np.float64)) for a in arrays]


def solve(steps: int, out: Path) -> script.Result:
    """The error is that of the 34 velocities of the tables, relative, in the L2 norm."""
    rng = np.random.default_rng(0)
    p = weights(rng, 2, WIDTH, WIDTH, 2)
    x, y = variables(*rng.uniform(size=(2, POINTS, 1)))
    wall_x, wall_y, wanted_u = variables(*walls(rng))
    u, v = velocity(flow(p, wall_x, wall_y)[0], wall_x, wall_y)
    factor = (BOUNDARY / wall_x.size) ** 0.5
    residuals = [r / POINTS**0.5 for r in momentum(*flow(p, x, y), x, y)] + [factor * (u - wanted_u), factor * v]
    # The last biases are constants in psi and in the pressure, of which nothing depends.
    step = nn.train_step(residuals, p[:-1], S.GaussNewton(damping=1e-2, adaptive=True))

    half, table_y, table_x = variables(np.full((17, 1), 0.5), U_ALONG_Y[:, :1], V_ALONG_X[:, :1])
    u = velocity(flow(p, half, table_y)[0], half, table_y)[0]
    v = velocity(flow(p, table_x, half)[0], table_x, half)[1]
    at_table = nn.compile([u, v])
    exact = np.concatenate([U_ALONG_Y[:, 1], V_ALONG_X[:, 1]])
    losses, errors = [], []
    for i in range(steps):
        losses.append(float(step()))
        if i % 5 == 4 or i + 1 == steps:
            off = np.ravel(np.concatenate(at_table())) - exact
            errors.append((i + 1, float(np.linalg.norm(off) / np.linalg.norm(exact))))
    print(f"of 34 velocities none is off by more than {np.abs(off).max():.4f}")
    draw(p, errors, out / "cavity.png")
    return script.Result(losses, errors[-1][1])


def draw(p: list[nn.Variable], errors: list[tuple[int, float]], path: Path) -> None:
    """Streamlines, velocities along both centrelines, and errors against steps."""
    line = np.linspace(0, 1, 61)
    grid_x, grid_y = np.meshgrid(line, line)
    x, y, along, half = variables(grid_x.reshape(-1, 1), grid_y.reshape(-1, 1), line[:, None], np.full((61, 1), 0.5))
    speed_x, speed_y = (a.d.reshape(61, 61) for a in velocity(flow(p, x, y)[0], x, y))
    figure = script.figure(11, 3.3)
    left, middle, right = figure.subplots(1, 3)
    speed = np.hypot(speed_x, speed_y)
    left.streamplot(line, line, speed_x, speed_y, color=speed, cmap="viridis", linewidth=0.8, arrowsize=0.6)
    left.set(title="streamlines", xlabel="x", ylabel="y", xlim=(0, 1), ylim=(0, 1), aspect="equal")
    u = velocity(flow(p, half, along)[0], half, along)[0]
    v = velocity(flow(p, along, half)[0], along, half)[1]
    for values, table, label, color in (
        (u, U_ALONG_Y, "u where x = 1/2", script.BLUE),
        (v, V_ALONG_X, "v where y = 1/2", script.ORANGE),
    ):
        middle.plot(line, values.d, color=color, linewidth=1.2, label=label)
        middle.plot(*table.T, "o", color=color, markersize=3)
    middle.set(title="network (lines), Ghia et al. (dots)", xlabel="y, x")
    middle.legend(frameon=False)
    right.plot(*zip(*errors, strict=True), color=script.BLUE, linewidth=1.2)
    right.set(title="relative error of the table's velocities", xlabel="steps", yscale="log")
    for axes in middle, right:
        axes.spines[["top", "right"]].set_visible(False)
    script.save(figure, path)


if __name__ == "__main__":
    sys.exit(script.main(solve, __doc__, STEPS, BOUND))
