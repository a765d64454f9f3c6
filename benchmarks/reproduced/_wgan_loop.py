"""What all libraries share in the comparison of WGAN-GP: numbers, the order of steps and the distance. NumPy alone."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

Parameters = list[np.ndarray]
PIXELS, LATENT, WIDTH, BATCH = 64, 16, 128, 64
PENALTY, RATE, BETAS, CRITIC_STEPS = 10.0, 5e-4, (0.0, 0.9), 5
EVERY = 20
"""Steps of the generator between two looks at the distance."""
SEEN = 512
"""Images that the distance compares with as many generated ones."""


class Trainer(NamedTuple):
    """WGAN-GP in one library, from equal parameters."""

    critic_step: Callable[[np.ndarray, np.ndarray, np.ndarray], Any]
    """Of real images, latent numbers and the shares of real images in the mixture; its result waits for the step."""
    generator_step: Callable[[np.ndarray], Any]
    """Of latent numbers."""
    generate: Callable[[np.ndarray], Any]
    """Images of latent numbers."""


def dense(rng: np.random.Generator, *widths: int) -> Parameters:
    """Weights and biases in turn."""
    found = []
    for m, n in itertools.pairwise(widths):
        found += [rng.normal(0, m**-0.5, (m, n)).astype("f"), np.zeros(n, "f")]
    return found


def first_parameters() -> tuple[Parameters, Parameters]:
    """Those of the critic, and of the generator."""
    rng = np.random.default_rng(0)
    return dense(rng, PIXELS, WIDTH, WIDTH, 1), dense(rng, LATENT, WIDTH, WIDTH, PIXELS)


def batch_of(rng: np.random.Generator, images: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What a step of the critic is given."""
    real = images[rng.integers(0, len(images), BATCH)]
    return real, latent(rng, BATCH), rng.random((BATCH, 1), "f")


def latent(rng: np.random.Generator, count: int) -> np.ndarray:
    """What the generator is given."""
    return rng.normal(size=(count, LATENT)).astype("f")


def distance(a: np.ndarray, b: np.ndarray) -> float:
    """The maximum mean discrepancy of two sets of images, for a Gaussian kernel as wide as images are apart."""

    def kernel(a: np.ndarray, b: np.ndarray) -> Any:
        a, b = a.astype("d"), b.astype("d")
        squares = (a**2).sum(1)[:, None] + (b**2).sum(1) - 2 * a @ b.T
        return np.exp(-squares / PIXELS)

    square = kernel(a, a).mean() + kernel(b, b).mean() - 2 * kernel(a, b).mean()
    return float(np.sqrt(max(square, 0.0)))


def trained(trainer: Trainer, images: np.ndarray, goal: float, most: int) -> dict[str, float]:
    """Train until the distance falls below `goal`: steps of the generator, the last distance, and seconds.

    The seconds are the number of steps times the least that one has taken, together with those of the critic before it.
    """
    rng, fixed = np.random.default_rng(1), latent(np.random.default_rng(2), SEEN)
    times: list[float] = []
    last = float("inf")
    while last > goal and len(times) < most:
        start = time.perf_counter()
        for _ in range(CRITIC_STEPS):
            loss = trainer.critic_step(*batch_of(rng, images))
        float(np.asarray(loss))
        float(np.asarray(trainer.generator_step(latent(rng, BATCH))))
        times.append(time.perf_counter() - start)
        if len(times) % EVERY == 0:
            last = distance(np.asarray(trainer.generate(fixed)), images[:SEEN])
    return {"seconds": len(times) * min(times), "generator_steps": len(times), "distance": last}
