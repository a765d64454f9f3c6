"""Derivatives of bodies: the gradient of a body is a body, and so are a body with tangents and a batched one.

Each is derived once per structure, by the traversals that differentiate graphs. How an op with a body uses them is up
to its class (`functions/bodies/`).

For a body in which gradients were taken, such as a training step in a loop, plain reverse mode would read everything
that a gradient g = dU/dx was computed from; U = <seed, u(x, z)> is a number. With v the cotangent of g, the reverse
pass through the functions that compute g is the gradient of <v, g>, which by `symmetry.py` is the derivative of dU/dx
and dU/dz along x := v: forward mode over reverse. So a reverse pass goes as usual from the end of the step to its
gradients, jumps over each to its inputs, and continues from there:

    at g        all v of one gradient have arrived: tangents of dU/dx and dU/dz arrive at x and at the block's inputs z
    at x        if it is a value of the block, its cotangents continue

No second pass reads what the reverse pass of U computes, so that all of it is best recomputed from the block's inputs:
of a loop's steps only the carries are kept. What is not, or may not be, a true second derivative takes the plain
reverse pass; see `obstacle`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from backward_registry import registry

from ..functions.array import zeros_like
from ..graph import Variable, build_options, functions_of, path_between
from ..graph.block import Block, BlockGradient, BlockTangent, OpenedBlock, new_leaves
from ..graph.closing import close, derived_once
from ..graph.origins import GradientTaken
from ..rewrite.builder import emitting
from ..rewrite.numbers import is_zero
from .forward_mode import NoForwardMode, Pushforward
from .symmetry import obstacle, unrelated
from .walk import Grad, Gradients, order_of, sum_of


class _Inner(NamedTuple):
    """A gradient of <seeds, outputs> inside a block."""

    outputs: list[Variable]
    seeds: list[Variable | None]
    pairs: list[tuple[Variable, Variable]]
    """Each input of the gradient, with the result."""
    inputs: list[Variable]
    """All that the gradient is computed from: the inputs in `pairs`, and inputs of the block. None depends on another.
    """
    rank: int
    """Below the ranks of the functions that read the gradients."""


def gradients_past(
    block: Block, opened: OpenedBlock, taken: Sequence[GradientTaken], at: Sequence[Variable], wanted: Sequence[int],
    seeds: Sequence[Variable],
) -> list[Variable] | None:  # fmt: skip
    """The gradients of <seeds, at> with respect to inputs of a block, by forward mode over the gradients inside it;
    None if there are no gradients for which this is correct and useful.

    Args:
        block: The block.
        opened: The block as a graph.
        taken: The gradients inside it.
        at: Values of it.
        wanted: The numbers of the inputs to differentiate by.
        seeds: The cotangents of the values.
    """
    inputs, moving = [opened.inputs[i] for i in wanted], block.reach(wanted)
    _, active, functions = path_between(at, inputs)
    read = {id(x) for f in functions for x in f.inputs} | {id(y) for y in at}
    candidates = [_inner(record, block, opened, moving, inputs) for record in taken]
    inner = [c for c in candidates if c and any([id(g) in active and id(g) in read for _, g in c.pairs])]
    try:
        return _Passes(inner, inputs).gradients(at, seeds) if inner else None
    except NoForwardMode:
        return None


def _inner(
    record: GradientTaken, block: Block, opened: OpenedBlock, moving: set[int], wanted: Sequence[Variable]
) -> _Inner | None:
    """A gradient inside a block, if forward mode can differentiate it; else None."""
    numbers = [(i, j) for i, j in zip(record.inputs, record.results, strict=True) if j is not None]
    if not numbers or not all([i in moving for i, _ in numbers]):
        return None
    outputs, xs, gs = [
        block.picked(opened.inputs, opened.values, listed) for listed in (record.outputs, *zip(*numbers, strict=True))
    ]
    seeds = [None if i is None else block.picked(opened.inputs, opened.values, [i])[0] for i in record.seeds]
    ids = {id(x) for x in xs}
    rank = min([g.parent.rank for g in gs if g.parent is not None])
    inside = [x for x in xs if x.parent is not None]
    if any([x.parent.rank >= rank for x in inside if x.parent is not None]):
        return None
    if any([path_between([x], [z for z in xs if z is not x])[0] for x in inside]):
        return None  # the gradient by one of them has passed through another
    leaves = [z for z in wanted if id(z) not in ids]
    path, _, _ = path_between(outputs, [*xs, *leaves], stop_ids=ids)
    read = {id(x) for f in path for x in f.inputs}
    inputs = [*xs, *[z for z in leaves if id(z) in read]]
    way, _, _ = path_between(gs, inputs, stop_ids=ids)
    # A hyperparameter that is a seed is an input of the block which U does not read: so all that is wanted counts.
    if not unrelated(seeds, [*xs, *wanted]) or obstacle([*path, *way]):
        return None
    return _Inner(outputs, seeds, list(zip(xs, gs, strict=True)), inputs, rank)


class _Passes:
    """Reverse passes between the gradients inside a block.

    Args:
        inner: The gradients inside it.
        wanted: The inputs of the block.
    """

    def __init__(self, inner: Sequence[_Inner], wanted: Sequence[Variable]) -> None:
        self.inner, self.wanted = inner, wanted
        pairs = [pair for gradient in inner for pair in gradient.pairs]
        self.inside = list({id(x): x for x, _ in pairs if x.parent is not None}.values())
        self.stop_gradients = [*self.inside, *[g for _, g in pairs]]
        self.arrived: Gradients = {}

    def gradients(self, at: Sequence[Variable], seeds: Sequence[Variable]) -> list[Variable]:
        """The gradients of <seeds, at> with respect to the wanted inputs."""
        functions = functions_of([*at, *self.stop_gradients])
        events: list[tuple[int, _Inner | Variable]] = [(inner.rank, inner) for inner in self.inner]
        events += [(x.parent.rank, x) for x in self.inside if x.parent is not None]
        with emitting(functions, order_of(functions)):
            self._walk(at, seeds)
            for _, event in sorted(events, key=lambda pair: -pair[0]):
                if isinstance(event, _Inner):
                    self._jump(event)
                else:
                    gx = self._taken(event)
                    if gx is not None:
                        self._walk([event], [gx], event)
            totals = [self._taken(x) for x in self.wanted]
            return [zeros_like(x) if gx is None else gx for x, gx in zip(self.wanted, totals, strict=True)]

    def _walk(self, at: Sequence[Variable], seeds: Sequence[Variable], past: Variable | None = None) -> None:
        """A reverse pass that ends at gradients and their inputs, except the one that it goes `past`."""
        ends = [x for x in (*self.wanted, *self.stop_gradients) if x is not past]
        stop_ids = frozenset([id(x) for x in self.stop_gradients if x is not past])
        self._arrive(ends, Grad(stop_ids=stop_ids, in_body=True)(at, ends, seeds))

    def _jump(self, inner: _Inner) -> None:
        """Jump from gradients to everything they are computed from, by forward mode."""
        moved = [(x, v) for x, g in inner.pairs for v in [self._taken(g)] if v is not None]
        if not moved:
            return
        known = {id(x): g for x, g in inner.pairs}
        missing = [z for z in inner.inputs if id(z) not in known]
        walk = Grad(stop_ids=frozenset(known), in_body=True)
        known |= zip(map(id, missing), walk(inner.outputs, missing, inner.seeds), strict=True)
        bases = [known[id(z)] for z in inner.inputs]
        self._arrive(inner.inputs, Pushforward(in_body=True)(bases, [x for x, _ in moved], [v for _, v in moved]))

    def _arrive(self, at: Sequence[Variable], gradients: Sequence[Variable]) -> None:
        for x, gx in zip(at, gradients, strict=True):
            if not is_zero(gx):
                self.arrived.setdefault(id(x), []).append(gx)

    def _taken(self, x: Variable) -> Variable | None:
        """Remove and return the sum of the cotangents that have arrived at `x`, or None."""
        gxs = self.arrived.pop(id(x), [])
        return gxs[0] if len(gxs) == 1 else sum_of(gxs) if gxs else None


Numbers = tuple[int, ...]


def body_gradient(
    body: Block, seeded: Numbers, wanted: Numbers, fixed: Numbers, held: Numbers
) -> BlockGradient:
    """Implements `Block.gradient`."""
    return _gradient(body, seeded, wanted, fixed, held, registry.version)


@derived_once
def _gradient(
    body: Block, seeded: Numbers, wanted: Numbers, fixed: Numbers, held: Numbers, version: int
) -> BlockGradient:
    """The gradient of a body by the rules of this version of the registry."""
    del version
    taken = body.taken if build_options().emitting.simplify else None
    whole = body if taken is None else taken.block
    opened = whole.opened()
    inputs, values, _ = opened
    at = body.picked(inputs, values, seeded)
    seeds = new_leaves([body.spec(i) for i in seeded])
    past = None if taken is None else gradients_past(whole, opened, taken.gradients, at, wanted, seeds)
    gradients = Grad(in_body=True)(at, [inputs[i] for i in wanted], seeds) if past is None else past
    nonzero = [(i, gx) for i, gx in zip(wanted, gradients, strict=True) if not is_zero(gx)]
    results = [gx for _, gx in nonzero]
    numbers = {id(x): i for i, x in enumerate(inputs)} | {id(y): ~k for k, y in enumerate(values)}
    at_hand = {id(x) for x in body.picked(inputs, values, held)}
    if past is None:
        residuals = _residuals(results, seeds, numbers, {id(x): x for x in body.picked(inputs, values, fixed)}, at_hand)
    else:
        rest = functions_of(results, through=lambda x: id(x) not in at_hand)
        read = {id(x) for f in rest for x in f.inputs}
        residuals = [x for x in (*inputs, *body.picked(inputs, values, [i for i in held if i < 0])) if id(x) in read]
    return BlockGradient(
        close(results, [*residuals, *seeds]), tuple([numbers[id(x)] for x in residuals]),
        tuple([i for i, _ in nonzero]), past is not None,
    )  # fmt: skip


def _residuals(
    results: Sequence[Variable], seeds: Sequence[Variable], numbers: dict[int, int], fixed: dict[int, Variable],
    held: set[int],
) -> list[Variable]:  # fmt: skip
    """The inputs and values of a body from which its gradients are computed, besides the seeds.

    A value of a heavy function is kept if it is read. A light one is recomputed if it depends only on values that are
    kept or available anyway. Whatever depends only on fixed inputs is recomputed too.

    Args:
        results: The gradients.
        seeds: Their seeds.
        numbers: The numbers of the body's inputs and values, by id.
        fixed: Inputs that are the same at each run, and values that are kept in any case, by id.
        held: The ids of inputs and values that are available in any case.
    """
    functions = functions_of(results)
    arriving = {id(x) for x in seeds}
    needed: dict[int, Variable] = {}
    for f in functions:  # the factors of the arriving cotangents
        if any([id(x) in arriving for x in f.inputs]):
            arriving |= {id(y) for y in f.outputs}
            needed |= {id(x): x for x in f.inputs if id(x) not in arriving}
    for f in reversed(functions):  # the sources of values that the gradient adds to the body's own
        if any([id(y) in needed and id(y) not in numbers for y in f.outputs]):
            needed |= {id(x): x for x in f.inputs}
    unchanging = set(fixed)
    residuals = {i: x for i, x in needed.items() if x.parent is None or i in held}
    residuals |= {i: x for i, x in fixed.items() if x.parent is not None}
    at_hand = fixed.keys() | held | residuals.keys()
    for f in functions:
        outputs = {id(y): y for y in f.outputs}
        if unchanging.issuperset([id(x) for x in f.inputs]):
            unchanging |= outputs.keys()
        if unchanging >= outputs.keys() or (not f.heavy and at_hand.issuperset([id(x) for x in f.inputs])):
            at_hand |= outputs.keys()
        elif arriving.isdisjoint(outputs):
            read_later = {i: y for i, y in outputs.items() if i in needed and i in numbers}
            residuals |= read_later
            at_hand |= read_later.keys()
    rest = functions_of(results, through=lambda x: id(x) not in residuals)
    read = {id(x): x for f in rest for x in f.inputs if id(x) in residuals or (id(x) in numbers and x.parent is None)}
    return sorted(read.values(), key=lambda x: _place(numbers[id(x)]))


def _place(number: int) -> tuple[bool, int]:
    """A sort key: inputs first, then values in order."""
    return number < 0, abs(number)


def body_tangent(body: Block, moving: Numbers, along: Numbers, saved: Numbers) -> BlockTangent:
    """Implements `Block.tangent`."""
    return _tangent(body, moving, along, saved, registry.version)


@derived_once
def _tangent(body: Block, moving: Numbers, along: Numbers, saved: Numbers, version: int) -> BlockTangent:
    """A body with tangents by the rules of this version of the registry."""
    del version
    inputs, values, outputs = body.opened()
    directions = new_leaves([body.inputs[i] for i in moving])
    ends = body.picked(inputs, values, along)
    tangents = Pushforward(in_body=True)(ends, [inputs[i] for i in moving], directions)
    nonzero = [(i, t) for i, t in zip(along, tangents, strict=True) if not is_zero(t)]
    return BlockTangent(
        close([*outputs, *[t for _, t in nonzero]], [*inputs, *body.picked(inputs, values, saved), *directions]),
        tuple([i for i, _ in nonzero]),
    )
