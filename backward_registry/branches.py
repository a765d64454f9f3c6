"""Backward rules of branches: a gradient of branches is one of branches, each the gradient of a body.

It computes again what it needs of the branch that is taken: then nothing is kept for those that are not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import nngrad.functions as F
from nngrad.functions.branches import switch_of_bodies
from nngrad.graph import Function, NdArray, Spec, Variable, apply, create
from nngrad.graph.block import Block
from nngrad.graph.closing import close
from nngrad.graph.derived import derived_once
from nngrad.graph.variable import leaf_of

from .loops import is_zeros
from .rules import Rule, registry

Numbers = tuple[int, ...]


class Derived(NamedTuple):
    """What is derived of several bodies."""

    bodies: tuple[Block, ...]
    residuals: Numbers
    """Which of their inputs these take, before other inputs."""
    results: Numbers
    """Of what they give the derivatives."""


def _filled(body: Block, inputs: list[Variable], places: list[int], wanted: Sequence[int], specs: list[Spec]) -> Block:
    """A body that gives something for each of `wanted`: what `body` gives in these `places`, else zeros."""
    values = body.instantiate(inputs)
    given = [inputs[i] if i >= 0 else values[~i] for i in body.outputs]
    order = max(body.orders, default=1)
    made = dict(zip(places, given, strict=True))
    outputs = [
        made[i] if i in made else create(F.constant, (), (0.0, spec.shape, spec.dtype), order=order)
        for i, spec in zip(wanted, specs, strict=True)
    ]
    return close(outputs, inputs)


@derived_once
def gradients_of(bodies: tuple[Block, ...], arrived: Numbers, wanted: Numbers) -> Derived:
    """Returns the gradients of bodies, of residuals and seeds.

    Args:
        bodies: The bodies.
        arrived: The outputs that a seed is given for.
        wanted: In which inputs.
    """
    everything = tuple(range(len(bodies[0].inputs)))
    found = [body.gradient(tuple([body.outputs[k] for k in arrived]), wanted, everything, ()) for body in bodies]
    residuals = tuple(sorted({i for each in found for i in each.residuals}))
    reached = [i for i in wanted if any([i in each.reached for each in found])]
    specs = [bodies[0].inputs[i] for i in residuals] + [bodies[0].spec(bodies[0].outputs[k]) for k in arrived]
    results = []
    for each in found:
        places = [*[residuals.index(i) for i in each.residuals], *range(len(residuals), len(specs))]
        body = each.body.with_inputs(tuple(specs), places)
        inputs = [leaf_of(NdArray.of_spec(spec)) for spec in specs]
        results.append(_filled(body, inputs, list(each.reached), reached, [bodies[0].inputs[i] for i in reached]))
    return Derived(tuple(results), residuals, tuple(reached))


def switch_gradients(
    f: Function, gys: Sequence[Variable], indexes: Numbers, take: Callable[[int], Variable | None]
) -> list[Variable | None]:
    """The gradient of <gy, body(x)> in x, where the body is the one that is taken"""
    del take
    index, *given = f.inputs
    arrived = tuple([k for k, gy in enumerate(gys) if gy.spec.differentiable and not is_zeros(gy)])
    wanted = tuple([i - 1 for i in indexes if i > 0])
    gxs: list[Variable | None] = [None] * len(f.inputs)
    derived = gradients_of(f.arguments[0], arrived, wanted) if arrived and wanted else None
    if derived is not None and derived.results:
        inputs = (index, *[given[i] for i in derived.residuals], *[gys[k] for k in arrived])
        for i, gx in zip(derived.results, apply(switch_of_bodies, inputs, (derived.bodies,)), strict=True):
            gxs[i + 1] = gx
    return gxs


def switch_backward(f: Function, *gys: Variable) -> list[Variable | None]:
    """The same, of all inputs"""
    return switch_gradients(f, gys, tuple([i for i, x in enumerate(f.inputs) if x.spec.differentiable]), lambda i: None)


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
        inputs = [leaf_of(NdArray.of_spec(spec)) for spec in each.body.inputs]
        tangents = dict(zip(each.moved, each.body.outputs[len(body.outputs) :], strict=True))
        places = [k for k in moved if body.outputs[k] in tangents]
        own = Block(each.body.inputs, each.body.steps, each.body.orders,
                   tuple([tangents[body.outputs[k]] for k in places]), each.body.stops, each.body.places)  # fmt: skip
        results.append(_filled(own, inputs, places, moved, [first.spec(first.outputs[k]) for k in moved]))
    return Derived(tuple(results), tuple(range(len(first.inputs))), tuple(moved))


def switch_tangents(f: Function, ts: Sequence[Variable | None], read: Sequence[bool]) -> list[Variable | None]:
    """The tangent of the body that is taken"""
    index, *given = f.inputs
    moving = tuple([i - 1 for i, t in enumerate(ts) if t is not None])
    asked = tuple([k for k, spec in enumerate(f.specs) if read[k] and spec.differentiable])
    moved: list[Variable | None] = [None] * len(f.specs)
    derived = tangents_of(f.arguments[0], moving, asked)
    if derived.results:
        inputs = (index, *given, *[t for t in ts if t is not None])
        for k, t in zip(derived.results, apply(switch_of_bodies, inputs, (derived.bodies,)), strict=True):
            moved[k] = t
    return moved


registry.add(
    switch_of_bodies,
    Rule(switch_backward, "rule", True, __name__, accumulate=switch_gradients, tangents=switch_tangents),
)
