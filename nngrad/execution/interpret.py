"""Op by op: every function is run by itself, in rank order, with real arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from ..graph import Function, Op, Variable, functions_of
from .compiled import BoundedCache, on_device
from .forward import Hook, Snapshot

single_ops = BoundedCache(4096)
"""Executables of single ops, by op, arguments and device."""


def executable_of_op(
    op: Op, arguments: tuple[Any, ...], device: jax.Device | None, wide: bool
) -> Callable[..., Any]:
    """The executable of one op."""
    result: Callable[..., Any] = single_ops.get(
        (op, arguments, device, wide), lambda: on_device(device, wide, jax.jit(op.bind(arguments)))
    )
    return result


def run_function(f: Function) -> None:
    """Compute the outputs of `f` from the data of its inputs, and apply its effects."""
    for x in f.inputs:
        if x._source is not None and x.cell.is_zero:
            x.cell.put(x._source())
    arrays = [x.data.raw() for x in f.inputs]
    outputs = f.outputs
    results = results_of(f, arrays)
    for y, result in zip(outputs, results, strict=True):
        y.cell.put(result)
        y._at = f.snapshot
    for leaf, index in f.effects:
        leaf.cell.put(results[index])


def results_of(f: Function, arrays: Sequence[Any]) -> tuple[Any, ...]:
    """The outputs of `f` for given input arrays."""
    wide = any(s.wide for s in f.specs) or any(x.spec.wide for x in f.inputs)
    device = None if f.context is None else f.context.device
    out = executable_of_op(f.op, f.arguments, device, wide)(*arrays)
    return tuple(out) if f.op.several else (out,)


def interpret(outputs: Sequence[Variable], snapshot: Snapshot, before: Hook = None, after: Hook = None) -> None:
    """Run the graph above `outputs` from a snapshot, calling the hooks around every function."""
    leaves = snapshot.by_leaf()
    promised: list[Any] = []
    values: dict[tuple[Function, int], Any] = {}
    functions = functions_of(outputs)
    for f in functions:
        if before is not None:
            before(f)
        arrays = [leaves[id(x)] if x.parent is None else values[x.parent, x.index] for x in f.inputs]
        for i, (y, result) in enumerate(zip(f.outputs, results_of(f, arrays), strict=True)):
            values[f, i] = result
            if not any(y is o for o in outputs):
                y.cell.put(result)
            y._at = snapshot
        if after is not None:
            after(f)
    promised = [values[y.parent, y.index] for y in outputs if y.parent is not None]
    promised += [values[f, index] for f in functions for _, index in f.effects]
    assert snapshot.promise is not None
    snapshot.promise.keep(promised)
