"""Primitives that only move elements: reshapes, transpositions, slices, padding."""

from __future__ import annotations

from typing import Any

from ... import functions as F
from ...extend import Variable
from .registry import JaxprEquation, opens, require, scalar, variable


@opens("device_put", takes_known=True)
def _device_put(equation: JaxprEquation, *xs: Any) -> list[Any]:
    devices = equation.params.get("devices", ())
    require(all([d is None for d in devices]), "it names a device")
    return list(xs)


@opens("copy", "name", "sharding_constraint", "layout_constraint", "pvary", "pbroadcast", takes_known=True)
def _same(equation: JaxprEquation, x: Any) -> Any:
    return x


@opens("optimization_barrier", takes_known=True)
def _same_each(equation: JaxprEquation, *xs: Any) -> list[Any]:
    return list(xs)


def reshaped_once(x: Variable, shape: tuple[int, ...]) -> Variable:
    """Reshape `x`; a chain of reshapes becomes one."""
    if x.shape == shape:
        return x
    if x.parent is not None and x.parent.op is F.reshape:
        x = x.parent.inputs[0]
    return x if x.shape == shape else F.reshape(x, shape=shape)


@opens("broadcast_in_dim")
def _broadcast_in_dim(equation: JaxprEquation, x: Variable, *sizes: Any) -> Variable:
    require(not sizes, "its sizes depend on values")
    shape = equation.shape
    widened = [1] * len(shape)
    for axis, n in zip(equation.params["broadcast_dimensions"], x.shape, strict=True):
        widened[int(axis)] = n
    y = reshaped_once(x, tuple(widened))
    return y if y.shape == shape else F.broadcast(y, shape=shape)


@opens("reshape", "squeeze")
def _reshape(equation: JaxprEquation, x: Variable, *sizes: Any) -> Variable:
    require(not sizes, "its sizes depend on values")
    order = equation.params.get("dimensions") if equation.name == "reshape" else None
    if order is not None:
        x = transposed_once(x, tuple(map(int, order)))
    return reshaped_once(x, equation.shape)


@opens("transpose")
def _transpose(equation: JaxprEquation, x: Variable) -> Variable:
    return transposed_once(x, tuple([int(a) for a in equation.params["permutation"]]))


def transposed_once(x: Variable, order: tuple[int, ...]) -> Variable:
    """Transpose `x`; a chain of transpositions becomes one, and the transpose of a matrix product becomes a product."""
    ndim = x.ndim
    f = x.parent
    if f is not None and f.op is F.transpose:
        inner = [a % ndim for a in f.args["axes"]]
        x, order = f.inputs[0], tuple([inner[a] for a in order])
        f = x.parent
    if order == tuple(range(ndim)):
        return x
    if f is not None and f.op is F.batch_matmul and order == (*range(ndim - 2), ndim - 1, ndim - 2):
        a, b = f.inputs
        if a.ndim == b.ndim:
            transpose_a, transpose_b, how = f.arguments
            return F.batch_matmul(b, a, not transpose_b, not transpose_a, how)
    return F.transpose(x, axes=order)


@opens("concatenate")
def _concatenate(equation: JaxprEquation, *xs: Variable) -> Variable:
    if equation.dtype == bool and len({x.dtype for x in xs}) > 1:
        xs = tuple([F.cast(x, dtype=bool) for x in xs])
    return F.concatenate(*xs, axis=int(equation.params["dimension"])) if len(xs) > 1 else xs[0]


@opens("stack")
def _stack(equation: JaxprEquation, *xs: Variable) -> Variable:
    if equation.dtype == bool:
        xs = tuple([F.cast(x, dtype=bool) for x in xs])
    return F.stack(*xs, axis=int(equation.params["axis"]))


@opens("tile")
def _tile(equation: JaxprEquation, x: Variable) -> Variable:
    return F.tile(x, reps=tuple(equation.params["reps"]))


@opens("slice")
def _slice(equation: JaxprEquation, x: Variable) -> Variable:
    starts, stops = equation.params["start_indices"], equation.params["limit_indices"]
    steps = equation.params["strides"] or (1,) * len(starts)
    return sliced(x, [
        (int(a), -(-(int(b) - int(a)) // int(s)), int(s)) for a, b, s in zip(starts, stops, steps, strict=True)
    ])  # fmt: skip


def sliced(x: Variable, key: list[tuple[int, int, int]]) -> Variable:
    """Slice each axis by `(start, count, step)`."""
    if all([entry == (0, n, 1) for entry, n in zip(key, x.shape, strict=True)]):
        return x
    return F.take_slices(x, key=tuple(key))


@opens("split")
def _split(equation: JaxprEquation, x: Variable) -> list[Variable]:
    axis, start, parts = int(equation.params["axis"]), 0, []
    for n in equation.params["sizes"]:
        parts.append(sliced(x, [(start, int(n), 1) if a == axis else (0, m, 1) for a, m in enumerate(x.shape)]))
        start += int(n)
    return parts


@opens("unstack")
def _unstack(equation: JaxprEquation, x: Variable) -> list[Variable]:
    axis = int(equation.params["axis"])
    keys = [[(k, 1, 1) if a == axis else (0, n, 1) for a, n in enumerate(x.shape)] for k in range(x.shape[axis])]
    return [reshaped_once(sliced(x, key), equation.shape) for key in keys]


@opens("rev")
def _rev(equation: JaxprEquation, x: Variable) -> Variable:
    axes = tuple([int(a) for a in equation.params["dimensions"]])
    return F.flip(x, axes=axes) if axes else x


@opens("pad", takes_known=True)
def _pad(equation: JaxprEquation, operand: Any, value: Any) -> Variable:
    x, fill = variable(operand), scalar(value)
    widths = [(int(low), int(high), int(inner)) for low, high, inner in equation.params["padding_config"]]
    if any([inner for *_, inner in widths]):
        spread = tuple([(n - 1) * (inner + 1) + 1 if n else 0 for n, (*_, inner) in zip(x.shape, widths, strict=True)])
        key = tuple([(0, n, inner + 1) for n, (*_, inner) in zip(x.shape, widths, strict=True)])
        require(fill == 0, "it puts other numbers than zeros between elements")
        x = F.put_slices(x, key=key, shape=spread)
    cut = [
        (max(-low, 0), n - max(-low, 0) - max(-high, 0), 1) for n, (low, high, _) in zip(x.shape, widths, strict=True)
    ]
    require(all([n >= 0 for _, n, _ in cut]), "it removes all elements")
    x = sliced(x, cut)
    added = [(max(low, 0), max(high, 0)) for low, high, _ in widths]
    if not any([low or high for low, high in added]):
        return x
    if fill is not None:
        return F.pad(x, pad_width=tuple([w for pair in added for w in pair]), constant_value=fill)
    require(x.spec.differentiable, "it pads integers by an unknown value")
    zeros = tuple([w for pair in added for w in pair])
    edge = F.r_sub_scalar(F.pad(F.ones_like(x), pad_width=zeros), val=1.0)
    return F.add2(F.pad(x, pad_width=zeros), F.mul2(edge, variable(value)))
