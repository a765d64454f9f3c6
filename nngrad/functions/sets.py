"""Boolean masks, sorted search, unique elements, and products of groups.

The size of some results depends on values. It is fixed when the function is applied, by the values of its inputs at
that time, or given as `size`. If later values give another size, the result is not truncated silently: indices are then
out of range, and elements NaN.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..graph import AnyArray, AnyShape, Array, Variable, as_variable, composite, op
from ..graph.arguments import Scalar, Size
from ..graph.axes import AxisMap
from . import array, control, movement, slicing
from .arithmetic import alike, maximum2
from .associative import associative_scan
from .axes import axis_of
from .comparison import equal, holds, not_equal
from .indexing import argsort, gather, where

# ---------------------------------------------------------------- sorted search


@op(
    type_name="SearchSorted",
    axes=AxisMap(
        places=lambda f: ((*range(f.inputs[0].ndim - 1), None), tuple(range(f.inputs[1].ndim))),
        leading=lambda f, size, shape: {},
    ),
)
def searchsorted(sorted_sequence: Array, values: Array, /, right: bool | None = None) -> jax.Array:
    """Insertion points of values in sorted rows: how many elements of the row are smaller, as int32.

    Args:
        sorted_sequence: `(..., n)`, each row in ascending order.
        values: `(..., m)`, with the same axes before the last. NaN goes to the end.
        right: Whether elements equal to a value count as smaller; None for False.

    Returns:
        `(..., m)`.

    Raises:
        ValueError: The axes before the last differ.
    """
    lead = sorted_sequence.shape[:-1]
    if not sorted_sequence.ndim or not values.ndim or values.shape[:-1] != lead:
        raise ValueError("sorted_sequence and values must have the same shape except along the last axis, got "
                         f"{sorted_sequence.shape} and {values.shape}")
    sequence, sought = alike(sorted_sequence, values)
    rows, count = math.prod(lead), sequence.shape[-1]
    sequence, sought = lax.reshape(sequence, (rows, count)), lax.reshape(sought, (rows, values.shape[-1]))

    def find(row: jax.Array, value: jax.Array) -> jax.Array:
        return jnp.searchsorted(row, value, side="right" if right else "left")

    return lax.reshape(lax.convert_element_type(jax.vmap(find)(sequence, sought), jnp.int32), values.shape)


# ---------------------------------------------------------------- masks


@op
def true_places(mask: AnyShape, /, size: Size, whole: bool = False) -> jax.Array:
    """The indices of the nonzero elements of `mask`, in order.

    Args:
        size: The number of rows returned. Missing ones hold the sizes of the axes, which are out of range.
        whole: Whether all rows do so unless there are exactly `size` elements.

    Returns:
        int32 `(size, mask.ndim)`.
    """
    true = lax.reshape(holds(mask), (mask.size,))
    rank = lax.sub(lax.cumsum(lax.convert_element_type(true, jnp.int32)), np.int32(1))
    outside = np.asarray(mask.shape, np.int32).reshape(1, mask.ndim)
    places = lax.full((size, mask.ndim), 0, jnp.int32) + outside
    if not mask.size:
        return places
    indices = [lax.reshape(lax.broadcasted_iota(jnp.int32, mask.shape, a), (mask.size,)) for a in range(mask.ndim)]
    rows = lax.concatenate([lax.expand_dims(index, (1,)) for index in indices], 1) if indices else lax.full((1, 0), 0)
    to = lax.select(true, rank, lax.full_like(rank, size))
    places = places.at[to].set(lax.convert_element_type(rows, jnp.int32), mode="drop")
    if not whole:
        return places
    fits = lax.eq(rank[-1], np.int32(size - 1))
    return lax.select(lax.broadcast(fits, places.shape), places, lax.full_like(places, 0) + outside)


@op
def true_ranks(mask: AnyShape, /) -> jax.Array:
    """For each nonzero element of `mask`, the number of nonzero ones before it, as int32; -1 for the others."""
    true = lax.reshape(holds(mask), (mask.size,))
    rank = lax.sub(lax.cumsum(lax.convert_element_type(true, jnp.int32)), np.int32(1))
    return lax.reshape(lax.select(true, rank, lax.full_like(rank, -1)), mask.shape)


def _count(mask: Variable, size: int | None) -> tuple[int, bool]:
    """The number of selected elements: `size`, or that of `mask` now; and whether it must be exact."""
    if size is not None:
        return size, False
    return int(np.count_nonzero(known_values(mask))), True


def known_values(x: Variable) -> Any:
    """The value of `x`, which determines the size of the result of function `name`."""
    try:
        return x.data.view
    except ValueError as error:
        raise ValueError(f"the size of the result depends on values that are not known yet. Pass size=. "
                         f"({error})") from None


@composite
def nonzero(x: AnyShape, /, size: Size | None = None) -> Variable:
    """The indices of the nonzero elements, in order.

    Args:
        size: The number of indices; None for as many as there are when the function is applied. If there are more, the
            first ones are returned; if fewer, the rest are the sizes of the axes, which are out of range. With None,
            all are out of range in a later `forward()` with another number.

    Returns:
        int32 `(x.ndim, size)`: for each axis the indices, as `gather_nd` takes them.

    Raises:
        ValueError: `size` is negative, or not given where values are not known, as in the body of a loop.
    """
    count, whole = _count(x, size)
    return movement.transpose(true_places(x, size=count, whole=whole), axes=(1, 0))


@composite
def bool_gather(input: Array, mask: AnyShape, /, size: Size | None = None) -> Variable:
    """The elements, or slices, of `input` where `mask` is not 0, in order.

    Args:
        input: Any shape that begins with the axes of `mask`.
        size: The number of slices; None for as many as there are when the function is applied. If there are more, the
            first ones are returned; if fewer, the rest is 0. With None, all is NaN (in integers, the smallest number)
            in a later `forward()` with another number.

    Returns:
        `(size, n)` with slices of `n` elements, flattened; `(size,)` where `mask` has all axes of `input`.

    Raises:
        ValueError: The shapes do not fit; or `size` is negative, or not given where values are not known, as in a
            loop's body.
    """
    _check_mask(input, mask, "input")
    count, whole = _count(mask, size)
    places = true_places(mask, size=count, whole=whole)
    rest = input.shape[mask.ndim :]
    if len(rest) > 1:
        input = movement.reshape(input, shape=(*mask.shape, math.prod(rest)))
    return slicing.take_points(input, places, axes=tuple(range(mask.ndim)), outside=math.nan if whole else 0)


@composite
def bool_scatter(input: Array, mask: AnyShape, output: Array | None = None, /) -> Variable:
    """An array with the elements, or slices, of `input` where `mask` is not 0: the inverse of `bool_gather`.

    Args:
        input: `(k, *rest)`: as many slices as `mask` has nonzero elements. Missing ones are NaN, and surplus ones are
            ignored.
        output: `(*mask.shape, *rest)`, or with the axes of `rest` not flattened: the values where `mask` is 0; None for
            zeros. If it is a leaf, `forward()` writes the result to it.

    Returns:
        An array in the shape of `output`; without it `(*mask.shape, *rest)`.
    """
    if not input.ndim:
        raise ValueError("input must have at least one axis, got a scalar")
    shape = (*mask.shape, *input.shape[1:])
    if output is not None:
        _check_mask(output, mask, "output")
        if math.prod(output.shape[mask.ndim :]) != math.prod(input.shape[1:]):
            raise ValueError(f"output must have as many elements after the axes of mask {mask.shape} as input "
                             f"{input.shape} has after axis 0, got shape {output.shape}")
        shape = output.shape
    ranks = true_ranks(mask)
    # Where the mask is 0, the index is out of range: nothing is taken, and there is no gradient.
    ranks = where(mask, ranks, array.filled_like(ranks, input.shape[0]))
    y = slicing.take_points(input, movement.reshape(ranks, shape=(*mask.shape, 1)), axes=(0,), outside=math.nan)
    y = y if y.shape == shape else movement.reshape(y, shape=shape)
    selected = movement.reshape(mask, shape=(*mask.shape, *[1] * (len(shape) - mask.ndim)))
    if output is None:
        return where(selected, y, array.zeros_like(y))
    y = where(selected, y, output)
    return control.with_updates(y, {output: y}) if output.parent is None else y


@composite
def bool_fill(data: AnyShape, mask: Array, /, value: Scalar = 0) -> Variable:
    """`data` with `value` where `mask` is not 0; the gradient there is 0.

    Args:
        mask: Any shape that broadcasts to that of `data`.
        value: The value to put there.

    Raises:
        ValueError: `mask` does not broadcast to the shape of `data`.
    """
    if mask.ndim > data.ndim or any(n not in (1, m) for n, m in zip(mask.shape[::-1], data.shape[::-1], strict=False)):
        raise ValueError(f"mask of shape {mask.shape} does not broadcast to the shape of data, {data.shape}")
    aligned = movement.reshape(mask, shape=(*[1] * (data.ndim - mask.ndim), *mask.shape))
    return where(aligned, array.filled_like(data, value), data)


def _check_mask(x: Variable, mask: Variable, name: str) -> None:
    """Raise a ValueError unless `x` begins with the axes of `mask`."""
    if x.shape[: mask.ndim] != mask.shape or not mask.ndim:
        raise ValueError(f"{name} must begin with the axes of mask {mask.shape}, one or more, got shape {x.shape}")


# ---------------------------------------------------------------- distinct elements


@op(multiple_results=True)
def distinct(
    x: AnyShape, /, size: Size, axis: int | None = None, whole: bool = False
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """The unique elements of `x`, or slices along an axis, in ascending order.

    Args:
        size: The number of results. If there are fewer, the smallest is repeated, with a count of 0; if there are none,
            zeros.
        axis: The axis; None for the elements of the flattened `x`.
        whole: Whether all are NaN (in integers, the smallest number) unless there are exactly `size` elements.

    Returns:
        The elements or slices; the index of each one's first occurrence; for each element or slice of `x` its position
        among the distinct ones; and the number of occurrences of each distinct one. The last three are int32.
    """
    if axis is None:
        x, axis = lax.reshape(x, (x.size,)), 0
    axis = axis_of(axis, x.ndim)
    options: dict[str, Any] = {"return_index": True, "return_inverse": True, "return_counts": True, "axis": axis}
    if not x.shape[axis]:  # nothing to repeat
        none = jnp.zeros(size, jnp.int32)
        return jnp.zeros((*x.shape[:axis], size, *x.shape[axis + 1 :]), x.dtype), none, none[:0], none
    y, index, inverse, counts = jnp.unique(x, size=size + 1 if whole else size, **options)
    if whole:  # one additional element shows whether there are more
        fits = jnp.sum(counts > 0) == size
        y = lax.slice_in_dim(y, 0, size, 1, axis)
        index, counts = index[:size], counts[:size]
        kind = np.dtype(y.dtype).kind
        nothing = np.iinfo(y.dtype).min if kind in "iu" else False if kind == "b" else np.nan
        y = lax.select(lax.broadcast(fits, y.shape), y, lax.full_like(y, nothing))
    return (y, *[lax.convert_element_type(jnp.reshape(a, (-1,)), jnp.int32) for a in (index, inverse, counts)])


@composite
def unique(
    x: AnyShape, /, flatten: bool = True, axis: int | None = None, sorted: bool = True, with_index: bool = False,
    with_inverse: bool = False, with_counts: bool = False, size: Size | None = None,
) -> Variable | Any:
    """The unique elements of `x`, or slices along an axis. No gradient passes, since none exists where two are equal.

    Args:
        flatten: Whether to compare the elements of the flattened `x`; else `axis` must be given.
        axis: The axis along which slices are compared, where `flatten` is False.
        sorted: Whether results are in ascending order; else they are in order of first occurrence.
        with_index: Whether to return the indices of first occurrences too.
        with_inverse: Whether to return the position of each element or slice of `x` among the unique ones too.
        with_counts: Whether to return the number of occurrences too.
        size: The number of results; None for as many as there are when the function is applied. If there are fewer, the
            smallest one (or 0 if there is none) is repeated, with a count of 0. With None, elements are NaN (in
            integers, the smallest number) in a later `forward()` with another number.

    Returns:
        The elements or slices, or a tuple of them and the other requested results, as int32.

    Raises:
        ValueError: `flatten` is False and `axis` None, or `axis` is out of range; or `size` is negative, or not given
            where values are not known, as in the body of a loop.
    """
    if not flatten and axis is None:
        raise ValueError("axis is required with flatten=False")
    along = None if flatten or axis is None else axis_of(axis, x.ndim, "axis")
    if size is None:
        count, whole = np.unique(known_values(x), axis=along).shape[0 if along is None else along], True
    else:
        count, whole = _count(x, size)
    y, index, inverse, counts = distinct(x, size=count, axis=along, whole=whole)
    if not sorted and inverse.size:
        y, index, inverse, counts = _in_first_occurrence_order(y, index, inverse, counts, along or 0)
    parts = (y, *[part for part, wanted in ((index, with_index), (inverse, with_inverse), (counts, with_counts))
                  if wanted])
    return parts if len(parts) > 1 else y


def _in_first_occurrence_order(
    y: Variable, index: Variable, inverse: Variable, counts: Variable, axis: int
) -> tuple[Variable, Variable, Variable, Variable]:
    """The same results, in the order of first occurrence."""
    order = argsort(index)
    place = argsort(order)
    return gather(y, order, axis=axis), gather(index, order), gather(place, inverse), gather(counts, order)


# ---------------------------------------------------------------- groups


@composite
def segment_prod(x: AnyArray, segments: Array, /, count: Size) -> Variable:
    """The products of groups of slices along the first axis; 1 for a group without members.

    Its gradient contains no division, so it is right where elements are 0. `scatter_add` and `put_points` have sums.

    Args:
        segments: Whole numbers, (x.shape[0],): the group of each slice. A slice whose number is not from 0 to
            `count - 1` belongs to none.
        count: The number of groups.

    Returns:
        (count, *x.shape[1:]).

    Raises:
        ValueError: `segments` does not have a number for each slice.
    """
    if not x.ndim or segments.shape != x.shape[:1]:
        raise ValueError(f"segments must have a number for each slice of x {x.shape}, got shape {segments.shape}")
    if not x.shape[0]:
        return array.constant(1, shape=(count, *x.shape[1:]), dtype=x.dtype)
    order = argsort(segments)
    numbers, rows = gather(segments, order), gather(x, order)
    begins = movement.concatenate(array.constant(1, shape=(1,)), not_equal(numbers[1:], numbers[:-1]))

    def multiplied(first: tuple[Variable, Variable], second: tuple[Variable, Variable]) -> tuple[Variable, Variable]:
        (begun, product), (begins, y) = first, second
        return maximum2(begun, begins), where(begins, y, product * y)

    _, products = associative_scan(multiplied, (begins, rows))
    groups = as_variable(np.arange(count, dtype=np.int32))
    last = searchsorted(numbers, array.cast(groups, segments.dtype), right=True) - 1
    last = maximum2(last, array.zeros_like(last))
    product_of_group = gather(products, last)
    return where(equal(gather(numbers, last), groups), product_of_group, array.ones_like(product_of_group))
