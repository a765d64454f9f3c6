"""Layer, instance, group and vector normalisation, and normalisation of weights.

All are composed of means and products, so they need no backward rules.
"""

from __future__ import annotations

import math
from typing import Any

from ..graph import Array, Floats, Variable, composite
from ..graph.arguments import AtLeastOne, Axes, NotNegative, Positive, as_axes, coerced
from ..graph.leaf import as_variables
from ..graph.signatures import explained_by_name
from . import arithmetic, array, control, linear, movement, reduction
from .axes import axes_of
from .moments import Normalised, Sizes, accurate, fitted, kept_shape, moments, shifted, standardized


@explained_by_name
def tensor_normalization(
    x: Array, axes: Axes, beta: Array | None = None, gamma: Array | None = None, eps: float = 1e-5,
    output_stat: bool = False,
) -> Normalised:
    """`gamma * (x - m) / sqrt(v + eps) + beta`, with mean m and variance v per index of `axes`.

    Args:
        x: Any shape; floating.
        axes: Axis or axes with separate statistics for each index.
        beta: Offset, of the shape of `x` with size 1 for all but `axes`; None for 0.
        gamma: Scale, of the same shape; None for 1.
        eps: Added to the variance.
        output_stat: Whether to return (y, m, v), all differentiable, in place of y; the statistics have size 1 at
            the axes that they are taken over.

    Raises:
        TypeError: `axes` is neither an axis nor a tuple of axes.
        ValueError: The shape of a parameter does not fit, an axis is out of range, or `eps` is negative.
    """
    name = "tensor_normalization"
    axes = coerced(as_axes, axes, f"{name}: axes")
    x, beta, gamma = as_variables((x, beta, gamma), ("x", "beta", "gamma"), name, 1)
    if not eps >= 0:
        raise ValueError(f"{name}: eps must not be negative, got {eps}")
    apart = axes_of(axes, x.ndim, f"{name}: axes")
    rest = tuple(i for i in range(x.ndim) if i not in apart)
    return _standardised(x, beta, gamma, eps, output_stat, rest, kept_shape(x.shape, apart))


@composite
def layer_normalization(
    x: Array, beta: Array | None = None, gamma: Array | None = None, /, batch_axis: Axes = 0, eps: NotNegative = 1e-5,
    output_stat: bool = False,
) -> Normalised:
    """`x` standardised over all axes except `batch_axis`, times `gamma`, plus `beta` (Ba, Kiros and Hinton, 2016).

    Args:
        beta: Offset, of the shape of `x` with size 1 at `batch_axis`, or with size 1 at other axes too; None for 0.
        gamma: Scale, of such a shape too; None for 1.
        batch_axis: Axis or axes with separate statistics for each index.
        ...: As in `tensor_normalization`.
    """
    batch = axes_of(batch_axis, x.ndim, "batch_axis")
    rest = tuple(i for i in range(x.ndim) if i not in batch)
    return _standardised(x, beta, gamma, eps, output_stat, rest, kept_shape(x.shape, rest))


@composite
def instance_normalization(
    x: Array, beta: Array | None = None, gamma: Array | None = None, /, channel_axis: int = 1, batch_axis: Axes = 0,
    eps: NotNegative = 1e-5, output_stat: bool = False,
) -> Normalised:
    """`x` standardised per batch item and channel, times `gamma`, plus `beta` (Ulyanov, Vedaldi and Lempitsky, 2016).

    Args:
        beta: Offset, of the shape of `x` with size 1 for all but `channel_axis`, or one for each batch item; None
            for 0.
        gamma: Scale, of such a shape too; None for 1.
        channel_axis: Axis of the channels.
        batch_axis: Axis or axes of the batch.
        ...: As in `tensor_normalization`.
    """
    batch, channel = _batch_and_channel(x, batch_axis, channel_axis)
    rest = tuple(i for i in range(x.ndim) if i not in (*batch, channel))
    return _standardised(x, beta, gamma, eps, output_stat, rest, kept_shape(x.shape, (channel,)))


@composite
def group_normalization(
    x: Array, beta: Array | None = None, gamma: Array | None = None, /, num_groups: int | None = None,
    channel_axis: int = 1, batch_axis: Axes = 0, eps: NotNegative = 1e-5, output_stat: bool = False,
) -> Normalised:
    """`x` standardised per batch item and group of channels, times `gamma`, plus `beta` (Wu and He, 2018).

    Args:
        num_groups: Number of groups, to be given; it divides the number of channels.
        output_stat: Whether to return (y, mean, variance), all differentiable, in place of y. The
            statistics have one axis more than `x`: the channel axis becomes two, of sizes `num_groups` and 1, and all
            other reduced axes have size 1.
        ...: As in `instance_normalization`.

    Raises:
        TypeError: `num_groups` is not given.
        ValueError: The shape of a parameter does not fit, an axis is out of range or named twice, `eps` is negative,
            or `num_groups` does not divide the channels.
    """
    batch, channel = _batch_and_channel(x, batch_axis, channel_axis)
    if num_groups is None:
        raise TypeError("num_groups is required")
    channels = x.shape[channel]
    if num_groups < 1 or channels % num_groups:
        raise ValueError(f"num_groups must divide the {channels} channels of x, got {num_groups}")
    shape = kept_shape(x.shape, (channel,))
    beta, gamma = fitted(beta, shape, x.shape, "beta"), fitted(gamma, shape, x.shape, "gamma")
    grouped = (*x.shape[:channel], num_groups, channels // num_groups, *x.shape[channel + 1 :])
    apart = {channel, *[i + (i > channel) for i in batch]}
    rest = tuple(i for i in range(len(grouped)) if i not in apart)
    mean, deviation, variance = moments(movement.reshape(accurate(x), shape=grouped), rest)
    y = shifted(x, movement.reshape(deviation * (variance + eps) ** -0.5, shape=x.shape), beta, gamma)
    return (y, mean, variance) if output_stat else y


@composite
def norm_normalization(
    x: Floats, /, p: float | None = None, axes: Axes | None = None, eps: NotNegative = 1e-12
) -> Variable:
    """`x` divided by its p-norm over `axes`, or by `eps` if that is larger: so 0 stays 0.

    Args:
        p: The order of the norm, at least 1 or infinite; None for 2.
        axes: The axis or axes whose elements make up a vector; None for all.
        eps: The smallest divisor.

    Raises:
        ValueError: `p` is below 1 and not -inf, or NaN; an axis is out of range or named twice, or `eps` is negative.
    """
    wide = accurate(x)
    length = reduction.norm(wide, p=p, axis=axes_of(axes, x.ndim, "axes"), keepdims=True)
    return shifted(x, wide / arithmetic.maximum_scalar(length, val=eps), None, None)


@composite
def weight_standardization(
    w: Array, /, channel_axis: int = 0, eps: NotNegative = 1e-5, output_stat: bool = False
) -> Normalised:
    """`(w - m) / sqrt(v + eps)`, with mean m and variance v per output channel (Qiao et al., 2019).

    Args:
        w: A weight of any shape; floating.
        channel_axis: Axis of the output channels.
        ...: As in `tensor_normalization`.
    """
    (channel,) = axes_of(channel_axis, w.ndim, "channel_axis")
    rest = tuple(i for i in range(w.ndim) if i != channel)
    return _standardised(w, None, None, eps, output_stat, rest, w.shape)


@composite
def weight_normalization(w: Array, g: Array, /, dim: int = 0, eps: NotNegative = 1e-12) -> Variable:
    """`g w / sqrt(sum(w^2) + eps)`, summed over all axes but `dim` (Salimans and Kingma, 2016).

    Args:
        w: A weight of any shape; floating.
        g: Lengths, one for each index of `w` along `dim`.
        dim: Axis of the output channels.
        eps: Added to the squared length.

    Raises:
        ValueError: `dim` is out of range, `g` has another number of elements, or `eps` is negative.
    """
    (channel,) = axes_of(dim, w.ndim, "dim")
    shape = kept_shape(w.shape, (channel,))
    if math.prod(g.shape) != w.shape[channel]:
        raise ValueError(f"g must have {w.shape[channel]} elements, as w has along dim, got shape {g.shape}")
    wide = accurate(w)
    squares = reduction.sum(wide * wide, axis=tuple(i for i in range(w.ndim) if i != channel), keepdims=True)
    return standardized(w, wide, squares, eps, None, g if g.shape == shape else movement.reshape(g, shape=shape))


@composite
def spectral_norm(
    w: Array, u: Array, /, dim: int = 0, itr: AtLeastOne = 1, eps: Positive = 1e-12, test: bool = False,
    output_u: bool = False,
) -> Variable | Any:
    """`w / s`, where s is the largest singular value of `w` as a matrix, by power iteration (Miyato et al., 2018).

    With W the matrix whose rows are along `dim`, each of the `itr` steps is

        v = W' u / sqrt(|W' u|^2 + eps),    u = W v / sqrt(|W v|^2 + eps)

    and s = u' W v. In derivatives u and v are constants: once they have converged, the first derivative is that of the
    singular value itself; the second ignores how u and v change.

    Args:
        w: A weight of any shape; floating.
        u: The initial vector, with one element for each index of `w` along `dim`. If it is a leaf, `forward()` writes
            the last u to it, so that each training step iterates further. If a graph has several results of this
            function with that leaf, each begins at the u of the one before, in the order of the calls.
        dim: Axis of the output channels.
        itr: Number of steps, at least 1.
        eps: Added to the squared lengths; positive.
        test: Whether to leave `u` unchanged.
        output_u: Whether to return (w / s, u) in place of w / s, with the last u, or, if `test`, the first.

    Raises:
        ValueError: `dim` is out of range, `u` has another number of elements, `itr` is below 1, or `eps` is not
            positive.
    """
    (channel,) = axes_of(dim, w.ndim, "dim")
    rows = w.shape[channel]
    if math.prod(u.shape) != rows:
        raise ValueError(f"u must have {rows} elements, as w has along dim, got shape {u.shape}")
    wide = accurate(w)
    last = channel == w.ndim - 1  # then the matrix is used as it is in memory, transposed
    if last or channel == 0:
        matrix = movement.reshape(wide, shape=(-1, rows) if last else (rows, -1))
    else:
        order = (channel, *[i for i in range(w.ndim) if i != channel])
        matrix = movement.reshape(movement.transpose(wide, axes=order), shape=(rows, -1))
    begin = u if test else control.in_turn(u)
    fixed, row = control.unlink(matrix), movement.reshape(control.unlink(accurate(begin)), shape=(1, rows))
    for _ in range(itr):
        v = _unit(linear.batch_matmul(row, fixed, transpose_b=last), eps)
        row = _unit(linear.batch_matmul(v, fixed, transpose_b=not last), eps)
    largest = reduction.sum(linear.batch_matmul(row, matrix, transpose_b=last) * v)
    y = shifted(w, wide / largest, None, None)
    following = control.unlink(u) if test else array.cast(movement.reshape(row, shape=u.shape), u.dtype)
    if u.parent is None and not test:
        y = control.with_updates(y, {u: following})
    return (y, following) if output_u else y


def _unit(x: Variable, eps: float) -> Variable:
    return x * (reduction.sum(x * x) + eps) ** -0.5


def _batch_and_channel(x: Variable, batch_axis: Axes, channel_axis: int) -> tuple[Sizes, int]:
    (channel,) = axes_of(channel_axis, x.ndim, "channel_axis")
    batch = axes_of(batch_axis, x.ndim, "batch_axis")
    if channel in batch:
        raise ValueError(f"channel_axis and batch_axis must differ, got axis {channel} for both")
    return batch, channel


def _standardised(
    x: Variable, beta: Variable | None, gamma: Variable | None, eps: float, output_stat: bool,
    axes: Sizes, shape: Sizes,
) -> Normalised:
    """`x` standardised over `axes`; `beta` and `gamma` have `shape`."""
    beta, gamma = fitted(beta, shape, x.shape, "beta"), fitted(gamma, shape, x.shape, "gamma")
    mean, deviation, variance = moments(accurate(x), axes)
    y = standardized(x, deviation, variance, eps, beta, gamma)
    return (y, mean, variance) if output_stat else y
