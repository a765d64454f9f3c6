"""Rules for slices of what is joined or put together: derivatives by one column of an input need those by no other."""

from __future__ import annotations

from typing import Any

import nngrad.functions as F

from ..graph import Op, Variable
from . import linear  # noqa: F401 - its rules come first in the list
from .builder import HashConsTable
from .numbers import as_multiple, emitted_constant, is_zero
from .rules import Arguments, Inputs, rule
from .sums import SUMS

Window = tuple[int, int, int]
"""The first place along an axis, how many, and how far apart."""


@rule("slices-of-joined", F.take_slices)
def _of_joined(table: HashConsTable, op: Op, inputs: Inputs, arguments: Arguments) -> Variable | None:
    """concatenate(x, y)[part of x] = x[part]: of what is joined, that which a slice is of"""
    (joined,), (key,) = inputs, arguments
    f = joined.parent
    if f is None or f.op is not F.concatenate or not f.order:
        return None
    axis = f.arguments[0] % joined.ndim
    places = sliced_windows(key)
    first, last = min(ends := _ends(places[axis])), max(ends)
    start = 0
    for x in f.inputs:
        if places[axis][1] and start <= first and last < start + x.shape[axis] and x.dtype == joined.dtype:
            y: Variable = table.emit(op, (x,), (shifted_key(key, axis, -start),))
            return y
        start += x.shape[axis]
    return None


@rule("slices-of-put", F.take_slices)
def _of_put(table: HashConsTable, op: Op, inputs: Inputs, arguments: Arguments) -> Variable | None:
    """put_slices(x)[where it is put] = x, and 0 elsewhere; so for sums of such"""
    (whole,), (key,) = inputs, arguments
    f = whole.parent
    if f is None or not f.order or not whole.spec.differentiable:
        return None
    (spec,) = op.infer(inputs, arguments)
    if f.op in SUMS and all([x.spec is whole.spec and _put(x) is not None for x in f.inputs]):
        parts = [table.emit(op, (x,), arguments) for x in f.inputs]
        if not any([is_zero(x) for x in parts]):
            return None
        y: Variable = table.emit(f.op, tuple(parts), f.arguments)
        return y
    if f.op is not F.put_slices:
        return None
    (x,), (own, _) = f.inputs, f.arguments
    places, given = sliced_windows(key), sliced_windows(own)
    if any([_apart(a, b) for a, b in zip(places, given, strict=True)]):
        return emitted_constant(table, 0, spec)
    if places == given:
        same: Variable = table.emit(F.reshape, (x,), (spec.shape,))
        return same
    return None


@rule("whole-slices", F.take_slices)
def _whole(table: HashConsTable, op: Op, inputs: Inputs, arguments: Arguments) -> Variable | None:
    """x[:] = x"""
    (x,), (key,) = inputs, arguments
    whole = len(key) == x.ndim and all([entry == (0, n, 1) for entry, n in zip(key, x.shape, strict=True)])
    return x if whole else None


def sliced_windows(key: tuple[Any, ...]) -> list[Window]:
    """The window of each axis that is sliced; an index is one of size 1."""
    return [(entry, 1, 1) if isinstance(entry, int) else entry for entry in key if entry is not None]


def shifted_key(key: tuple[Any, ...], axis: int, by: int) -> tuple[Any, ...]:
    """The key with what it takes along an axis moved."""
    found, at = [], -1
    for entry in key:
        at += entry is not None
        if at != axis or entry is None:
            found.append(entry)
        elif isinstance(entry, int):
            found.append(entry + by)
        else:
            found.append((entry[0] + by, *entry[1:]))
    return tuple(found)


def _put(x: Variable) -> Variable | None:
    """What a multiple of some `put_slices` is a multiple of, if that is emitted; else None."""
    _, core = as_multiple(x)
    f = None if core is None else core.parent
    return core if f is not None and f.op is F.put_slices and f.order else None


def _ends(window: Window) -> tuple[int, int]:
    start, count, step = window
    return start, start + (count - 1) * step


def _apart(a: Window, b: Window) -> bool:
    """Whether two windows have no place in common, as far as their ends tell."""
    if not (a[1] and b[1]):
        return False
    return max(_ends(a)) < min(_ends(b)) or max(_ends(b)) < min(_ends(a))
