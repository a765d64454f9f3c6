"""The engine: what graphs ask of the rooms above them. It is installed once, when nngrad is imported."""

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

    def install(
        self,
        *,
        evaluate: Callable[[Variable], None],
        run_function: Callable[[Function], None],
        run_functions: Callable[[list[Function]], None],
        forget: Callable[[list[Function]], None],
        forward: Callable[..., None],
        backward: Callable[..., None],
        body_gradient: Callable[..., Any],
        body_tangent: Callable[..., Any],
        body_batched: Callable[..., Any],
        methods: dict[str, Any],
        cell_methods: dict[str, Any],
    ) -> None:
        """Put the engine in, and give Variable and NdArray the `methods` and operators that are made of functions, by
        name."""
        from .ndarray import NdArray
        from .variable import Variable

        self.evaluate, self.run_function, self.run_functions = evaluate, run_function, run_functions
        self.forward, self.backward, self.forget = forward, backward, forget
        self.body_gradient, self.body_tangent, self.body_batched = body_gradient, body_tangent, body_batched
        for name, method in methods.items():
            setattr(Variable, name, method)
        for name, method in cell_methods.items():
            setattr(NdArray, name, method)

    def __getattr__(self, name: str) -> Any:
        if name not in self.__slots__:
            raise AttributeError(f"Engine has no {name!r}")
        raise RuntimeError(f"{name}: graphs run only after `import nngrad`")


engine = Engine()
