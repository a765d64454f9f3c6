"""Bodies differentiated: the gradient of a body is a body, and so is a body with its tangents, or for many values.

Each is derived once for each structure, by the walks that differentiate graphs. What an op with a body does with it,
its class says (`functions/bodies/`).
"""

from __future__ import annotations

from collections.abc import Sequence

from backward_registry import registry

from ..graph import NdArray, Variable, build_options, functions_of
from ..graph.block import Block, BlockGradient, BlockTangent, new_leaves
from ..graph.closing import close
from ..graph.derived import derived_once
from ..graph.spec import spec_of
from ..graph.variable import leaf_of
from ..rewrite.numbers import is_zero
from .forward_mode import Pushforward
from .inner_gradients import gradients_past
from .vectorize import in_batches
from .walk import Grad

Numbers = tuple[int, ...]


def body_gradient(
    body: Block, given: Numbers, wanted: Numbers, fixed: Numbers, held: Numbers
) -> BlockGradient:
    """What `Block.gradient` gives."""
    return _gradient(body, given, wanted, fixed, held, registry.version)


@derived_once
def _gradient(
    body: Block, given: Numbers, wanted: Numbers, fixed: Numbers, held: Numbers, version: int
) -> BlockGradient:
    """The gradient of a body by the rules of this version of the registry."""
    del version
    taken = body.taken if build_options().emitting.simplify else None
    whole = body if taken is None else taken.block
    opened = whole.opened()
    inputs, values, _ = opened
    at = body.picked(inputs, values, given)
    seeds = new_leaves([body.spec(i) for i in given])
    past = None if taken is None else gradients_past(whole, opened, taken.each, at, wanted, seeds)
    gradients = Grad()(at, [inputs[i] for i in wanted], seeds) if past is None else past
    found = [(i, gx) for i, gx in zip(wanted, gradients, strict=True) if not is_zero(gx)]
    results = [gx for _, gx in found]
    numbers = {id(x): i for i, x in enumerate(inputs)} | {id(y): ~k for k, y in enumerate(values)}
    at_hand = {id(x) for x in body.picked(inputs, values, held)}
    if past is None:
        kept = _residuals(results, seeds, numbers, {id(x): x for x in body.picked(inputs, values, fixed)}, at_hand)
    else:
        rest = functions_of(results, through=lambda x: id(x) not in at_hand)
        read = {id(x) for f in rest for x in f.inputs}
        kept = [x for x in (*inputs, *body.picked(inputs, values, [i for i in held if i < 0])) if id(x) in read]
    return BlockGradient(
        close(results, [*kept, *seeds]), tuple([numbers[id(x)] for x in kept]), tuple([i for i, _ in found]),
        past is not None,
    )  # fmt: skip


def _residuals(
    results: Sequence[Variable], seeds: Sequence[Variable], numbers: dict[int, int], fixed: dict[int, Variable],
    held: set[int],
) -> list[Variable]:  # fmt: skip
    """The inputs and values of a body that gradients are computed from, beside the seeds.

    A value that takes a product of matrices is kept, if something reads it. One that is light is computed again where
    it depends on nothing but what is kept or held anyway, and so is what depends on fixed inputs alone.

    Args:
        results: The gradients.
        seeds: What they start from.
        numbers: The numbers of the body's inputs and values, by their ids.
        fixed: By their ids, inputs that are the same at each run, and values that are kept in any case.
        held: The ids of those inputs and values that are there in any case.
    """
    functions = functions_of(results)
    arriving = {id(x) for x in seeds}
    needed: dict[int, Variable] = {}
    for f in functions:  # what is multiplied by what arrives
        if any([id(x) in arriving for x in f.inputs]):
            arriving |= {id(y) for y in f.outputs}
            needed |= {id(x): x for x in f.inputs if id(x) not in arriving}
    for f in reversed(functions):  # of what the gradient adds to the body's own values, what it is made of
        if any([id(y) in needed and id(y) not in numbers for y in f.outputs]):
            needed |= {id(x): x for x in f.inputs}
    unchanging = set(fixed)
    kept = {i: x for i, x in needed.items() if x.parent is None or i in held}
    kept |= {i: x for i, x in fixed.items() if x.parent is not None}
    at_hand = fixed.keys() | held | kept.keys()
    for f in functions:
        made = {id(y): y for y in f.outputs}
        if unchanging.issuperset([id(x) for x in f.inputs]):
            unchanging |= made.keys()
        if unchanging >= made.keys() or (not f.heavy and at_hand.issuperset([id(x) for x in f.inputs])):
            at_hand |= made.keys()
        elif arriving.isdisjoint(made):
            found = {i: y for i, y in made.items() if i in needed and i in numbers}
            kept |= found
            at_hand |= found.keys()
    rest = functions_of(results, through=lambda x: id(x) not in kept)
    read = {id(x): x for f in rest for x in f.inputs if id(x) in kept or (id(x) in numbers and x.parent is None)}
    return sorted(read.values(), key=lambda x: _place(numbers[id(x)]))


def _place(number: int) -> tuple[bool, int]:
    """Inputs first, then values in their order."""
    return number < 0, abs(number)


def body_tangent(body: Block, moving: Numbers, along: Numbers, kept: Numbers) -> BlockTangent:
    """What `Block.tangent` gives."""
    return _tangent(body, moving, along, kept, registry.version)


@derived_once
def _tangent(body: Block, moving: Numbers, along: Numbers, kept: Numbers, version: int) -> BlockTangent:
    """A body with tangents by the rules of this version of the registry."""
    del version
    inputs, values, outputs = body.opened()
    directions = new_leaves([body.inputs[i] for i in moving])
    ends = body.picked(inputs, values, along)
    tangents = Pushforward()(ends, [inputs[i] for i in moving], directions)
    found = [(i, t) for i, t in zip(along, tangents, strict=True) if not is_zero(t)]
    return BlockTangent(
        close([*outputs, *[t for _, t in found]], [*inputs, *body.picked(inputs, values, kept), *directions]),
        tuple([i for i, _ in found]),
    )


@derived_once
def body_batched(
    body: Block, given: tuple[str, ...], count: int, wanted: tuple[int, ...], kinds: tuple[str, ...]
) -> Block:
    """What `Block.batched` gives."""
    inputs, values, _ = body.opened()
    wide = new_leaves([spec_of((count, *x.shape), x.dtype) for x in inputs])
    each = {x: many for x, many, kind in zip(inputs, wide, given, strict=True) if kind == "each"}
    sums = {x: leaf_of(NdArray.of_spec(x.spec)) for x, kind in zip(inputs, given, strict=True) if kind == "sum"}
    outputs = body.picked(inputs, values, wanted)
    instead = each | sums
    return close(in_batches(outputs, each, sums, count, kinds), [instead.get(x, x) for x in inputs])
