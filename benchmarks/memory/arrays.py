"""What the models compute with: the same numbers for nngrad and for its peers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import numpy as np

T = TypeVar("T")


class Arrays(NamedTuple):
    """The input of a model and its weights, float32."""

    x: np.ndarray
    weights: list[np.ndarray]


def normal(rng: np.random.Generator, *shape: int, scale: float | None = None) -> np.ndarray:
    """Normal numbers; without `scale` as for a weight, by the number of inputs to each output."""
    fan = int(np.prod(shape[1:])) if scale is None else 1
    return rng.normal(0, scale or fan**-0.5, shape).astype("f")


def of_dense(layers: int, width: int, batch: int) -> Arrays:
    """Dense layers without biases."""
    rng = np.random.default_rng(0)
    return Arrays(normal(rng, batch, width, scale=1.0), [normal(rng, width, width) for _ in range(layers)])


def of_residual(batch: int, size: int, channels: int) -> Arrays:
    """ResNet-18's convolutions, each followed by the scale and the offset of its normalization; a dense layer."""
    rng = np.random.default_rng(0)
    weights: list[np.ndarray] = []

    def normalised(m: int, n: int, kernel: int) -> None:
        scale, offset = normal(rng, 1, n, 1, 1, scale=1.0), normal(rng, 1, n, 1, 1, scale=0.1)
        weights.extend([normal(rng, n, m, kernel, kernel), scale, offset])

    normalised(3, channels, 3)
    m = channels
    for stage in range(4):
        for block in range(2):
            n = channels * 2**stage
            normalised(m, n, 3)
            normalised(n, n, 3)
            if stage and not block:
                normalised(m, n, 1)
            m = n
    weights.append(normal(rng, m, 10))
    return Arrays(normal(rng, batch, 3, size, size, scale=1.0), weights)


def residual_blocks(weights: Sequence[T]) -> list[list[T]]:
    """The weights of each residual block of `of_residual`; those with nine (three convolutions) have stride 2."""
    blocks, start = [], 3
    for stage in range(4):
        for block in range(2):
            count = 9 if stage and not block else 6
            blocks.append(list(weights[start : start + count]))
            start += count
    return blocks


def of_recurrent(steps: int, width: int, batch: int) -> Arrays:
    """An LSTM's weight, for its input and its state side by side, and its bias."""
    rng = np.random.default_rng(0)
    weights = [normal(rng, 2 * width, 4 * width, scale=(2 * width) ** -0.5), normal(rng, 4 * width, scale=0.1)]
    return Arrays(normal(rng, steps, batch, width, scale=1.0), weights)


def of_critic(depth: int, batch: int, size: int, channels: int) -> Arrays:
    """3x3 convolutions without biases."""
    rng = np.random.default_rng(0)
    x = normal(rng, batch, 3, size, size, scale=1.0)
    return Arrays(x, [normal(rng, channels, channels if i else 3, 3, 3) for i in range(depth)])
