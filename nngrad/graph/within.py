"""What an op says of the bodies that it has: which they are, and how it runs them one step after another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from .block import Block
from .spec import Spec

V = TypeVar("V")


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
    gives: tuple[tuple[str, int], ...] = ()
    """For each output of the op what it is ('at the end', 'of each step', or nothing to add) of which value of the
    body, by its number; empty for a body that gives none."""
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
