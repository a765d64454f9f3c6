"""Adding, removing and moving axes, and repeating and shifting elements, by reshape, transpose and broadcast."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from ..graph import AnyArray, Array, Variable, composite
from ..graph.arguments import AtLeastOne, Axes, Ints, as_ints, one_of
from .axes import axes_of, axis_of
from .movement import broadcast, reshape, transpose

# ---------------------------------------------------------------- axes of size 1


@composite
def expand_dims(x: AnyArray, /, axis: Axes) -> Variable:
    """`x` with additional axes of size 1.

    Args:
        axis: Their positions in the result: one or several.
    """
    ndim = x.ndim + (1 if isinstance(axis, int) else len(axis))
    new, sizes = axes_of(axis, ndim, "axis"), iter(x.shape)
    return reshape(x, shape=tuple([1 if i in new else next(sizes) for i in range(ndim)]))


@composite
def squeeze(x: AnyArray, /, axis: Axes | None = None) -> Variable:
    """`x` without axes of size 1.

    Args:
        axis: One axis or several; None for all.

    Raises:
        ValueError: An axis is out of range, named twice, or not of size 1.
    """
    if axis is None:
        gone = tuple([i for i, n in enumerate(x.shape) if n == 1])
    else:
        gone = axes_of(axis, x.ndim, "axis")
        for i in gone:
            if x.shape[i] != 1:
                raise ValueError(f"axis must be of size 1, got axis {i} of shape {x.shape}")
    return reshape(x, shape=tuple([n for i, n in enumerate(x.shape) if i not in gone]))


@composite
def flatten(x: AnyArray, /) -> Variable:
    """The elements of `x`, in order, along one axis."""
    return reshape(x, shape=(x.size,))


# ---------------------------------------------------------------- the order of axes


@composite
def moveaxis(x: AnyArray, /, source: Ints, destination: Ints) -> Variable:
    """`x` with some axes moved; the others keep their order.

    Args:
        source: The axes, one or several.
        destination: Their positions in the result.

    Raises:
        ValueError: The numbers of both differ, or an axis is out of range or named twice.
    """
    old, new = _each(source, x.ndim, "source"), _each(destination, x.ndim, "destination")
    if len(old) != len(new):
        raise ValueError(f"source and destination must have equally many axes, got {len(old)} and {len(new)}")
    return _in_order(x, _moved(x.ndim, dict(zip(new, old, strict=True))))


def _each(axes: Ints, ndim: int, name: str) -> tuple[int, ...]:
    """Axes as nonnegative numbers, in the given order."""
    axes_of(axes, ndim, name)
    return tuple([axis_of(a, ndim, name) for a in as_ints(axes)])


def _in_order(x: Variable, order: tuple[int, ...]) -> Variable:
    """`x` with its axes in this order; `x` itself if they already are."""
    return x if order == tuple(range(x.ndim)) else transpose(x, axes=order)


def _moved(ndim: int, places: dict[int, int]) -> tuple[int, ...]:
    """An order of axes in which some have given places: for each place, the axis."""
    others = iter([i for i in range(ndim) if i not in places.values()])
    return tuple([places[i] if i in places else next(others) for i in range(ndim)])


@composite
def swapaxes(x: AnyArray, /, axis1: int, axis2: int) -> Variable:
    """`x` with two axes exchanged.

    Args:
        axis1: An axis.
        axis2: Another one.

    Raises:
        ValueError: An axis is out of range.
    """
    one, other = axis_of(axis1, x.ndim, "axis1"), axis_of(axis2, x.ndim, "axis2")
    places = list(range(x.ndim))
    places[one], places[other] = other, one
    return _in_order(x, tuple(places))


# ---------------------------------------------------------------- repetition, and blocks of pixels


@composite
def repeat(x: AnyArray, /, repeats: Ints, axis: int | None = None) -> Variable:
    """Each element, or each slice along an axis, repeated consecutively.

    Args:
        repeats: The number of repetitions: one number, or one for each index along the axis.
        axis: The axis; None repeats the elements of the flattened `x`.

    Raises:
        ValueError: A number is negative, their count is not that of indices, or the axis is out of range.
    """
    if axis is None:
        x, axis = flatten(x), 0
    axis, counts = axis_of(axis, x.ndim, "axis"), as_ints(repeats)
    if any(n < 0 for n in counts):
        raise ValueError(f"repeats must not be negative, got {repeats}")
    size, before, behind = x.shape[axis], x.shape[:axis], x.shape[axis + 1 :]
    if len(counts) == 1:
        apart = broadcast(reshape(x, shape=(*before, size, 1, *behind)), shape=(*before, size, counts[0], *behind))
        return reshape(apart, shape=(*before, size * counts[0], *behind))
    if len(counts) != size:
        raise ValueError(f"repeats must have {size} entries for axis {axis} of x of shape {x.shape}, got {len(counts)}")
    taken: Variable = x[(*[slice(None)] * axis, [i for i, n in enumerate(counts) for _ in range(n)])]
    return taken


@composite
def depth2space(x: Array, /, r: AtLeastOne) -> Variable:
    """Channels rearranged into blocks of pixels: (n, c r^2, h, w) becomes (n, c, h r, w r).

    Channel (i r + j) c + k gives pixel (i, j) of each block in channel k.

    Args:
        x: Images, channels first.
        r: The width and height of a block in pixels.

    Raises:
        ValueError: `x` does not have four axes, or its number of channels is not a multiple of r^2.
    """
    n, depth, height, width = _image(x)
    if depth % r**2:
        raise ValueError(f"the number of channels must be a multiple of r^2 = {r**2}, got {depth}")
    blocks = transpose(reshape(x, shape=(n, r, r, depth // r**2, height, width)), axes=(0, 3, 4, 1, 5, 2))
    return reshape(blocks, shape=(n, depth // r**2, height * r, width * r))


@composite
def space2depth(x: Array, /, r: AtLeastOne) -> Variable:
    """Blocks of pixels rearranged into channels: the inverse of `depth2space`.

    Args:
        x: Images, channels first.
        r: The width and height of a block in pixels.

    Raises:
        ValueError: `x` does not have four axes, or height or width is not a multiple of `r`.
    """
    n, depth, height, width = _image(x)
    if height % r or width % r:
        raise ValueError(f"height and width must be multiples of r = {r}, got {height} and {width}")
    blocks = reshape(x, shape=(n, depth, height // r, r, width // r, r))
    return reshape(transpose(blocks, axes=(0, 3, 5, 1, 2, 4)), shape=(n, depth * r**2, height // r, width // r))


def _image(x: Variable) -> tuple[int, ...]:
    """The shape of images, checked to have four axes."""
    if x.ndim != 4:
        raise ValueError(f"x must have four axes, (batch, channels, height, width), got shape {x.shape}")
    shape: tuple[int, ...] = x.shape
    return shape


# ---------------------------------------------------------------- shifts


@composite
def shift(
    x: AnyArray, /, shifts: Ints | None = None, border_mode: Annotated[str, one_of("nearest", "reflect")] = "nearest"
) -> Variable:
    """`x` shifted along its last axes: the element at i moves to i + shift, and vacated positions are filled.

    Chainer's function of this name is different: it shifts each channel to a position of a kernel, which is
    `depthwise_convolution` with a single 1 in the kernel of each channel.

    Args:
        shifts: The shifts along the last axes, as many as there are entries; negative ones move towards the front. None
            for 0.
        border_mode: "nearest" repeats the outermost elements; "reflect" mirrors at the borders, so that the outermost
            elements occur twice.

    Returns:
        The shape of x.

    Raises:
        ValueError: There are more shifts than axes, an empty axis would be shifted, or `border_mode` is unknown.
    """
    shifts = as_ints(shifts or ())
    if len(shifts) > x.ndim:
        raise ValueError(f"shifts must have at most {x.ndim} entries, one for each axis of x, got {shifts}")
    y: Variable = x
    for axis, by in enumerate(shifts, x.ndim - len(shifts)):
        n = x.shape[axis]
        if by and not n:
            raise ValueError(f"cannot shift x of shape {x.shape} along axis {axis}: it is empty")
        if by:
            places = np.arange(n) - by
            if border_mode == "nearest":
                places = places.clip(0, n - 1)
            else:
                places = np.minimum(places % (2 * n), (-1 - places) % (2 * n))
            y = y[(*[slice(None)] * axis, places)]
    return y
