"""Gradients and tangents of several bodies of which one runs.

All derived bodies take the union of their inputs and return the union of their outputs.

Also the cost of a body, and batched bodies whose results are selected per element.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

from ...graph import Spec, Variable
from ...graph.block import Block, new_leaves
from ...graph.body_op import Numbers
from ...graph.closing import close, derived_once
from ..indexing import where
from ..movement import reshape
from ..operands import repeated
from ..reduction import argmax
from ..slicing import take_points
from .carries import zeros_of

Gives = tuple[Numbers, ...]
"""For each body and each output, the number of its value."""


class Derived(NamedTuple):
    """The derived bodies of several bodies."""

    bodies: tuple[Block, ...]
    residuals: Numbers
    """The first inputs of the derived bodies: inputs i of the original ones, then outputs k as ~k."""
    results: Numbers
    """The inputs or outputs whose derivatives the bodies return."""


def _filled(
    body: Block, read: Sequence[int], taken: dict[int, Spec], places: Sequence[int], wanted: dict[int, Spec]
) -> Block:
    """`body`, which takes the inputs `read` and returns the outputs `places`, extended to the inputs `taken` and the
    outputs `wanted` of all bodies; missing outputs are zeros."""
    inputs, _, outputs = body.opened()
    order = max(body.orders, default=1)
    leaves, known = dict(zip(read, inputs, strict=True)), dict(zip(places, outputs, strict=True))
    ends = [known[k] if k in known else zeros_of(spec, order) for k, spec in wanted.items()]
    return close(ends, [leaves[i] if i in leaves else new_leaves([spec])[0] for i, spec in taken.items()])


@derived_once
def saving(bodies: tuple[Block, ...]) -> tuple[tuple[Block, ...], int]:
    """The bodies, which also return what derivatives do not recompute, and how many values this is: expensive ones and
    those that depend on them, zeros from the other bodies."""
    count, costly = len(bodies[0].outputs), []
    for i, body in enumerate(bodies):
        numbers: dict[int, None] = {}
        for (op, arguments, ins), outs in zip(body.steps, body.outs, strict=True):
            depends = not numbers.keys().isdisjoint(ins)
            if depends or (op.cost is not None and op.is_heavy(tuple(map(body.spec, ins)), arguments)):
                numbers |= dict.fromkeys(outs)
        costly += [(i, n) for n in numbers if n not in body.outputs]
    wanted = dict(enumerate([*map(bodies[0].spec, bodies[0].outputs), *[bodies[i].spec(n) for i, n in costly]]))
    results = []
    for i, body in enumerate(bodies):
        places = [*range(count), *[k for k, (j, _) in enumerate(costly, count) if j == i]]
        step = body.with_outputs((*body.outputs, *[n for j, n in costly if j == i]))
        results.append(_filled(step, range(len(body.inputs)), dict(enumerate(body.inputs)), places, wanted))
    return tuple(results) if costly else bodies, len(costly)


@derived_once
def gradients_of(bodies: tuple[Block, ...], gives: Gives, arrived: Numbers, wanted: Numbers, again: bool) -> Derived:
    """The gradients of bodies with respect to the inputs `wanted`, as bodies of residuals and of seeds for the outputs
    `arrived`. With `again`, values that are not extra outputs are recomputed whatever it costs."""
    first, specs = bodies[0], tuple([bodies[0].spec(k) for k in gives[0]])
    every, count = tuple(range(len(first.inputs))), len(specs)
    derived = []
    for body, outs in zip(bodies, gives, strict=True):
        fixed, held = ((*every, *outs[len(body.outputs) :]), ()) if again else ((), (*every, *outs))
        gradient = body.gradient(tuple([outs[k] for k in arrived]), wanted, fixed, held)
        derived.append((gradient, [n if n >= 0 else ~outs.index(n) for n in gradient.residuals]))
    taken = _taken(first, specs, [n for _, read in derived for n in read])
    reached = {i: first.inputs[i] for i in wanted if any([i in gradient.reached for gradient, _ in derived])}
    seeds = {~(count + k): specs[k] for k in arrived}
    results = [
        _filled(gradient.body, [*read, *seeds], taken | seeds, gradient.reached, reached) for gradient, read in derived
    ]
    return Derived(tuple(results), tuple(taken), tuple(reached))


@derived_once
def tangents_of(bodies: tuple[Block, ...], gives: Gives, moving: Numbers, read: Numbers, again: bool) -> Derived:
    """The tangents of bodies, as bodies of their inputs, their outputs, and the tangents of the inputs. With `again`,
    outputs are read only if some are extra."""
    first, specs = bodies[0], tuple([bodies[0].spec(k) for k in gives[0]])
    count = len(first.inputs)
    directions = {~(len(specs) + i): first.inputs[i] for i in moving}
    steps = []
    for body, numbers in zip(bodies, gives, strict=True):
        along = tuple(dict.fromkeys([numbers[k] for k in read]))
        reads = not again or len(numbers) > len(body.outputs)
        known = tuple(dict.fromkeys([n for n in numbers if n < 0])) if reads else ()
        tangent = body.tangent(moving, along, known)
        tangents = dict(zip(tangent.moved, tangent.body.outputs[len(body.outputs) :], strict=True))
        step = tangent.body.with_outputs(tuple([tangents[numbers[k]] for k in read if numbers[k] in tangents]))
        inputs = [*range(count), *[~numbers.index(n) for n in known], *directions]
        steps.append((step, inputs, [k for k in read if numbers[k] in tangents]))
    used = [inputs[i] for step, inputs, _ in steps for i in step.inputs_above(step.outputs)]
    taken = _taken(first, specs, [*range(count), *[n for n in used if n not in directions]])
    moved = {k: specs[k] for k in read if any([k in places for _, _, places in steps])}
    results = [_filled(step, inputs, taken | directions, places, moved) for step, inputs, places in steps]
    return Derived(tuple(results), tuple(taken), tuple(moved))


def _taken(first: Block, specs: tuple[Spec, ...], residuals: Sequence[int]) -> dict[int, Spec]:
    """Each residual once, inputs first, with its shape and dtype."""
    ordered = sorted(set(residuals), key=lambda n: (n < 0, abs(n)))
    return {n: first.inputs[n] if n >= 0 else specs[~n] for n in ordered}


@functools.lru_cache(maxsize=1024)
def operations_in(body: Block) -> int:
    """The approximate number of operations of a body."""
    functions = {y.parent: None for y in body.opened().values if y.parent is not None}
    return sum([max([1, *[s.size for s in f.specs]]) if f.op.cost is None else f.op.cost(f) for f in functions])

# ---------------------------------------------------------------- bodies of which results are selected per element


def with_stand_ins(taken: Variable, xs: Sequence[Variable]) -> list[Variable]:
    """`xs`, in which the elements along the first axis that are not taken are replaced by the first one that is."""
    first = reshape(argmax(taken), shape=(1,))
    return [where(taken, x, repeated(take_points(x, first, axes=(0,)), x.shape)) for x in xs]


def is_hidden(body: Block) -> bool:
    """True if a derivative in the body may be infinite where masks (`nngrad/rewrite/masks.py`) cannot reach it: they do
    not pass through that function, or through one that follows."""
    risky: set[int] = set()
    for (op, _, ins), outs in zip(body.steps, body.outs, strict=True):
        at_risk = not risky.isdisjoint(ins)
        passes = op.diagonal or not ins or (op.axes is not None and len(ins) == 1)
        if (at_risk and not passes) or (ins and not op.diagonal and op.axes is None):
            return True
        may_be_infinite = op.unbounded and op.linear != "each"
        if at_risk or may_be_infinite or not (op.diagonal or op.linear):
            risky.update(outs)
    return False
