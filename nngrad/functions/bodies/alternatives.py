"""Branches, of which one is taken, and what is just a body: checkpoints, and functions whose gradient is given.

The gradient of branches is one of branches, each the gradient of a body. It computes again what it needs of the branch
that is taken: then nothing is kept for those that are not. That of a checkpoint is one too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
from jax import lax

from ...graph import Array, Function, Spec, Variable, apply, create, functions_of
from ...graph.arguments import Static
from ...graph.block import Block
from ...graph.body_op import Axes, ControlOp, Followed, Given, Gradients, Numbers, Results, Steps, Walk, Within
from ...graph.closing import close
from ...graph.derived import derived_once
from .. import array, comparison, control, indexing, reduction
from ..inlining import inlined
from ..operands import Operand, repeated, size_of
from ..recomputation import Recomputation
from .carries import followed_through, is_zeros, kinds_of, zeros_of
from .costs import operations_in
from .selections import is_hidden, with_stand_ins


class Alternatives(ControlOp):
    """One of several bodies, all of the same inputs and outputs; a subclass says which they are, and who chooses."""

    first = 0
    """How many inputs come before those of the bodies."""

    def bodies(self, arguments: tuple[Any, ...]) -> tuple[Block, ...]:
        """The bodies."""
        return arguments[:1]

    def applied(
        self, bodies: tuple[Block, ...], inputs: tuple[Variable, ...], late: int, beside: Function | None = None
    ) -> tuple[Variable, ...]:
        """What is derived of the bodies, applied.

        Args:
            bodies: The derived ones.
            inputs: What they are applied to, after what chooses among them.
            late: How many of these, the last ones, are gradients that have arrived, or directions.
            beside: For directions, the function that moves along them.
        """
        outputs: tuple[Variable, ...] = apply(self, inputs, (bodies,))
        return outputs

    def result_specs(self, given: tuple[Spec, ...], arguments: tuple[Any, ...]) -> tuple[Spec, ...]:
        """Shape and dtype of each output."""
        first = self.bodies(arguments)[0]
        return tuple([first.spec(number) for number in first.outputs])

    def operations(self, f: Function) -> int:
        """About how many operations the longest of them takes."""
        return max([operations_in(body) for body in self.bodies(f.arguments)])

    # ---------------------------------------------------------------- looked into

    def within(self, arguments: tuple[Any, ...], count: int) -> tuple[Within, ...]:
        """The bodies."""
        bodies = self.bodies(arguments)
        name, several = ("operand", True) if self.first else ("input", False)
        inputs, taken = tuple([f"{name}{i}" for i in range(count - self.first)]), tuple(range(self.first, count))
        outputs = tuple([f"result{i}" for i in range(len(bodies[0].outputs))])
        return tuple([
            Within(self.role(i), body, 1, inputs, outputs, taken, tuple([("", k) for k in body.outputs]), several)
            for i, body in enumerate(bodies)
        ])

    def role(self, number: int) -> str:
        """What a body is called."""
        return f"branch {number}" if self.first else "body"

    def run_in_steps(self, arguments: tuple[Any, ...], inputs: Sequence[Any], steps: Steps[Any]) -> list[Any]:
        """The same as the forward, with a body that is looked at."""
        bodies = self.bodies(arguments)
        taken = min(max(int(steps.array(inputs[0])), 0), len(bodies) - 1) if self.first else 0
        given = inputs[self.first :]
        return bodies[taken].picked(given, steps.run(self.role(taken), bodies[taken], given))

    # ---------------------------------------------------------------- axes

    def dependence(self, arguments: tuple[Any, ...], given: Sequence[bool]) -> list[bool]:
        """Which outputs depend on the inputs that are `given`."""
        inputs = [i for i, is_given in enumerate(given[self.first :]) if is_given]
        found = [(body, body.depending(inputs)) for body in self.bodies(arguments)]
        count = len(found[0][0].outputs)
        return [any(given[: self.first]) or any([body.outputs[k] in numbers for body, numbers in found])
                for k in range(count)]  # fmt: skip

    def followed(self, f: Function, given: Given, count: int, walk: Walk) -> Followed | None:
        """Through all bodies, which must carry the axes to the same places."""
        if any([i < self.first for i, _ in given]):  # a number that is made of all rows says which branch is taken
            return dict.fromkeys(range(len(f.specs)))
        results: dict[int, Axes | None] = {}
        for body in self.bodies(f.arguments):
            found = followed_through(body, {i - self.first: axes for i, axes in given}, count, walk)
            for k, number in enumerate(body.outputs):
                if number in found:
                    axes = found[number]
                    results[k] = axes if results.get(k, axes) == axes else None
        return results

    # ---------------------------------------------------------------- derivatives

    def gradients(self, f: Function, gys: Sequence[Variable], indexes: Numbers) -> Gradients:
        """The gradient of <gy, body(x)> in x, where the body is the one that is taken"""
        chosen, given = f.inputs[: self.first], f.inputs[self.first :]
        arrived = tuple([k for k, gy in enumerate(gys) if gy.spec.differentiable and not is_zeros(gy)])
        wanted = tuple([i - self.first for i in indexes if i >= self.first])
        gxs: Gradients = [None] * len(f.inputs)
        derived = gradients_of(self.bodies(f.arguments), arrived, wanted) if arrived and wanted else None
        if derived is not None and derived.results:
            inputs = (*chosen, *[given[i] for i in derived.residuals], *[gys[k] for k in arrived])
            outputs = self.applied(derived.bodies, inputs, len(arrived))
            for i, gx in zip(derived.results, outputs, strict=True):
                gxs[self.first + i] = gx
        return gxs

    def tangents(self, f: Function, ts: Results, read: Sequence[bool]) -> Gradients:
        """The tangent of the body that is taken"""
        moving = tuple([i - self.first for i, t in enumerate(ts) if t is not None])
        asked = tuple([k for k, spec in enumerate(f.specs) if read[k] and spec.differentiable])
        moved: Gradients = [None] * len(f.specs)
        derived = tangents_of(self.bodies(f.arguments), moving, asked)
        if derived.results:
            directions = [t for t in ts if t is not None]
            outputs = self.applied(derived.bodies, (*f.inputs, *directions), len(directions), f)
            for k, t in zip(derived.results, outputs, strict=True):
                moved[k] = t
        return moved


# ---------------------------------------------------------------- derived of several bodies


class Derived(NamedTuple):
    """What is derived of several bodies."""

    bodies: tuple[Block, ...]
    residuals: Numbers
    """Which of their inputs these take, before other inputs."""
    results: Numbers
    """Of what they give the derivatives."""


def _filled(body: Block, places: list[int], wanted: Sequence[int], specs: list[Spec]) -> Block:
    """A body that gives something for each of `wanted`: what `body` gives in these `places`, else zeros."""
    inputs, _, given = body.opened()
    order = max(body.orders, default=1)
    made = dict(zip(places, given, strict=True))
    zeros = [zeros_of(spec, order) if i not in made else None for i, spec in zip(wanted, specs, strict=True)]
    return close([made[i] if zero is None else zero for i, zero in zip(wanted, zeros, strict=True)], inputs)


@derived_once
def gradients_of(bodies: tuple[Block, ...], arrived: Numbers, wanted: Numbers) -> Derived:
    """Returns the gradients of bodies, of residuals and seeds.

    Args:
        bodies: The bodies.
        arrived: The outputs that a seed is given for.
        wanted: In which inputs.
    """
    first = bodies[0]
    everything = tuple(range(len(first.inputs)))
    found = [body.gradient(tuple([body.outputs[k] for k in arrived]), wanted, everything, ()) for body in bodies]
    residuals = tuple(sorted({i for each in found for i in each.residuals}))
    reached = [i for i in wanted if any([i in each.reached for each in found])]
    specs = [first.inputs[i] for i in residuals] + [first.spec(first.outputs[k]) for k in arrived]
    results = []
    for each in found:
        places = [*[residuals.index(i) for i in each.residuals], *range(len(residuals), len(specs))]
        body = each.body.with_inputs(tuple(specs), places)
        results.append(_filled(body, list(each.reached), reached, [first.inputs[i] for i in reached]))
    return Derived(tuple(results), residuals, tuple(reached))


@derived_once
def tangents_of(bodies: tuple[Block, ...], moving: Numbers, read: Numbers) -> Derived:
    """Returns the tangents of bodies, of their inputs and the tangents of these.

    Args:
        bodies: The bodies.
        moving: The inputs that move.
        read: The outputs whose tangents are wanted.
    """
    first = bodies[0]
    along = [tuple(dict.fromkeys([body.outputs[k] for k in read])) for body in bodies]
    found = [body.tangent(moving, numbers) for body, numbers in zip(bodies, along, strict=True)]
    moved = [k for k in read if any([b.outputs[k] in t.moved for b, t in zip(bodies, found, strict=True)])]
    results = []
    for body, each in zip(bodies, found, strict=True):
        tangents = dict(zip(each.moved, each.body.outputs[len(body.outputs) :], strict=True))
        places = [k for k in moved if body.outputs[k] in tangents]
        own = each.body.with_outputs(tuple([tangents[body.outputs[k]] for k in places]))
        results.append(_filled(own, places, moved, [first.spec(first.outputs[k]) for k in moved]))
    return Derived(tuple(results), tuple(range(len(first.inputs))), tuple(moved))


# ---------------------------------------------------------------- branches


class Switch(Alternatives):
    """Branches: a number says which of them runs."""

    first = 1

    def bodies(self, arguments: tuple[Any, ...]) -> tuple[Block, ...]:
        """The branches."""
        bodies: tuple[Block, ...] = arguments[0]
        return bodies

    def running(self, arguments: tuple[Any, ...], read: Sequence[bool]) -> Sequence[Block]:
        """The branches."""
        return self.bodies(arguments)

    def batched(self, f: Function, operands: Sequence[Operand], read: Sequence[bool]) -> Results:
        """Branches, where all elements take the same one; else what each takes, selected"""
        index, *others = operands
        bodies, (count,) = self.bodies(f.arguments), size_of(operands)
        leading = tuple([bool(each.lead) for each in others])
        given = [each.widened() for each in others]
        if not index.lead:
            full = kinds_of(self.dependence(f.arguments, (False, *leading)))
            branches = tuple([body.batched(kinds_of(leading), count, body.outputs, full) for body in bodies])
            results: Results = apply(self, (index.widened(), *given), (branches,))
            return results
        last = len(bodies) - 1
        selected: list[Variable] = []
        for i, body in enumerate(bodies):
            is_index = (
                comparison.less_equal_scalar if i == 0 else
                comparison.greater_equal_scalar if i == last else comparison.equal_scalar
            )  # fmt: skip
            # As booleans they have no part in the dtype of what is selected.
            taken = array.cast(is_index(index.value, val=i), "bool")
            found = self._of_the_taken(body, leading, count, given, taken)
            selected = [indexing.where(taken, new, y) for new, y in zip(found, selected, strict=True)] if i else found
        return selected

    def _of_the_taken(
        self, body: Block, leading: tuple[bool, ...], count: int, given: list[Variable], taken: Variable
    ) -> list[Variable]:
        """The results of a branch, for those elements that take it; what the others get does not matter."""
        full = ("each",) * len(body.outputs)
        if not is_hidden(body):
            return inlined(body.batched(kinds_of(leading), count, body.outputs, full), given)
        # What a selection is moved outside of cannot be seen here, so that a derivative that is infinite for an element
        # that does not take the branch would come through. These get the inputs of one that does, and there is one.
        step = body.batched(("each",) * len(leading), count, body.outputs, full)
        wide = [x if has_lead else repeated(x, (count, *x.shape)) for x, has_lead in zip(given, leading, strict=True)]
        safe = with_stand_ins(taken, wide)
        zeros = tuple([(array.constant, (0.0, spec.shape, spec.dtype), ())
                       for spec in [step.spec(number) for number in step.outputs]])  # fmt: skip
        nothing = Block(step.inputs, zeros, (0,) * len(zeros), tuple([~k for k in range(len(zeros))]))
        some = array.cast(comparison.not_equal_scalar(reduction.sum(taken), val=0), "int32")
        return list(apply(self, (some, *safe), ((nothing, step),)))


@Switch.declared(type_name="Switch", multiple_results=True)
def switch_of_bodies(*x: Array, bodies: Static) -> tuple[jax.Array, ...]:
    """One of several bodies, all of the same inputs and outputs.

    Args:
        x: Which of them, an integer of shape (), and what they are applied to.
        bodies: A tuple of bodies. What is past its ends is the first or the last of them.
    """
    index, *given = x
    branches: list[Callable[..., Any]] = [lambda *arrays, body=body: body.results_of(arrays) for body in bodies]
    return tuple(lax.switch(index, branches, *given))


# ---------------------------------------------------------------- what is just a body


class Checkpoint(Alternatives):
    """A body, of which derivatives compute again what they need."""

    def inlines_to(self, arguments: tuple[Any, ...]) -> Block:
        """The body."""
        body: Block = arguments[0]
        return body

    def applied(
        self, bodies: tuple[Block, ...], inputs: tuple[Variable, ...], late: int, beside: Function | None = None
    ) -> tuple[Variable, ...]:
        """A checkpoint of what is derived of the body, which begins when gradients or directions are there."""
        (body,) = bodies
        if beside is None or _come_after(inputs[len(inputs) - late :], beside):
            body = begun_after(body, late)
        outputs: tuple[Variable, ...] = apply(self, inputs, (body,))
        return outputs

    def batched(self, f: Function, operands: Sequence[Operand], read: Sequence[bool]) -> Results | None:
        """A checkpoint of the body with one more axis"""
        body, (count,) = self.inlines_to(f.arguments), size_of(operands)
        leading = [bool(each.lead) for each in operands]
        made = body.batched(kinds_of(leading), count, body.outputs, kinds_of(self.dependence(f.arguments, leading)))
        inputs = tuple([each.full((count,)) if each.lead else each.widened() for each in operands])
        results: Results = apply(self, inputs, (made,))
        return results


@Checkpoint.declared(type_name="Checkpoint", multiple_results=True, lockstep=True)
def checkpoint_of_body(*x: Array, body: Static) -> tuple[jax.Array, ...]:
    """A body, of which gradients compute again what they need.

    Args:
        x: What it is applied to.
        body: The body.
    """
    results: tuple[jax.Array, ...] = body.results_of(x)
    return results


def _come_after(directions: Sequence[Variable], f: Function) -> bool:
    """Whether directions depend on what `f` gives, as those that are made of a gradient do: what is computed along them
    is computed later then, and not beside `f`."""
    above = functions_of(directions, through=lambda x: x.parent is not None and x.parent.rank > f.rank)
    return any([x.parent is f for g in above for x in g.inputs])


@derived_once
def begun_after(body: Block, seeds: int) -> Block:
    """A body whose steps do not begin before the last inputs are there.

    Args:
        body: The gradient of a body, or its tangents.
        seeds: How many of its inputs, the last ones, are the gradients that have arrived, or directions.
    """
    inputs = body.leaves()
    first = len(inputs) - seeds
    tokens = [x for x in inputs[first:] if x.size]
    if not tokens:
        return body
    before = {id(x) for x in inputs[:first] if x.size}
    """What could be computed from too early."""
    again = Recomputation(tokens)
    values: list[Variable] = []
    for (op, arguments, ins), order in zip(body.steps, body.orders, strict=True):
        given = body.picked(inputs, values, ins)
        own = [k for k, x in enumerate(given) if id(x) in before]
        if own and all([id(x) in before or not _depends(x) for x in given]):
            given = again.begun(given, own, partial(create, control.optimization_barrier, arguments=(), order=order))
        made = create(op, tuple(given), arguments, order=order)
        values.extend(made if op.multiple_results else (made,))
    for number in body.stops:
        values[~number].need_grad = False
    return close(body.picked(inputs, values), inputs)


def _depends(x: Variable) -> bool:
    """Whether it is no constant."""
    return x.parent is None or bool(x.parent.inputs)
