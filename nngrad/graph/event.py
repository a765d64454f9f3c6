"""Events: what happens to functions as graphs are built, differentiated and run, and to programs as they are prepared
and compiled, for what watches (`options.watch`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from .block import Block
    from .function import Function
    from .messages import SourceLocation
    from .op import Op
    from .variable import Variable

Kind = Literal["applied", "emitted", "runs", "ran", "kept", "before", "after", "passed", "compiled"]
MADE: tuple[Kind, ...] = ("applied", "emitted")
"""A function was made: one that the user applied, or one that a gradient emitted."""
RUN: tuple[Kind, ...] = ("runs", "ran", "kept")
"""A function is about to run by itself, or has run; or results that it had in an earlier run are read again."""
AROUND: tuple[Kind, ...] = ("before", "after")
"""A function that the user built runs, or all that one call of a function's backward rule emitted. While anything
listens to these, gradients are not simplified, so that each function has a backward of its own."""
OF_PROGRAMS: tuple[Kind, ...] = ("passed", "compiled")
"""A pass has prepared a program for the compiler (`PassEvent`), or a program was compiled (`CompilationEvent`)."""
KINDS = (*MADE, *RUN, *AROUND, *OF_PROGRAMS)


class Execution:
    """One run of a graph, function by function."""

    __slots__ = ("__weakref__", "outputs")

    def __init__(self, outputs: Iterable[Variable]) -> None:
        self.outputs = tuple(outputs)
        """The Variables that it computes."""


class Event(NamedTuple):
    """Something that happens to a function."""

    kind: Kind
    function: Function
    inputs: tuple[Any, ...] = ()
    """The arrays of its inputs, when it runs; they must not be written to."""
    results: tuple[Any, ...] = ()
    """The arrays of its outputs, once it has run."""
    gradients: tuple[Any, ...] | None = None
    """When its backward runs, the gradient of each output, None for an output without one."""
    execution: Execution | None = None
    """The run that "runs", "ran" and "kept" belong to."""

    @property
    def rule(self) -> Op | None:
        """The op whose backward rule emitted the function."""
        origin = self.function.origin
        return None if origin is None else origin.op

    @property
    def place(self) -> Any:
        """Where the user called the function, or that whose gradient it is part of, as far as that was recorded."""
        f = self.function
        while f.origin is not None:
            f = f.origin
        return getattr(f, "location", None)


class PassEvent(NamedTuple):
    """A pass has prepared a program for the compiler."""

    name: str
    what: str
    """What the pass looks for."""
    left_out: bool
    """True where `nn.passes` leaves it out."""
    before: Block
    after: Block
    """The same block where the pass changes nothing; also where it cuts."""
    hoisted: int = 0
    """How many numbers it has turned into inputs."""
    partitions: Sequence[Block] = ()
    """The partitions into which it cuts the block; those that are equal are compiled once."""
    kind: Kind = "passed"


class CompilationEvent(NamedTuple):
    """A program has been compiled."""

    seconds: float
    """How long that took, with tracing and lowering."""
    program: Any
    """The program, when it is compiled for the first time; None later, and for functions that are no program."""
    place: SourceLocation | None
    """The line of the user's program that asked for it."""
    kind: Kind = "compiled"


Listener = Callable[[Any], Any]
