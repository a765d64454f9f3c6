"""A network that solves Burgers' equation from any initial wave of a family: a DeepONet that sees the equation alone.

The initial waves are a sin(pi x) + b sin(2 pi x). A branch turns (a, b) into coefficients, a trunk turns (x, t) into
functions, and their product holds the solutions of all waves at all points (Lu et al., 2021; Wang, Wang and Perdikaris,
2021). `nn.derivatives` differentiates that product by the coordinates that its rows share, so the trunk is
differentiated once for all waves. The known solutions are Cole and Hopf's, by Gauss-Hermite quadrature.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import script

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
import nngrad.solvers as S

Array = np.ndarray[Any, Any]

VISCOSITY = 0.1
WAVES, POINTS, FEATURES = 32, 128, 48
STEPS = 5000
BOUND = 3e-2


def solutions(waves: nn.Variable, x: nn.Variable, t: nn.Variable) -> nn.Variable:
    """Of each wave at each point, `(waves, points)`: the initial wave at t = 0, and 0 at x = -1 and x = 1. The network
    adds what the wave's own steepness brings to what diffusion alone leaves of it."""
    harmonics = [F.sin(k * np.pi * x) for k in (1, 2)]
    trunk = F.concatenate(*harmonics, *[F.cos(k * np.pi * x) for k in (1, 2)], x, t, axis=1)
    branch = waves
    for i in range(3):
        trunk = F.tanh(PF.affine(trunk, FEATURES, name=f"trunk{i + 1}"))
        branch = F.tanh(PF.affine(branch, FEATURES, name=f"branch{i + 1}"))
    branch = PF.affine(branch, FEATURES, name="coefficients")
    learned = F.reshape(t * (1 - x**2), shape=(1, -1)) * (branch @ F.transpose(trunk, axes=(1, 0)))
    diffused = [y * F.exp(-VISCOSITY * (k * np.pi) ** 2 * t) for k, y in zip((1, 2), harmonics, strict=True)]
    return waves @ F.transpose(F.concatenate(*diffused, axis=1), axes=(1, 0)) + learned


def residual(u: nn.Variable, x: nn.Variable, t: nn.Variable) -> nn.Variable:
    """Zero where each row of u solves u_t + u u_x = v u_xx."""
    u_t, u_x, u_xx = nn.derivatives(u, [(t,), (x,), (x, x)])
    return u_t + u * u_x - VISCOSITY * u_xx


def known(wave: Array, x: Array, t: Array) -> Array:
    """The solution from one initial wave, of shape (times, places); t above 0."""
    nodes, weights = np.polynomial.hermite.hermgauss(180)
    y = x[:, None] - 2 * np.sqrt(VISCOSITY * t[:, None, None]) * nodes  # where the heat at (x, t) comes from
    k = np.pi * np.array([1.0, 2.0])
    initial = np.sin(y[..., None] * k) @ wave
    integral = (1 - np.cos(y[..., None] * k)) @ (wave / k)
    heat = weights * np.exp(-integral / (2 * VISCOSITY))
    return np.sum(initial * heat, axis=-1) / np.sum(heat, axis=-1)


def solve(steps: int, out: Path) -> script.Result:
    """The error is that of u for waves that training has not seen, relative to u in the L2 norm."""
    nn.clear_parameters()
    nn.seed(0)
    rng = np.random.default_rng(0)
    waves, x, t = nn.Variable((WAVES, 2)), nn.Variable((POINTS, 1)), nn.Variable((POINTS, 1))
    loss = F.mean(residual(solutions(waves, x, t), x, t) ** 2)
    solver = S.Adam()
    step = nn.train_step(loss, nn.get_parameters(), solver, inputs=[waves, x, t])

    def draw() -> Any:
        return step(*[rng.uniform(low, 1, shape).astype(np.float32)
                      for low, shape in ((-1, waves.shape), (-1, x.shape), (0, t.shape))])  # fmt: skip

    losses = script.train(draw, solver, 4e-3, steps)

    places, times = np.linspace(-1, 1, 101), np.linspace(0.05, 1, 20)
    held_out = rng.uniform(-1, 1, (20, 2)).astype(np.float32)
    grid = [nn.Variable.from_numpy_array(a.astype(np.float32).reshape(-1, 1)) for a in np.meshgrid(places, times)]
    found = solutions(nn.Variable.from_numpy_array(held_out), *grid).d.reshape(-1, len(times), len(places))
    exact = np.stack([known(wave, places, times) for wave in held_out])
    _draw(places, held_out, found, exact, losses, steps, out / "operator_network.png")
    return script.Result(losses, float(np.linalg.norm(found - exact) / np.linalg.norm(exact)))


def _draw(places: Array, waves: Array, found: Array, exact: Array, losses: list[float], steps: int, path: Path) -> None:
    """Solutions of three waves held out, at three times, and the loss."""
    figure = script.figure(12, 3)
    *axes, last = figure.subplots(1, 4)
    for axis, wave, u, v in zip(axes, waves, found, exact, strict=False):
        for i, grey in ((0, 0.75), (6, 0.5), (19, 0.25)):
            axis.plot(places, v[i], color=str(grey), linewidth=4, alpha=0.5)
            axis.plot(places, u[i], color=script.BLUE, linewidth=1.2)
        axis.set(title=f"from {wave[0]:.2f} sin πx {wave[1]:+.2f} sin 2πx", xlabel="x", ylim=(-1.3, 1.3))
    axes[0].set_ylabel("u: network (blue) and known")
    last.semilogy(np.linspace(0, steps, len(losses)), losses, color=script.BLUE)
    last.set(title="mean squared residual", xlabel="step")
    script.save(figure, path)


if __name__ == "__main__":
    sys.exit(script.main(solve, __doc__, STEPS, BOUND))
