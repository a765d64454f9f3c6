"""The equation of Korteweg and de Vries, u_t + 6 u u_x + u_xxx = 0, by a physics-informed network, beside a soliton.

Dispersion, which spreads a wave, and the steepening of its front balance in a soliton: it keeps its shape,
u = c/2 sech^2(sqrt(c)/2 (x - c t - x0)).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pinn
import script

import nngrad as nn
import nngrad.functions as F

SPEED = 2.0
BEGIN = -1.5
"""Place of the soliton at t = 0."""
HALF = 9.0
"""Half of the interval in x. The soliton is hardly there at the ends of it."""
END = 1.5
STEPS = 8000
BOUND = 1e-2


def soliton(x: Any, t: Any) -> Any:
    """The soliton at place x and time t, which are Variables or arrays."""
    phase = (SPEED**0.5 / 2) * (x - SPEED * t - BEGIN)
    cosh = F.cosh if isinstance(x, nn.Variable) else np.cosh
    return SPEED / 2 / cosh(phase) ** 2


def solution(x: nn.Variable, t: nn.Variable) -> nn.Variable:
    """Is the soliton at t = 0, and keeps u at both ends and u_x at the right one."""
    s = x / HALF
    return soliton(x, 0.0) + t * (1 - s**2) * (1 - s) * script.tanh_mlp(F.concatenate(x / 2, t, axis=1))


def residual(u: nn.Variable, x: nn.Variable, t: nn.Variable) -> nn.Variable:
    """Zero where u solves the equation."""
    u_x, u_t = nn.grad([u], [x, t])
    (u_xx,) = nn.grad([u_x], [x])
    (u_xxx,) = nn.grad([u_xx], [x])
    return u_t + 6 * u * u_x + u_xxx


def known(x: pinn.Array, t: pinn.Array) -> pinn.Array:
    """The soliton on a grid, of shape (times, places)."""
    return soliton(x, t[:, None])


PROBLEM = pinn.Problem("Korteweg-de Vries", solution, residual, (-HALF, HALF), END, known)


def solve(steps: int, out: Path) -> script.Result:
    """The error is that of u, relative to u in the L2 norm."""
    return pinn.solve(PROBLEM, steps, out / "korteweg_de_vries.png")


if __name__ == "__main__":
    sys.exit(script.main(solve, __doc__, STEPS, BOUND))
