"""nnabla's learning rate schedules: the learning rate of each iteration, for `solver.set_learning_rate`."""

from __future__ import annotations

import math
from collections.abc import Sequence


class BaseLearningRateScheduler:
    """A schedule; subclasses define the learning rate of each iteration."""

    def get_learning_rate(self, iter: int) -> float:  # noqa: A002
        """The learning rate of iteration `iter`, counted from 0."""
        raise NotImplementedError(f"{type(self).__name__} does not define get_learning_rate(iter)")


class PolynomialScheduler(BaseLearningRateScheduler):
    """`init_lr * (1 - iter / max_iter)**power`."""

    def __init__(self, init_lr: float, max_iter: int, power: float) -> None:
        self.init_lr, self.max_iter, self.power = init_lr, max_iter, power

    def get_learning_rate(self, iter: int) -> float:  # noqa: A002
        return self.init_lr * math.pow(1 - iter / self.max_iter, self.power)


class CosineScheduler(BaseLearningRateScheduler):
    """`init_lr * (1 + cos(pi * iter / max_iter)) / 2`."""

    def __init__(self, init_lr: float, max_iter: int) -> None:
        self.init_lr, self.max_iter = init_lr, max_iter

    def get_learning_rate(self, iter: int) -> float:  # noqa: A002
        return self.init_lr * (1 + math.cos(math.pi * iter / self.max_iter)) / 2


class ExponentialScheduler(BaseLearningRateScheduler):
    """`init_lr * gamma**(iter // iter_interval)`."""

    def __init__(self, init_lr: float, gamma: float, iter_interval: int = 1) -> None:
        self.init_lr, self.gamma, self.iter_interval = init_lr, gamma, iter_interval

    def get_learning_rate(self, iter: int) -> float:  # noqa: A002
        return self.init_lr * self.gamma ** (iter // self.iter_interval)


class StepScheduler(BaseLearningRateScheduler):
    """`init_lr`, multiplied by `gamma` from each of `iter_steps` on."""

    def __init__(self, init_lr: float, gamma: float, iter_steps: Sequence[int]) -> None:
        self.init_lr, self.gamma, self.iter_steps = init_lr, gamma, iter_steps

    def get_learning_rate(self, iter: int) -> float:  # noqa: A002
        return self.init_lr * self.gamma ** sum(iter >= step for step in self.iter_steps)


class LinearWarmupScheduler(BaseLearningRateScheduler):
    """Another schedule, multiplied by `(iter + 1) / warmup_iter` in the first `warmup_iter` iterations."""

    def __init__(self, scheduler: BaseLearningRateScheduler, warmup_iter: int) -> None:
        self.scheduler, self.warmup_iter = scheduler, warmup_iter

    def get_learning_rate(self, iter: int) -> float:  # noqa: A002
        warmth = min(1, (iter + 1) / self.warmup_iter) if self.warmup_iter else 1
        return self.scheduler.get_learning_rate(iter) * warmth
