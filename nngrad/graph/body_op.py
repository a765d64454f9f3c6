"""Ops with blocks among their static arguments: loops, branches, checkpoints, equations.

Everything about such an op is a method of its class, in `nngrad/functions/bodies/`. The code that differentiates,
batches, rewrites, runs or shows graphs calls these methods, and names no op.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, TypeVar

from .op import Forward, Op

if TYPE_CHECKING:
    from ..functions.operands import Operand
    from .block import Block, Call
    from .function import Function
    from .spec import Spec
    from .variable import Variable

V = TypeVar("V")

Gradients = list["Variable | None"]
"""One gradient per Variable; None for zero."""
Numbers = tuple[int, ...]
Axes = tuple[int, ...]
Followed = Mapping[int, Axes | None]
"""By number, for each value that depends on the followed axes: where these axes are now, or None if one is mixed."""
Given = Sequence[tuple[int, Axes | None]]
"""The same for inputs, as pairs."""
Walk = Callable[[Sequence["Function"], dict[int, Axes | None], int], None]
"""Follows axes through functions, and records where they are by the ids of Variables; the int is their number."""
Results = Sequence["Variable | None"]

Anew = Callable[[], Callable[["Block", list["Variable"]], list["Variable"]]]
"""Returns a function that applies a block to inputs, merging common subexpressions, and returns its values."""


class Within(NamedTuple):
    """One body of an op, and how its inputs and outputs relate to the op's."""

    role: str
    """Its name: 'body', 'condition', 'branch 1'."""
    body: Block
    runs: int
    """How often it runs; 1 if that is unknown."""
    inputs: tuple[str, ...]
    """The name of each input."""
    outputs: tuple[str, ...]
    """The name of each output."""
    taken: tuple[int, ...]
    """For each input of the body, the input of the op that it is, starts as, or is a slice of."""
    gives: tuple[tuple[str, int | None], ...] = ()
    """For each output of the op, its relation ('at the end', 'of each step', or '') to a value of the body, and that
    value's number, None if another body computes it; empty for a body that computes no output."""
    alternative: bool = False
    """Whether only one of several such bodies runs."""


class Steps(Protocol[V]):
    """Runs the bodies of one function step by step, on values of its own kind."""

    def run(self, role: str, body: Block, inputs: Sequence[V], number: int | None = None) -> list[V]:
        """The values of a body, as from `Block.run`; `number` is the index of the step, if there are several."""
        ...

    def array(self, x: V) -> Any:
        """The array of a value."""
        ...

    def slice(self, x: V, number: int) -> V:
        """One slice along the first axis."""
        ...

    def stack(self, xs: Sequence[V], spec: Spec) -> V:
        """Stack values along a new first axis; `spec` gives the result's shape and dtype if there are none."""
        ...


class FusedFunctions(NamedTuple):
    """Several functions of one op, fused into one."""

    members: Numbers
    """The indices of the functions that are fused."""
    arguments: tuple[Any, ...]
    ins: Numbers
    outs: tuple[Numbers, ...]
    """For each member, its outputs among those of the fused function."""


class Smaller(NamedTuple):
    """A smaller function of an op that replaces a larger one."""

    arguments: tuple[Any, ...]
    inputs: Numbers
    """Which inputs of the larger function it takes."""
    outputs: tuple[int | tuple[int, int] | None, ...]
    """For each output of the larger function: the output that equals it; or an input of the larger one, and for how
    many steps it is repeated, 0 for not at all; None if only the larger one can give it."""


class BodyOp(Op):
    """An op that runs blocks given as static arguments."""

    def __init__(self, forward: Forward, *, type_name: str = "", **facts: Any) -> None:
        super().__init__(forward, type_name=type_name, **{"cost": self.operations} | facts)

    @classmethod
    def declared(cls, *, type_name: str = "", **facts: Any) -> Callable[[Forward], Self]:
        """Decorate a function on arrays to make such an op, as `op` does."""
        return lambda forward: cls(forward, type_name=type_name, **facts)

    def operations(self, f: Function) -> int:
        """The approximate number of operations of a Function of it."""
        raise NotImplementedError

    # ---------------------------------------------------------------- derivatives

    def gradients(self, f: Function, gys: Sequence[Variable], indexes: Numbers) -> Gradients:
        """The gradients with respect to the inputs at `indexes`; those of the others may be None."""
        raise NotImplementedError

    def backward(self, f: Function, *gys: Variable) -> Gradients:
        """The gradients with respect to all inputs."""
        return self.gradients(f, gys, tuple([i for i, x in enumerate(f.inputs) if x.spec.differentiable]))

    def tangents(self, f: Function, ts: Results, read: Sequence[bool]) -> Gradients:
        """The tangent of each output.

        Args:
            f: The function.
            ts: The tangent of each input; None for zero.
            read: For each output, whether it is read; the tangents of others may be left out.
        """
        raise NotImplementedError

    # ---------------------------------------------------------------- axes

    def dependence(self, arguments: tuple[Any, ...], marked: Sequence[bool]) -> Sequence[bool] | None:
        """For each output, True if it depends on an input that is `marked`, as at least one is; None: all do."""
        return None

    def followed(self, f: Function, axes_of_inputs: Given, count: int, walk: Walk) -> Followed | None:
        """For each output that depends on the given inputs, where `count` of their axes are carried; None if the fact
        `axes` determines it."""
        return None

    def batched(self, f: Function, operands: Sequence[Operand], read: Sequence[bool]) -> Results | None:
        """The outputs for inputs with one more leading axis; they have the axis if they depend on an input that has it.

        Args:
            f: The function.
            operands: The batched inputs.
            read: For each output, whether it is read. Others may be None.

        Returns:
            The outputs; None to have the op mapped over the axis.
        """
        return None

    def commutes(self, f: Function, index: int) -> bool:
        """True if the op commutes with the sum over the batch axis if only input `index` has that axis."""
        return self.linear_in(index)


class ControlOp(BodyOp):
    """An op that runs its blocks unchanged, so that tools can look into it: control flow and checkpoints."""

    is_loop = False
    """Whether it is a loop of a known number of steps: such functions may be fused (`sibling_fusion`), and equal
    carries merged."""
    is_choice = False
    """Whether its first input selects which of several bodies runs, a tuple that is the first static argument."""

    # ---------------------------------------------------------------- looked into

    def within(self, arguments: tuple[Any, ...], count: int) -> tuple[Within, ...]:
        """Its bodies, for given static arguments and a number of inputs."""
        raise NotImplementedError

    def run_in_steps(self, arguments: tuple[Any, ...], inputs: Sequence[Any], steps: Steps[Any]) -> Sequence[Any]:
        """The outputs, as the forward computes them, with `steps` running the bodies."""
        raise NotImplementedError

    # ---------------------------------------------------------------- run

    def results_for_users(self, arguments: tuple[Any, ...]) -> int | None:
        """How many of the outputs, the first ones, users get, while the others serve derivatives; None for all."""
        return None

    def inlines_to(self, arguments: tuple[Any, ...]) -> Block | None:
        """The body that runs in place of a function which only wraps it, or None."""
        return None

    def running(self, arguments: tuple[Any, ...], read: Sequence[bool]) -> Sequence[Block]:
        """The bodies whose values stay internal, each with the outputs that are needed for the op's outputs at which
        `read` is true."""
        return ()

    def steps_to_cut(self, f: Function) -> int | None:
        """The number of steps of a loop whose gradient can recompute it segment by segment; 0 if the segments are
        already chosen."""
        return None

    def sibling_fusion(self, applications: Sequence[tuple[tuple[Any, ...], Numbers]]) -> list[FusedFunctions]:
        """The groups of independent functions of this op that can be fused into one function to save work.

        Args:
            applications: For each function, its static arguments and the numbers of its inputs.
        """
        return []

    def chosen_together(self, calls: Sequence[Call]) -> tuple[tuple[Any, ...], Numbers]:
        """The static arguments and inputs of one function for several that make the same choice. Its outputs are
        theirs, one after another; each may take those of the ones before."""
        raise NotImplementedError

    def showing(self, arguments: tuple[Any, ...], read: Sequence[bool]) -> tuple[tuple[Any, ...], Sequence[int]]:
        """Static arguments with which only outputs of the bodies are outputs of the op, not other values in them; and
        for each output of the op at which `read` is true, its index, from the end if that is negative."""
        return arguments, range(len(read))

    # ---------------------------------------------------------------- rewriting

    def with_equal_carries(
        self, inputs: tuple[Variable, ...], arguments: tuple[Any, ...], anew: Anew
    ) -> Smaller | None:
        """A loop with carries that are always equal merged into one; None if there are none.

        Args:
            inputs: The inputs of the present loop.
            arguments: Its static arguments.
            anew: Makes the function that brings bodies to canonical form.
        """
        return None

    def with_changing_carries(self, arguments: tuple[Any, ...]) -> Smaller | None:
        """A loop with only the carries that some step changes; None if all are."""
        return None


def in_place_of(op: Op, arguments: tuple[Any, ...]) -> Block | None:
    """The body that a function merely wraps, or None."""
    return op.inlines_to(arguments) if isinstance(op, ControlOp) else None


def dependence(op: Op, arguments: tuple[Any, ...], marked: Sequence[bool], count: int) -> Sequence[bool]:
    """For each of `count` outputs, True if it depends on an input that is `marked`, as at least one is."""
    declared = op.dependence(arguments, marked) if isinstance(op, BodyOp) else None
    return [True] * count if declared is None else declared


def bodies_of(f: Function) -> tuple[Within, ...]:
    """The bodies of a function that can be looked into; empty for most ops."""
    return f.op.within(f.arguments, len(f.inputs)) if isinstance(f.op, ControlOp) else ()
