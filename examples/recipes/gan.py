"""A generator draws the digit that it is asked for: WGAN-GP (Gulrajani et al., 2017), with labels.

The critic's loss contains the gradient of its score with respect to an image, so training it takes a gradient of a
gradient. `nn.grad` gives the inner one as Variables; the loss is built from them, and differentiated like any other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
from nngrad.command.recipes.configuration import key
from nngrad.command.recipes.pictures import draw_tiled, figure
from nngrad.command.recipes.recipe import Array, Recipe
from nngrad.command.recipes.settings import RecipeSettings, SolverSettings

PIXELS, KINDS = 64, 10
JUDGED = 1000
"""Generated images from which the metrics are computed."""


@dataclass(frozen=True, kw_only=True)
class GanModel:
    """The sizes of both networks."""

    noise: int = key(16, "numbers that an image is made from, beside its label", least=1)
    width: int = key(192, "units of a hidden layer", least=1)
    layers: int = key(2, "hidden layers", least=1)


@dataclass(frozen=True, kw_only=True)
class CriticSettings:
    """How the critic is trained."""

    steps: int = key(3, "its steps for each step of the generator", least=1)
    penalty: float = key(10.0, "weight of (norm of the gradient - 1)^2 in its loss", least=0)


@dataclass(frozen=True, kw_only=True)
class GanConfiguration(RecipeSettings):
    """The configuration of this recipe."""

    recipe: str = key("gan", "what is trained", choices=("gan",))
    steps: int = key(8000, "steps of the generator", least=1)
    model: GanModel = GanModel()
    critic: CriticSettings = CriticSettings()
    solver: SolverSettings = SolverSettings(rate=1e-3, schedule="linear", beta1=0.5, beta2=0.9)


def network(x: nn.Variable, outputs: int, model: GanModel) -> nn.Variable:
    """Affine layers with leaky ReLUs between them: from shape (n, inputs) to (n, outputs)."""
    for i in range(model.layers):
        x = F.leaky_relu(PF.affine(x, model.width, name=f"hidden{i + 1}"), 0.2)
    return PF.affine(x, outputs, name="out")


def generator(z: nn.Variable, label: nn.Variable, model: GanModel) -> nn.Variable:
    """Images of shape (n, 64) with pixels in [-1, 1], from noise and from labels of shape (n, 10), of zeros and a 1."""
    with nn.parameter_scope("generator"):
        return F.tanh(network(F.concatenate(z, label, axis=1), PIXELS, model))


def critic(x: nn.Variable, label: nn.Variable, model: GanModel) -> nn.Variable:
    """Scores of shape (n, 1) of images: high for what looks like a real digit of its label."""
    with nn.parameter_scope("critic"):
        return network(F.concatenate(x, label, axis=1), 1, model)


class DigitGan(Recipe):
    """The recipe `gan`."""

    title = "A WGAN-GP on 8x8 digits: its critic is held by a penalty on a gradient."
    defaults = GanConfiguration()

    def __init__(self, configuration: GanConfiguration) -> None:
        super().__init__(configuration)
        self._critic, model = configuration.critic, configuration.model
        self._batch, self._noise = configuration.batch, model.noise
        digits = load_digits()
        self._images = (digits.data / 8 - 1).astype(np.float32)
        self._kinds = digits.target
        real, z = nn.Variable((self.part, PIXELS)), nn.Variable((self.part, model.noise))
        label, mix = nn.Variable((self.part, KINDS)), nn.Variable((self.part, 1))
        with self.trained():
            fake = generator(z, label, model)
            between = mix * real + (1 - mix) * fake
            (slope,) = nn.grad([critic(between, label, model)], [between])
            norm = F.sum(slope**2, axis=1) ** 0.5
            score = F.mean(critic(fake, label, model))
            distance = F.mean(critic(real, label, model)) - score
            loss = self._critic.penalty * F.mean((norm - 1) ** 2) - distance
        self._train_critic = self.train_step("critic", loss, [real, z, label, mix])
        self._judge = nn.compile([distance, loss, F.mean(norm)], [real, z, label, mix])
        self._train_generator = self.train_step("generator", -score, [z, label])
        many = nn.Variable((JUDGED, model.noise)), nn.Variable((JUDGED, KINDS))
        with self.copies():
            self._generate = nn.compile(generator(*many, model), many)

    def step(self, number: int) -> None:
        """Some steps of the critic, and one of the generator."""
        for turn in range(self._critic.steps):
            self._train_critic(*self._batch_of(self.draws(number, turn)))
        rng = self.draws(number, self._critic.steps)
        self._train_generator(self._random(rng), one_hot_labels(rng.integers(0, KINDS, self._batch)))

    def _random(self, rng: np.random.Generator) -> Array:
        return rng.standard_normal((self._batch, self._noise), dtype=np.float32)

    def critique(self, number: int) -> dict[str, float]:
        """The critic's estimate of the Wasserstein distance of generated from real images, its loss, and the mean norm
        of its gradient with respect to an image, for which 1 is wanted: of a batch that is drawn for a step."""
        values = self._judge(*self._batch_of(self.draws(number, self._critic.steps + 1)))
        return dict(zip(("distance", "critic_loss", "gradient_norm"), map(float, values), strict=True))

    def examples(self) -> tuple[Array, Array]:
        """A hundred images that the copies of the parameters give, and a hundred real ones."""
        return self._generated()[0][:100], self._images[:100]

    def _batch_of(self, rng: np.random.Generator) -> tuple[Array, Array, Array, Array]:
        """Real images, noise, the labels of the images, and mixing weights. The order of the draws must not change:
        earlier runs resume bit for bit."""
        chosen = rng.integers(0, len(self._images), self._batch)
        mix = rng.random((self._batch, 1), dtype=np.float32)
        return self._images[chosen], self._random(rng), one_hot_labels(self._kinds[chosen]), mix

    def _generated(self) -> tuple[Array, Array]:
        """Images, always from the same noise, and the digits that were asked for: 0 to 9, over and over."""
        kinds = np.arange(JUDGED) % KINDS
        z = self.draws(0).standard_normal((JUDGED, self._noise), dtype=np.float32)
        return np.asarray(self._generate(z, one_hot_labels(kinds))), kinds

    def measured(self) -> dict[str, float]:
        """`recognised`: the share of images whose nearest real one is the digit that was asked for; `frechet`: the
        distance of the pixels' distribution from that of real images, both taken for Gaussian."""
        images, kinds = self._generated()
        squares = np.sum(self._images**2, axis=1) - 2 * images @ self._images.T
        recognised = self._kinds[np.argmin(squares, axis=1)] == kinds
        return {"recognised": float(np.mean(recognised)), "frechet": frechet(images, self._images)}

    def drawn(self) -> Any:
        """Ten images of each digit."""
        images, _ = self._generated()
        drawn = figure(4, 4)
        draw_tiled(drawn.subplots(), images[:100])
        return drawn


def one_hot_labels(kinds: Array) -> Array:
    """Digits of shape (n,) as rows of zeros and a 1, of shape (n, 10)."""
    return np.eye(KINDS, dtype=np.float32)[kinds]


def frechet(a: Array, b: Array) -> float:
    """Frechet's distance, squared, of Gaussians with the means and covariances of the rows of `a` and of `b`."""
    first, second = np.cov(a, rowvar=False), np.cov(b, rowvar=False)
    values, vectors = np.linalg.eigh(first)
    root = vectors * np.sqrt(np.maximum(values, 0)) @ vectors.T
    between = np.sum(np.sqrt(np.maximum(np.linalg.eigvalsh(root @ second @ root), 0)))
    return float(np.sum((a.mean(axis=0) - b.mean(axis=0)) ** 2) + np.trace(first) + np.trace(second) - 2 * between)


RECIPE = DigitGan
