"""Loops with an unknown number of steps, which only have forward-mode derivatives."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax import lax

from ...graph import Array, Function, Spec, Variable, apply, create
from ...graph.arguments import Static
from ...graph.block import Block
from ...graph.body_op import ControlOp, Followed, Given, Gradients, Numbers, Results, Steps, Walk, Within
from ...graph.closing import close, derived_once
from ..array import cast
from ..indexing import where
from ..operands import Operand, size_of
from ..reduction import sum as total
from ..traced.dependence import loops_select
from ..traced.jaxprs import jaxpr_for
from .carries import Carried, followed_through, kinds_of
from .derived_bodies import operations_in, with_stand_ins


class WhileLoop(ControlOp):
    """A loop over a body while a condition holds."""

    def carried(self, arguments: tuple[Any, ...]) -> Carried:
        """The body with its carries."""
        _, body, fixed = arguments
        return Carried(body, fixed, len(body.outputs))

    def result_specs(self, inputs: tuple[Spec, ...], arguments: tuple[Any, ...]) -> tuple[Spec, ...]:
        """Shape and dtype of each output."""
        body: Block = arguments[1]
        return tuple([body.spec(number) for number in body.outputs])

    def operations(self, f: Function) -> int:
        """The approximate number of operations of one step; the number of steps is unknown."""
        return operations_in(f.arguments[1])

    def running(self, arguments: tuple[Any, ...], read: Sequence[bool]) -> Sequence[Block]:
        """The condition and the body."""
        return arguments[:2]

    # ---------------------------------------------------------------- inspection

    def within(self, arguments: tuple[Any, ...], count: int) -> tuple[Within, ...]:
        """The condition and the body."""
        goes_on, body, fixed = arguments
        carries = [f"carry{i}" for i in range(count - fixed)]
        inputs, taken = (*[f"same{i}" for i in range(fixed)], *carries), tuple(range(count))
        return (
            Within("condition", goes_on, 1, inputs, ("goes on",), taken),
            Within("body", body, 1, inputs, tuple(carries), taken, tuple([("at the end", i) for i in body.outputs])),
        )

    def run_in_steps(self, arguments: tuple[Any, ...], inputs: Sequence[Any], steps: Steps[Any]) -> list[Any]:
        """The forward computation, with inspection of the bodies."""
        goes_on, body, fixed = arguments
        operands = list(inputs)
        for number in itertools.count():
            (runs,) = goes_on.picked(operands, steps.run("condition", goes_on, operands, number))
            if not np.asarray(steps.array(runs)).any():
                break
            operands[fixed:] = body.picked(operands, steps.run("body", body, operands, number))
        return operands[fixed:]

    # ---------------------------------------------------------------- axes

    def dependence(self, arguments: tuple[Any, ...], varying: Sequence[bool]) -> list[bool]:
        """For each output, True if it depends on an input that is `varying`."""
        goes_on, _, fixed = arguments
        carried = self.carried(arguments)
        numbers = carried.depending([i for i, varies in enumerate(varying) if varies])
        apart = goes_on.outputs[0] in goes_on.depending([i for i in numbers if i >= 0])
        return [apart or fixed + j in numbers for j in range(carried.carries)]

    def followed(self, f: Function, starts: Given, count: int, walk: Walk) -> Followed:
        """Follow axes through all steps; if the condition depends on a followed input, no axis keeps its place."""
        goes_on, _, fixed = f.arguments
        places = self.carried(f.arguments).followed(dict(starts), count, walk)
        inputs = {i: axes for i, axes in places.items() if i >= 0}
        carries = range(len(f.specs))
        if goes_on.outputs[0] in followed_through(goes_on, inputs, count, walk):
            return dict.fromkeys(carries)
        return {j: places[fixed + j] for j in carries if fixed + j in places}

    def batched(self, f: Function, operands: Sequence[Operand], read: Sequence[bool]) -> Results:
        """One loop while the condition holds for any element; elements for which it does not hold stay unchanged"""
        goes_on, body, fixed = f.arguments
        (count,) = size_of(operands)
        depending = self.carried(f.arguments).depending([i for i, operand in enumerate(operands) if operand.lead])
        leading = tuple([i in depending for i in range(len(body.inputs))])
        if goes_on.outputs[0] in goes_on.depending([i for i, has_lead in enumerate(leading) if has_lead]):
            leading = (*leading[:fixed], *(True,) * len(body.outputs))  # elements stop at different steps
            condition, step = until_all_are_done(goes_on, body, fixed, leading, count)
        else:
            condition = goes_on.batched(kinds_of(leading), count, goes_on.outputs, ("",))
            step = body.batched(kinds_of(leading), count, body.outputs, kinds_of(leading[fixed:]))
        inputs = tuple([
            operand.full((count,)) if has_lead and i >= fixed else operand.widened()
            for i, (operand, has_lead) in enumerate(zip(operands, leading, strict=True))
        ])
        results: Results = apply(self, inputs, (condition, step, fixed))
        return results

    # ---------------------------------------------------------------- derivatives

    def gradients(self, f: Function, gys: Sequence[Variable], indexes: Numbers) -> Gradients:
        """None: a loop of unknown length cannot store what its steps would need"""
        raise ValueError(
            "cannot differentiate while_loop in reverse mode without a bound on the number of steps. Pass bound=, an "
            "upper limit, or use forward mode: nn.jvp"
        )

    def tangents(self, f: Function, ts: Results, read: Sequence[bool]) -> Gradients:
        """The loop over (c, dc) while the condition holds for c"""
        moving = [i for i, t in enumerate(ts) if t is not None]
        if loops_select(jaxpr_for(self.traceable(f.arguments), [x.spec for x in f.inputs]).jaxpr, moving, only=True):
            raise ValueError(
                "cannot differentiate while_loop: what it reads only selects values by comparisons, as in a bisection, "
                "so the derivative of its steps is not that of the result. Use nn.root"
            )
        goes_on, _, fixed = f.arguments
        carried = self.carried(f.arguments)
        both = carried.along(f.inputs, ts)
        first = both.step.fixed
        condition = goes_on.with_inputs(both.step.body.inputs, [*range(fixed), *range(first, first + carried.carries)])
        outputs = apply(self, both.inputs, (condition, both.step.body, first))
        moved: Gradients = [None] * len(f.specs)
        for i, t in zip(both.carried, outputs[carried.carries :], strict=True):
            moved[i - fixed] = t
        return moved


@derived_once
def until_all_are_done(
    goes_on: Block, body: Block, fixed: int, leading: tuple[bool, ...], count: int
) -> tuple[Block, Block]:
    """The condition and the step of a batched loop whose elements may stop at different steps."""
    condition = goes_on.batched(kinds_of(leading), count, goes_on.outputs, ("each",))
    step = body.batched(kinds_of(leading), count, body.outputs, ("each",) * len(body.outputs))
    order = max(body.orders, default=0)
    some, _, (holds,) = condition.opened()
    how_many = create(total, (create(cast, (holds,), ("bool",), order=order),), (None, False), order=order)
    inputs = step.leaves()
    runs = create(cast, tuple(condition.placed(inputs)), ("bool",), order=order)
    operands = inputs
    if while_of_bodies in body.ops:  # it might not end for elements that have stopped
        operands = [*inputs[:fixed], *with_stand_ins(runs, inputs[fixed:])]
    after = [
        create(where, (runs, new, x), (), order=order)
        for new, x in zip(step.placed(operands), inputs[fixed:], strict=True)
    ]
    return close([how_many], some), close(after, inputs)


@WhileLoop.declared(type_name="While", multiple_results=True)
def while_of_bodies(*x: Array, goes_on: Static, body: Static, fixed: int) -> tuple[jax.Array, ...]:
    """The final carries of a loop over a body while `goes_on`, a body of the same inputs, is not 0. The first `fixed`
    inputs are the same at each step; the others are the initial carries."""
    same, first = x[:fixed], x[fixed:]
    last: tuple[jax.Array, ...] = lax.while_loop(
        lambda carry: goes_on.results_of((*same, *carry))[0] != 0,
        lambda carry: body.results_of((*same, *carry)), tuple(first),
    )  # fmt: skip
    return last
