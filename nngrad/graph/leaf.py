"""Leaves: those that are drawn at every forward, those that stand for a given value, and their arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from .in_place import raw_together
from .ndarray import NdArray
from .process import Process, check_process
from .spec import Spec
from .value import values_of
from .variable import Variable, leaf_of


def drawn_leaf(spec: Spec, source: Callable[[], Any], name: str = "") -> Variable:
    """A leaf whose value is drawn from `source` anew at every `forward()`: the key of a random function."""
    x = leaf_of(NdArray.of_spec(spec), name)
    x._source = source
    return x


def arrays_of(leaves: Iterable[Variable], draw: bool = True, often: bool = False) -> list[Any]:
    """The arrays in the leaves' cells, as they are held, all of one moment.

    Keys of random functions are drawn first: all of them, or without `draw` those that never were. Small NumPy arrays
    that are handed over `often` are moved to JAX for good.
    """
    if Process.cannot_compute:  # which costs less than a call, and all that runs comes by here
        check_process()
    cells = []
    keys: dict[int, Any] = {}
    for i, x in enumerate(leaves):
        cell = x.cell
        cells.append(cell)
        if x._source is not None and (draw or cell.is_zero):
            keys[i] = x._source()
            cell.put(keys[i])
    values = values_of(cells)
    if often:
        for i, value in enumerate(values):
            if i not in keys:
                value.as_jax()
    arrays = raw_together(values)
    for i, key in keys.items():
        arrays[i] = key  # not another's that draws at the same time
    return arrays


def arrays_in(cells: Iterable[NdArray]) -> list[Any]:
    """The arrays in several cells, as they are held, all of one moment."""
    return raw_together(values_of(cells))


def as_variable(value: object, name: str = "x", op: str = "") -> Variable:
    """`value` itself if it is a Variable, else a constant leaf with it."""
    if isinstance(value, Variable):
        return value
    where = f"{op}: " if op else ""
    if value is None or isinstance(value, str | bytes):
        raise TypeError(f"{where}{name} must be a Variable, an array or a number, got {value!r}")
    if isinstance(value, list | tuple) and any(isinstance(v, Variable) for v in value):
        raise TypeError(f"{where}{name} is a list of Variables; join them with F.stack or F.concatenate")
    try:
        return leaf_of(NdArray.from_numpy_array(value))
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{where}{name} must be a Variable, an array or a number, got {value!r} ({error})") from error
