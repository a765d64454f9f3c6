"""The configuration keys of all recipes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .configuration import key


@dataclass(frozen=True, kw_only=True)
class SolverSettings:
    """Settings of the Adam optimizer."""

    rate: float = key(1e-3, "learning rate at the first step", above=0)
    schedule: str = key(
        "cosine", "how it falls to nothing; 'linear' begins half way", choices=("constant", "linear", "cosine")
    )
    beta1: float = key(0.9, "decay of Adam's mean of gradients", least=0, below=1)
    beta2: float = key(0.999, "decay of Adam's mean of their squares", least=0, below=1)

    def rate_at(self, step: int, steps: int) -> float:
        """The learning rate at a step, counted from 0."""
        done = step / steps
        shares = {"constant": 1.0, "linear": min(1.0, 2 * (1 - done)), "cosine": 0.5 * (1 + math.cos(math.pi * done))}
        return self.rate * shares[self.schedule]


@dataclass(frozen=True, kw_only=True)
class CheckpointSettings:
    """Settings of checkpoints."""

    every: int = key(1000, "steps from one checkpoint to the next", least=1, free=True)
    keep: int = key(3, "how many of the last checkpoints stay", least=1, free=True)


@dataclass(frozen=True, kw_only=True)
class LogSettings:
    """Settings of the logs and pictures of a run."""

    every: int = key(100, "steps from one line of metrics to the next", least=1)
    pictures: int = key(1000, "steps from one picture to the next; 0: none", least=0, free=True)
    tensorboard: bool = key(False, "whether metrics and pictures go to TensorBoard, too", free=True)


@dataclass(frozen=True, kw_only=True)
class RecipeSettings:
    """The base class of recipes' configurations."""

    recipe: str = key("", "what is trained")
    steps: int = key(1000, "steps of training", least=1)
    batch: int = key(64, "examples in a step", least=1)
    seed: int = key(0, "seed of all that is random", least=0)
    devices: int = key(0, "devices that a batch is spread over; 0: all", least=0, free=True)
    precision: str = key("float32", "dtype of computation", choices=("float32", "bfloat16"))
    accumulate: int = key(1, "parts of a batch that are computed one after the other", least=1)
    clip: float = key(0.0, "largest norm of all gradients together; 0: any", least=0)
    average: float = key(0.0, "decay of a moving average of parameters that is evaluated; 0: none", least=0, below=1)
    solver: SolverSettings = SolverSettings()
    checkpoint: CheckpointSettings = CheckpointSettings()
    log: LogSettings = LogSettings()
