"""Batch normalisation and mean subtraction, with running statistics in leaves that `forward()` updates.

All are composed of means and products, so they need no backward rules.
"""

from __future__ import annotations

import math
from typing import Annotated

from ..graph import Array, Floats, Variable, composite
from ..graph.arguments import Axes, Ignored, NotNegative, Static, one_of
from . import activation, array, collectives, control, movement, reduction
from .array import in_shape
from .axes import axes_of, axis_of
from .moments import Normalised, accurate, fitted, kept_shape, moments, standardized


@composite
def batch_normalization(
    x: Floats, beta: Array | None = None, gamma: Array | None = None, mean: Array | None = None,
    variance: Array | None = None, /, axes: Axes = (1,), decay_rate: float = 0.9, eps: NotNegative = 1e-5,
    batch_stat: bool = True, output_stat: bool = False, n_outputs: Ignored = None,
) -> Normalised:
    """`gamma * (x - m) / sqrt(v + eps) + beta`, with statistics per index of `axes` (Ioffe and Szegedy, 2015).

    With `batch_stat`, m and v are the mean and the (biased) variance of `x` over all other axes, gradients
    flow through them, and each `forward()` updates the running statistics where they are given as leaves:

        mean     <- decay_rate * mean     + (1 - decay_rate) * m
        variance <- decay_rate * variance + (1 - decay_rate) * v * n / (n - 1)

    with n the number of elements per statistic (the last factor is 1 if n is 1). Without `batch_stat`, m and v are
    `mean` and `variance`, and nothing is updated.

    The statistics are those of the whole batch, on any number of devices.

    Args:
        beta: Offset, of the shape of `x` with size 1 for all but `axes`; None for 0.
        gamma: Scale, of the same shape; None for 1.
        mean: Running mean, of the same shape; None to keep none.
        variance: Running variance, of the same shape; None to keep none.
        axes: Axes with separate statistics for each index: the channels.
        decay_rate: The share of the running statistics that is kept.
        eps: Added to the variance.
        batch_stat: Whether to use the statistics of `x`.
        output_stat: Whether to return (y, m, v), all differentiable, in place of y.

    Raises:
        ValueError: The shape of a parameter or a statistic does not fit, an axis is out of range, `eps` is negative,
            or `batch_stat` is False without `mean` and `variance`.
    """
    return _normalized(x, (beta, gamma, mean, variance), axes, decay_rate, eps, batch_stat, output_stat)


def _normalized(
    x: Variable, parameters: tuple[Variable | None, Variable | None, Variable | None, Variable | None],
    axes: Axes, decay_rate: float, eps: float, batch_stat: bool, output_stat: bool, processes: tuple[int, ...] = (),
) -> Normalised:
    """`batch_normalization` with statistics over the inputs of `processes`, or of this one alone if there are none."""
    beta, gamma, mean, variance = parameters
    channels = axes_of(axes, x.ndim, "axes")
    shape = kept_shape(x.shape, channels)
    beta, gamma = fitted(beta, shape, x.shape, "beta"), fitted(gamma, shape, x.shape, "gamma")
    for p, n in ((mean, "mean"), (variance, "variance")):
        if p is None:
            if not batch_stat:
                raise ValueError(f"batch_stat=False needs mean and variance, but {n} is None")
        elif [k for k in p.shape if k != 1] != [k for k in shape if k != 1]:
            raise ValueError(f"{n} must be of shape {shape}, got {p.shape}")
    wide = accurate(x)
    if not batch_stat:
        assert mean is not None and variance is not None  # else an error was raised above
        m, v = (in_shape(p, shape) for p in (mean, variance))
        y = standardized(x, wide - m, v, eps, beta, gamma)
        return (y, m, v) if output_stat else y
    reduced = tuple(i for i in range(x.ndim) if i not in channels)
    m, deviation, v = _moments_among(wide, reduced, processes) if len(processes) > 1 else moments(wide, reduced)
    y = standardized(x, deviation, v, eps, beta, gamma)
    count = math.prod(x.shape[i] for i in reduced) * max(len(processes), 1)
    unbiased = v * (count / (count - 1)) if count > 1 else v
    updates = {
        leaf: leaf * decay_rate + in_shape(new, leaf.shape) * (1 - decay_rate)
        for leaf, new in ((mean, m), (variance, unbiased)) if leaf is not None and leaf.parent is None
    }
    if updates:
        y = control.with_updates(y, updates)
    return (y, m, v) if output_stat else y


def _moments_among(
    x: Variable, axes: tuple[int, ...], processes: tuple[int, ...]
) -> tuple[Variable, Variable, Variable]:
    """`moments` over the inputs of several processes, all of one shape; the deviations are those of this process."""
    share = 1 / len(processes)
    average = collectives.all_reduce(reduction.mean(x, axis=axes, keepdims=True) * share, processes=processes)
    deviation = x - average
    square = reduction.mean(deviation * deviation, axis=axes, keepdims=True)
    return average, deviation, collectives.all_reduce(square * share, processes=processes)


@composite
def fused_batch_normalization(
    x: Array, beta: Array | None = None, gamma: Array | None = None, mean: Array | None = None,
    variance: Array | None = None, z: Array | None = None, /, axes: Axes = (1,), decay_rate: float = 0.9,
    eps: NotNegative = 1e-5, batch_stat: bool = True, nonlinearity: Annotated[str, one_of("relu")] = "relu",
    output_stat: bool = False, n_outputs: Ignored = None,
) -> Normalised:
    """`relu(batch_normalization(x) + z)`; the derivative of relu at 0 is 0.

    Args:
        z: A term added before the nonlinearity, of the shape of `x`; None for 0.
        nonlinearity: "relu", the only choice.
        ...: As in `batch_normalization`.

    Raises:
        ValueError: As in `batch_normalization`; or `z` differs in shape from `x`, or `nonlinearity` is not "relu".
    """
    if z is not None and z.shape != x.shape:
        raise ValueError(f"z must have the shape of x, {x.shape}, got {z.shape}")
    y, *statistics = batch_normalization.body(x, beta, gamma, mean, variance, axes, decay_rate, eps, batch_stat, True)
    y = activation.relu(y if z is None else y + z)
    return (y, *statistics) if output_stat else y


@composite
def sync_batch_normalization(
    x: Array, beta: Array | None = None, gamma: Array | None = None, mean: Array | None = None,
    variance: Array | None = None, /, comm: Static | None = None, group: str = "world", axes: Axes = (1,),
    decay_rate: float = 0.9, eps: NotNegative = 1e-5, batch_stat: bool = True, output_stat: bool = False,
    n_outputs: Ignored = None,
) -> Normalised:
    """`batch_normalization` with statistics over the inputs of all processes of a group.

    Gradients of any order go through the statistics, and are those of the sum of what all processes differentiate. So
    the gradient for `x` includes contributions from other processes; those for `beta` and `gamma` have to be summed
    over the processes, as all gradients are. With one process it is `batch_normalization`.

    Args:
        x: As in `batch_normalization`; of one shape in all processes.
        comm: A communicator (`nngrad.nnabla.communicators`); None for one process.
        group: The group of processes in `comm`, which includes this one.
        ...: As in `batch_normalization`.

    Raises:
        TypeError: `comm` is not a communicator.
        ValueError: As in `batch_normalization`; or `comm` has no such group.
    """
    processes: tuple[int, ...] = ()
    if comm is not None:
        if not hasattr(comm, "find_group"):
            raise TypeError(f"comm must be a communicator, or None for one process, got {comm!r}")
        processes = tuple(comm.find_group(group))
        if not processes:
            raise ValueError(f"comm has no group named {group!r}; create it with comm.new_group")
    return _normalized(x, (beta, gamma, mean, variance), axes, decay_rate, eps, batch_stat, output_stat, processes)


@composite
def mean_subtraction(
    x: Floats, mean: Array, t: Array | None = None, /, base_axis: int = 1, update_running_mean: bool = True
) -> Variable:
    """`x` minus the running mean of all batches so far, including this one.

    With `update_running_mean`, where m is the mean of `x` over its batch axes, it subtracts

        next = mean + (m - mean) / (t + 1)

    through which gradients flow, and each `forward()` puts it into `mean`, and `t + 1` into `t`, where these are
    leaves. Without it, `mean` is subtracted, and nothing is updated.

    Args:
        mean: Running mean, of the shape of `x` from `base_axis` on.
        t: The number of batches so far, of one element; may be None if nothing is updated.
        base_axis: Number of batch axes; from the end of the axes of `x` if negative.
        update_running_mean: Whether this batch is added to the mean.

    Raises:
        ValueError: The shape of `mean` or `t` does not fit, `base_axis` is out of range, or `t` is missing.
    """
    base_axis = axis_of(base_axis, x.ndim, "base_axis")
    if mean.shape != x.shape[base_axis:]:
        raise ValueError(f"mean must have the shape of x from base_axis on, {x.shape[base_axis:]}, got {mean.shape}")
    running = accurate(control.in_turn(mean) if update_running_mean else mean)
    updates = {}
    if update_running_mean:
        if t is None:
            raise ValueError("update_running_mean=True needs t, the number of batches so far, but t is None")
        if math.prod(t.shape) != 1:
            raise ValueError(f"t must have one element, got shape {t.shape}")
        wide = accurate(x)
        batch = reduction.mean(wide, axis=tuple(range(base_axis))) if base_axis else wide
        batches = control.in_turn(t) + 1
        running = running + (batch - running) / array.cast(movement.reshape(batches, shape=()), running.dtype)
        updates = {leaf: new for leaf, new in ((mean, running), (t, batches)) if leaf.parent is None}
    y = array.like_floats(accurate(x) - running, x)
    return control.with_updates(y, updates) if updates else y
