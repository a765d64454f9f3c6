"""Rules for ops that are linear, move elements or select them; and for slices of joined or assembled arrays: the
derivative by one column of an input then needs no others."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import nngrad.functions as F

from ..functions.axes import axes_of
from ..graph import Op, Variable
from . import products, sums  # noqa: F401 - their rules come first in the list
from .builder import Arguments, HashConsTable, Inputs, Number, rewriting_rule
from .numbers import ZEROS, as_multiple, collectable, emitted_constant, is_zero, movable, multiple, number_of, simplest
from .sums import SUMS

MOVES = (F.reshape, F.broadcast, F.transpose)

# ---------------------------------------------------------------- nothing to do


@rewriting_rule("identities", F.identity)
def _identity(table: HashConsTable, op: Op, inputs: Inputs, arguments: Arguments) -> Variable | None:
    """identity(x) = x"""
    return inputs[0]


@rewriting_rule("idle-movements", *MOVES, F.cast, F.sum, F.mean)
def _idle(table: HashConsTable, op: Op, inputs: Inputs, arguments: Arguments) -> Variable | None:
    """reshape(x) = x where it has that shape, and so for what moves, casts or sums nothing"""
    x, spec, wanted = inputs[0], inputs[0].spec, arguments[0]
    if op is F.transpose:
        same = _order(wanted, spec.ndim) == tuple(range(spec.ndim))
    elif op is F.cast:
        same = wanted == spec.dtype
    elif op is F.broadcast or op is F.reshape:
        same = wanted == spec.shape or (-1 in wanted and op.infer(inputs, arguments)[0] is spec)
    else:
        same = spec.differentiable and op.infer(inputs, arguments)[0] is spec
    return x if same else None


@rewriting_rule("equal-branches", F.where)
def _equal_branches(table: HashConsTable, op: Op, inputs: Inputs, arguments: Arguments) -> Variable | None:
    """where(c, x, x) = x"""
    _, x, other = inputs
    return x if x is other and x.spec.differentiable and op.infer(inputs, arguments)[0] is x.spec else None


# ---------------------------------------------------------------- numbers


@rewriting_rule("constants", *MOVES, F.cast, F.sum, F.mean)
def _constant(table: HashConsTable, op: Op, inputs: Inputs, arguments: Arguments) -> Variable | None:
    """f(a) is a number where a is a number everywhere, and f moves, casts or sums"""
    (x,) = inputs
    number = number_of(x)
    if number is None:
        return None
    (spec,) = op.infer(inputs, arguments)
    if not (spec.differentiable or op in MOVES) or (op is F.mean and not x.size):
        return None
    if op is F.sum:
        number = number * (x.size // spec.size) if spec.size else 0
        if number and not collectable(number, spec):
            return None
    return emitted_constant(table, number, spec)


def passes_numbers(op: Op) -> bool:
    """all ops that are linear in an input, but casts: a scale may be what makes values fit the other dtype"""
    is_linear = (op.linear is True or op.linear == "each") and not op.multiple_results
    return is_linear and op is not F.cast and op is not F.mul_scalar


@rewriting_rule("numbers-out-of-linear", every=passes_numbers)
def _numbers_out(table: HashConsTable, op: Op, inputs: Inputs, arguments: Arguments) -> Variable | None:
    """f(a x) = a f(x) where f is linear in x"""
    number: Number = 1
    moved = None
    for i, x in enumerate(inputs):
        if not x.spec.differentiable or not op.linear_in(i):
            continue
        inner, core = as_multiple(x)
        if inner == 0 and ZEROS not in table.off:
            (spec,) = op.infer(inputs, arguments)
            return emitted_constant(table, 0, spec)
        if inner == 1 or _grows(op, inputs, arguments, x):
            continue
        if not movable(number * inner, x.spec):
                return None  # the rest would move by itself, out of what is emitted with it
        moved = list(inputs) if moved is None else moved
        moved[i] = emitted_constant(table, 1, x.spec) if core is None else core
        number *= inner
    if moved is None:
        return None
    y = table.emit(op, tuple(moved), arguments)
    return multiple(table, y, number) if y.spec.differentiable else None


def _grows(op: Op, inputs: Inputs, arguments: Arguments, x: Variable) -> bool:
    """True if `op` is a matrix product larger than its factor `x`, such as the gradient of a weight in a small batch.
    Multiplying that by a number takes longer than multiplying `x`."""
    return op is F.batch_matmul and op.infer(inputs, arguments)[0].size > x.size


@rewriting_rule("numbers-out-of-where", F.where)
def _numbers_out_of_where(table: HashConsTable, op: Op, inputs: Inputs, arguments: Arguments) -> Variable | None:
    """where(c, a x, a y) = a where(c, x, y), and so where one of the branches is 0"""
    condition, x_true, x_false = inputs
    spec = x_true.spec
    if x_false.spec is not spec or not spec.differentiable:
        return None
    (a, first), (b, second) = as_multiple(x_true), as_multiple(x_false)
    number = a or b
    if number == 1 or not (a == b or is_zero(x_true) or is_zero(x_false)) or not movable(number, spec):
        return None
    branches = [
        x if is_zero(x) else emitted_constant(table, 1, spec) if core is None else core
        for x, core in ((x_true, first), (x_false, second))
    ]
    return multiple(table, table.emit(op, (condition, *branches), arguments), number)


# ---------------------------------------------------------------- movement


@rewriting_rule("composed-movements", *MOVES)
def _composed(table: HashConsTable, op: Op, inputs: Inputs, arguments: Arguments) -> Variable | None:
    """reshape(reshape(x)) = reshape(x), and so for repetition and for transposes"""
    (x,) = inputs
    f = x.parent
    if f is None or f.op is not op or not f.order:
        return None
    (within,) = f.inputs
    if op is F.transpose:  # of the other two the last shape is what counts
        inner = _order(f.arguments[0], x.ndim)
        arguments = (tuple([inner[i] for i in _order(arguments[0], x.ndim)]),)
    y: Variable = table.emit(op, (within,), arguments)
    return y


def _order(axes: tuple[int, ...] | None, ndim: int) -> tuple[int, ...]:
    return tuple(range(ndim))[::-1] if axes is None else tuple([a % ndim for a in axes])


@rewriting_rule("transposes-in-products", F.batch_matmul)
def _transposed(table: HashConsTable, op: Op, inputs: Inputs, arguments: Arguments) -> Variable | None:
    """x' w = a product that reads x transposed"""
    (*flags, matmul_precision), factors = arguments, list(inputs)
    for i, x in enumerate(inputs):
        f = x.parent
        if f is not None and f.op is F.transpose and f.order:
            axes = _order(f.arguments[0], x.ndim)
            if axes == (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2):
                factors[i], flags[i] = f.inputs[0], not flags[i]
    if tuple(flags) == arguments[:2]:
        return None
    y: Variable = table.emit(op, tuple(factors), (*flags, matmul_precision))
    return y


# ---------------------------------------------------------------- selection by ones and zeros


@rewriting_rule("chosen-rows", F.batch_matmul)
def _chosen_rows(table: HashConsTable, op: Op, inputs: Inputs, arguments: Arguments) -> Variable | None:
    """one_hot(i) w = w[i]: rows of a matrix, or its columns where it is read transposed, are taken"""
    chooser, w = inputs
    i = _index_of_one(chooser)
    if i is None or arguments[0] or w.ndim != 2 or w.dtype != chooser.dtype:
        return None
    y: Variable = table.emit(F.take_points, (w, i), ((int(arguments[1]),), 0, 0.0, ()))
    return y


@rewriting_rule("chosen-elements", F.sum)
def _chosen_elements(table: HashConsTable, op: Op, inputs: Inputs, arguments: Arguments) -> Variable | None:
    """sum(one_hot(i) x) = x[..., i], for a sum over the axis that i is an index into"""
    (y,) = inputs
    f, (axis, keepdims) = y.parent, arguments
    if f is None or f.op is not F.mul2 or not f.order or keepdims or axes_of(axis, y.ndim) != (y.ndim - 1,):
        return None
    for chooser, x in (f.inputs, f.inputs[::-1]):
        i = _index_of_one(chooser)
        if i is None or x.ndim != y.ndim - 1 or x.shape[-1] != y.shape[-1] or math.prod(i.shape[1:]) != 1:
            continue
        points = table.emit(F.reshape, (i,), ((i.shape[0], 1),))
        elements: Variable = table.emit(F.take_points, (x, points), ((x.ndim - 1,), 0, 0.0, ()))
        return elements
    return None


def _index_of_one(x: Variable) -> Variable | None:
    """The indices `(..., 1)` if `x` is an emitted `one_hot` of them along its last axis; else None."""
    f = x.parent
    return f.inputs[0] if f is not None and f.op is F.one_hot and f.order and len(f.arguments[0]) == 1 else None


# ---------------------------------------------------------------- sums over axes


@rewriting_rule("sums-of-repeated", F.sum, F.mean)
def _sum_of_broadcast(table: HashConsTable, op: Op, inputs: Inputs, arguments: Arguments) -> Variable | None:
    """sum(broadcast(x)) = n x, where x is repeated n times along the axes that are summed; so for mean"""
    (x,) = inputs
    f = x.parent
    if f is None or f.op is not F.broadcast or not f.order or not x.spec.differentiable:
        return None
    (spec,) = op.infer(inputs, arguments)
    if not spec.size or (op is F.mean and not x.size):
        return None
    (single,), (axis, keepdims), shape = f.inputs, arguments, x.shape
    axes = axes_of(axis, len(shape))
    padded = (1,) * (len(shape) - single.ndim) + single.shape
    repeated = [a for a in axes if padded[a] != shape[a]]
    times = math.prod([shape[a] for a in repeated])
    if not collectable(times, spec):
        return None
    y = table.emit(F.reshape, (single,), (padded,))
    rest = tuple([a for a in axes if a not in repeated])
    if rest:
        y = table.emit(F.sum, (y,), (rest, True))
    y = table.emit(F.broadcast, (y,), (tuple([1 if a in axes else n for a, n in enumerate(shape)]),))
    if not keepdims:
        y = table.emit(F.reshape, (y,), (spec.shape,))
    number = times if op is F.sum else simplest(Fraction(times * spec.size, x.size))
    return y if number == 1 else multiple(table, y, number)

# ---------------------------------------------------------------- slices of what is joined


Window = tuple[int, int, int]
"""The first index along an axis, the count, and the step."""


@rewriting_rule("slices-of-joined", F.take_slices)
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


@rewriting_rule("slices-of-put", F.take_slices)
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
    (x,), (put_key, _) = f.inputs, f.arguments
    places, windows = sliced_windows(key), sliced_windows(put_key)
    if any([_apart(a, b) for a, b in zip(places, windows, strict=True)]):
        return emitted_constant(table, 0, spec)
    if places == windows:
        same: Variable = table.emit(F.reshape, (x,), (spec.shape,))
        return same
    return None


@rewriting_rule("whole-slices", F.take_slices)
def _whole(table: HashConsTable, op: Op, inputs: Inputs, arguments: Arguments) -> Variable | None:
    """x[:] = x"""
    (x,), (key,) = inputs, arguments
    whole = len(key) == x.ndim and all([entry == (0, n, 1) for entry, n in zip(key, x.shape, strict=True)])
    return x if whole else None


def sliced_windows(key: tuple[Any, ...]) -> list[Window]:
    """The window of each sliced axis; an index counts as one of size 1."""
    return [(entry, 1, 1) if isinstance(entry, int) else entry for entry in key if entry is not None]


def shifted_key(key: tuple[Any, ...], axis: int, by: int) -> tuple[Any, ...]:
    """The key with its window or index along an axis shifted."""
    entries, at = [], -1
    for entry in key:
        at += entry is not None
        if at != axis or entry is None:
            entries.append(entry)
        elif isinstance(entry, int):
            entries.append(entry + by)
        else:
            entries.append((entry[0] + by, *entry[1:]))
    return tuple(entries)


def _put(x: Variable) -> Variable | None:
    """The emitted `put_slices` that `x` is a multiple of, or None."""
    _, core = as_multiple(x)
    f = None if core is None else core.parent
    return core if f is not None and f.op is F.put_slices and f.order else None


def _ends(window: Window) -> tuple[int, int]:
    start, count, step = window
    return start, start + (count - 1) * step


def _apart(a: Window, b: Window) -> bool:
    """True if two windows are disjoint, as far as their ends tell."""
    if not (a[1] and b[1]):
        return False
    return max(_ends(a)) < min(_ends(b)) or max(_ends(b)) < min(_ends(a))
