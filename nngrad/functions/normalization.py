"""Normalisation by the statistics of batches, layers, instances, groups and weights.

All are made of means and products, so their gradients need no rules.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

from ..graph import Array, Variable, composite
from ..graph.arguments import Axes, Ignored, axes_of
from . import activation, control, movement, reduction
from .moments import Sizes, accurate, checked_eps, fitted, kept_shape, moments, shifted, standardized

Normalised: TypeAlias = Variable | Any
"""A Variable, or a tuple of three of them if `output_stat`."""


@composite
def batch_normalization(
    x: Array,
    beta: Array | None = None,
    gamma: Array | None = None,
    mean: Array | None = None,
    variance: Array | None = None,
    /,
    axes: Axes = (1,),
    decay_rate: float = 0.9,
    eps: float = 1e-5,
    batch_stat: bool = True,
    output_stat: bool = False,
    n_outputs: Ignored = None,
) -> Normalised:
    """`gamma * (x - m) / sqrt(v + eps) + beta`, with statistics per index of `axes` (Ioffe and Szegedy, 2015).

    With `batch_stat`, m and v are the mean and the (biased) variance of `x` over all other axes, gradients
    flow through them, and each `forward()` updates the running statistics where they are given as leaves:

        mean     <- decay_rate * mean     + (1 - decay_rate) * m
        variance <- decay_rate * variance + (1 - decay_rate) * v * n / (n - 1)

    with n the number of elements that a statistic is made of (the last factor is 1 where n is 1). Without
    it, m and v are `mean` and `variance`, and nothing is updated.

    Args:
        x: Any shape; floating.
        beta: Offset, of the shape of `x` with size 1 for all but `axes`; None for 0.
        gamma: Scale, of that shape too; None for 1.
        mean: Running mean, of that shape too; None to keep none.
        variance: Running variance, of that shape too; None to keep none.
        axes: Axes that have statistics of their own: the channels.
        decay_rate: How much of the running statistics stays.
        eps: Added to the variance.
        batch_stat: Whether to use the statistics of `x`.
        output_stat: Whether to return (y, m, v), all differentiable, in place of y.
        n_outputs: Ignored.

    Raises:
        ValueError: The shape of a parameter or a statistic does not fit, an axis is out of range, `eps` is negative,
            or `batch_stat=False` without `mean` and `variance`.
    """
    name = "batch_normalization"
    kept = axes_of(axes, x.ndim, f"{name}: axes")
    checked_eps(name, eps)
    shape = kept_shape(x.shape, kept)
    beta, gamma = fitted(beta, shape, x.shape, f"{name}: beta"), fitted(gamma, shape, x.shape, f"{name}: gamma")
    for p, n in ((mean, "mean"), (variance, "variance")):
        if p is None:
            if not batch_stat:
                raise ValueError(f"{name}: batch_stat=False needs mean and variance, but {n} is None")
        elif [k for k in p.shape if k != 1] != [k for k in shape if k != 1]:
            raise ValueError(f"{name}: {n} of shape {p.shape} does not fit; give it the shape {shape}")
    wide = accurate(x)
    if not batch_stat:
        assert mean is not None and variance is not None  # or it would have been refused
        m, v = (movement.reshape(p, shape=shape) if p.shape != shape else p for p in (mean, variance))
        y = standardized(x, wide - m, v, eps, beta, gamma)
        return (y, m, v) if output_stat else y
    reduced = tuple(i for i in range(x.ndim) if i not in kept)
    m, deviation, v = moments(wide, reduced)
    y = standardized(x, deviation, v, eps, beta, gamma)
    count = math.prod(x.shape[i] for i in reduced)
    unbiased = v * (count / (count - 1)) if count > 1 else v
    updates = _running_updates([(mean, m), (variance, unbiased)], decay_rate)
    if updates:
        y = control.with_updates(y, updates)
    return (y, m, v) if output_stat else y


def _running_updates(
    statistics: list[tuple[Variable | None, Variable]], decay_rate: float
) -> dict[Variable, Variable]:
    """The next value of each running statistic that is a leaf, from its value and that of the batch."""
    updates = {}
    for leaf, new in statistics:
        if leaf is not None and leaf.parent is None:
            if new.shape != leaf.shape:
                new = movement.reshape(new, shape=leaf.shape)
            updates[leaf] = leaf * decay_rate + new * (1 - decay_rate)
    return updates


@composite
def fused_batch_normalization(
    x: Array,
    beta: Array | None = None,
    gamma: Array | None = None,
    mean: Array | None = None,
    variance: Array | None = None,
    z: Array | None = None,
    /,
    axes: Axes = (1,),
    decay_rate: float = 0.9,
    eps: float = 1e-5,
    batch_stat: bool = True,
    nonlinearity: str = "relu",
    output_stat: bool = False,
    n_outputs: Ignored = None,
) -> Normalised:
    """`relu(batch_normalization(x) + z)`; the derivative of relu at 0 is 0.

    Args:
        x: As for `batch_normalization`.
        beta: As for `batch_normalization`.
        gamma: As for `batch_normalization`.
        mean: As for `batch_normalization`.
        variance: As for `batch_normalization`.
        z: What is added before the nonlinearity, of the shape of `x`; None for 0.
        axes: As for `batch_normalization`.
        decay_rate: As for `batch_normalization`.
        eps: As for `batch_normalization`.
        batch_stat: As for `batch_normalization`.
        nonlinearity: "relu", the only one there is.
        output_stat: As for `batch_normalization`.
        n_outputs: Ignored.

    Raises:
        ValueError: As in `batch_normalization`; or `z` has another shape than `x`, or `nonlinearity` another name.
    """
    name = "fused_batch_normalization"
    if nonlinearity != "relu":
        raise ValueError(f"{name}: nonlinearity must be 'relu', got {nonlinearity!r}")
    if z is not None and z.shape != x.shape:
        raise ValueError(f"{name}: z of shape {z.shape} must have the shape of x, {x.shape}")
    y, *statistics = batch_normalization.body(x, beta, gamma, mean, variance, axes, decay_rate, eps, batch_stat, True)
    y = activation.relu(y if z is None else y + z)
    return (y, *statistics) if output_stat else y


@composite
def tensor_normalization(
    x: Array,
    beta: Array | None = None,
    gamma: Array | None = None,
    /,
    axes: Axes | None = None,
    eps: float = 1e-5,
    output_stat: bool = False,
) -> Normalised:
    """`gamma * (x - m) / sqrt(v + eps) + beta`, with mean m and variance v per index of `axes`.

    Args:
        x: Any shape; floating.
        beta: Offset, of the shape of `x` with size 1 for all but `axes`; None for 0.
        gamma: Scale, of that shape too; None for 1.
        axes: Axes that have statistics of their own; to be given.
        eps: Added to the variance.
        output_stat: Whether to return (y, m, v), all differentiable, in place of y; the statistics have size 1 at
            the axes that they are taken over.

    Raises:
        TypeError: `axes` is not given.
        ValueError: The shape of a parameter does not fit, an axis is out of range, or `eps` is negative.
    """
    name = "tensor_normalization"
    if axes is None:
        raise TypeError(f"{name}: axes is missing")
    kept = axes_of(axes, x.ndim, f"{name}: axes")
    rest = tuple(i for i in range(x.ndim) if i not in kept)
    return _standardised(name, x, beta, gamma, eps, output_stat, rest, kept_shape(x.shape, kept))


@composite
def layer_normalization(
    x: Array,
    beta: Array | None = None,
    gamma: Array | None = None,
    /,
    batch_axis: Axes = 0,
    eps: float = 1e-5,
    output_stat: bool = False,
) -> Normalised:
    """`x` standardised over all axes but `batch_axis`, times `gamma`, plus `beta` (Ba, Kiros and Hinton, 2016).

    Args:
        x: Any shape; floating.
        beta: Offset, of the shape of `x` with size 1 at `batch_axis`, or with size 1 at other axes too; None for 0.
        gamma: Scale, of such a shape too; None for 1.
        batch_axis: Axis or axes that have statistics of their own.
        eps: Added to the variance.
        output_stat: As for `tensor_normalization`.

    Raises:
        ValueError: The shape of a parameter does not fit, an axis is out of range, or `eps` is negative.
    """
    name = "layer_normalization"
    batch = axes_of(batch_axis, x.ndim, f"{name}: batch_axis")
    rest = tuple(i for i in range(x.ndim) if i not in batch)
    return _standardised(name, x, beta, gamma, eps, output_stat, rest, kept_shape(x.shape, rest))


@composite
def instance_normalization(
    x: Array,
    beta: Array | None = None,
    gamma: Array | None = None,
    /,
    channel_axis: int = 1,
    batch_axis: Axes = 0,
    eps: float = 1e-5,
    output_stat: bool = False,
) -> Normalised:
    """`x` standardised per batch item and channel, times `gamma`, plus `beta` (Ulyanov, Vedaldi and Lempitsky, 2016).

    Args:
        x: Any shape; floating.
        beta: Offset, of the shape of `x` with size 1 for all but `channel_axis`, or one for each batch item; None
            for 0.
        gamma: Scale, of such a shape too; None for 1.
        channel_axis: Axis of the channels.
        batch_axis: Axis or axes of the batch.
        eps: Added to the variance.
        output_stat: As for `tensor_normalization`.

    Raises:
        ValueError: The shape of a parameter does not fit, an axis is out of range or named twice, or `eps` is negative.
    """
    name = "instance_normalization"
    batch, channel = _batch_and_channel(name, x, batch_axis, channel_axis)
    rest = tuple(i for i in range(x.ndim) if i not in (*batch, channel))
    return _standardised(name, x, beta, gamma, eps, output_stat, rest, kept_shape(x.shape, (channel,)))


@composite
def group_normalization(
    x: Array,
    beta: Array | None = None,
    gamma: Array | None = None,
    /,
    num_groups: int | None = None,
    channel_axis: int = 1,
    batch_axis: Axes = 0,
    eps: float = 1e-5,
    output_stat: bool = False,
) -> Normalised:
    """`x` standardised per batch item and group of channels, times `gamma`, plus `beta` (Wu and He, 2018).

    Args:
        x: Any shape; floating.
        beta: Offset, of the shape of `x` with size 1 for all but `channel_axis`, or one for each batch item; None
            for 0.
        gamma: Scale, of such a shape too; None for 1.
        num_groups: Number of groups, to be given; it divides the number of channels.
        channel_axis: Axis of the channels.
        batch_axis: Axis or axes of the batch.
        eps: Added to the variance.
        output_stat: Whether to return (y, mean, variance), all differentiable, in place of y. The
            statistics have one axis more than `x`: the channel axis has `num_groups`, and it and all
            axes that they are taken over are followed by, or have, size 1.

    Raises:
        TypeError: `num_groups` is not given.
        ValueError: The shape of a parameter does not fit, an axis is out of range or named twice, `eps` is negative,
            or `num_groups` does not divide the channels.
    """
    name = "group_normalization"
    batch, channel = _batch_and_channel(name, x, batch_axis, channel_axis)
    checked_eps(name, eps)
    if num_groups is None:
        raise TypeError(f"{name}: num_groups is missing")
    channels = x.shape[channel]
    if num_groups < 1 or channels % num_groups:
        raise ValueError(f"{name}: num_groups {num_groups} does not divide {channels} channels")
    shape = kept_shape(x.shape, (channel,))
    beta, gamma = fitted(beta, shape, x.shape, f"{name}: beta"), fitted(gamma, shape, x.shape, f"{name}: gamma")
    grouped = (*x.shape[:channel], num_groups, channels // num_groups, *x.shape[channel + 1 :])
    own = {channel, *[i + (i > channel) for i in batch]}
    rest = tuple(i for i in range(len(grouped)) if i not in own)
    mean, deviation, variance = moments(movement.reshape(accurate(x), shape=grouped), rest)
    y = shifted(x, movement.reshape(deviation * (variance + eps) ** -0.5, shape=x.shape), beta, gamma)
    return (y, mean, variance) if output_stat else y


@composite
def weight_standardization(
    w: Array, /, channel_axis: int = 0, eps: float = 1e-5, output_stat: bool = False
) -> Normalised:
    """`(w - m) / sqrt(v + eps)`, with mean m and variance v per output channel (Qiao et al., 2019).

    Args:
        w: A weight of any shape; floating.
        channel_axis: Axis of the output channels.
        eps: Added to the variance.
        output_stat: As for `tensor_normalization`.

    Raises:
        ValueError: `channel_axis` is out of range, or `eps` is negative.
    """
    name = "weight_standardization"
    (channel,) = axes_of(channel_axis, w.ndim, f"{name}: channel_axis")
    rest = tuple(i for i in range(w.ndim) if i != channel)
    return _standardised(name, w, None, None, eps, output_stat, rest, w.shape)


@composite
def weight_normalization(w: Array, g: Array, /, dim: int = 0, eps: float = 1e-12) -> Variable:
    """`g w / sqrt(sum(w^2) + eps)`, summed over all axes but `dim` (Salimans and Kingma, 2016).

    Args:
        w: A weight of any shape; floating.
        g: Lengths: as many as `w` has indices along `dim`.
        dim: Axis of the output channels.
        eps: Added to the squared length.

    Raises:
        ValueError: `dim` is out of range, `g` has another number of elements, or `eps` is negative.
    """
    name = "weight_normalization"
    (channel,) = axes_of(dim, w.ndim, f"{name}: dim")
    checked_eps(name, eps)
    shape = kept_shape(w.shape, (channel,))
    if math.prod(g.shape) != w.shape[channel]:
        raise ValueError(f"{name}: g of shape {g.shape} must have {w.shape[channel]} elements, as w has along dim")
    wide = accurate(w)
    squares = reduction.sum(wide * wide, axis=tuple(i for i in range(w.ndim) if i != channel), keepdims=True)
    return standardized(w, wide, squares, eps, None, g if g.shape == shape else movement.reshape(g, shape=shape))


def _batch_and_channel(function: str, x: Variable, batch_axis: Axes, channel_axis: int) -> tuple[Sizes, int]:
    (channel,) = axes_of(channel_axis, x.ndim, f"{function}: channel_axis")
    batch = axes_of(batch_axis, x.ndim, f"{function}: batch_axis")
    if channel in batch:
        raise ValueError(f"{function}: axis {channel} is both channel_axis and batch_axis")
    return batch, channel


def _standardised(
    function: str,
    x: Variable,
    beta: Variable | None,
    gamma: Variable | None,
    eps: float,
    output_stat: bool,
    axes: Sizes,
    shape: Sizes,
) -> Normalised:
    """`x` standardised over `axes`; `beta` and `gamma` have `shape`."""
    checked_eps(function, eps)
    beta, gamma = fitted(beta, shape, x.shape, f"{function}: beta"), fitted(gamma, shape, x.shape, f"{function}: gamma")
    mean, deviation, variance = moments(accurate(x), axes)
    y = standardized(x, deviation, variance, eps, beta, gamma)
    return (y, mean, variance) if output_stat else y
