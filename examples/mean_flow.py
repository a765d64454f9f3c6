"""MeanFlow: a generator that needs one step, trained by tangents in its loss, beside the flow that it sums up.

Points of a mixture x and normal noise e are mixed as z = (1 - t) x + t e. The flow that turns noise into data has the
velocity E[e - x | z, t]. A network u(z, r, t) learns its average from r to t (Geng et al., 2025, arXiv 2505.13447), by
u = v - (t - r) du/dt along v, so the loss is made of a tangent, and training differentiates it. One evaluation,
z - u(z, 0, 1), then takes noise to data. The velocity of a mixture of normal distributions has a closed form, and the
flow that it gives, by Runge and Kutta, is what the result is compared with.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import script

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
import nngrad.solvers as S

CENTRE = np.array([2.0, 1.0])
MEANS = CENTRE + 1.2 * np.stack([np.cos(np.arange(3) * 2 * np.pi / 3), np.sin(np.arange(3) * 2 * np.pi / 3)], axis=1)
SPREAD = 0.5
"""Standard deviation of each part of the mixture."""
WIDTH, HIDDEN, BATCH, HELD_OUT = 64, 3, 512, 2000
AVERAGED = 0.5
"""For which share of the batch r < t; for the rest r = t, where u is the velocity itself."""
STEPS = 4000
BOUND = 9e-2

Array = np.ndarray[Any, Any]


def data(count: int, rng: np.random.Generator) -> Array:
    """Points of the mixture."""
    return MEANS[rng.integers(0, len(MEANS), count)] + SPREAD * rng.standard_normal((count, 2))


def velocity(z: Array, t: float) -> Array:
    """The expectation of e - x, given z = (1 - t) x + t e."""
    variance = ((1 - t) * SPREAD) ** 2 + t**2
    from_means = z[:, None] - (1 - t) * MEANS
    exponents = -0.5 * np.sum(from_means**2, axis=2) / variance
    weights = np.exp(exponents - exponents.max(axis=1, keepdims=True))
    weights = (weights / weights.sum(axis=1, keepdims=True))[..., None]
    of_each = (t - (1 - t) * SPREAD**2) / variance * from_means - MEANS
    return np.sum(weights * of_each, axis=1)


def flowed(z: Array, steps: int = 200) -> Array:
    """Where the flow takes noise: from t = 1 to t = 0."""
    h = -1 / steps
    for i in range(steps):
        t = 1 + i * h
        k1 = velocity(z, t)
        k2 = velocity(z + 0.5 * h * k1, t + 0.5 * h)
        k3 = velocity(z + 0.5 * h * k2, t + 0.5 * h)
        k4 = velocity(z + h * k3, t + h)
        z = z + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return z


def average_velocity(z: nn.Variable, r: nn.Variable, t: nn.Variable) -> nn.Variable:
    """The network, for points z of shape (n, 2) and times of shape (n, 1)."""
    h = F.concatenate(z, t, t - r, axis=1)
    for i in range(HIDDEN):
        h = F.swish(PF.affine(h, WIDTH, name=f"hidden{i + 1}"))
    return PF.affine(h, 2, name="out")


def loss_of(z: nn.Variable, v: nn.Variable, r: nn.Variable, t: nn.Variable) -> nn.Variable:
    """How far u is from v - (t - r) du/dt along v, which counts as a constant."""
    u = average_velocity(z, r, t)
    (along,) = nn.jvp(u, [z, t], [v, F.constant(1, shape=t.shape)])
    return F.mean((u - F.unlink(v - (t - r) * along)) ** 2)


def times(count: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """r and t, of shape (count, 1), with 0 <= r <= t <= 1."""
    both = np.sort(rng.uniform(0, 1, (count, 2)), axis=1)
    both[int(AVERAGED * count) :, 0] = both[int(AVERAGED * count) :, 1]
    return both[:, :1], both[:, 1:]


def solve(steps: int, out: Path) -> script.Result:
    """The error is that of where noise is taken in one step, relative to where the flow takes it, in the L2 norm."""
    rng = np.random.default_rng(0)
    nn.seed(0)
    with nn.parameter_scope("flow", scope=OrderedDict()):
        given = [nn.Variable((BATCH, n)) for n in (2, 2, 1, 1)]
        loss = loss_of(*given)
        solver = S.Adam()
        step = nn.train_step(loss, nn.get_parameters(), solver, inputs=given)

        def on_a_batch() -> Any:
            x, e, (r, t) = data(BATCH, rng), rng.standard_normal((BATCH, 2)), times(BATCH, rng)
            batch = (1 - t) * x + t * e, e - x, r, t
            return step(*[a.astype(np.float32) for a in batch])

        losses = script.train(on_a_batch, solver, 2e-3, steps)
        noise = rng.standard_normal((HELD_OUT, 2))
        z = nn.Variable.from_numpy_array(noise.astype(np.float32))
        zeros, ones = (F.constant(n, shape=(HELD_OUT, 1)) for n in (0, 1))
        found = (z - average_velocity(z, zeros, ones)).d
    expected = flowed(noise)
    error = float(np.linalg.norm(found - expected) / np.linalg.norm(expected))
    print(f"{HELD_OUT} points made of noise in one step: {error:.1%} from where the flow takes them in 200")
    draw(noise, found, expected, out / "mean_flow.png")
    return script.Result(losses, error)


def draw(noise: Array, found: Array, expected: Array, path: Path) -> None:
    """Noise, what one step makes of it, and what the flow does."""
    figure = script.figure(10, 3.6)
    angles = np.arctan2(noise[:, 1], noise[:, 0])
    panels = ("noise", noise), ("one step: z - u(z, 0, 1)", found), ("the flow, in 200 steps", expected)
    for axes, (title, points) in zip(figure.subplots(1, 3), panels, strict=True):
        axes.scatter(*points.T, c=angles, cmap="twilight", s=3, rasterized=True)
        axes.set(title=title, xlim=(-3.5, 4.5), ylim=(-3.5, 4), aspect="equal")
        axes.spines[["top", "right"]].set_visible(False)
    script.save(figure, path)


if __name__ == "__main__":
    sys.exit(script.main(solve, __doc__, STEPS, BOUND))
