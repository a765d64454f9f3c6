"""Ops that have blocks among their static arguments: loops, branches, checkpoints, equations.

All that is known of one is a method of its class, in `nngrad/functions/bodies/`. Whoever differentiates, batches,
rewrites, runs or shows graphs asks these methods, and names no such op.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, TypeVar

from .op import Forward, Op

if TYPE_CHECKING:
    from ..functions.operands import Operand
    from .block import Block
    from .function import Function
    from .spec import Spec
    from .variable import Variable

V = TypeVar("V")

Gradients = list["Variable | None"]
"""One for each of some Variables; None for zero."""
Numbers = tuple[int, ...]
Axes = tuple[int, ...]
Followed = Mapping[int, Axes | None]
"""By number, for each that depends on what is followed: the axes that this has become, or None where some are mixed."""
Given = Sequence[tuple[int, Axes | None]]
"""The same of inputs, as pairs."""
Walk = Callable[[Sequence["Function"], dict[int, Axes | None], int], None]
"""Goes through functions, and enters what becomes of the axes, by the ids of Variables; the last is how many axes."""
Results = Sequence["Variable | None"]
Kinds = tuple[str, ...]
"""For each input or output "each" where it has the batch axis, "sum" where its sum over that axis stands for it, or
nothing."""
Demanded = Callable[["Block", Numbers, Numbers, Numbers], tuple[Numbers, Numbers]]
"""Of a block, the inputs that have the batch axis, the numbers of what is wanted for each element, and as its sum: the
inputs that are needed for each element, and as their sums."""

Anew = Callable[[], Callable[["Block", list["Variable"]], list["Variable"]]]
"""Gives a function that puts a block on some inputs, with each expression once, and returns its values."""


class Within(NamedTuple):
    """A body of an op."""

    role: str
    """What it is called: 'body', 'condition', 'branch 1'."""
    body: Block
    runs: int
    """How often it runs; once, if that is not known."""
    inputs: tuple[str, ...]
    """A name for each of its inputs."""
    outputs: tuple[str, ...]
    """A name for each of its outputs."""
    taken: tuple[int, ...]
    """For each of its inputs, the input of the op that it is, begins as, or is a slice of."""
    gives: tuple[tuple[str, int | None], ...] = ()
    """For each output of the op what it is ('at the end', 'of each step', or nothing to add) of which value of the
    body, by its number, None where another body gives it; empty for a body that gives none."""
    alternative: bool = False
    """Whether one of several such bodies runs, and not each."""


class Steps(Protocol[V]):
    """What runs the bodies of one function, a step at a time, on values of its own kind."""

    def run(self, role: str, body: Block, inputs: Sequence[V], number: int | None = None) -> list[V]:
        """The values of a body, as `Block.run` gives them; `number` is that of the step, if there are several."""
        ...

    def array(self, x: V) -> Any:
        """The array of a value."""
        ...

    def slice(self, x: V, number: int) -> V:
        """A slice along the first axis."""
        ...

    def stack(self, xs: Sequence[V], spec: Spec) -> V:
        """What is stacked along a new first axis; `spec` says what comes of it, where there is nothing to stack."""
        ...


class FusedFunctions(NamedTuple):
    """Several functions of one op as one function."""

    members: Numbers
    """Which of the functions that were asked about."""
    arguments: tuple[Any, ...]
    ins: Numbers
    outs: tuple[Numbers, ...]
    """For each member, which outputs of the one are its own."""


class Smaller(NamedTuple):
    """A function of an op that takes the place of a larger one of it."""

    arguments: tuple[Any, ...]
    inputs: Numbers
    """Which of the inputs of the larger one it has."""
    outputs: tuple[int | tuple[int, int] | None, ...]
    """For each output of the larger one the output that it is; or an input of the larger one, and for how many steps
    that is repeated, 0 for not at all; None where it can be had of the larger one alone."""


class BodyOp(Op):
    """An op that runs blocks which are among its static arguments."""

    def __init__(self, forward: Forward, *, type_name: str = "", **facts: Any) -> None:
        super().__init__(forward, type_name=type_name, **{"cost": self.operations} | facts)

    @classmethod
    def declared(cls, *, type_name: str = "", **facts: Any) -> Callable[[Forward], Self]:
        """Make such an op of the decorated function on arrays; as `op`."""
        return lambda forward: cls(forward, type_name=type_name, **facts)

    def operations(self, f: Function) -> int:
        """About how many operations a Function of it takes."""
        raise NotImplementedError

    # ---------------------------------------------------------------- derivatives

    def gradients(self, f: Function, gys: Sequence[Variable], indexes: Numbers) -> Gradients:
        """The gradients in those inputs that `indexes` has; the others may be None."""
        raise NotImplementedError

    def backward(self, f: Function, *gys: Variable) -> Gradients:
        """The gradients in all inputs"""
        return self.gradients(f, gys, tuple([i for i, x in enumerate(f.inputs) if x.spec.differentiable]))

    def tangents(self, f: Function, ts: Results, read: Sequence[bool]) -> Gradients:
        """The tangent of each output.

        Args:
            f: The function.
            ts: The tangent of each input; None for zero.
            read: For each output whether somebody reads it; the others' tangents may be left out.
        """
        raise NotImplementedError

    # ---------------------------------------------------------------- axes

    def dependence(self, arguments: tuple[Any, ...], given: Sequence[bool]) -> Sequence[bool] | None:
        """Which outputs depend on the inputs that are `given`, of which there are some; None: all of them do."""
        return None

    def followed(self, f: Function, given: Given, count: int, walk: Walk) -> Followed | None:
        """Where `count` axes of some inputs are carried, for each output that depends on these inputs; None where the
        fact `axes` says it."""
        return None

    def batched(self, f: Function, operands: Sequence[Operand], read: Sequence[bool]) -> Results | None:
        """The outputs for inputs with one more, leading, axis: with the axis where they depend on what has it.

        Args:
            f: The function.
            operands: What its inputs become.
            read: For each output whether somebody reads it. What nobody reads may be None.

        Returns:
            The outputs; None to have the op mapped along the axis.
        """
        return None

    def commutes(self, f: Function, index: int) -> bool:
        """Whether the sum over the batch axis, which input `index` alone has, is the function of that input's sum."""
        return self.linear_in(index)


class ControlOp(BodyOp):
    """An op that runs its blocks as they are, so that it can be looked into: control flow, and checkpoints."""

    is_loop = False
    """Whether it runs a body so many times: such functions may be one (`sibling_fusion`), and so may their carries."""

    # ---------------------------------------------------------------- looked into

    def within(self, arguments: tuple[Any, ...], count: int) -> tuple[Within, ...]:
        """The bodies, for static arguments and a number of inputs."""
        raise NotImplementedError

    def run_in_steps(self, arguments: tuple[Any, ...], inputs: Sequence[Any], steps: Steps[Any]) -> Sequence[Any]:
        """The outputs, as the forward computes them; `steps` runs the bodies."""
        raise NotImplementedError

    # ---------------------------------------------------------------- run

    def inlines_to(self, arguments: tuple[Any, ...]) -> Block | None:
        """For a function that is just a body: the body, which runs in its place."""
        return None

    def running(self, arguments: tuple[Any, ...], read: Sequence[bool]) -> Sequence[Block]:
        """The bodies of whose values nobody sees, each with the outputs that are wanted where of the op's outputs those
        are read for which `read` is true."""
        return ()

    def steps_to_cut(self, f: Function) -> int | None:
        """For a loop whose gradient can compute it again segment by segment: how many steps it has; 0 where that is
        settled already."""
        return None

    def sibling_fusion(self, applications: Sequence[tuple[tuple[Any, ...], Numbers]]) -> list[FusedFunctions]:
        """Which of several functions of it are one function that saves work; none of them depends on another.

        Args:
            applications: For each the static arguments and the numbers of the inputs.
        """
        return []

    # ---------------------------------------------------------------- sums over the batch axis

    def sums(
        self, arguments: tuple[Any, ...], moved: Sequence[bool], each: Sequence[bool], sums: Sequence[bool],
        demanded: Demanded,
    ) -> Kinds | None:  # fmt: skip
        """What is needed of each input, where sums of outputs are wanted; None where that is each element of all.

        Args:
            arguments: The static arguments.
            moved: For each input whether it has the axis.
            each: For each output whether each element of it is wanted.
            sums: For each output whether its sum is wanted.
            demanded: Says this of a block.
        """
        return None

    def in_kinds(
        self, f: Function, operands: Sequence[Operand], kinds: Kinds, read: Sequence[str], count: int
    ) -> tuple[Results, Results]:
        """The outputs, and their sums, of a function that is given what `sums` says; None for what is not read.

        Args:
            f: The function.
            operands: What its inputs become.
            kinds: For each input what is given of it.
            read: For each output "each", "sum", or "" for nothing.
            count: The size of the axis.
        """
        raise NotImplementedError

    # ---------------------------------------------------------------- rewriting

    def with_equal_carries(
        self, inputs: tuple[Variable, ...], arguments: tuple[Any, ...], anew: Anew
    ) -> Smaller | None:
        """A loop in which carries that are always equal are one; None if there are none.

        Args:
            inputs: What it would be applied to.
            arguments: Its static arguments.
            anew: Gives what brings bodies to canonical form.
        """
        return None

    def with_changing_carries(self, arguments: tuple[Any, ...]) -> Smaller | None:
        """A loop whose carries are changed by some step; None if all of them are."""
        return None


def in_place_of(op: Op, arguments: tuple[Any, ...]) -> Block | None:
    """The body that a function is, if it is just that."""
    return op.inlines_to(arguments) if isinstance(op, ControlOp) else None


def dependence(op: Op, arguments: tuple[Any, ...], given: Sequence[bool], count: int) -> Sequence[bool]:
    """Which of `count` outputs depend on the inputs that are `given`, of which there are some."""
    found = op.dependence(arguments, given) if isinstance(op, BodyOp) else None
    return [True] * count if found is None else found


def bodies_of(f: Function) -> tuple[Within, ...]:
    """The bodies of a function that can be looked into; none for most."""
    return f.op.within(f.arguments, len(f.inputs)) if isinstance(f.op, ControlOp) else ()
