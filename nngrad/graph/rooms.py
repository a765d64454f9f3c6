"""What the graph asks of the rooms above it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypedDict, Unpack

if TYPE_CHECKING:
    from collections.abc import Callable

    from .function import Function
    from .variable import Variable


class ForwardOptions(TypedDict, total=False):
    """Keywords of `Variable.forward` that are the engine's."""

    function_pre_hook: Callable[[Function], Any] | None
    function_post_hook: Callable[[Function], Any] | None


class BackwardOptions(ForwardOptions, total=False):
    """Keywords of `Variable.backward` that are the engine's."""

    retain_grad: bool
    enable_double_backprop: bool
    loss_scale: float | None
    recompute: Any


class Engine(Protocol):
    """What runs graphs. `nngrad.execution` and `nngrad.gradient` fill it in."""

    def evaluate(self, variable: Variable) -> None:
        """Fill the data cell of a Variable that was never computed."""

    def run_function(self, function: Function) -> None:
        """Compute the outputs of one function from the data of its inputs."""

    def run_functions(self, functions: list[Function]) -> None:
        """Compute the outputs of those functions whose outputs are not there."""

    def forward(self, outputs: list[Variable], **options: Unpack[ForwardOptions]) -> None:
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
