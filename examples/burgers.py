"""Burgers' equation, u_t + u u_x = v u_xx, by a physics-informed network, beside the solution of Cole and Hopf.

The wave -sin(pi x) steepens to a front at x = 0, which viscosity keeps from breaking. The known solution is the
integral of Cole and Hopf by Gauss-Hermite quadrature (Basdevant et al., 1986).
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pinn
import script

import nngrad as nn
import nngrad.functions as F

VISCOSITY = 0.1 / np.pi
STEPS = 4000
BOUND = 5e-3


def solution(x: nn.Variable, t: nn.Variable) -> nn.Variable:
    """Is -sin(pi x) at t = 0, and 0 at x = -1 and x = 1."""
    return t * (1 - x**2) * script.tanh_mlp(F.concatenate(x, t, axis=1)) - F.sin(np.pi * x)


def residual(u: nn.Variable, x: nn.Variable, t: nn.Variable) -> nn.Variable:
    """Zero where u solves the equation."""
    u_x, u_t = nn.grad([u], [x, t])
    (u_xx,) = nn.grad([u_x], [x])
    return u_t + u * u_x - VISCOSITY * u_xx


def known(x: pinn.Array, t: pinn.Array) -> pinn.Array:
    """The solution of Cole and Hopf on a grid, of shape (times, places)."""
    nodes, weights = np.polynomial.hermite.hermgauss(100)
    y = x[:, None] - 2 * np.sqrt(VISCOSITY * t[:, None, None]) * nodes  # where the heat at (x, t) comes from
    heat = weights * np.exp(-np.cos(np.pi * y) / (2 * np.pi * VISCOSITY))
    return -np.sum(np.sin(np.pi * y) * heat, axis=-1) / np.sum(heat, axis=-1)


PROBLEM = pinn.Problem("Burgers", solution, residual, (-1.0, 1.0), 1.0, known)


def solve(steps: int, out: Path) -> script.Result:
    """The error is that of u, relative to u in the L2 norm."""
    return pinn.solve(PROBLEM, steps, out / "burgers.png")


if __name__ == "__main__":
    sys.exit(script.main(solve, __doc__, STEPS, BOUND))
