"""Events: what happens to functions as graphs are built, differentiated and run, for what watches (`options.watch`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from .function import Function
    from .op import Op
    from .variable import Variable

Kind = Literal["applied", "emitted", "runs", "ran", "kept", "before", "after"]
MADE: tuple[Kind, ...] = ("applied", "emitted")
"""A function was made: one that the user applied, or one that a gradient emitted."""
RUN: tuple[Kind, ...] = ("runs", "ran", "kept")
"""A function is about to run by itself, or has run; or results that it had in an earlier run are read again."""
AROUND: tuple[Kind, ...] = ("before", "after")
"""A function that the user built runs, or all that one call of a function's backward rule emitted. While anything
listens to these, gradients are not simplified, so that each function has a backward of its own."""
KINDS = (*MADE, *RUN, *AROUND)


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


Listener = Callable[[Event], Any]
