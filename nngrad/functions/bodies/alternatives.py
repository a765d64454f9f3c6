"""Ops that run one of several bodies: branches, checkpoints and functions with given gradients.

The derivatives of branches are branches over the derivatives of their bodies. A branch also outputs the values that
depend on its matrix products (zeros where another branch runs), so derivatives recompute none of them. A checkpoint
outputs the values that its policy names.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
from jax import lax

from ...graph import Array, Function, Spec, Variable, apply, create, functions_of
from ...graph.arguments import Static
from ...graph.block import Block, Call
from ...graph.body_op import Axes, ControlOp, Followed, Given, Gradients, Numbers, Results, Steps, Walk, Within
from ...graph.closing import close, derived_once
from .. import array, comparison, control, indexing, reduction
from ..control import Recomputation
from ..inlining import inlined
from ..operands import Operand, repeated, size_of
from .carries import followed_through, is_zeros, kinds_of
from .derived_bodies import Gives, gradients_of, is_hidden, operations_in, saving, tangents_of, with_stand_ins
from .fusion import MergedSteps


class Alternatives(ControlOp):
    """An op that runs one of several bodies with the same inputs and outputs. A subclass defines the bodies and the
    selection."""

    first = 0
    """The number of inputs that come before those of the bodies."""
    again = True
    """True if derivatives recompute everything but extra outputs."""

    def bodies(self, arguments: tuple[Any, ...]) -> tuple[Block, ...]:
        """The bodies."""
        return arguments[:1]

    def gives(self, arguments: tuple[Any, ...]) -> Gives:
        """For each body, the numbers of the values that are its outputs."""
        return tuple([body.outputs for body in self.bodies(arguments)])

    def results_for_users(self, arguments: tuple[Any, ...]) -> int:
        """The outputs of the bodies."""
        return len(self.bodies(arguments)[0].outputs)

    def applied(
        self, bodies: tuple[Block, ...], inputs: tuple[Variable, ...], late: int, beside: Function | None = None
    ) -> tuple[Variable, ...]:
        """The outputs of derived bodies applied to `inputs`: first the selector, last `late` incoming gradients or
        directions. The directions are those along which the function `beside` moves."""
        outputs: tuple[Variable, ...] = apply(self, inputs, saving(bodies))
        return outputs

    def result_specs(self, inputs: tuple[Spec, ...], arguments: tuple[Any, ...]) -> tuple[Spec, ...]:
        """Shape and dtype of each output."""
        return tuple([self.bodies(arguments)[0].spec(k) for k in self.gives(arguments)[0]])

    def operations(self, f: Function) -> int:
        """The approximate number of operations of the most expensive body."""
        return max([operations_in(body) for body in self.bodies(f.arguments)])

    # ---------------------------------------------------------------- inspection

    def within(self, arguments: tuple[Any, ...], count: int) -> tuple[Within, ...]:
        """The bodies."""
        bodies = self.bodies(arguments)
        name, several = ("operand", True) if self.first else ("input", False)
        inputs, taken = tuple([f"{name}{i}" for i in range(count - self.first)]), tuple(range(self.first, count))
        outputs = tuple([f"result{i}" for i in range(len(bodies[0].outputs))])
        return tuple([
            Within(self.role(i), body, 1, inputs, outputs, taken, tuple([("", k) for k in numbers]), several)
            for i, (body, numbers) in enumerate(zip(bodies, self.gives(arguments), strict=True))
        ])

    def role(self, number: int) -> str:
        """The name of a body in messages."""
        return f"branch {number}" if self.first else "body"

    def run_in_steps(self, arguments: tuple[Any, ...], inputs: Sequence[Any], steps: Steps[Any]) -> list[Any]:
        """The forward computation, with inspection of the body that runs."""
        bodies = self.bodies(arguments)
        taken = min(max(int(steps.array(inputs[0])), 0), len(bodies) - 1) if self.first else 0
        operands, numbers = inputs[self.first :], self.gives(arguments)[taken]
        return bodies[taken].picked(operands, steps.run(self.role(taken), bodies[taken], operands), numbers)

    # ---------------------------------------------------------------- axes

    def dependence(self, arguments: tuple[Any, ...], varying: Sequence[bool]) -> list[bool]:
        """For each output, True if it depends on an input that is `varying`."""
        inputs = [i for i, varies in enumerate(varying[self.first :]) if varies]
        depending = [body.depending(inputs) for body in self.bodies(arguments)]
        return [any(varying[: self.first]) or any([k in numbers for k, numbers in zip(output, depending, strict=True)])
                for output in zip(*self.gives(arguments), strict=True)]  # fmt: skip

    def followed(self, f: Function, starts: Given, count: int, walk: Walk) -> Followed | None:
        """Follow axes through all bodies, which must carry them to the same places."""
        if any([i < self.first for i, _ in starts]):  # a number that depends on all rows selects the branch
            return dict.fromkeys(range(len(f.specs)))
        results: dict[int, Axes | None] = {}
        for body, outputs in zip(self.bodies(f.arguments), self.gives(f.arguments), strict=True):
            places = followed_through(body, {i - self.first: axes for i, axes in starts}, count, walk)
            for k, number in enumerate(outputs):
                if number in places:
                    axes = places[number]
                    results[k] = axes if results.get(k, axes) == axes else None
        return results

    # ---------------------------------------------------------------- derivatives

    def gradients(self, f: Function, gys: Sequence[Variable], indexes: Numbers) -> Gradients:
        """The gradient of <gy, body(x)> in x, for the body that is selected"""
        chosen, operands = f.inputs[: self.first], f.inputs[self.first :]
        arrived = tuple([k for k, gy in enumerate(gys) if gy.spec.differentiable and not is_zeros(gy)])
        wanted = tuple([i - self.first for i in indexes if i >= self.first])
        gxs: Gradients = [None] * len(f.inputs)
        if not arrived or not wanted:
            return gxs
        derived = gradients_of(self.bodies(f.arguments), self.gives(f.arguments), arrived, wanted, self.again)
        if derived.results:
            inputs = (*chosen, *_picked(operands, f, derived.residuals), *[gys[k] for k in arrived])
            outputs = self.applied(derived.bodies, inputs, len(arrived))
            for i, gx in zip(derived.results, outputs, strict=False):
                gxs[self.first + i] = gx
        return gxs

    def tangents(self, f: Function, ts: Results, read: Sequence[bool]) -> Gradients:
        """The tangent of the body that is selected"""
        moving = tuple([i - self.first for i, t in enumerate(ts) if t is not None])
        wanted = tuple([k for k, spec in enumerate(f.specs) if read[k] and spec.differentiable])
        moved: Gradients = [None] * len(f.specs)
        derived = tangents_of(self.bodies(f.arguments), self.gives(f.arguments), moving, wanted, self.again)
        if derived.results:
            directions = [t for t in ts if t is not None]
            inputs = (*f.inputs[: self.first], *_picked(f.inputs[self.first :], f, derived.residuals), *directions)
            outputs = self.applied(derived.bodies, inputs, len(directions), f)
            for k, t in zip(derived.results, outputs, strict=False):
                moved[k] = t
        return moved


def _picked(operands: Sequence[Variable], f: Function, residuals: Numbers) -> list[Variable]:
    """The Variables that the residuals stand for: inputs of the bodies, or outputs of `f`."""
    outputs = f.outputs if residuals and residuals[-1] < 0 else ()
    return [operands[i] if i >= 0 else outputs[~i] for i in residuals]


# ---------------------------------------------------------------- branches


class Switch(Alternatives):
    """Branches, one of which is selected by an integer."""

    first, again, is_choice = 1, False, True

    def bodies(self, arguments: tuple[Any, ...]) -> tuple[Block, ...]:
        """The branches."""
        bodies: tuple[Block, ...] = arguments[0]
        return bodies

    def results_for_users(self, arguments: tuple[Any, ...]) -> int:
        """The outputs that are not saved for derivatives."""
        saved: int = arguments[1]
        return super().results_for_users(arguments) - saved

    def running(self, arguments: tuple[Any, ...], read: Sequence[bool]) -> Sequence[Block]:
        """The branches, each with only the outputs that are read."""
        return [
            body.with_outputs(tuple([n for n, is_read in zip(body.outputs, read, strict=True) if is_read]))
            for body in self.bodies(arguments)
        ]

    def chosen_together(self, calls: Sequence[Call]) -> tuple[tuple[Any, ...], Numbers]:
        """Branches that compute the results of each function in turn"""
        outputs = [i for call in calls for i in call.outs]
        taken = {i: spec for call in calls for i, spec in zip(call.ins[1:], call.arguments[0][0].inputs, strict=True)
                 if i not in outputs}  # fmt: skip
        branches = []
        for bodies in zip(*[call.arguments[0] for call in calls], strict=True):
            merged, places = MergedSteps(), {i: i for i in taken}
            for call, body in zip(calls, bodies, strict=True):
                values = merged.added(body, [places[i] for i in call.ins[1:]])
                places |= zip(call.outs, [values[n] for n in body.outputs], strict=True)
            branches.append(merged.block(taken, [places[i] for i in outputs]))
        return (tuple(branches), 0), (calls[0].ins[0], *taken)

    def batched(self, f: Function, operands: Sequence[Operand], read: Sequence[bool]) -> Results:
        """Branches if all elements take the same one; otherwise all branches, and a selection"""
        index, *others = operands
        bodies, (count,) = self.bodies(f.arguments), size_of(operands)
        leading = tuple([bool(operand.lead) for operand in others])
        inputs = [operand.widened() for operand in others]
        if not index.lead:
            kinds = kinds_of(self.dependence(f.arguments, (False, *leading)))
            branches = tuple([body.batched(kinds_of(leading), count, body.outputs, kinds) for body in bodies])
            together: Results = apply(self, (index.widened(), *inputs), (branches, f.arguments[1]))
            return together
        results: list[Variable] = []
        last = len(bodies) - 1
        for i, body in enumerate(bodies):
            is_index = (
                comparison.less_equal_scalar if i == 0 else
                comparison.greater_equal_scalar if i == last else comparison.equal_scalar
            )  # fmt: skip
            # Booleans do not affect the dtype of the selection.
            taken = array.cast(is_index(index.value, val=i), "bool")
            new = self._results_where_taken(body, leading, count, inputs, taken)
            results = [indexing.where(taken, *pair) for pair in zip(new, results, strict=True)] if i else new
        return results

    def _results_where_taken(
        self, body: Block, leading: tuple[bool, ...], count: int, inputs: list[Variable], taken: Variable
    ) -> list[Variable]:
        """The results of a branch for the elements that take it; what the others get does not matter."""
        full = ("each",) * len(body.outputs)
        if not is_hidden(body):
            return inlined(body.batched(kinds_of(leading), count, body.outputs, full), inputs)
        # The rewriter cannot move a selection past this body, so an infinite derivative for an element that does not
        # take the branch would come through. Such elements get the inputs of one that does; if there is none, the body
        # does not run.
        step = body.batched(("each",) * len(leading), count, body.outputs, full)
        wide = [x if has_lead else repeated(x, (count, *x.shape)) for x, has_lead in zip(inputs, leading, strict=True)]
        safe = with_stand_ins(taken, wide)
        zeros = tuple([(array.constant, (0.0, spec.shape, spec.dtype), ())
                       for spec in [step.spec(number) for number in step.outputs]])  # fmt: skip
        nothing = Block(step.inputs, zeros, (0,) * len(zeros), tuple([~k for k in range(len(zeros))]))
        some = array.cast(comparison.not_equal_scalar(reduction.sum(taken), val=0), "int32")
        return list(self.applied((nothing, step), (some, *safe), 0)[: len(zeros)])


@Switch.declared(type_name="Switch", multiple_results=True)
def switch_of_bodies(*x: Array, bodies: Static, saved: Static) -> tuple[jax.Array, ...]:
    """Run one of several bodies with the same inputs and outputs. The first input, an integer of shape (), selects it,
    and is clamped to the valid range. The last `saved` outputs serve derivatives; XLA removes those that nothing reads.
    """
    del saved
    index, *operands = x
    branches = [lambda *arrays, body=body: tuple(body.results_of(arrays)) for body in bodies]
    return tuple(lax.switch(index, branches, *operands))


# ---------------------------------------------------------------- checkpoints


class Checkpoint(Alternatives):
    """An op that runs one body; its derivatives recompute all they need except the kept values.

    It is no plan of what one graph recomputes (`Plan`), nor could it be: plans choose single functions and take results
    that the user holds, which a body would hide, and a gradient of a gradient overlays its passes, so that a body with
    segments of both would depend on itself. And a plan, made of emitted gradients, has no place for a loop's steps.
    """

    def gives(self, arguments: tuple[Any, ...]) -> Gives:
        """The outputs of the body, and then the kept values."""
        body, extra = arguments
        return ((*body.outputs, *extra),)

    def inlines_to(self, arguments: tuple[Any, ...]) -> Block:
        """The body."""
        body, extra = arguments
        inlined_body: Block = body.with_outputs((*body.outputs, *extra)) if extra else body
        return inlined_body

    def applied(
        self, bodies: tuple[Block, ...], inputs: tuple[Variable, ...], late: int, beside: Function | None = None
    ) -> tuple[Variable, ...]:
        """A checkpoint of the derived body, which starts when gradients or directions are available."""
        (body,) = bodies
        if beside is None or _depend_on_outputs(inputs[len(inputs) - late :], beside):
            body = begun_after(body, late)
        outputs: tuple[Variable, ...] = apply(self, inputs, (body, ()))
        return outputs

    def batched(self, f: Function, operands: Sequence[Operand], read: Sequence[bool]) -> Results | None:
        """A checkpoint of the body with a batch axis"""
        body, (count,) = self.inlines_to(f.arguments), size_of(operands)
        leading = [bool(operand.lead) for operand in operands]
        step = body.batched(kinds_of(leading), count, body.outputs, kinds_of(self.dependence(f.arguments, leading)))
        end = len(self.bodies(f.arguments)[0].outputs)
        inputs = tuple([operand.full((count,)) if operand.lead else operand.widened() for operand in operands])
        results: Results = apply(self, inputs, (step.with_outputs(step.outputs[:end]), step.outputs[end:]))
        return results


@Checkpoint.declared(type_name="Checkpoint", multiple_results=True, lockstep=True)
def checkpoint_of_body(*x: Array, body: Static, kept: Static = ()) -> tuple[jax.Array, ...]:
    """Run a body whose gradients recompute what they need, except the values `kept`, which are also outputs."""
    results: tuple[jax.Array, ...] = checkpoint_of_body.inlines_to((body, kept)).results_of(x)
    return results


class GivenGradient(Alternatives):
    """A body with a user-defined gradient."""

    def inlines_to(self, arguments: tuple[Any, ...]) -> Block:
        """The body."""
        body: Block = arguments[0]
        return body

    def followed(self, f: Function, starts: Given, count: int, walk: Walk) -> Followed | None:
        """Unknown: the gradient may mix axes that the body does not."""
        return None

    def batched(self, f: Function, operands: Sequence[Operand], read: Sequence[bool]) -> Results | None:
        """None: the op is mapped as it is."""
        return None

    def gradients(self, f: Function, gys: Sequence[Variable], indexes: Numbers) -> Gradients:
        """The result of the user's gradient function."""
        _, gradient, wanted = f.arguments
        gxs: Gradients = [None] * len(f.inputs)
        for i, gx in zip(wanted, inlined(gradient, (*f.inputs, *gys)), strict=True):
            gxs[i] = gx
        return gxs


def _given(name: str, type_name: str) -> GivenGradient:
    def forward(*x: Array, body: Static, gradient: Static, wanted: Static) -> tuple[jax.Array, ...]:
        """A body with a user-defined gradient.

        Args:
            x: The inputs.
            body: The body.
            gradient: The gradient, as a body of these inputs and the incoming gradient at each output.
            wanted: The inputs that it differentiates by.
        """
        del gradient, wanted
        results: tuple[jax.Array, ...] = body.results_of(x)
        return results

    forward.__name__ = name
    return GivenGradient(forward, type_name=type_name, multiple_results=True, lockstep=True)


body_with_gradient = _given("body_with_gradient", "CustomGradient")
body_with_surrogate = _given("body_with_surrogate", "CustomSurrogate")


def _depend_on_outputs(directions: Sequence[Variable], f: Function) -> bool:
    """True if directions depend on the outputs of `f`, as those made of a gradient do: then tangents along them are
    computed after `f`, not together with it."""
    above = functions_of(directions, through=lambda x: x.parent is not None and x.parent.rank > f.rank)
    return any([x.parent is f for g in above for x in g.inputs])


@derived_once
def begun_after(body: Block, seeds: int) -> Block:
    """A body, the gradient or tangent of another, that does not start before its last `seeds` inputs (incoming
    gradients or directions) are available."""
    inputs = body.leaves()
    first = len(inputs) - seeds
    tokens = [x for x in inputs[first:] if x.size]
    if not tokens:
        return body
    before = {id(x) for x in inputs[:first] if x.size}
    """Inputs from which something could be computed too early."""
    again = Recomputation(tokens)
    values: list[Variable] = []
    for (op, arguments, ins), order in zip(body.steps, body.orders, strict=True):
        operands = body.picked(inputs, values, ins)
        early = [k for k, x in enumerate(operands) if id(x) in before]
        if early and all([id(x) in before or (x.parent is not None and not x.parent.inputs) for x in operands]):
            barrier = partial(create, control.optimization_barrier, arguments=(), order=order)
            operands = again.begun(operands, early, barrier)
        outputs = create(op, tuple(operands), arguments, order=order)
        values.extend(outputs if op.multiple_results else (outputs,))
    for number in body.stop_gradients:
        values[~number].need_grad = False
    return close(body.picked(inputs, values), inputs)
