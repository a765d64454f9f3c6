"""What is in force while a graph is built, per thread; and what the graph asks of the rooms above it."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from .function import Function, RuleCall
    from .op import Op
    from .variable import Variable


class Emission(Protocol):
    """Decides what becomes of an op that the gradient builder applies."""

    call: RuleCall | None
    order: int
    created: list[Function] | None

    def learn(self, known: list[Function]) -> None:
        """Let functions that exist already stand for what is emitted."""

    def emit(self, op: Op, inputs: tuple[Variable, ...], arguments: tuple[Any, ...]) -> Any:
        """The output Variable of `op` applied to `inputs`, or a tuple of them where it has several."""


class Building(threading.local):
    """Switches that hold while functions are applied. Each thread has its own."""

    emission: Emission | None = None
    """Set while a gradient graph is emitted."""
    context: Any = None
    """The Context whose device the functions are meant for; None stands for JAX's default device."""
    auto_forward: bool = False
    """Whether each function is run as it is made."""
    simplify: bool = True
    """Whether emitted graphs are brought to canonical form."""
    no_grad: bool = False
    """Whether gradients stop at what is built."""
    hooks: tuple[Any, ...] = ()
    """Function hooks in force, the oldest first."""
    debug: Any = None
    """What debug mode looks for; None where it is off."""
    mark: Any = None
    """What functions are marked with, so that gradients compute them again and do not keep what they give."""
    special: bool = False
    """Whether auto_forward, no_grad, debug mode or a mark is on; one look instead of four."""
    watched: bool = False
    """Whether hooks or debug mode watch what runs; one look instead of two."""

    def set(self, name: str, value: Any) -> None:
        """Set one switch."""
        setattr(self, name, value)
        self.watched = bool(self.hooks) or self.debug is not None
        self.special = self.auto_forward or self.no_grad or self.debug is not None or self.mark is not None

    @contextmanager
    def having(self, name: str, value: Any) -> Iterator[None]:
        """Set one switch within a `with` block."""
        before = getattr(self, name)
        self.set(name, value)
        try:
            yield
        finally:
            self.set(name, before)


building = Building()


@contextmanager
def collector_paused() -> Iterator[None]:
    """Keep Python's cyclic garbage collector out of a long build.

    A graph holds no cycles, so there is nothing for it to find, yet every few hundred new objects it
    would look through all there are: two thirds of the time that a large gradient takes to build.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class Engine(Protocol):
    """What runs graphs. `nngrad.execution` and `nngrad.gradient` fill it in."""

    def evaluate(self, variable: Variable) -> None:
        """Fill the data cell of a Variable that was never computed."""

    def run_function(self, function: Function) -> None:
        """Compute the outputs of one function from the data of its inputs."""

    def run_functions(self, functions: list[Function]) -> None:
        """Compute the outputs of those functions whose outputs are not there."""

    def forward(self, outputs: list[Variable], **options: Any) -> None:
        """Take a snapshot of the leaves and promise the values of `outputs`."""

    def backward(self, output: Variable, grad: Any, **options: Any) -> None:
        """Accumulate the gradient of `output` into the leaves that need one."""


class _NoEngine:
    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"{name}: graphs run only after `import nngrad`")


class Rooms:
    """The rooms above the graph, as far as the graph calls them."""

    engine: Engine = _NoEngine()
    marks: bool = False
    """Whether a function was ever marked; until then, no gradient looks for marks."""


rooms = Rooms()
