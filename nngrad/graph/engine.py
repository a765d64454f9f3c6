"""The interface between graphs and the packages above: the engine, which runs and differentiates them, and the
operators of Variables and cells. All is declared here, with types; the packages that implement it `provide` it when
they are imported, as they do the display of Variables and Functions. What is rarely used `is_provided_by` a module that
is imported when it is first used."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias

if TYPE_CHECKING:
    from .arguments import Axes
    from .function import Function
    from .ndarray import NdArray
    from .spec import DType, Shape
    from .variable import Variable


Hook: TypeAlias = "Callable[[Function], Any] | None"
"""What `forward` and `backward` call with each Function."""


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
        "argument_elsewhere", "backward", "body_batched", "body_gradient", "body_tangent", "constant", "counterpart",
        "evaluate", "forget", "forward", "name_elsewhere", "peak_bytes", "policy_key", "rematerialised",
        "run_functions", "warn_of_cancelled",
    )  # fmt: skip

    evaluate: Callable[[Variable], None]
    """Fills the data cell of a Variable that was never computed."""
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
    rematerialised: Callable[..., list[Variable]]
    """Rebuilds gradients to recompute some forward values, by the policy of `nn.grad` or by marks in the graph."""
    policy_key: Callable[..., Any]
    """A cache key for such a policy and the marks of functions."""
    peak_bytes: Callable[[list[Variable]], int]
    """The most bytes of temporaries that the program of some Variables holds, by its structure."""
    warn_of_cancelled: Callable[[Sequence[Variable], Sequence[Function], set[int], Sequence[Function]], None]
    """`warn_of_cancelled(outputs, path, active, estimates)` warns where one of `estimates`, functions on the path of a
    gradient that pass gradients unchanged, cancels a derivative; `active` are the ids of the Variables on the path."""

    name_elsewhere: Callable[[str, str], str]
    """`name_elsewhere(name, module)`: a clause such as "; torch.Tensor.cpu is ... here" for a name that a module, or a
    class, of nngrad lacks; "" if there is nothing to say."""
    argument_elsewhere: Callable[[str, Iterable[str]], str]
    """`argument_elsewhere(name, known)`: the like for an argument that a function with the arguments `known` lacks."""
    counterpart: Callable[[str], str]
    """What a function of NumPy, such as "numpy.linalg.norm", is here; "" if there is nothing like it."""
    constant: Callable[[float, Shape, DType], Variable]
    """A constant: a number with a shape and a dtype."""

    def __getattr__(self, name: str) -> Any:
        if name not in self.__slots__:
            raise AttributeError(f"Engine has no {name!r}")
        if name in _providers and is_there(_providers[name]):
            return object.__getattribute__(self, name)
        if name not in _NOTHING:
            why = f"{_providers[name]}, which does this, is not installed" if name in _providers else (
                "graphs cannot run before `import nngrad`")
            raise RuntimeError(f"{name}: {why}")
        if name in _providers:
            setattr(self, name, _NOTHING[name])
        return _NOTHING[name]


engine = Engine()
_providers: dict[str, str] = {}
"""The modules that provide members of the engine, once these are used."""

_NOTHING: dict[str, Any] = {
    "argument_elsewhere": lambda name, known: "",
    "counterpart": lambda of_numpy: "",
    "name_elsewhere": lambda name, module: "",
    "policy_key": lambda policy, functions: None,
    "warn_of_cancelled": lambda outputs, path, active, estimates: None,
}
"""What members do that nobody provides."""


def is_there(module: str) -> bool:
    """Import a module of nngrad; False if the package that it is in was left out."""
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        return False
    return True


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
        def reshape(self, shape: Shape | list[int], unlink: bool = False) -> Variable: ...
        def size_from_axis(self, axis: int = -1) -> int: ...
        def transpose(self, axes: Axes | None = None) -> Variable: ...

        # ------------------------------------------------------------ nnabla's and Chainer's

        @property
        def creator(self) -> Function | None: ...
        @property
        def function_references(self) -> list[Function]: ...
        def addgrad(self, var: Variable) -> None: ...
        def clear_all_graph_links(self) -> None: ...
        def no_grad(self) -> Variable: ...
        def reset_shape(self, shape: Shape, force: bool = False) -> None: ...
        def rewire_on(self, var: Variable) -> None: ...
        def unchain(self) -> None: ...
        def unchain_backward(self) -> None: ...
        def unlinked(self, need_grad: bool | None = None) -> Variable: ...
        def visit(self, f: Callable[[Function], Any]) -> None: ...
        def visit_check(self, f: Callable[[Function], Any]) -> bool: ...


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


def provide(what: Engine | type[Any], implementations: Mapping[str, Any]) -> None:
    """Implement the declarations above, by name."""
    for name, meaning in implementations.items():
        setattr(what, name, meaning)


class _OnFirstUse:
    """A member of a class: its first use imports the module that provides it."""

    def __init__(self, module: str, what: type[Any], name: str) -> None:
        self._module, self._what, self._name = module, what, name
        self._otherwise = inspect.getattr_static(what, name, None)

    def __get__(self, instance: Any, owner: type[Any]) -> Any:
        there = is_there(self._module)
        if inspect.getattr_static(self._what, self._name) is self:
            if there or self._otherwise is None:  # it is imported at this moment, or was left out
                raise AttributeError(f"{owner.__name__}.{self._name} is not there without {self._module}")
            setattr(self._what, self._name, self._otherwise)
        return getattr(owner if instance is None else instance, self._name)

    def __set__(self, instance: Any, value: Any) -> None:
        self.__get__(None, type(instance))
        setattr(instance, self._name, value)


def is_provided_by(module: str, what: Engine | type[Any], *names: str) -> None:
    """Have a module imported, which provides the declarations of these names, when one of them is first used. If it was
    left out, they stay what they are."""
    for name in names:
        if isinstance(what, Engine):
            _providers[name] = module
        else:
            setattr(what, name, _OnFirstUse(module, what, name))
