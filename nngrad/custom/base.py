"""What all functions of the user's own share: equality by attributes, the op that graphs hold, errors."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Concatenate, ParamSpec, Self, TypeVar

import jax
import jax.numpy as jnp

from backward_registry import MissingRule, Rule, registry

from ..execution.compiled import BoundedCache
from ..graph import Function, Op, Variable
from ..graph.arguments import Static, key_of
from ..graph.axes import AxisMap, rows_of
from ..graph.facts import unknown
from ..graph.leaf import as_variables
from .host import Result, on_host, shapes_by_running

Arrays = tuple[Any, ...]
P = ParamSpec("P")
R = TypeVar("R")


class CustomFunction:
    """Base of `FunctionNode` and `PythonFunction`.

    What an instance holds as attributes are its static arguments: two instances of a class with equal
    attributes are the same function, and share an executable. A call keeps a copy of the instance, so
    attributes that are set later belong to later calls.
    """

    __slots__ = ("__dict__", "__weakref__", "_alone")

    _alone: bool
    """Whether it equals no other, since its attributes cannot be compared by value."""

    exact: ClassVar[bool] = True
    """Whether `backward` is the true derivative; False for straight-through estimators and the like."""
    numpy: ClassVar[bool] = False
    """Whether `forward` is written on NumPy arrays; else on JAX arrays."""
    rows: ClassVar[tuple[int, ...]] = ()
    """Which inputs have rows along their first axis, if `forward` takes any number of them and row b of each output
    depends on row b of these inputs alone, beside the other inputs: then it is batched in one call."""
    opaque: ClassVar[bool] = True
    """Whether it holds code of the user's, which may call functions on the host."""
    _op: ClassVar[Op]

    def infer(self, *inputs: jax.ShapeDtypeStruct) -> Result:
        """Shape and dtype of each output of a `forward` on NumPy arrays, as `jax.ShapeDtypeStruct`s.

        Unless a subclass says it here, `forward` is run once on arrays of ones for each new combination of
        shapes and dtypes. A `forward` on JAX arrays needs neither: it is traced.
        """
        try:
            return shapes_by_running(self._forward, inputs)
        except Exception as error:
            error.add_note(
                f"{type(self).__name__}.forward was run on arrays of ones, for the shapes of its outputs; "
                "if it takes no ones, declare these with `def infer(self, *inputs)`"
            )
            raise

    def _forward(self, *arrays: Any) -> Any:
        """`forward` of the subclass, with what its protocol does around it."""
        raise NotImplementedError

    def _returned(self, result: Any) -> Any:
        """Returns what `forward` returned, an array or a tuple of arrays; raises if it is something else."""
        several = isinstance(result, tuple | list)
        for i, array in enumerate(result if several else (result,)):
            which = f"{type(self).__name__}.forward: {f'output {i}' if several else 'its result'}"
            if isinstance(array, Variable):
                raise TypeError(f"{which} is a Variable; forward works on arrays: use {_library(self)} in place of F")
            if array is None or not (hasattr(array, "shape") or isinstance(array, int | float)):
                raise TypeError(f"{which} must be an array, got {array!r}")
        if self.numpy:
            return result
        return tuple(map(jnp.asarray, result)) if several else jnp.asarray(result)

    def _run(self, arrays: Arrays) -> Any:
        """`forward` within a graph that JAX traces: called on the host where it is written on NumPy arrays."""
        if not self.numpy:
            try:
                return self._forward(*arrays)
            except jax.errors.TracerArrayConversionError as error:
                raise TypeError(
                    f"{type(self).__name__}.forward turns its inputs into NumPy arrays; "
                    "use jax.numpy, or set `numpy = True` in the class"
                ) from error
        return on_host(_forward, self, self.infer, arrays, type(self).__name__)

    def _check_rows(self, inputs: Sequence[Variable], outputs: Sequence[Variable]) -> None:
        """Raise unless all that has rows has equally many."""
        if not self.rows:
            return
        name = type(self).__name__
        if max(self.rows) >= len(inputs) or min(self.rows) < 0:
            raise ValueError(f"{name}: rows = {self.rows!r} must name some of the {len(inputs)} inputs, from 0 on")
        shapes = [inputs[i].shape for i in self.rows] + [y.shape for y in outputs]
        if len({shape[:1] or None for shape in shapes}) > 1 or not shapes[0]:
            raise ValueError(
                f"{name}: by rows = {self.rows!r}, these inputs and all outputs have equally many rows along their "
                f"first axis, but the shapes are {', '.join(map(str, shapes))}"
            )

    def _copy(self) -> Self:
        """An instance with the same attributes."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        return twin

    def _is_hashable(self) -> bool:
        """Whether all attributes are."""
        try:
            hash(self._state())
        except TypeError:
            return False
        return True

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(self) is not type(other) or getattr(self, "_alone", False) or getattr(other, "_alone", False):
            return False
        return self._state() == other._state()

    def __hash__(self) -> int:
        if getattr(self, "_alone", False):
            return id(self)
        try:
            return hash((type(self), self._state()))
        except TypeError as error:
            raise TypeError(f"{self!r}: attributes must be hashable, a tuple in place of a list ({error})") from error

    def _state(self) -> frozenset[tuple[str, Any]]:
        return frozenset([(name, key_of(value)) for name, value in vars(self).items()])

    def __repr__(self) -> str:
        attributes = ", ".join([f"{k}={v!r}" for k, v in vars(self).items()])
        return f"{type(self).__name__}({attributes})"


def _forward(instance: CustomFunction, *arrays: Any) -> Any:
    return instance._forward(*arrays)


def _library(function: CustomFunction) -> str:
    return "NumPy" if function.numpy else "jax.numpy"


def variables_of(inputs: tuple[Any, ...], name: str) -> tuple[Any, ...]:
    """The inputs of a call as Variables; arrays and numbers become constants."""
    return as_variables(inputs, [f"inputs[{i}]" for i in range(len(inputs))], name)


def op_of(
    cls: type[CustomFunction],
    forward: Callable[..., Any],
    multiple_results: bool,
    name: str = "",
    axes: AxisMap | None = None,
) -> Op:
    """The op that stands for a class in graphs; its one static argument is the instance."""

    def run(*x: Any, instance: Static) -> Any:
        return forward(instance, x)

    run.__name__ = name or cls.__name__
    run.__doc__ = cls.__doc__
    run.__module__ = cls.__module__
    run.__annotations__ = {"instance": Static}
    made = Op(run, type_name=run.__name__, multiple_results=multiple_results, cost=unknown, axes=axes)
    made.tables = {}
    return made


def declared_rows(cls: type[CustomFunction]) -> AxisMap | None:
    """What a class says of its rows."""
    if not (isinstance(cls.rows, tuple) and all([isinstance(i, int) and not isinstance(i, bool) for i in cls.rows])):
        raise TypeError(f"{cls.__name__}: rows must be a tuple with the indexes of inputs, got {cls.rows!r}")
    return rows_of(cls.rows) if cls.rows else None


def kept_with_the_class(question: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """`question(instance, ...)`, asked once: the answers are kept with the op of the class of `instance`."""
    answers = BoundedCache(1024)

    @functools.wraps(question)
    def ask(instance: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        table = answers.part((type(instance)._op,))
        (answer,) = table.get((instance, args), lambda: (question(instance, *args, **kwargs),))
        return answer  # type: ignore[no-any-return]

    return ask


def register_forward_only(op: Op, advice: str) -> None:
    """Enter for `op` that it cannot be differentiated, with what to do about it."""

    def rule(f: Function, *gys: Any) -> Any:
        raise MissingRule(undifferentiable(f, advice))

    registry.add(op, Rule(rule, "forward only", True, op.module))


def undifferentiable(f: Function, advice: str) -> str:
    """The message for a gradient that meets `f`, which has none: at what order, and what to do."""
    if f.order == 0:
        return f"{f.op.name} cannot be differentiated: {advice}"
    origin = "" if f.origin is None else f" of {f.origin.op.name}"
    return (
        f"{f.op.name} is part of the gradient{origin} and cannot be differentiated itself: the gradient of order "
        f"{f.order} can be used as it is, and one of order {f.order + 1} cannot be had. {advice}"
    )


def attributes_set(instance: object, before: Mapping[str, Any]) -> list[str]:
    """The names of the attributes of `instance` that are not as they were `before`."""
    return sorted([name for name, v in vars(instance).items() if name not in before or before[name] is not v])
