"""The engine: what graphs ask of the packages above them, which enter it in `autodiff/__init__.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
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
    communicator_callbacks: Any


class Engine:
    """What runs and differentiates graphs."""

    __slots__ = (
        "backward", "body_batched", "body_gradient", "body_tangent", "evaluate", "forget", "forward", "run_function",
        "run_functions",
    )  # fmt: skip

    evaluate: Callable[[Variable], None]
    """Fills the data cell of a Variable that was never computed."""
    run_function: Callable[[Function], None]
    """Computes the outputs of one function from the data of its inputs."""
    run_functions: Callable[[list[Function]], None]
    """Computes the outputs of those functions whose outputs are not there."""
    forget: Callable[[list[Function]], None]
    """Forgets how functions were run, and what they gave: what they are computed from is another."""
    forward: Callable[..., None]
    """`forward(outputs, **options)` takes a snapshot of the leaves and defers the values of `outputs`."""
    backward: Callable[..., None]
    """`backward(output, grad, **options)` adds the gradient of `output` to the leaves that need one."""
    body_gradient: Callable[..., Any]
    """What `Block.gradient` asks."""
    body_tangent: Callable[..., Any]
    """What `Block.tangent` asks."""
    body_batched: Callable[..., Any]
    """What `Block.batched` asks."""

    def __getattr__(self, name: str) -> Any:
        if name not in self.__slots__:
            raise AttributeError(f"Engine has no {name!r}")
        raise RuntimeError(f"{name}: graphs run only after `import nngrad`")


engine = Engine()
