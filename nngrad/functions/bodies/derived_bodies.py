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

Gives = tuple[tuple[int | None, ...], ...]
"""For each body and each output, the number of its value; None for an output that only another body has."""


class Derived(NamedTuple):
    """The derived bodies of several bodies."""

    bodies: tuple[Block, ...]
    residuals: Numbers
    """The first inputs of the derived bodies: inputs i of the original ones, then outputs k as ~k."""
    results: Numbers
    """The inputs or outputs whose derivatives the bodies return."""


def specs_of(bodies: tuple[Block, ...], gives: Gives) -> tuple[Spec, ...]:
    """Shape and dtype of each output."""
    return tuple([
        next(body.spec(k) for body, k in zip(bodies, each, strict=True) if k is not None)
        for each in zip(*gives, strict=True)
    ])


def filled(
    body: Block, read: Sequence[int], taken: dict[int, Spec], places: Sequence[int], wanted: dict[int, Spec]
) -> Block:
    """`body`, which takes the inputs `read` and returns the outputs `places`, extended to the inputs `taken` and the
    outputs `wanted` of all bodies; missing outputs are zeros."""
    inputs, _, given = body.opened()
    order = max(body.orders, default=1)
    leaves, made = dict(zip(read, inputs, strict=True)), dict(zip(places, given, strict=True))
    ends = [made[k] if k in made else zeros_of(spec, order) for k, spec in wanted.items()]
    return close(ends, [leaves[i] if i in leaves else new_leaves([spec])[0] for i, spec in taken.items()])


@derived_once
def kept_of(bodies: tuple[Block, ...]) -> tuple[Numbers, ...]:
    """For each body, the numbers of the values that derivatives do not recompute: expensive ones and those that depend
    on them, except outputs. Empty if no body has any."""
    found = []
    for body in bodies:
        costly: dict[int, None] = {}
        for (op, arguments, ins), outs in zip(body.steps, body.outs, strict=True):
            given = tuple([body.spec(i) for i in ins])
            if not costly.keys().isdisjoint(ins) or (op.cost is not None and op.is_heavy(given, arguments)):
                costly |= dict.fromkeys(outs)
        found.append(tuple([k for k in costly if k not in body.outputs]))
    return tuple(found) if any(found) else ()


@derived_once
def gradients_of(
    bodies: tuple[Block, ...], gives: Gives, arrived: Numbers, wanted: Numbers, again: bool = False
) -> Derived:
    """The gradients of bodies with respect to the inputs `wanted`, as bodies of residuals and of seeds for the outputs
    `arrived`. With `again`, values that are not extra outputs are recomputed whatever it costs."""
    first, specs = bodies[0], specs_of(bodies, gives)
    every, count = tuple(range(len(first.inputs))), len(specs)
    kept = count > len(first.outputs) and not again
    found = []
    for body, own in zip(bodies, gives, strict=True):
        seeds = [k for k in arrived if own[k] is not None]
        numbers = tuple([n for k in seeds if (n := own[k]) is not None])
        beside = tuple([n for n in own[len(first.outputs) :] if n is not None]) if again else ()
        each = body.gradient(numbers, wanted, () if kept else (*every, *beside), every if kept else ())
        found.append((each, [n if n >= 0 else ~own.index(n) for n in each.residuals], [~(count + k) for k in seeds]))
    taken = _taken(first, specs, [n for _, read, _ in found for n in read])
    reached = {i: first.inputs[i] for i in wanted if any([i in each.reached for each, _, _ in found])}
    every_seed = {~(count + k): specs[k] for k in arrived}
    results = [
        filled(each.body, [*read, *seeds], taken | every_seed, each.reached, reached) for each, read, seeds in found
    ]
    return Derived(tuple(results), tuple(taken), tuple(reached))


@derived_once
def tangents_of(bodies: tuple[Block, ...], gives: Gives, moving: Numbers, read: Numbers) -> Derived:
    """The tangents of bodies, as bodies of their inputs, their kept values, and the tangents of the inputs."""
    first, specs = bodies[0], specs_of(bodies, gives)
    count = len(first.inputs)
    directions = {~(len(specs) + i): first.inputs[i] for i in moving}
    found = []
    for body, own in zip(bodies, gives, strict=True):
        along = tuple(dict.fromkeys([n for k in read if (n := own[k]) is not None]))
        made = tuple(dict.fromkeys([n for n in own if n is not None and n < 0]))
        kept = made if len(own) > len(body.outputs) else ()
        each = body.tangent(moving, along, kept)
        tangents = dict(zip(each.moved, each.body.outputs[len(body.outputs) :], strict=True))
        step = each.body.with_outputs(tuple([tangents[n] for k in read if (n := own[k]) in tangents]))
        given = [*range(count), *[~own.index(n) for n in kept], *directions]
        found.append((step, given, [k for k in read if own[k] in tangents]))
    used = [given[i] for step, given, _ in found for i in step.inputs_above(step.outputs)]
    taken = _taken(first, specs, [*range(count), *[n for n in used if n not in directions]])
    moved = {k: specs[k] for k in read if any([k in places for _, _, places in found])}
    results = [filled(step, given, taken | directions, places, moved) for step, given, places in found]
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
    """Whether a derivative in the body may be infinite where masks (`nngrad/rewrite/masks.py`) cannot reach it: they do
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
