"""The equation of Kuramoto and Sivashinsky, u_t + u u_x + u_xx + u_xxxx = 0, by a physics-informed network.

u_xx feeds long waves, u_xxxx damps short ones, and u u_x carries energy from those to these. On a long interval the
result is chaos; on this one, with room for one unstable wave, a wave grows until it saturates. The network is compared
with a spectral solver: Fourier modes in x, and the exponential time differencing ETDRK4 of Cox and Matthews in t, with
its coefficients by the contour integrals of Kassam and Trefethen (2005).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pinn
import script

import nngrad as nn
import nngrad.functions as F

LENGTH = 4 * np.pi
"""The period in x. Waves whose number 2 pi k / LENGTH is below 1 grow: here k = 1 alone."""
END = 5.0
WAVE = 2 * np.pi / LENGTH
STEPS = 5000
BOUND = 1e-2


def solution(x: nn.Variable, t: nn.Variable) -> nn.Variable:
    """Has the period LENGTH, and is cos(x / 2) at t = 0."""
    cos, sin = F.cos(WAVE * x), F.sin(WAVE * x)
    return cos + t * script.tanh_mlp(F.concatenate(cos, sin, (t - END / 2) / 2, axis=1))


def residual(u: nn.Variable, x: nn.Variable, t: nn.Variable) -> nn.Variable:
    """Zero where u solves the equation."""
    u_x, u_t = nn.grad([u], [x, t])
    (u_xx,) = nn.grad([u_x], [x])
    (u_xxx,) = nn.grad([u_xx], [x])
    (u_xxxx,) = nn.grad([u_xxx], [x])
    return u_t + u * u_x + u_xx + u_xxxx


def known(x: pinn.Array, t: pinn.Array, modes: int = 64, step: float = 0.01) -> pinn.Array:
    """The spectral solution on a grid, of shape (times, places); each time is reached by steps of at most `step`."""
    wave = WAVE * np.arange(modes // 2 + 1)
    v = np.fft.rfft(np.cos(WAVE * LENGTH * np.arange(modes) / modes))
    rows = [v]
    for length in np.diff(t):
        count = int(np.ceil(length / step))
        advance = Etdrk4(wave**2 - wave**4, length / count, lambda v: -0.5j * wave * square(v))
        for _ in range(count):
            v = advance(v)
        rows.append(v)
    # A real signal of period LENGTH is the mean of its modes, each of them but the first and last with its conjugate.
    weights = np.where(np.arange(len(wave)) % (modes // 2) == 0, 1, 2) / modes
    return np.real((weights * np.array(rows)) @ np.exp(1j * wave[:, None] * x))


def square(v: pinn.Array) -> pinn.Array:
    """The modes of u^2 for the modes v of u, without those that alias (the upper third)."""
    kept = np.where(np.arange(len(v)) < 2 * len(v) // 3, v, 0)
    return np.fft.rfft(np.fft.irfft(kept) ** 2)


class Etdrk4:
    """One step of v' = linear * v + nonlinear(v), exact in the linear part and of fourth order in the other."""

    def __init__(self, linear: pinn.Array, step: float, nonlinear: Callable[[pinn.Array], pinn.Array]) -> None:
        self.nonlinear = nonlinear
        self.whole, self.half = np.exp(step * linear), np.exp(step * linear / 2)
        # These are functions with removable singularities at 0: their means over a circle around each value are safe.
        circle = step * linear[:, None] + np.exp(1j * np.pi * (np.arange(32) + 0.5) / 32)
        exp = np.exp(circle)
        self.q = step * mean((np.exp(circle / 2) - 1) / circle)
        self.f1 = step * mean((-4 - circle + exp * (4 - 3 * circle + circle**2)) / circle**3)
        self.f2 = step * mean((2 + circle + exp * (circle - 2)) / circle**3)
        self.f3 = step * mean((-4 - 3 * circle - circle**2 + exp * (4 - circle)) / circle**3)

    def __call__(self, v: pinn.Array) -> pinn.Array:
        n0 = self.nonlinear(v)
        a = self.half * v + self.q * n0
        n1 = self.nonlinear(a)
        b = self.half * v + self.q * n1
        n2 = self.nonlinear(b)
        c = self.half * a + self.q * (2 * n2 - n0)
        n3 = self.nonlinear(c)
        return self.whole * v + self.f1 * n0 + 2 * self.f2 * (n1 + n2) + self.f3 * n3


def mean(values: pinn.Array) -> pinn.Array:
    """The mean over the upper half of the circle: the real part is that over all of it."""
    return np.real(np.mean(values, axis=1))


PROBLEM = pinn.Problem("Kuramoto-Sivashinsky", solution, residual, (0.0, LENGTH), END, known)


def solve(steps: int, out: Path) -> script.Result:
    """The error is that of u, relative to u in the L2 norm."""
    return pinn.solve(PROBLEM, steps, out / "kuramoto_sivashinsky.png")


if __name__ == "__main__":
    sys.exit(script.main(solve, __doc__, STEPS, BOUND))
