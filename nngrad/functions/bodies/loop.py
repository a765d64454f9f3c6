"""Loop: the body of a loop, and the roles of its inputs and outputs."""

from __future__ import annotations

from typing import NamedTuple

from ...graph import Function, Spec, Variable, spec_of
from ...graph.block import Block
from ...graph.closing import derived_once
from .carries import Carried

AT_ONCE = 0
"""In place of a number of steps to unroll: all steps run at once, except on CPUs and if they carry something."""


class Loop(NamedTuple):
    """The static arguments of `scan_of_body`. The inputs of the body are fixed ones, the same at each step, then
    carries, then slices of scanned arrays; its outputs are the next carries, then values to stack."""

    body: Block
    fixed: int
    """The number of inputs that are the same at each step."""
    carries: int
    """The number of carries."""
    length: int
    """The number of steps."""
    reverse: bool
    """True if the steps go from the last slice to the first."""
    unroll: int
    """The number of steps that are unrolled into one iteration of XLA's loop, or `AT_ONCE`."""
    segments: tuple[int, ...] = ()
    """The number of steps of a segment, if gradients recompute what they need segment by segment; then that of the
    segments into which each is cut in turn; and so on."""

    @property
    def parts(self) -> tuple[int, int]:
        """The number of whole segments, and the number of remaining steps."""
        return divmod(self.length, self.segments[0])

    @property
    def first_slice(self) -> int:
        """The index of the first input that is a slice."""
        return self.fixed + self.carries

    @property
    def stacked(self) -> tuple[int, ...]:
        """The values of the body, by number, whose stacks the op returns after the carries: the body's stacked outputs,
        the carries before each step, and all its other values."""
        before = range(self.fixed, self.first_slice)
        return (*self.body.outputs[self.carries :], *before, *[~k for k in range(len(self.body.specs))])

    @property
    def places(self) -> dict[int, int]:
        """For each of these values, the index of the op's output that is its stack."""
        return {number: self.carries + k for k, number in reversed([*enumerate(self.stacked)])}

    @property
    def results(self) -> int:
        """The number of outputs that the body declares: final carries and stacks."""
        return len(self.body.outputs)

    def over_steps(self, f: Function, number: int) -> Variable:
        """The Variable with this value of all steps, stacked; or the value itself if it is fixed."""
        if 0 <= number < self.fixed or number >= self.first_slice:
            return f.inputs[number]
        return f.outputs[self.places[number]]

    @property
    def first_start(self) -> int:
        """The index of the first of the last outputs, which are the carries before each segment."""
        return self.carries + len(self.stacked)

    def first_steps(self) -> list[int]:
        """The first step that runs in each segment, in the order of the slices."""
        size, (_, rest) = self.segments[0], self.parts
        if self.reverse:
            return [end - 1 for end in ([rest] if rest else []) + [*range(rest + size, self.length + 1, size)]]
        return [*range(0, self.length, size)]

    def start_specs(self) -> tuple[Spec, ...]:
        """Shapes and dtypes of the carries before each segment, stacked; empty without segments."""
        if not self.segments:
            return ()
        count = -(-self.length // self.segments[0])
        carried = [self.body.inputs[i] for i in range(self.fixed, self.first_slice)]
        return tuple([spec_of((count, *spec.shape), spec.dtype) for spec in carried])

    @property
    def carried(self) -> Carried:
        """The body with its carries."""
        return Carried(self.body, self.fixed, self.carries)

    def stack_spec(self, number: int) -> Spec:
        """Shape and dtype of a value of the body, stacked."""
        spec = self.body.spec(number)
        return spec_of((self.length, *spec.shape), spec.dtype)


class Settled(NamedTuple):
    """A loop without its unchanging carries, which have become fixed inputs."""

    loop: Loop
    inputs: tuple[int, ...]
    """For each of its inputs, the index of the original input."""
    unchanging: frozenset[int]
    """The positions of the removed carries."""


@derived_once
def settled(loop: Loop) -> Settled | None:
    """Returns the loop with unchanging carries made fixed inputs; None if every carry changes."""
    body, carried = loop.body, range(loop.fixed, loop.first_slice)
    unchanging = [i for i in carried if body.outputs[i - loop.fixed] == i]
    if not unchanging:
        return None
    others = [i for i in carried if i not in unchanging]
    order = (*range(loop.fixed), *unchanging, *others, *range(loop.first_slice, len(body.inputs)))
    places = {i: k for k, i in enumerate(order)}
    moved = body.with_inputs(tuple([body.inputs[i] for i in order]), [places[i] for i in range(len(order))])
    outputs = (*[moved.outputs[i - loop.fixed] for i in others], *moved.outputs[loop.carries :])
    changing = moved.with_outputs(outputs)
    fixed = loop.fixed + len(unchanging)
    return Settled(
        loop._replace(body=changing, fixed=fixed, carries=len(others)), order,
        frozenset([i - loop.fixed for i in unchanging]),
    )  # fmt: skip
