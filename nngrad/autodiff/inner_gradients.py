"""The gradient of a block in which gradients were taken, as of a step of training in the body of a loop.

In it g = dU/dx is the gradient of a number U = <seed, u(x, z)>. With v what arrives at g, the reverse pass through the
functions that compute g is the gradient of <v, g>, and `symmetry.py` tells why it is the derivative of dU/dx and dU/dz
along x := v: forward mode over reverse. So a reverse pass through a step goes as usual from its end to its gradients,
jumps over each to what that is a gradient of, and goes on from there:

    at g        all v of one gradient are there: tangents of dU/dx and dU/dz arrive at x and at the block's inputs z
    at x        where it is a value of the block, what has arrived at it goes on

Nothing that the reverse pass of U computes is read by a second one, so that all of it is best computed again from the
block's inputs: of a loop's steps nothing is kept but the carries.

What is no true second derivative, or may be none, takes the plain reverse pass; see `obstacle`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..functions.array import zeros_like
from ..graph import Variable, functions_of, path_between
from ..graph.block import Block, OpenedBlock
from ..graph.taken import GradientTaken
from ..rewrite.builder import emitting
from ..rewrite.numbers import is_zero
from .forward_mode import NoForwardMode, Pushforward
from .symmetry import obstacle, unrelated
from .walk import Grad, Gradients, order_of, sum_of


class _Inner(NamedTuple):
    """A gradient of <seeds, outputs> in a block."""

    outputs: list[Variable]
    seeds: list[Variable | None]
    pairs: list[tuple[Variable, Variable]]
    """What it is the gradient by, with the gradient."""
    inputs: list[Variable]
    """What all of it is computed from: of the pairs the first, and inputs of the block. None depends on another."""
    rank: int
    """Below that of the functions which read the gradients."""


def gradients_past(
    block: Block, opened: OpenedBlock, taken: Sequence[GradientTaken], at: Sequence[Variable], wanted: Sequence[int],
    seeds: Sequence[Variable],
) -> list[Variable] | None:  # fmt: skip
    """Returns the gradients of <seeds, at> in inputs of a block, by forward mode over the gradients in it; None where
    there are none for which that is right, and of use.

    Args:
        block: The block.
        opened: The block as a graph.
        taken: The gradients in it.
        at: Values of it.
        wanted: The numbers of the inputs.
        seeds: What arrives at the values.
    """
    inputs, moving = [opened.inputs[i] for i in wanted], block.reach(wanted)
    _, active, functions = path_between(at, inputs)
    read = {id(x) for f in functions for x in f.inputs} | {id(y) for y in at}
    found = [_inner(given, block, opened, moving, inputs) for given in taken]
    inner = [each for each in found if each and any([id(g) in active and id(g) in read for _, g in each.pairs])]
    try:
        return _Passes(inner, inputs).gradients(at, seeds) if inner else None
    except NoForwardMode:
        return None


def _inner(
    given: GradientTaken, block: Block, opened: OpenedBlock, moving: set[int], wanted: Sequence[Variable]
) -> _Inner | None:
    """A gradient in a block, if forward mode may go over it."""
    numbers = [(i, j) for i, j in zip(given.inputs, given.results, strict=True) if j is not None]
    if not numbers or not all([i in moving for i, _ in numbers]):
        return None
    outputs, xs, gs = [
        block.picked(opened.inputs, opened.values, each) for each in (given.outputs, *zip(*numbers, strict=True))
    ]
    seeds = [None if i is None else block.picked(opened.inputs, opened.values, [i])[0] for i in given.seeds]
    own = {id(x) for x in xs}
    rank = min([g.parent.rank for g in gs if g.parent is not None])
    inside = [x for x in xs if x.parent is not None]
    if any([x.parent.rank >= rank for x in inside if x.parent is not None]):
        return None
    if any([path_between([x], [z for z in xs if z is not x])[0] for x in inside]):
        return None  # the gradient by one of them has passed another
    leaves = [z for z in wanted if id(z) not in own]
    path, _, _ = path_between(outputs, [*xs, *leaves], stop_ids=own)
    read = {id(x) for f in path for x in f.inputs}
    inputs = [*xs, *[z for z in leaves if id(z) in read]]
    way, _, _ = path_between(gs, inputs, stop_ids=own)
    if not unrelated(seeds, [*xs, *wanted]) or obstacle([*path, *way]):
        return None
    return _Inner(outputs, seeds, list(zip(xs, gs, strict=True)), inputs, rank)


class _Passes:
    """Reverse passes from gradients to gradients.

    Args:
        inner: The gradients within.
        wanted: The inputs of the block.
    """

    def __init__(self, inner: Sequence[_Inner], wanted: Sequence[Variable]) -> None:
        self.inner, self.wanted = inner, wanted
        pairs = [pair for each in inner for pair in each.pairs]
        self.inside = list({id(x): x for x, _ in pairs if x.parent is not None}.values())
        self.stop_gradients = [*self.inside, *[g for _, g in pairs]]
        self.arrived: Gradients = {}

    def gradients(self, at: Sequence[Variable], seeds: Sequence[Variable]) -> list[Variable]:
        """Returns those of <seeds, at> in what is wanted."""
        functions = functions_of([*at, *self.stop_gradients])
        events: list[tuple[int, _Inner | Variable]] = [(each.rank, each) for each in self.inner]
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
            found = [self._taken(x) for x in self.wanted]
            return [zeros_like(x) if gx is None else gx for x, gx in zip(self.wanted, found, strict=True)]

    def _walk(self, at: Sequence[Variable], seeds: Sequence[Variable], past: Variable | None = None) -> None:
        """A reverse pass that ends at gradients and at what they are by, but for one that it goes `past`."""
        ends = [x for x in (*self.wanted, *self.stop_gradients) if x is not past]
        stop_ids = frozenset([id(x) for x in self.stop_gradients if x is not past])
        self._arrive(ends, Grad(stop_ids=stop_ids)(at, ends, seeds))

    def _jump(self, inner: _Inner) -> None:
        """From gradients to what they are computed from, by forward mode."""
        moved = [(x, v) for x, g in inner.pairs for v in [self._taken(g)] if v is not None]
        if not moved:
            return
        known = {id(x): g for x, g in inner.pairs}
        missing = [z for z in inner.inputs if id(z) not in known]
        walk = Grad(stop_ids=frozenset(known))
        known |= zip(map(id, missing), walk(inner.outputs, missing, inner.seeds), strict=True)
        bases = [known[id(z)] for z in inner.inputs]
        self._arrive(inner.inputs, Pushforward()(bases, [x for x, _ in moved], [v for _, v in moved]))

    def _arrive(self, at: Sequence[Variable], gradients: Sequence[Variable]) -> None:
        for x, gx in zip(at, gradients, strict=True):
            if not is_zero(gx):
                self.arrived.setdefault(id(x), []).append(gx)

    def _taken(self, x: Variable) -> Variable | None:
        """Returns the sum of what has arrived at `x`."""
        gxs = self.arrived.pop(id(x), [])
        return gxs[0] if len(gxs) == 1 else sum_of(gxs) if gxs else None
