"""Loops that rematerialise: gradients recompute each segment from the carries at its start.

A loop of T steps becomes a loop over segments, each a checkpoint of a loop, and the rules of these do the rest: a
gradient of any order stores the carries between segments, and what one segment needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...graph import Function, Op, Variable, apply, create
from ...graph.block import Block, new_leaves
from ...graph.body_op import Gradients, Numbers
from ...graph.closing import close, derived_once
from ..arithmetic import add2
from ..array import constant, zeros_like
from ..movement import concatenate, reshape
from .alternatives import checkpoint_of_body
from .carries import is_zeros
from .loop import Loop
from .scan_back import loop_gradients


@derived_once
def segment_of(op: Op, loop: Loop) -> Block:
    """A loop as a body: it takes the loop's inputs, with slices of `loop.length` steps."""
    body = loop.body
    specs = [*body.inputs[: loop.first_slice], *[loop.stack_spec(i) for i in range(loop.first_slice, len(body.inputs))]]
    inputs = new_leaves(specs)
    outputs = create(op, tuple(inputs), tuple(loop), order=max(body.orders, default=0))
    return close(outputs[: loop.results], inputs)


@derived_once
def checkpoint_of(body: Block) -> Block:
    """A body that runs another one as a checkpoint."""
    inputs = body.leaves()
    outputs = create(checkpoint_of_body, tuple(inputs), (body, ()), order=max(body.orders, default=0))
    return close(outputs, inputs)


class _Stretch(NamedTuple):
    """A range of steps of a loop, given by the positions of their slices."""

    first: int
    end: int
    whole: bool
    """True if the range covers all steps."""

    def of(self, x: Variable, shape: tuple[int, ...] = ()) -> Variable:
        """The slices of `x`, with the step axis reshaped to `shape` if given."""
        part = x if self.whole else x[self.first : self.end]
        return reshape(part, shape=(*shape, *x.shape[1:])) if shape else part


class _BySegments:
    """The gradients of a loop by segments; `f` itself may run in segments or not."""

    def __init__(self, f: Function, loop: Loop, gys: Sequence[Variable], indexes: Numbers) -> None:
        arrived = [(i, gy) for i, gy in zip(loop.stacked, gys[loop.carries :], strict=False) if not is_zeros(gy)]
        body = loop.body.with_outputs((*loop.body.outputs[: loop.carries], *[i for i, _ in arrived]))
        self.op, self.inputs, self.indexes = f.op, f.inputs, indexes
        self.loop = loop._replace(body=body)
        self.size, (self.count, self.rest) = loop.segments[0], loop.parts
        self.finals = list(gys[: loop.carries])
        self.gys = [gy for _, gy in arrived]
        segments = Loop(*f.arguments).segments
        outputs = f.outputs if segments else apply(f.op, f.inputs, loop)
        self.starts = outputs[loop.first_start :]
        self.at_starts = gys[loop.first_start :] if segments else [zeros_like(x) for x in self.starts]

    def gradients(self) -> Gradients:
        """One gradient for each input."""
        end = self.count * self.size
        reverse, length, rest = self.loop.reverse, self.loop.length, self.rest
        after = self._of_rest(_Stretch(0, rest, False) if reverse else _Stretch(end, length, False)) if rest else None
        whole = _Stretch(rest, length, not rest) if reverse else _Stretch(0, end, not rest)
        before = self._of_segments(whole)
        if after is None:
            return before
        pairs = [(b, a) if reverse else (a, b) for a, b in zip(before, after, strict=True)]
        return [
            gx if self.loop.fixed <= i < self.loop.first_slice else self._joined(i, *pair)
            for i, (gx, pair) in enumerate(zip(before, pairs, strict=True))
        ]

    def _joined(self, i: int, first: Variable | None, second: Variable | None) -> Variable | None:
        """Two parts of the gradient of input `i`: added for a fixed input, concatenated for a scanned one."""
        if first is None and second is None:
            return None
        if i < self.loop.fixed:
            return first if second is None else second if first is None else add2(first, second)
        x, reverse = self.inputs[i], self.loop.reverse
        lengths = (self.rest, x.shape[0] - self.rest) if reverse else (x.shape[0] - self.rest, self.rest)
        parts = [
            constant(0, shape=(n, *x.shape[1:]), dtype=x.dtype) if part is None else part
            for part, n in zip((first, second), lengths, strict=True)
        ]
        return concatenate(*parts, axis=0)

    def _inner(self, length: int) -> Loop:
        """The loop over the steps of a segment."""
        cut = self.loop.segments[1:]
        segments = cut if cut and cut[0] < length else ()
        unroll = max(1, min(self.loop.unroll, length))
        return self.loop._replace(length=length, unroll=unroll, segments=segments)

    def _of_rest(self, stretch: _Stretch) -> Gradients:
        """The gradients of the steps after the last whole segment; `finals` become those of their initial carries."""
        loop = self.loop
        place = 0 if loop.reverse else self.count
        carries = [x[place] for x in self.starts]
        inputs = (
            *self.inputs[: loop.fixed], *carries, *[stretch.of(x) for x in self.inputs[loop.first_slice :]],
        )  # fmt: skip
        outputs = apply(checkpoint_of_body, inputs, (segment_of(self.op, self._inner(self.rest)), ()))
        gys = [*self.finals, *[stretch.of(gy) for gy in self.gys]]
        moving = [i for i in range(loop.fixed, loop.first_slice) if inputs[i].spec.differentiable]
        wanted = tuple(sorted({*self.indexes, *moving}))
        gxs: Gradients = [None] * len(inputs)
        if outputs:
            gxs = checkpoint_of_body.gradients(outputs[0].parent, gys, wanted)
        for j, gc in enumerate(self.at_starts):
            gx = gxs[loop.fixed + j]
            at = None if is_zeros(gc) else gc[place]
            both = [g for g in (gx, at) if g is not None]
            self.finals[j] = add2(*both) if len(both) == 2 else both[0] if both else zeros_like(carries[j])
        return gxs

    def _of_segments(self, stretch: _Stretch) -> Gradients:
        """The gradients of the whole segments, by a loop over them."""
        loop, cut = self.loop, (self.count, self.size)
        body = checkpoint_of(segment_of(self.op, self._inner(self.size)))
        outer = Loop(body, loop.fixed, loop.carries, self.count, loop.reverse, 1)
        first = 1 if self.rest and loop.reverse else 0
        starts = _Stretch(first, first + self.count, not self.rest)
        inputs = [
            *self.inputs[: loop.first_slice], *[stretch.of(x, cut) for x in self.inputs[loop.first_slice :]]
        ]  # fmt: skip
        over_steps = dict(enumerate(inputs)) | {loop.fixed + j: starts.of(x) for j, x in enumerate(self.starts)}
        arrived = [(n, stretch.of(gy, cut)) for n, gy in zip(body.outputs[loop.carries :], self.gys, strict=True)]
        arrived += [(loop.fixed + j, starts.of(gc)) for j, gc in enumerate(self.at_starts) if not is_zeros(gc)]
        gxs = loop_gradients(self.op, outer, inputs, over_steps.__getitem__, self.finals, arrived, self.indexes)
        steps = (self.count * self.size,)
        return [
            reshape(gx, shape=(*steps, *gx.shape[2:])) if gx is not None and i >= loop.first_slice else gx
            for i, gx in enumerate(gxs)
        ]


def gradients(f: Function, loop: Loop, gys: Sequence[Variable], indexes: Numbers) -> Gradients:
    """The gradients of `f`, computed segment by segment if `loop` has segments."""
    if loop.segments:
        return _BySegments(f, loop, gys, indexes).gradients()
    arrived = list(zip(loop.stacked, gys[loop.carries :], strict=True))
    return loop_gradients(
        f.op, loop, f.inputs, lambda i: loop.over_steps(f, i), gys[: loop.carries], arrived, indexes,
        f.outputs[: loop.carries],
    )  # fmt: skip
