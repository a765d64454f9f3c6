"""A WGAN-GP on 8x8 digits (Gulrajani et al., 2017), whose penalty is a gradient inside a loss.

The critic's loss contains the gradient of the critic with respect to its input, so training it takes a
gradient of a gradient. Here that is an ordinary graph: `nn.grad` gives the inner one as Variables, the
loss is built from them, and `nn.train_step` differentiates it like any other.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import load_digits

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
import nngrad.solvers as S

SIDE = 8
PIXELS = SIDE * SIDE
NOISE = 16
WIDTH = 192
BATCH = 64
CRITIC_STEPS = 3
"""Steps of the critic for each step of the generator."""
PENALTY = 10.0
RATE = 1e-3

Array = np.ndarray[Any, Any]


def generator(z: nn.Variable) -> nn.Variable:
    """Images of shape (n, 64) with pixels in [-1, 1], from noise of shape (n, NOISE)."""
    with nn.parameter_scope("generator"):
        h = F.leaky_relu(PF.affine(z, WIDTH, name="hidden1"), 0.2)
        h = F.leaky_relu(PF.affine(h, WIDTH, name="hidden2"), 0.2)
        return F.tanh(PF.affine(h, PIXELS, name="image"))


def critic(x: nn.Variable) -> nn.Variable:
    """Scores of shape (n, 1) of images of shape (n, 64): high for what looks real."""
    with nn.parameter_scope("critic"):
        h = F.leaky_relu(PF.affine(x, WIDTH, name="hidden1"), 0.2)
        h = F.leaky_relu(PF.affine(h, WIDTH, name="hidden2"), 0.2)
        return PF.affine(h, 1, name="score")


class Critique(NamedTuple):
    """What the critic's loss is made of; each has shape ()."""

    distance: nn.Variable
    """Estimate of the Wasserstein distance: mean score of real images minus that of generated ones."""
    slope: nn.Variable
    """Mean norm of the gradient of the score with respect to an image; 1 is wanted."""
    loss: nn.Variable


def critique(real: nn.Variable, fake: nn.Variable, mix: nn.Variable) -> Critique:
    """The critic's loss for images of shape (n, 64), with mixing weights of shape (n, 1)."""
    between = mix * real + (1 - mix) * fake
    (slope,) = nn.grad([critic(between)], [between])
    norm = F.sum(slope**2, axis=1) ** 0.5
    distance = F.mean(critic(real)) - F.mean(critic(fake))
    return Critique(distance, F.mean(norm), PENALTY * F.mean((norm - 1) ** 2) - distance)


class Record(NamedTuple):
    """Where training stands after some steps of the generator."""

    step: int
    distance: float
    slope: float
    loss: float


def digits() -> Array:
    """scikit-learn's 1,797 handwritten digits, of shape (1797, 64), with pixels in [-1, 1]."""
    pixels: Array = load_digits().data
    return (pixels / 8 - 1).astype(np.float32)


class Gan:
    """A generator and a critic, each with its train step; all that is random follows from `seed`."""

    def __init__(self, data: Array, seed: int = 0) -> None:
        self._data = data
        self._rng = np.random.default_rng(seed)
        nn.seed(seed)
        real, z, mix = nn.Variable((BATCH, PIXELS)), nn.Variable((BATCH, NOISE)), nn.Variable((BATCH, 1))
        with nn.parameter_scope("gan", scope=OrderedDict()):
            fake = generator(z)
            judged = critique(real, fake, mix)
            fooled = -F.mean(critic(fake))
            self._solvers = [S.Adam(alpha=RATE, beta1=0.5, beta2=0.9) for _ in range(2)]
            self._critic_step = nn.train_step(
                judged.loss, _parameters("critic"), self._solvers[0], inputs=(real, z, mix)
            )
            self._generator_step = nn.train_step(fooled, _parameters("generator"), self._solvers[1], inputs=(z,))
            self._measure = nn.compile(list(judged), (real, z, mix))
            many = nn.Variable((100, NOISE))
            self._generate = nn.compile(generator(many), (many,))

    def train(self, steps: int, report: Callable[[Record], None], every: int = 10) -> list[Record]:
        """Take `steps` steps of the generator; the learning rate falls to nothing in the second half.

        What is measured before the first step, after each of the first and every so often later is
        returned; all but the first is reported as it comes.
        """
        records = [self._record(0)]
        for step in range(1, steps + 1):
            for solver in self._solvers:
                solver.set_learning_rate(RATE * min(1.0, 2.0 * (1.0 - step / (steps + 1))))
            for _ in range(CRITIC_STEPS):
                self._critic_step(*self._batch())
            self._generator_step(self._noise())
            if step < every or step % every == 0 or step == steps:
                records.append(self._record(step))
                report(records[-1])
        return records

    def samples(self) -> Array:
        """A hundred generated images, of shape (100, 64)."""
        return np.asarray(self._generate(self._noise(100)))

    def same_samples(self) -> Array:
        """A hundred images, of shape (100, 64), from noise that is always the same; the training draws on as if this
        had not been asked."""
        return np.asarray(self._generate(np.random.default_rng(0).standard_normal((100, NOISE), dtype=np.float32)))

    def _record(self, step: int) -> Record:
        return Record(step, *[float(a) for a in self._measure(*self._batch())])

    def _noise(self, count: int = BATCH) -> Array:
        return self._rng.standard_normal((count, NOISE), dtype=np.float32)

    def _batch(self) -> tuple[Array, Array, Array]:
        real = self._data[self._rng.integers(0, len(self._data), BATCH)]
        return real, self._noise(), self._rng.random((BATCH, 1), dtype=np.float32)


def _parameters(scope: str) -> dict[str, nn.Variable]:
    with nn.parameter_scope(scope):
        parameters: dict[str, nn.Variable] = nn.get_parameters()
    return parameters
