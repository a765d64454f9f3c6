"""Initializers of parameters: functions from a shape to an array."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import random as random
from .extend import Variable
from .functions.docstrings import completed
from .random import next_key

Array = np.ndarray[Any, Any]
Rng = np.random.Generator | np.random.RandomState
Shape = Sequence[int]


def host_generator() -> np.random.Generator:
    """A NumPy generator seeded by the next key, hence reproducible under `nn.seed`."""
    return np.random.default_rng(next_key())


class BaseInitializer:
    """Base class of initializers, which map a shape to an array. A plain function works as well."""

    def __call__(self, shape: Shape) -> Array:
        """The initial value of a parameter.

        Args:
            shape: Its shape.
        """
        raise NotImplementedError(f"{type(self).__name__} must define __call__")

    def __repr__(self) -> str:
        settings = [str(value) for name, value in vars(self).items() if not name.startswith("_")]
        return f"{type(self).__name__}({', '.join(settings)})"


class RandomInitializer(BaseInitializer):
    """An initializer that draws random numbers.

    Args:
        rng: A NumPy Generator or RandomState; by default `nn.seed` decides.

    Raises:
        TypeError: `rng` is neither.
    """

    def __init__(self, rng: Rng | None = None) -> None:
        if rng is not None and not hasattr(rng, "standard_normal"):
            raise TypeError(f"rng: expected a numpy Generator or RandomState, got {rng!r}")
        self._rng = rng

    @property
    def rng(self) -> Rng:
        """The generator to draw from."""
        return host_generator() if self._rng is None else self._rng


class ConstantInitializer(BaseInitializer):
    """`value` everywhere.

    Args:
        value: The number.
    """

    def __init__(self, value: float = 0) -> None:
        self.value = value

    def __call__(self, shape: Shape) -> Array:
        return np.full(tuple(shape), self.value, np.float32)


class NormalInitializer(RandomInitializer):
    """Normal numbers with mean 0 and standard deviation `sigma`.

    Args:
        sigma: Standard deviation.
        rng: As in `RandomInitializer`.
    """

    def __init__(self, sigma: float = 1.0, rng: Rng | None = None) -> None:
        super().__init__(rng)
        self.sigma = sigma

    def __call__(self, shape: Shape) -> Array:
        return self.rng.standard_normal(tuple(shape)) * self.sigma


class UniformInitializer(RandomInitializer):
    """Numbers distributed uniformly over `lim`.

    Args:
        lim: A pair (low, high), with `high` excluded.
        rng: As in `RandomInitializer`.
    """

    def __init__(self, lim: tuple[float, float] = (-1, 1), rng: Rng | None = None) -> None:
        super().__init__(rng)
        self.lim = lim

    def __call__(self, shape: Shape) -> Array:
        low, high = self.lim
        return self.rng.uniform(low, high, tuple(shape))


class UniformIntInitializer(RandomInitializer):
    """Integers distributed uniformly over `lim`.

    Args:
        lim: A pair (low, high) of ints, with `high` excluded.
        rng: As in `RandomInitializer`.
    """

    def __init__(self, lim: tuple[int, int] = (0, 10), rng: Rng | None = None) -> None:
        super().__init__(rng)
        self.lim = lim

    def __call__(self, shape: Shape) -> Array:
        rng = self.rng
        draw = rng.integers if isinstance(rng, np.random.Generator) else rng.randint
        result: Array = np.asarray(draw(*self.lim, size=tuple(shape)))
        return result


class RangeInitializer(BaseInitializer):
    """`start`, `start + step`, ... along the last axis, the same in every row.

    Args:
        start: The first number.
        step: The difference between neighbours.
    """

    def __init__(self, start: float = 0, step: float = 1) -> None:
        self.start = start
        self.step = step

    def __call__(self, shape: Shape) -> Array:
        shape = tuple(shape)
        row = self.start + self.step * np.arange(shape[-1] if shape else 1)
        return np.broadcast_to(row if shape else row[0], shape)


class OrthogonalInitializer(RandomInitializer):
    """`gain` times a random matrix with orthonormal rows or columns, whichever are fewer.

    The axes after the first count as one. Saxe, McClelland and Ganguli, "Exact solutions to the nonlinear
    dynamics of learning in deep linear neural networks", ICLR 2014.

    Args:
        gain: Length of the rows or columns.
        rng: As in `RandomInitializer`.

    Raises:
        ValueError: (when it is called) The shape has fewer than two axes.
    """

    def __init__(self, gain: float = 1.0, rng: Rng | None = None) -> None:
        super().__init__(rng)
        self.gain = gain

    def __call__(self, shape: Shape) -> Array:
        shape = tuple(shape)
        if len(shape) < 2:
            raise ValueError(f"OrthogonalInitializer: shape must have at least two axes, got {shape}")
        rows, columns = shape[0], math.prod(shape[1:])
        drawn = self.rng.standard_normal((max(rows, columns), min(rows, columns)))
        q, r = np.linalg.qr(drawn)
        q = q * np.where(np.diagonal(r) < 0, -1.0, 1.0)  # makes the distribution uniform over orthogonal matrices
        result: Array = (q if rows >= columns else q.T).reshape(shape) * self.gain
        return result


class WeightNormalizationScaleInitializer(BaseInitializer):
    """`sqrt(sum(w^2) + eps)` of each slice of `w`: the scale with which `F.weight_normalization` returns `w` itself.

    Args:
        w: The weight; its values are read when the initializer is called.
        dim: The axis to slice along: that of the output channels.
        eps: Added to the squared length.
    """

    def __init__(self, w: Variable, dim: int = 0, eps: float = 1e-12) -> None:
        self.w = w
        self.dim = dim
        self.eps = eps

    def __call__(self, shape: Shape) -> Array:
        slices = np.moveaxis(np.asarray(self.w.d, np.float64), self.dim, 0)
        norms: Array = np.sqrt(np.sum(slices**2, axis=tuple(range(1, slices.ndim))) + self.eps)
        return norms.reshape(tuple(shape))


def calc_normal_std_he_forward(inmaps: int, outmaps: int, kernel: Shape = (1, 1)) -> float:
    """Standard deviation that keeps the variance of activations through rectifiers: sqrt(2 / (K inmaps)).

    He, Zhang, Ren and Sun, "Delving deep into rectifiers", ICCV 2015. K is the number of elements of the kernel.

    Args:
        inmaps: Number of input channels.
        outmaps: Number of output channels; it has no effect.
        kernel: Size of the kernel along each spatial axis; (1, 1) also for layers without one.

    Raises:
        ZeroDivisionError: The denominator is 0.
    """
    return math.sqrt(2.0 / (math.prod(kernel) * inmaps))


@completed
def calc_normal_std_he_backward(inmaps: int, outmaps: int, kernel: Shape = (1, 1)) -> float:
    """Standard deviation that keeps the variance of gradients through rectifiers: sqrt(2 / (K outmaps)).

    He, Zhang, Ren and Sun, "Delving deep into rectifiers", ICCV 2015. K is the number of elements of the kernel.

    Args:
        inmaps: Number of input channels; it has no effect.
        outmaps: Number of output channels.
        ...: As in `calc_normal_std_he_forward`.
    """
    return math.sqrt(2.0 / (math.prod(kernel) * outmaps))


@completed
def calc_normal_std_glorot(inmaps: int, outmaps: int, kernel: Shape = (1, 1)) -> float:
    """Standard deviation that compromises between activations and gradients: sqrt(2 / (K (inmaps + outmaps))).

    Glorot and Bengio, "Understanding the difficulty of training deep feedforward neural networks",
    AISTATS 2010. K is the number of elements of the kernel.

    Args:
        inmaps: Number of input channels.
        outmaps: Number of output channels.
        ...: As in `calc_normal_std_he_forward`.
    """
    return math.sqrt(2.0 / (math.prod(kernel) * (inmaps + outmaps)))


@completed
def calc_uniform_lim_glorot(inmaps: int, outmaps: int, kernel: Shape = (1, 1)) -> tuple[float, float]:
    """Limits of the uniform distribution with Glorot's variance: -+sqrt(6 / (K (inmaps + outmaps))).

    Glorot and Bengio, "Understanding the difficulty of training deep feedforward neural networks",
    AISTATS 2010. K is the number of elements of the kernel.

    Args:
        ...: As in `calc_normal_std_glorot`.

    Returns:
        (low, high).
    """
    limit = math.sqrt(6.0 / (math.prod(kernel) * (inmaps + outmaps)))
    return -limit, limit
