"""A recurrent critic with a gradient penalty: how far apart are two kinds of sequences?

The distance is Wasserstein's, between noisy sequences and others like them to which a wave has been added. It is the
norm of the wave, whatever the noise, so there is an answer to compare with. The critic is a GRU (`PF.gru`) whose
outputs differ between the two kinds as much as its slope allows, which is held at 1 by a penalty on the gradient with
respect to its inputs (Gulrajani et al., 2017). A training step so differentiates the gradient of a loop.
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

LENGTH, UNITS, BATCH, HELD_OUT = 20, 32, 64, 1000
MEMORY = 0.7
"""How much of a step's noise is in the next."""
TIME = np.linspace(-1, 1, LENGTH, dtype=np.float32)
WAVE = (0.4 * np.sin(np.pi * TIME) * (1 + TIME)).astype(np.float32)
"""What is added to the sequences of the second kind."""
PENALTY = 10.0
STEPS = 1000
BOUND = 5e-2

Array = np.ndarray[Any, Any]


def sequences(count: int, rng: np.random.Generator) -> Array:
    """Noise with a memory: (LENGTH, count, 1)."""
    noise = rng.standard_normal((LENGTH, count, 1))
    x = [noise[0]]
    for each in noise[1:]:
        x.append(MEMORY * x[-1] + (1 - MEMORY**2) ** 0.5 * each)
    return np.stack(x).astype(np.float32)


def both(count: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Sequences without the wave, and others with it."""
    return sequences(count, rng), sequences(count, rng) + WAVE[:, None, None]


def critic(x: nn.Variable) -> nn.Variable:
    """One number for each sequence of (LENGTH, batch, 1). Beside the sequence the network is told the time."""
    batch = x.shape[1]
    time = F.broadcast(TIME[:, None, None], (LENGTH, batch, 1))
    h, _ = PF.gru(F.concatenate(x, time, axis=2), np.zeros((1, 1, batch, UNITS), np.float32))
    return F.sum(PF.affine(h, 1, base_axis=2, with_bias=False), axis=(0, 2))


def slopes(x: nn.Variable) -> tuple[nn.Variable, nn.Variable]:
    """The gradient of the critic with respect to each sequence, and its norm, (batch,)."""
    (gx,) = nn.grad(critic(x), x)
    return gx, F.sum(gx**2, axis=(0, 2)) ** 0.5


def loss_of(without: nn.Variable, with_wave: nn.Variable, between: nn.Variable) -> nn.Variable:
    """What the critic is trained on: by how much it tells the two kinds apart, and the penalty on its slope."""
    difference = F.mean(critic(with_wave)) - F.mean(critic(without))
    return PENALTY * F.mean((slopes(between)[1] - 1) ** 2) - difference


def solve(steps: int, out: Path) -> script.Result:
    """The error is that of the distance between sequences that were not seen in training, relative to the norm of the
    wave."""
    rng = np.random.default_rng(0)
    nn.seed(0)
    with nn.parameter_scope("critic", scope=OrderedDict()):
        inputs = [nn.Variable((LENGTH, BATCH, 1)) for _ in range(3)]
        loss = loss_of(*inputs)
        solver = S.Adam(beta1=0.5, beta2=0.9)
        step = nn.train_step(loss, nn.get_parameters(), solver, inputs=inputs)

        def on_a_batch() -> Any:
            without, with_wave = both(BATCH, rng)
            share = rng.random((1, BATCH, 1), np.float32)
            return step(without, with_wave, without + share * (with_wave - without))

        losses = script.train(on_a_batch, solver, 5e-3, steps)
        # With the same noise in both kinds chance has no part in the difference.
        noise = sequences(HELD_OUT, rng)
        without, with_wave = (nn.Variable.from_numpy_array(x) for x in (noise, noise + WAVE[:, None, None]))
        gradient, slope = slopes(with_wave)
        marks = critic(without), critic(with_wave)
        nn.forward_all([*marks, gradient, slope])
    low, high = (mark.d for mark in marks)
    # The penalty gives way a little: what a slope of 1 would tell apart is less by as much as it is steeper.
    distance = (high.mean() - low.mean()) / slope.d.mean()
    norm = float(np.linalg.norm(WAVE))
    print(f"distance {distance:.3f}, norm of the wave {norm:.3f}; slopes {slope.d.mean():.3f} +- {slope.d.std():.3f}")
    draw(with_wave.d, (low, high), gradient.d, out / "recurrent_critic.png")
    return script.Result(losses, float(abs(distance / norm - 1)))


def draw(with_wave: Array, marks: tuple[Array, Array], gradient: Array, path: Path) -> None:
    """Some sequences; what the critic says of both kinds; and its gradient, beside the wave."""
    figure = script.figure(11, 3.2)
    left, middle, right = figure.subplots(1, 3)
    left.plot(TIME, with_wave[:, :8, 0], color=script.ORANGE, linewidth=0.8, alpha=0.6)
    left.plot(TIME, WAVE, color=script.GREY, linewidth=4, alpha=0.7)
    left.set(title="sequences, and the wave in them", xlabel="time")
    ends = np.linspace(min(map(np.min, marks)), max(map(np.max, marks)), 50)
    for mark, color, label in zip(marks, (script.BLUE, script.ORANGE), ("without", "with the wave"), strict=True):
        middle.hist(mark, ends, color=color, alpha=0.6, label=label)
    middle.set(title="what the critic says, held out")
    middle.legend(frameon=False)
    mean, deviation = gradient[:, :, 0].mean(axis=1), gradient[:, :, 0].std(axis=1)
    right.plot(TIME, WAVE / np.linalg.norm(WAVE), color=script.GREY, linewidth=4, alpha=0.5, label="wave, of norm 1")
    right.plot(TIME, mean, color=script.BLUE, linewidth=1.2, label="gradient of the critic")
    right.fill_between(TIME, mean - deviation, mean + deviation, color=script.BLUE, alpha=0.2, linewidth=0)
    right.set(title="in which direction it looks", xlabel="time")
    right.legend(frameon=False)
    for axes in (left, middle, right):
        axes.spines[["top", "right"]].set_visible(False)
    script.save(figure, path)


if __name__ == "__main__":
    sys.exit(script.main(solve, __doc__, STEPS, BOUND))
