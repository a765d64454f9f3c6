"""Means, variances and standardisation: the parts of the normalisations.

Statistics of 16-bit arrays are computed in float32. The variance is the mean of the squared deviations, which does not
cancel.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from ..graph import Variable
from ..graph.spec import FLOAT32
from . import array, movement, reduction

Sizes = tuple[int, ...]
Normalised: TypeAlias = Variable | Any
"""A Variable, or a tuple of three of them if `output_stat`."""


def accurate(x: Variable) -> Variable:
    """`x` in a dtype accurate enough for statistics: float32 unless it is a wider float."""
    return x if x.spec.differentiable and x.dtype.itemsize > 2 else array.cast(x, FLOAT32)


def moments(x: Variable, axes: Sizes) -> tuple[Variable, Variable, Variable]:
    """Mean over `axes`, deviations from it, and variance; reduced axes keep size 1."""
    average = reduction.mean(x, axis=axes, keepdims=True)
    deviation = x - average
    return average, deviation, reduction.mean(deviation * deviation, axis=axes, keepdims=True)


def kept_shape(shape: Sizes, axes: Sizes) -> Sizes:
    """`shape`, with size 1 for all axes except `axes`."""
    return tuple(n if i in axes else 1 for i, n in enumerate(shape))


def fitted(p: Variable | None, shape: Sizes, full: Sizes, where: str) -> Variable | None:
    """The parameter `p`, if there is one, reshaped to `shape`, from which it may differ by axes of size 1. It may also
    be larger than `shape` along axes where it has the size of the input (`full`)."""
    if p is None or p.shape == shape:
        return p
    if [n for n in p.shape if n != 1] == [n for n in shape if n != 1]:
        return movement.reshape(p, shape=shape)
    if len(p.shape) == len(full) and all(n in (1, m) for n, m in zip(p.shape, full, strict=True)):
        return p
    raise ValueError(f"{where} must be of shape {shape} for an input of shape {full}, got {p.shape}")


def standardized(
    x: Variable, deviation: Variable, variance: Variable, eps: float, beta: Variable | None, gamma: Variable | None
) -> Variable:
    """`gamma * deviation / sqrt(variance + eps) + beta` in the dtype of `x`."""
    factor = (variance + eps) ** -0.5
    if gamma is not None and gamma.shape == factor.shape:
        factor, gamma = factor * gamma, None
    return shifted(x, deviation * factor, beta, gamma)


def shifted(x: Variable, y: Variable, beta: Variable | None, gamma: Variable | None) -> Variable:
    """`gamma * y + beta` in the dtype of `x`."""
    if gamma is not None:
        y = y * gamma
    if beta is not None:
        y = y + beta
    return array.cast(y, x.dtype) if x.spec.differentiable and y.dtype != x.dtype else y
