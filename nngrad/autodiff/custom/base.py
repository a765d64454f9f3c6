"""The common base of user-defined functions: equality, the op that graphs contain, errors."""

from __future__ import annotations

import dataclasses
import fractions
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MethodType
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np

from backward_registry import MissingRule, Rule, registry

from ...functions.jaxpr_structure import ByIdentity
from ...graph import Function, Op, Spec, Variable, spec_of
from ...graph.arguments import Static, key_of
from ...graph.axes import AxisMap, row_places
from ...graph.facts import unknown
from ...graph.leaf import as_variables, marked_if_wide
from ...graph.op import NOT_APPLICABLE
from ...graph.options import users_code_runs
from ...graph.spec import x64_if
from .host import Result, Specs, TracedForward, called_on_host, declared_shapes, shapes_by_running, traced

Arrays = Sequence[Any]


class CustomOp(Op):
    """The op for a user's class in graphs; its only static argument is the instance."""

    def result_specs(self, given: Specs, arguments: tuple[Any, ...]) -> Specs:
        """Shape and dtype of each output."""
        instance: CustomFunction = arguments[0]
        return instance._specs if given == instance._inputs else self.traced_specs(given, arguments)

    def is_heavy(self, given: Specs, arguments: tuple[Any, ...]) -> bool:
        """Whether it does much arithmetic per element."""
        return bool(getattr(arguments[0]._found, "heavy", True))


class CustomFunction:
    """Base of `FunctionNode` and `PythonFunction`.

    Each application traces `forward` again, and is compared with others by the result: so it never uses outdated values
    that the code reads. A call keeps a copy of the instance, so attributes set later affect only later calls.
    """

    __slots__ = ("__dict__", "__weakref__", "_compared", "_found", "_hash", "_inputs", "_specs")

    _inputs: Specs
    """For the copy in a graph: shape and dtype of each input that it was applied to."""
    _specs: Specs
    """Shape and dtype of each output."""
    _found: Any
    """The computation found for `forward`: a function of arrays, compared by what it computes, or the shapes of a call
    on the host."""
    _compared: tuple[Any, Any]
    """The key by which it is compared, besides its class."""
    _hash: int

    exact: ClassVar[bool] = True
    """Whether `backward` is the true derivative; False for straight-through estimators and the like."""
    numpy: ClassVar[bool] = False
    """Whether `forward` is written for NumPy arrays; else for JAX arrays."""
    rows: ClassVar[tuple[int, ...]] = ()
    """The inputs that have rows along their first axis, if `forward` takes any number of rows and row b of each output
    depends only on row b of these inputs, and on the other inputs: then it is batched in one call."""
    opaque: ClassVar[bool] = True
    """Whether it contains user code, which may call functions on the host."""
    _holds_anything: ClassVar[bool] = False
    """Whether attributes may be unhashable; these are compared by identity."""
    _op: ClassVar[Op]
    _rule: ClassVar[Rule]
    _made_for: ClassVar[tuple[Any, ...]]
    """The class's declarations when its op and rule were made."""

    @classmethod
    def _declared(cls) -> tuple[Any, ...]:
        """The class's declarations on which its op and rule depend."""
        raise NotImplementedError

    @classmethod
    def _made(cls) -> tuple[Op, Rule]:
        """The op for the class as it is now, and its rule."""
        raise NotImplementedError

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if CustomFunction not in cls.__bases__:  # direct subclasses are the protocols
            cls._enter()

    @classmethod
    def _enter(cls) -> None:
        before, own = cls.__dict__.get("_op"), cls.__dict__.get("_rule")
        given = None if before is None else registry.find(before)  # `nn.register` may have put one in its place
        cls._made_for = cls._declared()
        cls._op, cls._rule = cls._made()
        registry.add(cls._op, cls._rule if given is own or given is None else given)

    @classmethod
    def _op_of_now(cls) -> Op:
        """The op for the class; a new one if the class's declarations have changed."""
        if cls._declared() != cls._made_for:
            cls._enter()
        return cls._op

    def infer(self, *inputs: jax.ShapeDtypeStruct) -> Result:
        """Shape and dtype of each output of a `forward` on NumPy arrays, as `jax.ShapeDtypeStruct`s.

        Unless a subclass overrides this, each call runs `forward` on arrays of ones. A `forward` on JAX arrays needs
        neither: it is traced.
        """
        try:
            return shapes_by_running(self._forward, inputs)
        except Exception as error:
            error.add_note(
                f"{type(self).__name__}.forward was run on arrays of ones, for the shapes of its outputs; "
                "if it cannot take them, declare the shapes with `def infer(self, *inputs)`"
            )
            raise

    def _forward(self, *arrays: Any) -> tuple[Any, ...]:
        """The subclass's `forward` within its protocol, returning a tuple of arrays."""
        raise NotImplementedError

    def _returned(self, result: Any) -> tuple[Any, ...]:
        """The result of `forward` as a tuple of arrays; raises if it is something else."""
        several = isinstance(result, tuple | list)
        arrays = tuple(result) if several else (result,)
        for i, array in enumerate(arrays):
            which = f"{type(self).__name__}.forward: {f'output {i}' if several else 'its result'}"
            if isinstance(array, Variable):
                raise TypeError(f"{which} is a Variable; forward works on arrays: use {_library(self)} instead of F")
            if array is None or not (hasattr(array, "shape") or isinstance(array, int | float)):
                raise TypeError(f"{which} must be an array, got {array!r}")
        return arrays if self.numpy else tuple(map(jnp.asarray, arrays))

    # ---------------------------------------------------------------- as it is applied

    def _applied_to(self, inputs: Specs) -> Self:
        """The copy for a graph: it knows what `forward` computes for inputs of these shapes and dtypes."""
        twin = self._copy()
        state = twin._state()
        hash(state)
        try:
            twin._found = twin._find(inputs)
        except NOT_APPLICABLE as error:
            raise twin._op.refusal(error, inputs, (twin,)) from error
        outputs: Specs = twin._found if isinstance(twin._found, tuple) else twin._found.outputs
        twin._inputs, twin._specs = inputs, marked_if_wide(outputs, inputs)
        twin._compared = twin._found, state
        twin._hash = hash((type(self), twin._compared))
        return twin

    def _find(self, inputs: Specs) -> TracedForward | Specs:
        """The computation of `forward`; for one on NumPy arrays, the shapes and dtypes of its results."""
        if not self.numpy:
            return traced(self._on_jax_arrays, inputs)
        with x64_if(any([s.needs_x64 for s in inputs])):
            return specs_of(declared_shapes(self.infer(*shapes_of(inputs)), type(self).__name__))

    def _run(self, arrays: Arrays) -> tuple[Any, ...]:
        """The outputs, while JAX traces the graph."""
        if [(s.shape, s.dtype) for s in self._inputs] != [(tuple(a.shape), a.dtype) for a in arrays]:
            return self._run_elsewhere(arrays)
        found: TracedForward | Specs = self._found
        return self._on_host(arrays, shapes_of(found)) if isinstance(found, tuple) else found(arrays)

    def _run_elsewhere(self, arrays: Arrays) -> tuple[Any, ...]:
        """The outputs for arrays of other shapes or dtypes, which JAX's transformations and its setting of x64 produce.
        """
        if not self.numpy:
            return self._on_jax_arrays(*arrays)
        given = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in arrays]
        return self._on_host(arrays, declared_shapes(self.infer(*given), type(self).__name__))

    def _on_jax_arrays(self, *arrays: Any) -> tuple[Any, ...]:
        try:
            return self._forward(*arrays)
        except jax.errors.TracerArrayConversionError as error:
            raise TypeError(
                f"{type(self).__name__}.forward converts its inputs to NumPy arrays; "
                "use jax.numpy, or set `numpy = True` in the class"
            ) from error

    def _on_host(self, arrays: Arrays, outputs: Sequence[jax.ShapeDtypeStruct]) -> tuple[Any, ...]:
        """The outputs of a forward that runs on the host."""
        return called_on_host(_forward, self, outputs, arrays, type(self).__name__)

    def _check_rows(self, inputs: Sequence[Variable], outputs: Sequence[Variable]) -> None:
        """Raise unless all inputs and outputs with rows have equally many."""
        if not self.rows:
            return
        name = type(self).__name__
        if max(self.rows) >= len(inputs) or min(self.rows) < 0:
            raise ValueError(f"{name}: rows must be indexes of its {len(inputs)} inputs, from 0, got {self.rows!r}")
        shapes = [inputs[i].shape for i in self.rows] + [y.shape for y in outputs]
        if len({shape[:1] or None for shape in shapes}) > 1 or not shapes[0]:
            raise ValueError(
                f"{name}: with rows = {self.rows!r}, these inputs and all outputs must have the same number of rows, "
                f"their first axis, got shapes {', '.join(map(str, shapes))}"
            )

    def _copy(self) -> Self:
        """An instance with the same attributes."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        return twin

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(self) is not type(other):
            return False
        return hash(self) == hash(other) and self._key() == other._key()

    def __hash__(self) -> int:
        known: int | None = getattr(self, "_hash", None)
        return hash((type(self), self._key())) if known is None else known

    def _key(self) -> tuple[Any, Any]:
        return getattr(self, "_compared", None) or (None, self._state())

    def _state(self) -> frozenset[tuple[str, Any]]:
        """The attributes as a comparable key."""
        return frozenset([(name, self._key_of(value)) for name, value in vars(self).items()])

    def _key_of(self, value: Any) -> Any:
        try:
            hash(value)
        except TypeError as error:
            if self._holds_anything:
                return ByIdentity(value)
            raise TypeError(f"{self!r}: attributes must be hashable (tuples, not lists): {error}") from error
        return _key_of_attribute(value)

    def __repr__(self) -> str:
        attributes = ", ".join([f"{k}={v!r}" for k, v in vars(self).items()])
        return f"{type(self).__name__}({attributes})"


_BY_VALUE = {bool, int, float, complex, str, bytes, type(None), fractions.Fraction}


def _key_of_attribute(value: Any) -> Any:
    """An attribute's part of the key: numbers, text, and tuples and frozen dataclasses of them by value. Anything else
    is equal only to itself: it may change, and its class's equality may ignore what the code reads."""
    if isinstance(value, tuple):
        return type(value), tuple(map(_key_of_attribute, value))
    if isinstance(value, MethodType):
        return ByIdentity(value.__func__), ByIdentity(value.__self__)
    if dataclasses.is_dataclass(value) and not isinstance(value, type) and value.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        fields = [getattr(value, field.name) for field in dataclasses.fields(value)]
        return type(value), tuple(map(_key_of_attribute, fields))
    is_value = type(value) in _BY_VALUE or isinstance(value, np.generic | np.dtype)
    return key_of(value) if is_value else ByIdentity(value)


def _forward(instance: CustomFunction, *arrays: Any) -> Any:
    return instance._forward(*arrays)


def _library(function: CustomFunction) -> str:
    return "NumPy" if function.numpy else "jax.numpy"


def shapes_of(specs: Iterable[Spec]) -> tuple[jax.ShapeDtypeStruct, ...]:
    """The corresponding JAX structs."""
    return tuple([s.abstract() for s in specs])


def specs_of(shapes: Sequence[jax.ShapeDtypeStruct]) -> Specs:
    """The inverse of `shapes_of`."""
    return tuple([spec_of(tuple(s.shape), s.dtype) for s in shapes])


def inputs_as_variables(inputs: tuple[Any, ...], name: str) -> tuple[Any, ...]:
    """The inputs of a call as Variables; arrays and numbers become constants."""
    return as_variables(inputs, [f"inputs[{i}]" for i in range(len(inputs))], name)


def op_of(
    cls: type[CustomFunction],
    multiple_results: bool,
    forward: Callable[[Any, Arrays], tuple[Any, ...]] | None = None,
    name: str = "",
    axes: AxisMap | None = None,
) -> Op:
    """The op for a class in graphs, or with another `forward` for its gradient; its only static argument is the
    instance, or the argument of that forward."""
    kind, compute = (CustomOp, cls._run) if forward is None else (Op, forward)

    def run(*x: Any, instance: Static) -> Any:
        results = compute(instance, x)
        return results if multiple_results else results[0]

    run.__name__ = name or cls.__name__
    run.__doc__ = cls.__doc__
    run.__module__ = cls.__module__
    run.__annotations__ = {"instance": Static}
    made = kind(run, type_name=run.__name__, multiple_results=multiple_results, cost=unknown, axes=axes)
    made.tables = {}
    return made


def declared_rows(cls: type[CustomFunction]) -> AxisMap | None:
    """The axis map for a class's `rows`."""
    rows = cls.rows
    if not (isinstance(rows, tuple) and all([isinstance(i, int) and not isinstance(i, bool) for i in rows])):
        raise TypeError(f"{cls.__name__}: rows must be a tuple of indexes of inputs, got {rows!r}")

    def folded(f: Function, count: int) -> Mapping[str, Any]:
        users_code_runs()
        shapes = [(count, *x.shape[1:]) if i in rows else x.shape for i, x in enumerate(f.inputs)]
        inputs = tuple([spec_of(shape, x.dtype) for shape, x in zip(shapes, f.inputs, strict=True)])
        return {"instance": f.arguments[0]._applied_to(inputs)}

    return AxisMap(places=lambda f: row_places(f, rows), folded=folded, inputs=rows) if rows else None


def forward_only(op: Op, advice: str) -> Rule:
    """A rule that raises an error, for an op that cannot be differentiated, with advice."""

    def rule(f: Function, *gys: Any) -> Any:
        raise MissingRule(undifferentiable(f, advice))

    return Rule(rule, "forward only", True, op.module)


def undifferentiable(f: Function, advice: str) -> str:
    """The message for a gradient that meets `f`, which has none: the order, and advice."""
    if f.order == 0:
        return f"{f.op.name} cannot be differentiated: {advice}"
    origin = "" if f.origin is None else f" of {f.origin.op.name}"
    return (
        f"{f.op.name} is part of the gradient{origin} and cannot be differentiated: there is a gradient of order "
        f"{f.order}, but none of order {f.order + 1}. {advice}"
    )


def attributes_set(instance: object, before: Mapping[str, Any]) -> list[str]:
    """The names of the attributes of `instance` that differ from those `before`."""
    return sorted([name for name, v in vars(instance).items() if name not in before or before[name] is not v])
