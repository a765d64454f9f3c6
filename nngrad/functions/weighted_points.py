"""Weighted sums of points of an array: one trilinear form seen from its three sides.

Image warps and regions use them: a sample between pixels is a weighted sum of the pixels around it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import jax
import jax.numpy as jnp
from jax import lax

from ..graph import Array, Function, op
from ..graph.arguments import Shape
from .arithmetic import alike, floating, widened
from .axes import rows


def _cost(f: Function) -> int:
    channels_times_points = max([f.specs[0].size, *[x.size for x in f.inputs[:1]]])
    return 2 * channels_times_points * int(f.inputs[2].shape[1])


_ROWS = rows(inputs=(0, 1, 2))
_FEW_POINTS = 4
"""Sums of up to this many points are taken channel by channel where channels come first: else XLA for CPUs computes all
channels of a sum, and then transposes. That takes 1.0 to 1.8 times as long; but of 16 points it takes a third."""


@op(linear="each", axes=_ROWS, cost=_cost)
def weighted_points(x: Array, weights: Array, indices: Array, /, channel_last: bool = False) -> jax.Array:
    """Weighted sums of points: `y[b, c, q]` is the sum over k of `weights[b, k, q] x[b, c, indices[b, k, q]]`.

    Args:
        x: (batch, C, points), or (batch, points, C) if `channel_last`.
        weights: (batch, K, Q): K weights for each of Q sums.
        indices: (batch, K, Q): the points, as int32; those out of range contribute nothing.

    Returns:
        (batch, C, Q), or (batch, Q, C).
    """
    _check(x.shape, weights.shape, indices.shape, "x", "weights")
    x, weights = alike(floating(x), floating(weights))
    dtype = x.dtype
    x, weights = widened(x), widened(weights)
    shape = _sums_shape(x.shape, indices.shape[2], channel_last)
    if not channel_last and indices.shape[1] <= _FEW_POINTS:  # each channel is a batch entry of its own
        entries = x.shape[0] * x.shape[1]
        along = [lax.broadcast_in_dim(a, (*x.shape[:2], *a.shape[1:]), (0, 2, 3)) for a in (weights, indices)]
        weights, indices = [lax.reshape(a, (entries, *a.shape[2:])) for a in along]
        x = lax.reshape(x, (entries, 1, x.shape[2]))
    terms = [lax.mul(taken, weight) for taken, weight in _points(x, indices, channel_last, weights)]
    y = functools.reduce(lax.add, terms) if terms else lax.full(shape, 0, x.dtype)
    return lax.convert_element_type(lax.reshape(y, shape), dtype)


@op(linear="each", axes=_ROWS, cost=_cost)
def weighted_points_data_grad(
    y: Array, weights: Array, indices: Array, /, size: int, channel_last: bool = False
) -> jax.Array:
    """The transpose of `weighted_points` in `x`: each of `y`, weighted, is added to the points of its sum.

    Args:
        y: (batch, C, Q), or (batch, Q, C) if `channel_last`.
        size: The number of points.
        ...: As in `weighted_points`.

    Returns:
        (batch, C, size), or (batch, size, C).
    """
    _check(y.shape, weights.shape, indices.shape, "y", "weights", y.shape[1 if channel_last else -1])
    y, weights = alike(floating(y), floating(weights))
    dtype = y.dtype
    y, weights = widened(y), widened(weights)
    # Add a row of all channels at each point: on CPUs this is several times faster than single numbers.
    if not channel_last:
        y = lax.transpose(y, (0, 2, 1))
    batch, count, sums = indices.shape
    channels = y.shape[2]
    indices = lax.convert_element_type(indices, jnp.promote_types(indices.dtype, jnp.int32))
    places = lax.broadcasted_iota(indices.dtype, indices.shape, 0) * size
    nowhere = lax.full_like(indices, batch * size)
    places = lax.select(_inside(indices, size), lax.add(indices, places), nowhere)
    shape = (batch, count, sums, channels)
    rows = lax.mul(lax.broadcast_in_dim(y, shape, (0, 2, 3)), lax.broadcast_in_dim(weights, shape, (0, 1, 2)))
    dimensions = lax.ScatterDimensionNumbers(
        update_window_dims=(1,), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,)
    )
    x = lax.scatter_add(
        lax.full((batch * size, channels), 0, y.dtype), lax.reshape(places, (places.size, 1)),
        lax.reshape(rows, (places.size, channels)), dimensions, mode=lax.GatherScatterMode.FILL_OR_DROP,
    )
    x = lax.reshape(x, (batch, size, channels))
    return lax.convert_element_type(x if channel_last else lax.transpose(x, (0, 2, 1)), dtype)


@op(linear="each", axes=_ROWS, cost=_cost)
def weighted_points_weight_grad(y: Array, x: Array, indices: Array, /, channel_last: bool = False) -> jax.Array:
    """The transpose of `weighted_points` in its weights: sums over channels of `y[b, c, q] x[b, c, indices[b, k, q]]`.

    Args:
        y: (batch, C, Q), or (batch, Q, C) if `channel_last`.
        ...: As in `weighted_points`.

    Returns:
        (batch, K, Q); float32 if `y` and `x` have 16 bits.
    """
    _check(x.shape, indices.shape, indices.shape, "x", "indices")
    y, x = alike(floating(y), floating(x))
    expected = _sums_shape(x.shape, indices.shape[2], channel_last)
    if y.shape != expected:
        raise ValueError(f"y must have the shape of the result of weighted_points, {expected}, got {y.shape}")
    y, x = widened(y), widened(x)
    products = [
        lax.reduce_sum(lax.mul(y, taken), (2 if channel_last else 1,)) for (taken,) in _points(x, indices, channel_last)
    ]
    return lax.concatenate([lax.expand_dims(product, (1,)) for product in products], 1)


def _check(first: Shape, second: Shape, indices: Shape, name: str, other: str, sums: int | None = None) -> None:
    """Raise a ValueError unless batch sizes agree, and weights and indices have one shape with `sums` sums."""
    if len(first) != 3 or len(indices) != 3 or second != indices or first[0] != indices[0]:
        raise ValueError(f"{name}, {other} and indices must be of shape (batch, C, points), (batch, K, Q) and "
                         f"(batch, K, Q), got {first}, {second} and {indices}")
    if sums not in (None, indices[2]):
        raise ValueError(f"{name} must hold {indices[2]} sums, as many as indices, got shape {first}")


def _sums_shape(shape: Shape, sums: int, channel_last: bool) -> tuple[int, ...]:
    """The shape of sums of points of an array of `shape`."""
    return (shape[0], sums, shape[2]) if channel_last else (shape[0], shape[1], sums)


def _inside(indices: jax.Array, size: int) -> jax.Array:
    return lax.bitwise_and(lax.ge(indices, lax.full_like(indices, 0)), lax.lt(indices, lax.full_like(indices, size)))


def _points(x: jax.Array, indices: jax.Array, channel_last: bool, *others: jax.Array) -> Iterator[list[jax.Array]]:
    """For each k, the points at `indices` for each channel, 0 out of range, and the entries of `others` (batch, K,
    Q)."""
    axis = 1 if channel_last else 2
    size = x.shape[axis]
    # An additional 0 stands for all points out of range, so that no channel needs a comparison.
    x = lax.pad(x, x.dtype.type(0), [(0, int(a == axis), 0) for a in range(3)])
    places = lax.select(_inside(indices, size), indices, lax.full_like(indices, size))
    places, *others = lax.optimization_barrier((places, *others))  # nor a computation
    dimensions = lax.GatherDimensionNumbers(
        offset_dims=(3 - axis,), collapsed_slice_dims=(axis,), start_index_map=(axis,), operand_batching_dims=(0,),
        start_indices_batching_dims=(0,),
    )
    window = tuple([1 if a in (0, axis) else n for a, n in enumerate(x.shape)])
    for k in range(indices.shape[1]):
        at, *rest = [lax.index_in_dim(array, k, 1, keepdims=False) for array in (places, *others)]
        taken = lax.gather(x, lax.expand_dims(at, (2,)), dimensions, window,
                           mode=lax.GatherScatterMode.PROMISE_IN_BOUNDS)
        yield [taken, *[lax.broadcast_in_dim(array, taken.shape, (0, axis)) for array in rest]]
