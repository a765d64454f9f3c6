"""Functions that take or return lists of arrays, composed of other functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..graph import Variable
from ..graph.arguments import Ints, as_int, as_ints
from ..graph.leaf import as_variables
from ..graph.signatures import explained_by_name
from .axes import axis_of
from .movement import broadcast, concatenate, pad, reshape, stack, transpose


def variables_of(xs: Sequence[Any], function: str, name: str = "xs") -> list[Variable]:
    """The arrays in a list, or along the first axis of one array, as Variables: at least one."""
    if isinstance(xs, Variable):
        xs = [xs[i] for i in range(xs.shape[0])] if xs.ndim else []
    if isinstance(xs, str | bytes) or not hasattr(xs, "__iter__"):
        raise TypeError(f"{function}: {name} must be a list of Variables or arrays, got {xs!r}")
    listed = list(xs)
    if not listed:
        raise ValueError(f"{function}: {name} must not be empty")
    return list(as_variables(listed, [f"{name}[{i}]" for i in range(len(listed))], function))


def _checked_arrays(xs: tuple[Any, ...], function: str) -> list[Variable]:
    """Arguments given one by one, or as one list."""
    return variables_of(xs[0] if len(xs) == 1 and isinstance(xs[0], list | tuple) else xs, function)


# ---------------------------------------------------------------- joining


@explained_by_name
def hstack(*xs: Any) -> Variable:
    """Arrays joined along the second axis, or along the first if they have only one.

    Args:
        xs: Variables or arrays, one by one or in a list, of the same sizes except along that axis.

    Raises:
        ValueError: The shapes do not fit, or there is no array.
    """
    arrays = [reshape(x, shape=(1,)) if x.ndim == 0 else x for x in _checked_arrays(xs, "hstack")]
    return concatenate(*arrays, axis=min(1, arrays[0].ndim - 1))


@explained_by_name
def vstack(*xs: Any) -> Variable:
    """Arrays joined along the first axis; one-dimensional ones count as rows.

    Args:
        xs: Variables or arrays, one by one or in a list, of the same sizes except along that axis.

    Raises:
        ValueError: The shapes do not fit, or there is no array.
    """
    arrays = [reshape(x, shape=(1, x.size)) if x.ndim < 2 else x for x in _checked_arrays(xs, "vstack")]
    return concatenate(*arrays, axis=0)


@explained_by_name
def dstack(*xs: Any) -> Variable:
    """Arrays joined along the third axis: (n,) counts as (1, n, 1), and (m, n) as (m, n, 1).

    Args:
        xs: Variables or arrays, one by one or in a list, of the same sizes except along that axis.

    Raises:
        ValueError: The shapes do not fit, or there is no array.
    """
    arrays = [
        x if x.ndim > 2 else reshape(x, shape=(*x.shape, 1) if x.ndim == 2 else (1, x.size, 1))
        for x in _checked_arrays(xs, "dstack")
    ]
    return concatenate(*arrays, axis=2)


@explained_by_name
def broadcast_arrays(*xs: Any) -> tuple[Variable, ...]:
    """The arrays, broadcast to their common shape.

    Args:
        xs: Variables or arrays, one by one or in a list.

    Raises:
        ValueError: The shapes do not broadcast, or there is no array.
    """
    arrays = _checked_arrays(xs, "broadcast_arrays")
    try:
        shape = np.broadcast_shapes(*[x.shape for x in arrays])
    except ValueError:
        shapes = " ".join(str(x.shape) for x in arrays)
        raise ValueError(f"broadcast_arrays: the shapes {shapes} do not broadcast together") from None
    return tuple([x if x.shape == shape else broadcast(x, shape=shape) for x in arrays])


# ---------------------------------------------------------------- splitting


@explained_by_name
def get_item(x: Variable, slices: Any) -> Variable:
    """`x[slices]`, with NumPy's basic and advanced indexing.

    Args:
        x: Any array.
        slices: An index, or a tuple or a list of them; a list of whole numbers is one index.

    Raises:
        IndexError: An index is out of range, or not an index.
    """
    (x,) = as_variables((x,), ("x",), "get_item")
    several = isinstance(slices, list) and not all([isinstance(entry, int) for entry in slices])
    result: Variable = x[tuple(slices) if several else slices]
    return result


@explained_by_name
def split_axis(
    x: Variable, indices_or_sections: Ints, axis: int, force_tuple: bool = True
) -> tuple[Variable, ...] | Variable:
    """`x` split into parts along an axis, which the parts keep.

    Args:
        x: Any shape of at least one axis.
        indices_or_sections: The number of equal parts; or the indices at which to cut, in ascending order.
        axis: The axis.
        force_tuple: Whether a single part is returned as a tuple of one.

    Raises:
        ValueError: The axis is out of range, or cannot be split in this way.
    """
    (x,) = as_variables((x,), ("x",), "split_axis")
    axis = axis_of(as_int(axis), x.ndim, "split_axis: axis")
    size = x.shape[axis]
    if isinstance(indices_or_sections, int | np.integer):
        sections = int(indices_or_sections)
        if sections < 1 or size % sections:
            raise ValueError(f"split_axis: indices_or_sections must divide size {size} of axis {axis}, got {sections}. "
                             "For unequal parts, pass the indices at which to cut")
        cuts = [size // sections * i for i in range(1, sections)]
    else:
        cuts = list(as_ints(indices_or_sections))
        if cuts != sorted(cuts) or any(not 0 <= i <= size for i in cuts):
            raise ValueError(f"split_axis: indices_or_sections must ascend and lie between 0 and {size}, got {cuts}")
    whole = (slice(None),) * axis
    parts = tuple([x[(*whole, slice(a, b))] for a, b in zip([0, *cuts], [*cuts, size], strict=True)])
    return parts if force_tuple or len(parts) > 1 else parts[0]


# ---------------------------------------------------------------- sequences


@explained_by_name
def pad_sequence(xs: Sequence[Any], length: int | None = None, padding: float = 0) -> Variable:
    """Sequences of different lengths in one array, padded at the end with a number.

    Args:
        xs: A list of arrays (steps, *step), with any number of steps each.
        length: The length to pad to; None for that of the longest.
        padding: The number to pad with.

    Returns:
        (len(xs), length, *step).

    Raises:
        ValueError: A sequence is longer than `length`, or steps differ in shape.
    """
    sequences = variables_of(xs, "pad_sequence")
    for i, x in enumerate(sequences):
        if not x.ndim or x.shape[1:] != sequences[0].shape[1:]:
            raise ValueError(f"pad_sequence: xs[{i}] must match xs[0] {sequences[0].shape} from axis 1 on, got "
                             f"{x.shape}")
    longest = max([x.shape[0] for x in sequences])
    length = longest if length is None else as_int(length)
    if longest > length:
        raise ValueError(f"pad_sequence: length must be at least {longest}, the longest of xs, got {length}")
    margins = [(0, length - x.shape[0], *(0,) * (2 * x.ndim - 2)) for x in sequences]
    return stack(*[
        pad(x, margin, constant_value=padding) if any(margin) else x
        for x, margin in zip(sequences, margins, strict=True)
    ])


@explained_by_name
def transpose_sequence(xs: Sequence[Any]) -> list[Variable]:
    """A transposed list of sequences: item t of the result holds step t of every sequence that is long enough.

    Args:
        xs: A list of arrays (steps, *step), the longest first.

    Returns:
        One array for each step of the longest sequence.

    Raises:
        ValueError: A sequence is longer than the one before it, or steps differ in shape.
    """
    sequences = variables_of(xs, "transpose_sequence")
    steps = pad_sequence(sequences)
    steps = transpose(steps, axes=(1, 0, *range(2, steps.ndim)))
    lengths = [x.shape[0] for x in sequences]
    if lengths != sorted(lengths, reverse=True):
        raise ValueError(f"transpose_sequence: xs must be sorted by length, longest first, got lengths {lengths}")
    return [steps[t, : sum(n > t for n in lengths)] for t in range(lengths[0])]
