"""A generator draws the digit that it is asked for: WGAN-GP (Gulrajani et al., 2017), with labels.

The critic's loss contains the gradient of its score with respect to an image, so training it takes a gradient of a
gradient. `nn.grad` gives the inner one as Variables; the loss is built from them, and differentiated like any other.
The data are scikit-learn's digits, of 8 by 8 pixels. The error is the share of generated images whose nearest real one
is another digit than the one that was asked for. Run again after an interruption, the script goes on where it was.
`nngrad demo` trains the same networks.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_digits

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
import nngrad.solvers as S

PIXELS, KINDS = 64, 10
NOISE = 16
"""Numbers that an image is made from, beside its label."""
WIDTH, BATCH = 192, 64
CRITIC_STEPS, PENALTY, RATE = 3, 10.0, 1e-3
JUDGED = 1000
"""Generated images from which the error is computed."""
STEPS = 8000
BOUND = 0.1
MEASURED_EVERY = 10
BLUE, ORANGE, GREY = "#2a6fbb", "#d9722e", "#9aa0a6"

Array = np.ndarray[Any, Any]
Lines = Sequence[Mapping[str, float]]


def network(x: nn.Variable, outputs: int) -> nn.Variable:
    """Affine layers with leaky ReLUs between them: from shape (n, inputs) to (n, outputs)."""
    for name in ("hidden1", "hidden2"):
        x = F.leaky_relu(PF.affine(x, WIDTH, name=name), 0.2)
    return PF.affine(x, outputs, name="out")


def generator(z: nn.Variable, label: nn.Variable) -> nn.Variable:
    """Images of shape (n, 64) with pixels in [-1, 1], from noise and from labels of shape (n, 10), of zeros and a 1."""
    with nn.parameter_scope("generator"):
        return F.tanh(network(F.concatenate(z, label, axis=1), PIXELS))


def critic(x: nn.Variable, label: nn.Variable) -> nn.Variable:
    """Scores of shape (n, 1) of images: high for what looks like a real digit of its label."""
    with nn.parameter_scope("critic"):
        return network(F.concatenate(x, label, axis=1), 1)


def one_hot_labels(kinds: Array) -> Array:
    """Digits of shape (n,) as rows of zeros and a 1, of shape (n, 10)."""
    return np.eye(KINDS, dtype=np.float32)[kinds]


class Gan:
    """Both networks, untrained, and their steps of training.

    All that is random in a step follows from the seed and the number of the step, so that a resumed run goes on as if
    it had not been interrupted.
    """

    def __init__(self, steps: int, seed: int = 0) -> None:
        self._steps, self._seed = steps, seed
        digits = load_digits()
        self.images = (digits.data / 8 - 1).astype(np.float32)
        self.kinds = digits.target
        nn.seed(seed)
        real, z = nn.Variable((BATCH, PIXELS)), nn.Variable((BATCH, NOISE))
        label, mix = nn.Variable((BATCH, KINDS)), nn.Variable((BATCH, 1))
        many = nn.Variable((JUDGED, NOISE)), nn.Variable((JUDGED, KINDS))
        with nn.parameter_scope("", scope=OrderedDict()):
            fake = generator(z, label)
            between = mix * real + (1 - mix) * fake
            (slope,) = nn.grad([critic(between, label)], [between])
            norm = F.sum(slope**2, axis=1) ** 0.5
            score = F.mean(critic(fake, label))
            distance = F.mean(critic(real, label)) - score
            loss = PENALTY * F.mean((norm - 1) ** 2) - distance
            self.parameters = dict(nn.get_parameters())
            self._generate = nn.compile(generator(*many), many)
        self._judge = nn.compile([distance, loss, F.mean(norm)], [real, z, label, mix])
        self.solvers = {name: S.Adam(RATE, beta1=0.5, beta2=0.9) for name in ("critic", "generator")}
        self._train_critic = self._trained("critic", loss, [real, z, label, mix])
        self._train_generator = self._trained("generator", -score, [z, label])

    def _trained(self, name: str, loss: nn.Variable, inputs: list[nn.Variable]) -> Any:
        own = {key: p for key, p in self.parameters.items() if key.startswith(f"{name}/")}
        return nn.train_step(loss, own, self.solvers[name], inputs=inputs)

    def train(self, log: Any, checkpoints: Any = None) -> Lines:
        """Train to the end, or from the last checkpoint, and return the lines of the log: of the first step, and of
        others at regular intervals."""
        nn.fit(self.step, range(self._steps), steps=self._steps, every=MEASURED_EVERY,
               evaluate=lambda: self.critique(log.step + 1), log=log, checkpoints=checkpoints)
        lines: Lines = log.lines
        return lines

    def step(self, number: int) -> None:
        """Some steps of the critic, and one of the generator; the rate falls to nothing in the second half."""
        for solver in self.solvers.values():
            solver.set_learning_rate(RATE * min(1.0, 2 * (1 - number / self._steps)))
        for turn in range(CRITIC_STEPS):
            self._train_critic(*self._batch(self._draws(number, turn)))
        rng = self._draws(number, CRITIC_STEPS)
        self._train_generator(noise(rng, BATCH), one_hot_labels(rng.integers(0, KINDS, BATCH)))

    def critique(self, number: int) -> dict[str, float]:
        """The critic's estimate of the Wasserstein distance of generated from real images, its loss, and the mean norm
        of its gradient with respect to an image, for which 1 is wanted: of a batch that is drawn for a step."""
        distance, loss, norm = self._judge(*self._batch(self._draws(number, CRITIC_STEPS + 1)))
        return {"distance": float(distance), "critic_loss": float(loss), "gradient_norm": float(norm)}

    def generated(self) -> tuple[Array, Array]:
        """Images, always from the same noise, and the digits that were asked for: 0 to 9, over and over."""
        kinds = np.arange(JUDGED) % KINDS
        return np.asarray(self._generate(noise(self._draws(0), JUDGED), one_hot_labels(kinds))), kinds

    def _batch(self, rng: np.random.Generator) -> tuple[Array, Array, Array, Array]:
        """Real images, noise, the labels of the images, and mixing weights."""
        chosen = rng.integers(0, len(self.images), BATCH)
        mix = rng.random((BATCH, 1), dtype=np.float32)
        return self.images[chosen], noise(rng, BATCH), one_hot_labels(self.kinds[chosen]), mix

    def _draws(self, *numbers: int) -> np.random.Generator:
        return np.random.default_rng((self._seed, *numbers))


def noise(rng: np.random.Generator, count: int) -> Array:
    """What the generator makes images from, of shape (count, NOISE)."""
    return rng.standard_normal((count, NOISE), dtype=np.float32)


# ---------------------------------------------------------------- pictures


def digits_of(gan: Gan) -> Any:
    """A figure of 10 by 10 generated digits beside 10 by 10 real ones."""
    drawn = figure(9.5, 5)
    for axes, images, title in zip(
        drawn.subplots(1, 2), (gan.generated()[0], gan.images), ("generated", "real"), strict=True
    ):
        grid = np.pad(images[:100].reshape(10, 10, 8, 8), ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-1.0)
        tiled = grid.transpose(0, 2, 1, 3).reshape(100, 100)
        axes.imshow(tiled, cmap="gray_r", vmin=-1, vmax=1, interpolation="nearest")
        axes.set(title=title)
        axes.set_axis_off()
    return drawn


def curves_of(course: Lines) -> Any:
    """A figure of the critic's estimate of the distance, its loss, and its mean gradient norm over the steps."""
    of = {name: [line[name] for line in course] for name in course[0]}
    drawn = figure(9.5, 3.8)
    left, right = drawn.subplots(1, 2)
    draw_curve(left, of["step"], of["distance"], BLUE, "Wasserstein estimate")
    draw_curve(left, of["step"], of["critic_loss"], ORANGE, "critic's loss")
    left.axhline(0.0, color=GREY, linewidth=0.8)
    left.set_title("distance of generated from real digits")
    left.legend(frameon=False)
    right.axhline(1.0, color=GREY, linewidth=0.8)
    draw_curve(right, of["step"], of["gradient_norm"], BLUE, "")
    right.set_title("mean gradient norm of the critic")
    right.set_ylim(bottom=0.0)
    return drawn


def figure(width: float, height: float) -> Figure:
    """An empty figure of a given size in inches."""
    return Figure(figsize=(width, height), layout="constrained", dpi=90)


def draw_curve(axes: Any, steps: Sequence[float], values: Sequence[float], color: str, label: str) -> None:
    """One curve: the measurements in a faint colour, and their mean around each, in a window that widens with the
    steps, for a logarithmic axis."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    at = np.arange(len(values))
    half = np.minimum(at // 8, at[::-1])
    axes.plot(steps, values, color=color, alpha=0.25, linewidth=0.8)
    axes.plot(steps, (sums[at + half + 1] - sums[at - half]) / (2 * half + 1), color=color, linewidth=1.6, label=label)
    axes.set_xlabel("steps of the generator")
    axes.set_xscale("symlog", linthresh=1.0)
    axes.spines[["top", "right"]].set_visible(False)


def solve(steps: int, out: Path) -> Any:
    """Train with checkpoints and a log, draw, and return the share of wrong digits as the error."""
    import script

    gan = Gan(steps)
    checkpoints = nn.Checkpointer(out / "checkpoints", gan.solvers, parameters=gan.parameters, every=1000)
    course = gan.train(nn.training_log(out, steps=steps), checkpoints)
    script.save(digits_of(gan), out / "digits.png")
    images, wanted = gan.generated()
    squares = np.sum(gan.images**2, axis=1) - 2 * images @ gan.images.T
    wrong = gan.kinds[np.argmin(squares, axis=1)] != wanted
    return script.Result([line["critic_loss"] for line in course], float(np.mean(wrong)))


if __name__ == "__main__":
    import script

    sys.exit(script.main(solve, __doc__, STEPS, BOUND))
