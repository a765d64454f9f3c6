"""The interface between graphs and the packages above: the engine, which runs and differentiates them, and the
operators of Variables and cells. All is declared here, with types; the packages that implement it `provide` it when
they are imported."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, Self, TypedDict, cast

if TYPE_CHECKING:
    from .arguments import Axes
    from .function import Function
    from .messages import NamesElsewhere
    from .ndarray import NdArray
    from .spec import DType, Shape
    from .variable import Variable


class ForwardOptions(TypedDict, total=False):
    """Keywords of `Variable.forward` that go to the engine."""

    function_pre_hook: Callable[[Function], Any] | None
    function_post_hook: Callable[[Function], Any] | None


class BackwardOptions(ForwardOptions, total=False):
    """Keywords of `Variable.backward` that go to the engine."""

    retain_grad: bool
    enable_double_backprop: bool
    loss_scale: float | None
    recompute: Any
    communicator_callbacks: Any


def forward_named(placed: tuple[Any, ...], hooks: ForwardOptions) -> ForwardOptions:
    """The options of `forward`, of which some may be positional, in nnabla's order."""
    return cast("ForwardOptions", _named(("function_pre_hook", "function_post_hook"), placed, hooks))


def backward_named(placed: tuple[Any, ...], options: BackwardOptions) -> BackwardOptions:
    """The options of `backward`, of which some may be positional, in nnabla's order."""
    names = "communicator_callbacks", "function_pre_hook", "function_post_hook"
    return cast("BackwardOptions", _named(names, placed, options))


def _named(names: tuple[str, ...], placed: tuple[Any, ...], options: Mapping[str, Any]) -> dict[str, Any]:
    if len(placed) > len(names):
        raise TypeError(f"expected at most {len(names)} positional arguments ({', '.join(names)}), got {len(placed)}")
    found = dict(zip(names, placed, strict=False))
    if twice := found.keys() & options.keys():
        raise TypeError(f"got multiple values for argument {min(twice)!r}")
    return {**found, **options}


class KeySource(Protocol):
    """The source of a random function's keys."""

    def __call__(self) -> Any:
        """Draw the key of a `forward()`."""

    def ahead(self) -> Any:
        """Return the key for reading the function before its first `forward()`. It is not drawn, so reading does not
        change later keys, and the order of reads does not matter."""


class Engine:
    """Runs and differentiates graphs."""

    __slots__ = (
        "backward", "body_batched", "body_gradient", "body_tangent", "constant", "evaluate", "forget", "forward",
        "run_function", "run_functions",
    )  # fmt: skip

    evaluate: Callable[[Variable], None]
    """Fills the data cell of a Variable that was never computed."""
    run_function: Callable[[Function], None]
    """Computes the outputs of one function from the data of its inputs."""
    run_functions: Callable[[list[Function]], None]
    """Computes the outputs of the functions whose outputs are missing."""
    forget: Callable[[list[Function]], None]
    """Discards how functions were run and their results, because their inputs have been replaced."""
    forward: Callable[..., None]
    """`forward(outputs, **options)` takes a snapshot of the leaves and defers the values of `outputs`."""
    backward: Callable[..., None]
    """`backward(output, grad, **options)` adds the gradient of `output` to the leaves that need one."""
    body_gradient: Callable[..., Any]
    """Implements `Block.gradient`."""
    body_tangent: Callable[..., Any]
    """Implements `Block.tangent`."""
    body_batched: Callable[..., Any]
    """Implements `Block.batched`."""

    constant: Callable[[float, Shape, DType], Variable]
    """A constant: a number with a shape and a dtype."""

    def __getattr__(self, name: str) -> Any:
        if name not in self.__slots__:
            raise AttributeError(f"Engine has no {name!r}")
        raise RuntimeError(f"{name}: graphs cannot run before `import nngrad`")


engine = Engine()


# ---------------------------------------------------------------- operators


class Operators:
    """Operators and methods of Variables that packages above implement."""

    __slots__ = ()

    if TYPE_CHECKING:

        def __eq__(self, other: object) -> Variable: ...  # type: ignore[override]
        def __ne__(self, other: object) -> Variable: ...  # type: ignore[override]
        def __lt__(self, other: object) -> Variable: ...
        def __le__(self, other: object) -> Variable: ...
        def __gt__(self, other: object) -> Variable: ...
        def __ge__(self, other: object) -> Variable: ...
        def __add__(self, other: object) -> Variable: ...
        def __radd__(self, other: object) -> Variable: ...
        def __sub__(self, other: object) -> Variable: ...
        def __rsub__(self, other: object) -> Variable: ...
        def __mul__(self, other: object) -> Variable: ...
        def __rmul__(self, other: object) -> Variable: ...
        def __truediv__(self, other: object) -> Variable: ...
        def __rtruediv__(self, other: object) -> Variable: ...
        def __pow__(self, other: object) -> Variable: ...
        def __rpow__(self, other: object) -> Variable: ...
        def __mod__(self, other: object) -> Variable: ...
        def __rmod__(self, other: object) -> Variable: ...
        def __matmul__(self, other: object) -> Variable: ...
        def __rmatmul__(self, other: object) -> Variable: ...
        def __neg__(self) -> Variable: ...
        def __pos__(self) -> Variable: ...
        def __abs__(self) -> Variable: ...
        def __getitem__(self, key: Any) -> Variable: ...

        @property
        def T(self) -> Variable: ...  # noqa: N802
        @property
        def recompute(self) -> bool: ...
        @recompute.setter
        def recompute(self, on: bool) -> None: ...
        def astype(self, dtype: object) -> Variable: ...
        def bool_fill_(self, mask: object, value: float) -> Variable: ...
        def masked_fill_(self, mask: object, value: float) -> Variable: ...
        def item(self) -> Any: ...
        def max(self, axis: Axes | None = None, keepdims: bool = False) -> Variable: ...
        def mean(self, axis: Axes | None = None, keepdims: bool = False) -> Variable: ...
        def min(self, axis: Axes | None = None, keepdims: bool = False) -> Variable: ...
        def prod(self, axis: Axes | None = None, keepdims: bool = False) -> Variable: ...
        def sum(self, axis: Axes | None = None, keepdims: bool = False) -> Variable: ...
        def reset_shape(self, shape: Shape, force: bool = False) -> None: ...
        def reshape(self, shape: Shape | list[int], unlink: bool = False) -> Variable: ...
        def size_from_axis(self, axis: int = -1) -> int: ...
        def transpose(self, axes: Axes | None = None) -> Variable: ...


class CellOperators:
    """Operators and methods of NdArrays that packages above implement."""

    __slots__ = ()

    if TYPE_CHECKING:

        def __add__(self, other: object) -> NdArray: ...
        def __radd__(self, other: object) -> NdArray: ...
        def __iadd__(self, other: object) -> Self: ...
        def __sub__(self, other: object) -> NdArray: ...
        def __rsub__(self, other: object) -> NdArray: ...
        def __isub__(self, other: object) -> Self: ...
        def __mul__(self, other: object) -> NdArray: ...
        def __rmul__(self, other: object) -> NdArray: ...
        def __imul__(self, other: object) -> Self: ...
        def __truediv__(self, other: object) -> NdArray: ...
        def __rtruediv__(self, other: object) -> NdArray: ...
        def __itruediv__(self, other: object) -> Self: ...
        def __pow__(self, other: object) -> NdArray: ...
        def __rpow__(self, other: object) -> NdArray: ...
        def __ipow__(self, other: object) -> Self: ...
        def __matmul__(self, other: object) -> NdArray: ...
        def __rmatmul__(self, other: object) -> NdArray: ...
        def __neg__(self) -> NdArray: ...
        def __pos__(self) -> NdArray: ...
        def size_from_axis(self, axis: int = -1) -> int: ...


def provide(what: Engine | type[Operators | CellOperators | NamesElsewhere], given: Mapping[str, Any]) -> None:
    """Implement the declarations above, by name."""
    for name, meaning in given.items():
        setattr(what, name, meaning)
