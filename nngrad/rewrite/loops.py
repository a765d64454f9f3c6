"""Rewrite loops to have fewer carries. The loop ops themselves find which."""

from __future__ import annotations

import functools
from typing import Any

from ..functions.movement import broadcast, reshape
from ..graph import Op, Switched, Variable, build_options
from ..graph.block import Block
from ..graph.body_op import ControlOp, Smaller
from .builder import Arguments, HashConsTable, Inputs, forms_without, rewriting_rule


def loops(op: Op) -> bool:
    """loops"""
    return isinstance(op, ControlOp) and op.is_loop


@rewriting_rule("equal-carries", every=loops)
def equal_carries(table: HashConsTable, op: Any, inputs: Inputs, arguments: Arguments) -> Any:
    """carries that start equal, and that each step makes equal, are one"""
    return _instead(table, op, inputs, arguments, op.with_equal_carries(inputs, arguments, _canonical))


@rewriting_rule("unchanging-carries", every=loops)
def unchanging_carries(table: HashConsTable, op: Any, inputs: Inputs, arguments: Arguments) -> Any:
    """a carry that no step changes is the same at each step"""
    return _instead(table, op, inputs, arguments, op.with_changing_carries(arguments))


def _instead(table: HashConsTable, op: Op, inputs: Inputs, arguments: Arguments, smaller: Smaller | None) -> Any:
    """The outputs of a function, computed by a smaller one of the same op."""
    if smaller is None:
        return None
    one = table.emit(op, tuple([inputs[i] for i in smaller.inputs]), smaller.arguments)
    outputs = []
    for k, source in enumerate(smaller.outputs):
        if source is None:  # a gradient that needs it reads it from the function that it differentiates
            outputs.append(table.node(op, inputs, arguments)[k])
        elif isinstance(source, int):
            outputs.append(one[source])
        else:
            x, length = inputs[source[0]], source[1]
            outputs.append(broadcast(reshape(x, (1, *x.shape)), (length, *x.shape)) if length else x)
    return tuple(outputs)


def _canonical() -> Any:
    """A function that applies bodies to inputs, and brings the parts emitted by gradients to canonical form."""
    without = build_options().emitting.simplify
    builder = HashConsTable(forms_without(without if isinstance(without, frozenset) else frozenset()))
    Switched(builder=builder).from_now_on()
    return functools.partial(_values, builder)


def _values(builder: HashConsTable, body: Block, inputs: list[Variable]) -> list[Variable]:
    values: list[Variable] = []
    places = body.places or (None,) * len(body.steps)
    for (op, arguments, ins), order, place in zip(body.steps, body.orders, places, strict=True):
        builder.order = order
        apply = builder.emit if order and not loops(op) else builder.node
        outputs = apply(op, tuple(body.picked(inputs, values, ins)), arguments)
        values.extend(outputs if op.multiple_results else (outputs,))
        f = values[-1].parent
        if place is not None and f is not None and not hasattr(f, "location"):
            f.location = place
    for number in body.stop_gradients:
        values[~number].need_grad = False
    return values
