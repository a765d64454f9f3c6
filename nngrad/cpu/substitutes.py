"""Alternative forwards for ops that XLA's CPU compiler handles poorly.

`SUBSTITUTES` has a function for each such op: from the specs of inputs, and the arguments by name, to what runs in
place of the op's forward; None if the forward serves as well. Results differ only in rounding.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
from jax import lax

from .. import functions as F
from ..extend import Block, Call, Op, Spec
from ..functions.arithmetic import widened
from ..functions.axes import axes_of
from ..functions.barriers import computed_once, known_after
from ..functions.bodies.scans import scan_of_body
from ..functions.reduction import kept, reduced_count
from .convolutions import CONVOLUTIONS, Choice, Forward
from .thresholds import FEW_ROWS, MANY_SUMS, MOST_AT_ONCE, TALL, WRITTEN_ANEW


def with_substitutes(block: Block) -> Block:
    """The block with alternative forwards for ops that XLA's CPU compiler handles poorly (`SUBSTITUTES`): barriers
    that it drops, values that it would recompute for each element that reads them, sums of gathered points, sums of a
    few slices, and sums over leading axes, except those of large arrays that are summed as they are computed. Also in
    bodies; unchanged if there are none."""
    if SUBSTITUTES.keys().isdisjoint(block.ops):
        return block
    calls, specs = block.calls, block.spec_by_number
    read = Counter([*block.outputs, *[i for call in calls for i in call.ins]])
    single = {i for call in calls if call.op.diagonal for i in call.outs if read[i] == 1}
    taken_in = {i for i in single if specs[i].nbytes >= WRITTEN_ANEW}

    written = {i for op, _, ins, _ in calls if not (op.fuses or op.view or op.reduction) for i in ins}
    """What is in memory in any case, such as inputs of products. Where the reader of a sum of its slices goes to
    YNNPACK, XLA would compute each slice in a loop."""

    times: dict[int, int] = {}
    """How often a loop that reads one element of a value computes what the value is made of: once for each slice."""

    def substituted(call: Call) -> Op:
        op, arguments, ins, outs = call
        if op.reduction and ins[0] in taken_in and specs[ins[0]].size >= TALL * specs[outs[0]].size ** 2:
            return op
        instead = _substitute(op, arguments, [specs[i] for i in ins])
        slices = specs[ins[0]].size // specs[outs[0]].size if op.reduction and instead is not op else 1
        if op.diagonal or op.fuses or op.view or 1 < slices <= FEW_ROWS:
            count = slices * max([times.get(i, 1) for i in ins], default=1)
            if count > MOST_AT_ONCE or (1 < slices <= FEW_ROWS and ins[0] in written):
                return op.with_forward(_of_rows_alone, f"{op.name}_on_cpu")
            times.update(dict.fromkeys(outs, count))
        return instead

    return with_ops(block, map(substituted, calls), with_substitutes)


def _substitute(op: Op, arguments: tuple[Any, ...], specs: Sequence[Spec]) -> Op:
    choose = SUBSTITUTES.get(op)
    forward = None if choose is None else choose(specs, op.named(arguments))
    return op if forward is None else op.with_forward(forward, f"{op.name}_on_cpu")


def with_ops(block: Block, ops: Iterable[Op], in_body: Callable[[Block], Block]) -> Block:
    """The block with other ops in its steps, and with `in_body` applied to the bodies among their arguments; unchanged
    if nothing differs."""
    changes = zip(ops, block.steps, strict=True)
    steps = tuple([(op, Block.changed_in(arguments, in_body), ins) for op, (_, arguments, ins) in changes])
    return block if steps == block.steps else block.with_steps(steps)


# ---------------------------------------------------------------- sums


def _sum(specs: Sequence[Spec], arguments: Mapping[str, Any]) -> Forward | None:
    (spec,) = specs
    axes = axes_of(arguments["axis"], spec.ndim)
    count = reduced_count(spec, axes)
    if not axes or not spec.differentiable or not spec.size > MANY_SUMS * count > 0:
        return None
    few = count <= FEW_ROWS and spec.ndim - 1 not in axes
    return _of_rows if few or axes == tuple(range(len(axes))) else None


def _of_rows(x: jax.Array, axis: int | tuple[int, ...] | None, keepdims: bool) -> jax.Array:
    """A sum over leading axes, or of a few slices. These are added, into which XLA fuses what computes them; many rows
    are multiplied by ones."""
    axes, y = axes_of(axis, x.ndim), widened(x)
    count = reduced_count(x, axes)
    if count <= FEW_ROWS:
        for a in reversed(axes):
            y = functools.reduce(lax.add, [lax.index_in_dim(y, i, a, keepdims=False) for i in range(y.shape[a])])
    else:  # with two axes: XLA would turn a product with a vector into a reduction again
        rows = lax.reshape(y, (count, y.size // count))
        y = lax.dot_general(lax.full((1, count), 1, rows.dtype), rows, (((1,), (0,)), ((), ())))
        y = lax.reshape(y, x.shape[len(axes) :])
    return kept(lax.convert_element_type(y, x.dtype), axes, keepdims)


def _of_rows_alone(x: jax.Array, axis: int | tuple[int, ...] | None, keepdims: bool) -> jax.Array:
    """The same in a loop of its own, which reads what it adds from memory."""
    return computed_once(functools.partial(_of_rows, axis=axis, keepdims=keepdims), x)


def _by_itself(op: Op) -> Choice:
    """For sums of gathered points: fused with their readers, XLA computes the places and the weights again for each
    channel, and the gathers in the readers' order, where the channels of a point may not be a loop of their own."""
    forward: Forward = lambda *x, **arguments: computed_once(functools.partial(op.forward, **arguments), *x)  # noqa: E731
    return lambda specs, arguments: forward


def _one_by_one(specs: Sequence[Spec], arguments: Mapping[str, Any]) -> Forward | None:
    """For steps that could run at once: one by one, so that what a step computes stays in cache."""
    one_by_one: Forward = lambda *x, **named: scan_of_body.forward(*x, **named | {"unroll": 1})  # noqa: E731
    return None if arguments["unroll"] else one_by_one


SUBSTITUTES: dict[Op[Any, Any], Choice] = {
    F.optimization_barrier: lambda specs, arguments: known_after,
    scan_of_body: _one_by_one,
    F.sum: _sum,
    F.weighted_points: _by_itself(F.weighted_points),
    F.weighted_points_weight_grad: _by_itself(F.weighted_points_weight_grad),
    **CONVOLUTIONS,
}
