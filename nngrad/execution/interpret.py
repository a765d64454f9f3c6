"""Op by op: every function is run by itself, in rank order, with real arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from ..graph import Function, Op, Variable, functions_of, rooms
from ..graph.leaf import arrays_of
from ..graph.spec import is_wide
from .compiled import BoundedCache, on_device

Hook = Callable[[Function], None] | None

single_ops = BoundedCache(4096)
"""Executables of single ops, by op, arguments and device."""


def executable_of_op(op: Op, arguments: tuple[Any, ...], device: jax.Device | None, wide: bool) -> Callable[..., Any]:
    """The executable of one op."""
    result: Callable[..., Any] = single_ops.get(
        (op, arguments, device, wide), lambda: on_device(device, wide, jax.jit(op.bind(arguments)))
    )
    return result


def results_of(f: Function, arrays: Sequence[Any]) -> tuple[Any, ...]:
    """The outputs of `f` for given input arrays."""
    wide = any([s.wide for s in f.specs]) or any([x.spec.wide for x in f.inputs]) or is_wide(f.arguments)
    device = None if f.context is None else f.context.device
    out = executable_of_op(f.op, f.arguments, device, wide)(*arrays)
    return tuple(out) if f.op.several else (out,)


def run_function(f: Function) -> None:
    """Compute the outputs of `f` from the data of its inputs, and apply its effects."""
    for x in f.inputs:
        if x.parent is not None and not x.is_computed:
            rooms.engine.evaluate(x)
    results = results_of(f, arrays_of(f.inputs, draw=False))
    for y, result in zip(f.outputs, results, strict=True):
        y.cell.put(result)
    for leaf, index in f.effects:
        leaf.cell.put(results[index])


def interpret(
    outputs: Sequence[Variable],
    leaves: dict[int, Any],
    before: Hook = None,
    after: Hook = None,
    hooked: Callable[[Function], bool] = lambda f: True,
    computed: Callable[[Function, tuple[Any, ...]], None] | None = None,
) -> list[Any]:
    """Run the graph above `outputs` op by op, and return their arrays.

    Args:
        outputs: What to compute.
        leaves: Arrays of the leaves, by the leaves' ids; another leaf's is read from its cell.
        before, after: Called with each function around its run.
        hooked: Which functions they are called with.
        computed: Called with each function and its results.
    """
    values: dict[tuple[Function, int], Any] = {}

    def value(x: Variable) -> Any:
        if x.parent is not None:
            return values[x.parent, x.index]
        return leaves[id(x)] if id(x) in leaves else x.cell.raw()

    for f in functions_of(outputs):
        if before is not None and hooked(f):
            before(f)
        results = results_of(f, [value(x) for x in f.inputs])
        for i, result in enumerate(results):
            values[f, i] = result
        if computed is not None:
            computed(f, results)
        if after is not None and hooked(f):
            after(f)
    return [value(y) for y in outputs]
