"""Tools for physics-informed training: features of coordinates, weights of residuals, and the choice of points.

    features = nn.physics.periodic_features(x, period=2.0, harmonics=5)
    weights = nn.physics.causal_weights(residuals, 10.0)            # residuals: (times, points)
    loss = F.mean(weights * residuals**2)

Each function takes Variables, JAX arrays or NumPy arrays, and returns the same kind. A 64-bit result of a compiled
graph counts as NumPy's if `jax_enable_x64` is off, since JAX would round it. Weights are constants to every derivative.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import nngrad.functions as F

from .extend import Variable, checked_count

__all__ = [
    "balanced_weights", "causal_weights", "fourier_features", "periodic_features", "resample", "residual_attention",
]  # fmt: skip


def fourier_features(x: Any, frequencies: Any) -> Any:
    """The features `[cos(2 pi x B), sin(2 pi x B)]` of coordinates, for networks that should learn fine detail.

    Tancik et al., "Fourier features let networks learn high frequency functions in low dimensional domains", 2020
    (arXiv 2006.10739). There B is drawn once from a normal distribution whose standard deviation is about the highest
    frequency of the solution: `rng.normal(0, 3, (d, m))`.

    Args:
        x: Coordinates, (..., d).
        frequencies: The matrix B, (d, m), in cycles per unit of each coordinate. As a Variable it can be trained.

    Returns:
        (..., 2 m), the cosines first, in the dtype of x.

    Raises:
        TypeError: x has no floating dtype.
        ValueError: The matrix does not have d rows.
    """
    x = _floating(x, "fourier_features: x")
    matrix = frequencies if isinstance(frequencies, Variable) else _like(frequencies, x)
    if x.ndim < 1 or matrix.ndim != 2 or matrix.shape[0] != x.shape[-1]:
        raise ValueError(f"fourier_features: frequencies must be a matrix with a row for each coordinate of x, the "
                         f"last axis of {tuple(x.shape)}, got shape {tuple(matrix.shape)}")
    angles = 2 * np.pi * (x @ matrix)
    m = _functions_of(angles)
    return _joined([m.cos(angles), m.sin(angles)], -1)


def periodic_features(x: Any, period: float | Sequence[float], harmonics: int) -> Any:
    """The first Fourier modes of each coordinate: a network on them is exactly periodic, with all its derivatives.

    cos(2 pi k x / period) and sin(2 pi k x / period) for k = 1, ..., harmonics: Dong and Ni, "A method for
    representing periodic functions and enforcing exactly periodic boundary conditions with deep neural networks", 2021
    (arXiv 2007.07442). Join coordinates without a period to the result yourself.

    Args:
        x: Coordinates, (..., d).
        period: The period of all coordinates, or one for each.
        harmonics: The number of modes per coordinate.

    Returns:
        (..., 2 d harmonics), the cosines first, in the dtype of x.

    Raises:
        TypeError: x has no floating dtype, or `harmonics` is no int.
        ValueError: x has no axes, a period or `harmonics` is not positive, or the number of periods is wrong.
    """
    x = _floating(x, "periodic_features: x")
    count = checked_count(harmonics, "periodic_features: harmonics")
    periods = np.asarray(period, np.float64)
    if x.ndim < 1 or periods.shape not in ((), (x.shape[-1],)) or not (periods > 0).all():
        raise ValueError(f"periodic_features: period must be a positive number, or one for each coordinate of x, the "
                         f"last axis of {tuple(x.shape)}, got {period!r}")
    return fourier_features(x, np.kron(np.eye(x.shape[-1]) / periods, np.arange(1.0, count + 1)))


def causal_weights(residuals: Any, tolerance: float) -> Any:
    """Weights that let a time count only once earlier times are solved: w_i = exp(-tolerance sum_{k < i} L_k).

    L_k is the mean square of the residuals at time k. Wang, Sankaran and Perdikaris, "Respecting causality is all you
    need for training physics-informed neural networks", 2022 (arXiv 2203.07404), where tolerances rise from 0.01 to
    100. Training is complete when the last weight is near 1.

    Multiply squares by the weights. For `S.GaussNewton` multiply the residuals by their square roots, and compute the
    weights before the step, as an input of it: its line search must compare losses with the same weights.

    Args:
        residuals: (times, ...), in the order of time; each row has those of one time, or of a short interval.
        tolerance: How strongly residuals of earlier times suppress later ones; not negative.

    Returns:
        (times, 1, ...), which broadcasts against the residuals.

    Raises:
        TypeError: The residuals have no floating dtype.
        ValueError: They have no axes, or the tolerance is negative.
    """
    residuals = _floating(residuals, "causal_weights: residuals")
    if residuals.ndim < 1:
        raise ValueError("causal_weights: residuals must have times along the first axis, got a single number")
    if not tolerance >= 0:
        raise ValueError(f"causal_weights: tolerance must not be negative, got {tolerance!r}")
    m, squares = _functions_of(residuals), _constant(residuals) ** 2
    axes = tuple(range(1, squares.ndim))
    losses = m.mean(squares, axis=axes, keepdims=True) if axes else squares
    before = m.cumsum(_joined([0 * losses[:1], losses[:-1]], 0), axis=0)
    return m.exp(-tolerance * before)


def residual_attention(weights: Any, residuals: Any, decay: float = 0.999, rate: float = 0.01) -> Any:
    """The next weights of points, which favour persistently large residuals: decay * weights + rate * |r| / max |r|.

    Anagnostopoulos et al., "Residual-based attention in physics-informed neural networks", 2024 (arXiv 2307.00379).
    There the points are fixed, weights start at 0, and the loss is the mean of `(weights * residuals)**2`. Weights
    end up between 0 and rate / (1 - decay).

    Args:
        weights: One for each point, in the shape of the residuals.
        residuals: The residuals that the weights multiplied.
        decay: From 0 to below 1.
        rate: Positive.

    Raises:
        TypeError: The residuals have no floating dtype.
        ValueError: Shapes differ, or `decay` or `rate` is out of its range.
    """
    residuals, weights = _floating(residuals, "residual_attention: residuals"), _as_array(weights)
    if tuple(weights.shape) != tuple(residuals.shape):
        raise ValueError(f"residual_attention: weights must have the shape of residuals, {tuple(residuals.shape)}, "
                         f"got {tuple(weights.shape)}")
    if not 0 <= decay < 1 or not rate > 0:
        raise ValueError(f"residual_attention: decay must be at least 0 and below 1, and rate must be positive, got "
                         f"{decay!r} and {rate!r}")
    m = _functions_of(residuals)
    size = m.abs(_constant(residuals))
    largest = m.max(size)
    return decay * _constant(weights) + rate * size / m.where(largest > 0, largest, 1 + 0 * largest)


def balanced_weights(gradients: Iterable[Any]) -> Any:
    """Weights that make the gradients of all terms of a loss equally long: w_i = sum_j |g_j| / |g_i|.

    Wang, Sankaran, Wang and Perdikaris, "An expert's guide to training physics-informed neural networks", 2023 (arXiv
    2308.08468), who compute them every 1,000 steps and keep a moving average, `0.9 * old + 0.1 * new`.

        weights = nn.physics.balanced_weights([nn.grad(term, parameters) for term in terms])
        loss = F.sum(weights * F.stack(*terms))

    Args:
        gradients: For each term, its gradients by all parameters: a list of Variables, or a pytree of arrays.

    Returns:
        (terms,). A term whose gradient is 0 gets 1.

    Raises:
        ValueError: There are no terms, or a term has no gradients.
    """
    trees = [jax.tree.leaves(g, is_leaf=lambda leaf: isinstance(leaf, Variable)) for g in gradients]
    lists = [[_as_array(leaf) for leaf in leaves] for leaves in trees]
    if not lists or not all(lists):
        raise ValueError("balanced_weights: gradients must have at least one term, and each term at least one array")
    m = _functions_of(lists[0][0])
    squares = [sum([m.sum(_constant(g) ** 2) for g in listed]) for listed in lists]
    norms = m.stack(*squares) if m is F else m.stack(squares)
    norms = norms**0.5
    return m.where(norms > 0, m.sum(norms) / m.where(norms > 0, norms, 1 + 0 * norms), 1 + 0 * norms)


def resample(rng: Any, residuals: Any, count: int, k: float = 1.0, c: float = 1.0) -> Any:
    """Choose points with large residuals: their indices, drawn with p ~ |r|^k / mean(|r|^k) + c.

    The residual-based adaptive distribution (RAD) of Wu et al., "A comprehensive study of non-adaptive and
    residual-based adaptive sampling for physics-informed neural networks", 2023 (arXiv 2207.10289). Their candidates
    are many points, spread evenly; k = c = 1 served best in most of their cases, k = 2 or c = 0 in some.

        points = candidates[nn.physics.resample(rng, residual_at(candidates), 1000)]

    Args:
        rng: A NumPy generator, or a JAX key.
        residuals: An array with a row for each candidate; for several equations, their norm counts.
        count: How many to choose; each candidate at most once.
        k: The larger, the more the largest residuals count; not negative.
        c: The larger, the more evenly points are chosen; not negative.

    Returns:
        (count,), row indices: a NumPy array for NumPy's generators, a JAX array for JAX's keys.

    Raises:
        ValueError: There are fewer candidates than `count`, or fewer with a positive probability; `k` or `c` is
            negative; or, with a NumPy generator, a residual is not finite.
    """
    by_numpy = isinstance(rng, np.random.Generator)
    m = np if by_numpy else jnp
    given = m.asarray(residuals.d if isinstance(residuals, Variable) else residuals)
    if given.ndim < 1 or not 1 <= count <= len(given):
        raise ValueError(f"resample: count must be between 1 and the number of candidates, the first axis of "
                         f"{given.shape}, got {count!r}")
    if not k >= 0 or not c >= 0:
        raise ValueError(f"resample: k and c must not be negative, got {k!r} and {c!r}")
    given = m.abs(given.reshape(len(given), -1))
    largest = given.max()
    is_zero = largest == 0
    size = m.linalg.norm(given / m.where(is_zero, 1, largest), axis=1) ** k  # scaled first, so that nothing overflows
    density = size / m.where(is_zero, 1, size.mean()) + c
    if not by_numpy:
        return jax.random.choice(rng, len(given), (count,), replace=False, p=density / density.sum())
    if not np.isfinite(density).all():
        raise ValueError("resample: residuals must be finite")
    if np.count_nonzero(density) < count:
        raise ValueError(f"resample: with c=0, only {np.count_nonzero(density)} candidates have a nonzero residual, "
                         f"fewer than count={count}; use a positive c")
    return rng.choice(len(given), count, replace=False, p=density.astype(np.float64) / density.sum(dtype=np.float64))


def _floating(x: Any, name: str) -> Any:
    x = _as_array(x)
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise TypeError(f"{name} must have a floating dtype, got {x.dtype}")
    return x


def _as_array(x: Any) -> Any:
    """`x` if its functions keep its dtype; else, and for lists of numbers, a NumPy array."""
    if isinstance(x, Variable | np.ndarray):
        return x
    config: Any = jax.config
    is_rounded = isinstance(x, jax.Array) and x.dtype == np.float64 and not config.jax_enable_x64
    return x if isinstance(x, jax.Array) and not is_rounded else np.asarray(x)


def _functions_of(x: Any) -> ModuleType:
    """The module with the functions for such an array."""
    return F if isinstance(x, Variable) else np if isinstance(x, np.ndarray) else jnp


def _constant(x: Any) -> Any:
    """`x` with gradients stopped."""
    return F.unlink(x) if isinstance(x, Variable) else x if isinstance(x, np.ndarray) else jax.lax.stop_gradient(x)


def _joined(parts: list[Any], axis: int) -> Any:
    m = _functions_of(parts[0])
    return F.concatenate(*parts, axis=axis) if m is F else m.concatenate(parts, axis=axis)


def _like(array: Any, x: Any) -> Any:
    return array.astype(x.dtype) if isinstance(array, jax.Array) else np.asarray(array, x.dtype)
