"""Rearranging elements: reshape, transpose, broadcast, join, split and pad."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..graph import AnyArray, AnyShape, Array, Variable, WithAxis, composite, op
from ..graph.arguments import Axes, Dims, Ignored, Ints, Shape, as_ints, one_of
from . import axis_maps, reduction
from .arithmetic import alike
from .axes import axes_of, axis_of, entries, inserts, layers, mixes, reduces, rowwise, stretches
from .transposition import transposed

# ---------------------------------------------------------------- shape


def _reshaped(before: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...] | None:
    return shape if math.prod(before) == math.prod(shape) and min(shape, default=0) >= 0 else None


@op(linear=True, axes=axis_maps.RESHAPED, view=True, shape=_reshaped)
def reshape(x: AnyArray, /, shape: Dims, inplace: Ignored = True) -> jax.Array:
    """The elements of `x`, in their order, in a new shape.

    Args:
        shape: The new shape; one size may be -1, which is inferred.

    Raises:
        TypeError: The new shape has another number of elements.
    """
    return jnp.reshape(x, shape)


def _permuted(before: tuple[int, ...], axes: Sequence[int] | None) -> tuple[int, ...] | None:
    order = range(len(before))[::-1] if axes is None else axes
    return tuple([before[a] for a in order]) if sorted(order) == list(range(len(before))) else None


@op(linear=True, axes=axis_maps.TRANSPOSED, fuses="moving", shape=_permuted)
def transpose(x: AnyArray, /, axes: Ints | None = None) -> jax.Array:
    """The axes of `x` permuted: axis `i` of the result is axis `axes[i]` of `x`.

    Args:
        axes: Each axis once; None reverses the order.

    Raises:
        ValueError: `axes` does not name each axis once.
    """
    order = tuple(range(x.ndim))[::-1] if axes is None else tuple(axis_of(a, x.ndim, "axes:") for a in as_ints(axes))
    if sorted(order) != list(range(x.ndim)):
        raise ValueError(f"axes must be a permutation of the {x.ndim} axes of x, got {axes}")
    return lax.transpose(x, order)


def _repeated(before: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...] | None:
    return shape if np.broadcast_shapes(before, shape) == shape else None


@op(linear=True, axes=axis_maps.REPEATED, fuses="moving", shape=_repeated)
def broadcast(x: AnyArray, /, shape: Shape) -> jax.Array:
    """`x` broadcast to a shape: axes of size 1 are repeated, and leading ones added.

    Raises:
        ValueError: `x` does not broadcast to `shape`.
    """
    return jnp.broadcast_to(x, shape)


@composite
def broadcast_to(x: Array, y: Array, /, axis: int | None = None) -> Variable:
    """`y` broadcast to the shape of `x`.

    Args:
        x: An array of which only the shape is used.
        y: The array to broadcast. Its axes correspond to adjacent ones of `x`, each of the same size or 1.
        axis: The axis of `x` that the first axis of `y` corresponds to; None or -1 aligns the last axes.

    Raises:
        ValueError: The axes of `y` do not fit those of `x`.
    """
    room = x.ndim - y.ndim
    lead = room if axis is None or axis == -1 else axis
    if not 0 <= lead <= room:
        raise ValueError(f"the {y.ndim} axes of y do not fit into the {x.ndim} axes of x at axis {axis}")
    return broadcast(reshape(y, shape=(1,) * lead + y.shape + (1,) * (room - lead)), shape=x.shape)


@composite
def sum_to(x: AnyShape, /, shape: Shape) -> Variable:
    """`x` summed to `shape`, which broadcasts to `x.shape`: the transpose of `broadcast`.

    Raises:
        ValueError: `shape` does not broadcast to that of `x`.
    """
    if x.shape == shape:
        unchanged: Variable = x
        return unchanged
    lead = len(x.shape) - len(shape)
    if lead < 0 or any(n not in (1, m) for n, m in zip(shape, x.shape[lead:], strict=True)):
        raise ValueError(f"shape {shape} does not broadcast to the shape of x, {x.shape}")
    axes = tuple(range(lead)) + tuple(lead + i for i, n in enumerate(shape) if n == 1 and x.shape[lead + i] != 1)
    return reshape(reduction.sum(x, axis=axes), shape=shape)


@composite
def tile(x: AnyArray, /, reps: Ints) -> Variable:
    """`x` repeated as a whole along each axis.

    Args:
        reps: Repetitions along each axis. If their number differs from that of axes, leading ones are added to the
            shorter.

    Raises:
        ValueError: One of `reps` is negative.
    """
    reps = as_ints(reps)
    if any(r < 0 for r in reps):
        raise ValueError(f"reps must not be negative, got {reps}")
    ndim = len(reps) if len(reps) > x.ndim else x.ndim
    reps = (1,) * (ndim - len(reps)) + reps
    shape = (1,) * (ndim - x.ndim) + x.shape
    sizes = list(zip(reps, shape, strict=True))  # only a repeated axis gets another one before it
    apart = reshape(x, shape=tuple(s for r, n in sizes for s in ((n,) if r == 1 else (1, n))))
    repeated = broadcast(apart, shape=tuple(s for r, n in sizes for s in ((n,) if r == 1 else (r, n))))
    return reshape(repeated, shape=tuple(r * n for r, n in sizes))


@op(linear=True, axes=mixes("axes", none=-1), fuses="moving")
def flip(x: AnyArray, /, axes: Axes | None = None) -> jax.Array:
    """The elements in reverse order along axes.

    Args:
        axes: One axis or several; None for the last.
    """
    return lax.rev(x, axes_of(-1 if axes is None else axes, x.ndim, "axes:"))


# ---------------------------------------------------------------- joining and splitting


def _joining() -> Any:
    """The op that joins parts of a concatenation or a stack."""
    return concatenate


@op(linear="together", axes=mixes("axis"), fuses="moving", update_keys=stretches,
    joined_by=_joining)
def concatenate(*x: Array, axis: int = -1) -> jax.Array:
    """Arrays joined along an existing axis, in their common dtype.

    Args:
        x: One or more arrays, of the same sizes except along `axis`.
        axis: The axis; by default the last.
    """
    axis = axis_of(axis, x[0].ndim)
    for i, other in enumerate(x):
        if _without(other.shape, axis) != _without(x[0].shape, axis) or other.ndim != x[0].ndim:
            raise ValueError(f"x[{i}] must match x[0] {x[0].shape} except along axis {axis}, got {other.shape}")
    return lax.concatenate(alike(*x), axis)


@op(linear="together", axes=inserts("axis"), update_keys=layers, joined_by=_joining)
def stack(*x: Array, axis: int = 0) -> jax.Array:
    """Arrays joined along a new axis, in their common dtype.

    Args:
        x: One or more arrays of one shape.
        axis: The position of the new axis in the result.
    """
    axis = axis_of(axis, x[0].ndim + 1)
    for i, other in enumerate(x):
        if other.shape != x[0].shape:
            raise ValueError(f"x[{i}] must have the shape of x[0], {x[0].shape}, got {other.shape}")
    return lax.concatenate([lax.expand_dims(a, (axis,)) for a in alike(*x)], axis)


@op(multiple_results=True, linear=True, axes=reduces("axis", one=True), slice_keys=entries)
def split(x: WithAxis, /, axis: int = 0) -> tuple[jax.Array, ...]:
    """The slices of `x` along an axis, without that axis.

    Returns:
        A tuple of `x.shape[axis]` arrays.

    Raises:
        ValueError: The axis is out of range, or of size 0.
    """
    axis = axis_of(axis, x.ndim)
    if x.shape[axis] == 0:
        raise ValueError(f"cannot split x of shape {x.shape} along axis {axis}: it is empty")
    return tuple([lax.index_in_dim(x, i, axis, keepdims=False) for i in range(x.shape[axis])])


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return shape[:axis] + shape[axis + 1 :]


# ---------------------------------------------------------------- margins

Mode: TypeAlias = Annotated[str, one_of("constant", "reflect", "repeat", "circular")]


@op(axes=axis_maps.PADDED, fuses="moving")
def pad(x: AnyArray, /, pad_width: Ints, mode: Mode = "constant", constant_value: float = 0) -> jax.Array:
    """`x`, padded.

    Args:
        pad_width: `(before, after)` for each axis in turn, flat; fewer apply to the last axes.
        mode: "constant" fills with `constant_value`; "reflect" mirrors at the outermost elements without repeating
            them, repeatedly where the padding is wider than the array; "repeat" repeats the outermost elements;
            "circular" continues with the elements of the other end, as often as needed.
        constant_value: The padding value in constant mode.

    Raises:
        ValueError: The widths are not pairs, negative or too many; an empty axis would be mirrored or repeated; or
            `mode` is unknown.
    """
    widths = _widths(x.shape, as_ints(pad_width), mode)
    if mode == "constant":
        return lax.pad(x, x.dtype.type(constant_value), [(*w, 0) for w in widths])
    return jnp.pad(x, widths, mode={"reflect": "reflect", "repeat": "edge", "circular": "wrap"}[mode])


@op(linear=True, axes=rowwise(axis_maps.padded_axes, shape="shape"))
def pad_transpose(y: Array, /, shape: Shape, pad_width: Ints, mode: Mode = "constant") -> jax.Array:
    """The transpose of `pad` for an array of `shape`: each element is the sum of its copies in `y`.

    Args:
        y: An array in the shape that `pad` returns.
        pad_width: As in `pad`.
        mode: As in `pad`; the padding value of constant mode does not matter.

    Raises:
        ValueError: `y` does not have the shape that `pad` returns, or `pad` would refuse the arguments.
    """
    x: jax.Array = transposed(lambda x: pad.forward(x, pad_width, mode), tuple(shape), y, "y")
    return x


def _widths(shape: tuple[int, ...], pad_width: tuple[int, ...], mode: str) -> list[tuple[int, int]]:
    """`(before, after)` for each axis of `shape`."""
    ndim = len(shape)
    if len(pad_width) % 2 or len(pad_width) > 2 * ndim or any(w < 0 for w in pad_width):
        raise ValueError(f"pad_width must be pairs of nonnegative widths for at most {ndim} axes, got {pad_width}")
    pairs = list(zip(pad_width[::2], pad_width[1::2], strict=True))
    widths = [(0, 0)] * (ndim - len(pairs)) + pairs
    for axis, (n, pair) in enumerate(zip(shape, widths, strict=True)):
        if mode != "constant" and n == 0 and any(pair):
            raise ValueError(f"mode {mode!r} cannot pad axis {axis}, which is empty. Use mode='constant'")
    return widths
