"""What the graph asks of the rooms above it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from .function import Function
    from .variable import Variable


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


rooms = Rooms()
