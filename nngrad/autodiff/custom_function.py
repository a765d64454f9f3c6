"""CustomFunction: a user's class with a forward on arrays and a backward on Variables.

A forward on JAX arrays is traced when it is applied; this trace is inserted in compiled graphs, and is all that is
compared. One on NumPy arrays is called on the host.
"""

from __future__ import annotations

import dataclasses
import fractions
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MethodType
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr

from backward_registry import MissingRule, Rule, registry

from ..functions.axes import row_places
from ..functions.host_call import Result, called_on_host, declared_shapes, shapes_by_running
from ..functions.traced.jaxprs import jaxpr_for
from ..functions.traced.structure import ByIdentity, array_value, is_opaque, structure_of
from ..graph import Function, Op, Spec, Variable, apply, spec_of
from ..graph.arguments import Static, key_of
from ..graph.axes import AxisMap
from ..graph.facts import unknown
from ..graph.jaxpr import does_much
from ..graph.leaf import as_variables, marked_if_wide
from ..graph.op import NOT_APPLICABLE
from ..graph.options import users_code_runs
from ..graph.spec import x64_if

Arrays = Sequence[Any]
Specs = tuple[Spec, ...]


class TracedForward:
    """A traced forward on JAX arrays: two that compute the same are equal, whatever code they come from.

    The arrays that it closes over are part of it, with their values at that time.
    """

    __slots__ = ("__dict__", "_closed", "_hash", "_key", "outputs")

    outputs: Specs

    def __init__(self, closed: ClosedJaxpr) -> None:
        # Copies, since JAX's version of a NumPy array may share its memory.
        consts = [c if is_opaque(c) else np.array(c) for c in closed.consts]
        self._closed = closed.replace(consts=consts)
        self.outputs = tuple([spec_of(tuple(aval.shape), aval.dtype) for aval in closed.out_avals])
        self._key = structure_of(closed.jaxpr, derivatives=False), tuple(map(array_value, consts))
        self._hash = hash(self._key)

    @functools.cached_property
    def heavy(self) -> bool:
        """True if it does much arithmetic for each element."""
        return does_much(self._closed.jaxpr)

    def __call__(self, arrays: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(jax.core.eval_jaxpr(self._closed.jaxpr, self._closed.consts, *arrays))

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, TracedForward) and self._hash == other._hash and self._key == other._key
        )

    def __hash__(self) -> int:
        return self._hash


class CustomOp(Op):
    """The op for a user's class in graphs; its only static argument is the instance."""

    def result_specs(self, input_specs: Specs, arguments: tuple[Any, ...]) -> Specs:
        """Shape and dtype of each output."""
        instance: CustomFunction = arguments[0]
        return instance._specs if input_specs == instance._inputs else self.traced_specs(input_specs, arguments)

    def is_heavy(self, input_specs: Specs, arguments: tuple[Any, ...]) -> bool:
        """True if it does much arithmetic per element."""
        return bool(getattr(arguments[0]._found, "heavy", True))


class CustomFunction:
    """A function of your own: `forward` on arrays and, to be differentiable, `backward` on Variables.

        class Cube(nn.CustomFunction):
            def forward(self, x):
                return x ** 3

            def backward(self, f, gy):
                (x,) = f.inputs
                return gy * 3 * x ** 2

        y = Cube()(x)

    `backward` is a rule as in `backward_registry`: it gets the Function (`f.inputs`, `f.outputs`) and
    the gradient of each output, and returns one gradient per input, None for zero. It calls `F` and
    operators, so gradients of any order follow, and runs each time a gradient is asked for.

    Each call traces `forward` again, with the instance's present attributes, and is compared with others by the result:
    so it never uses outdated values that the code reads, and calls that compute the same share an executable. A call
    keeps a copy of the instance, so attributes set later affect only later calls. Attributes must be hashable.

    Set `numpy = True` in a class whose `forward` is written for NumPy arrays; the compiled graph then calls it
    through `jax.pure_callback`. Its output shapes come from `infer`.

    `rows = (0, 1)` in a class declares that row b of the outputs depends only on row b of these inputs (`nn.vmap`).
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

    outputs: ClassVar[int] = 1
    """The number of outputs of `forward`; several are returned as a tuple."""
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

    # ---------------------------------------------------------------- what a subclass writes

    def forward(self, *arrays: Any) -> Any:
        """The function on JAX arrays (NumPy arrays where `numpy = True`)."""
        raise NotImplementedError(f"{type(self).__name__} has no forward; write `def forward(self, *arrays)`")

    def backward(self, f: Function, *gys: Variable) -> Any:
        """The backward rule on Variables."""
        raise NotImplementedError(f"{type(self).__name__} has no backward; write `def backward(self, f, *gys)`")

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

    # ---------------------------------------------------------------- what another protocol overrides

    def __init_subclass__(cls, is_protocol: bool = False, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if not is_protocol:
            cls._enter()

    @classmethod
    def _declared(cls) -> tuple[Any, ...]:
        """The class's declarations on which its op and rule depend."""
        return cls.exact, cls.rows, cls.outputs, cls.backward is not CustomFunction.backward

    @classmethod
    def _made(cls) -> tuple[Op, Rule]:
        """The op for the class as it is now, and its rule."""
        op = cls._op_of(multiple_results=cls.outputs > 1)
        if cls.backward is CustomFunction.backward:
            return op, cls._forward_only(op, f"{cls.__name__} has no `def backward(self, f, *gys)`")
        return op, Rule(_rule, "user", cls.exact, cls.__module__)

    def _forward(self, *arrays: Any) -> tuple[Any, ...]:
        """The subclass's `forward` within its protocol, returning a tuple of arrays."""
        result = self.forward(*arrays)
        several = isinstance(result, tuple | list)
        out = self._returned(result)
        if len(out) != self.outputs or several != (self.outputs > 1):
            raise ValueError(
                f"forward returned {'a tuple of ' if several else ''}{len(out)}, "
                f"but the class declares `outputs = {self.outputs}`"
            )
        return out

    def _find(self, inputs: Specs) -> Callable[[Arrays], tuple[Any, ...]] | Specs:
        """The computation of `forward`; for one on NumPy arrays, the shapes and dtypes of its results."""
        if not self.numpy:
            return TracedForward(jaxpr_for(self._on_jax_arrays, inputs))
        with x64_if(any([s.needs_x64 for s in inputs])):
            shapes = declared_shapes(self.infer(*shapes_of(inputs)), type(self).__name__)
            return tuple([spec_of(tuple(s.shape), s.dtype) for s in shapes])

    def _run_elsewhere(self, arrays: Arrays) -> tuple[Any, ...]:
        """The outputs for arrays of other shapes or dtypes, which JAX's transformations and its setting of x64 produce.
        """
        if not self.numpy:
            return self._on_jax_arrays(*arrays)
        structs = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in arrays]
        return self._on_host(arrays, declared_shapes(self.infer(*structs), type(self).__name__))

    def _on_host(self, arrays: Arrays, outputs: Sequence[jax.ShapeDtypeStruct]) -> tuple[Any, ...]:
        """The outputs of a forward that runs on the host."""
        return called_on_host(type(self)._forward, self, outputs, arrays, type(self).__name__)

    # ---------------------------------------------------------------- as it is applied

    def __call__(self, *inputs: Any) -> Any:
        """Apply the function to Variables, arrays or numbers; returns its output, or a tuple if there are several."""
        outputs = self._applied(inputs)
        return outputs[0] if len(outputs) == 1 else outputs

    def _applied(self, inputs: Sequence[Any]) -> tuple[Variable, ...]:
        """The outputs for these inputs, of which arrays and numbers become constants."""
        cls = type(self)
        if "_op" not in cls.__dict__:
            raise TypeError(f"{cls.__name__} is a base class; call an instance of a subclass")
        if cls._declared() != cls._made_for:
            cls._enter()
        variables = as_variables(tuple(inputs), [f"inputs[{i}]" for i in range(len(inputs))], cls.__name__)
        instance = self._applied_to(tuple([x.spec for x in variables]))
        outputs = apply(cls._op, variables, (instance,))
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        self._check_rows(variables, outputs)
        return outputs

    @classmethod
    def _enter(cls) -> None:
        before, rule = cls.__dict__.get("_op"), cls.__dict__.get("_rule")
        registered = None if before is None else registry.find(before)  # `nn.register` may have put one in its place
        cls._made_for = cls._declared()
        cls._op, cls._rule = cls._made()
        registry.add(cls._op, cls._rule if registered is rule or registered is None else registered)

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

    def _run(self, arrays: Arrays) -> tuple[Any, ...]:
        """The outputs, while JAX traces the graph."""
        if [(s.shape, s.dtype) for s in self._inputs] != [(tuple(a.shape), a.dtype) for a in arrays]:
            return self._run_elsewhere(arrays)
        if isinstance(self._found, tuple):
            return self._on_host(arrays, shapes_of(self._found))
        results: tuple[Any, ...] = self._found(arrays)
        return results

    def _run_for_shapes_of(self, arrays: Arrays) -> tuple[Any, ...]:
        """The outputs from the copy for the shapes and dtypes of `arrays`, while JAX traces the graph."""
        return self._applied_to(tuple([spec_of(tuple(a.shape), np.dtype(a.dtype)) for a in arrays]))._run(arrays)

    @classmethod
    def _op_of(
        cls, multiple_results: bool, forward: Callable[[Any, Arrays], tuple[Any, ...]] | None = None, name: str = ""
    ) -> Op:
        """The op for a class in graphs, or with another `forward` for its gradient; its only static argument is the
        instance, or the argument of that forward."""
        kind, compute, axes = (CustomOp, cls._run, _declared_rows(cls)) if forward is None else (Op, forward, None)

        def run(*x: Any, instance: Static) -> Any:
            results = compute(instance, x)
            return results if multiple_results else results[0]

        run.__name__ = name or cls.__name__
        run.__doc__ = cls.__doc__
        run.__module__ = cls.__module__
        run.__annotations__ = {"instance": Static}
        op = kind(run, type_name=run.__name__, multiple_results=multiple_results, cost=unknown, axes=axes)
        op.tables = {}
        return op

    @staticmethod
    def _forward_only(op: Op, advice: str) -> Rule:
        """A rule that raises an error, for an op that cannot be differentiated, with advice."""

        def rule(f: Function, *gys: Any) -> Any:
            raise MissingRule(undifferentiable(f, advice))

        return Rule(rule, "forward only", True, op.module)

    def _returned(self, result: Any) -> tuple[Any, ...]:
        """The result of `forward` as a tuple of arrays; raises if it is something else."""
        several = isinstance(result, tuple | list)
        arrays = tuple(result) if several else (result,)
        for i, array in enumerate(arrays):
            which = f"{type(self).__name__}.forward: {f'output {i}' if several else 'its result'}"
            if isinstance(array, Variable):
                library = "NumPy" if self.numpy else "jax.numpy"
                raise TypeError(f"{which} is a Variable; forward works on arrays: use {library} instead of F")
            if array is None or not (hasattr(array, "shape") or isinstance(array, int | float)):
                raise TypeError(f"{which} must be an array, got {array!r}")
        return arrays if self.numpy else tuple(map(jnp.asarray, arrays))

    def _on_jax_arrays(self, *arrays: Any) -> tuple[Any, ...]:
        try:
            return self._forward(*arrays)
        except jax.errors.TracerArrayConversionError as error:
            raise TypeError(
                f"{type(self).__name__}.forward converts its inputs to NumPy arrays; "
                "use jax.numpy, or set `numpy = True` in the class"
            ) from error

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

    # ---------------------------------------------------------------- as a static argument

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


def _rule(f: Function, *gys: Variable) -> Any:
    return f.arguments[0].backward(f, *gys)


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


def shapes_of(specs: Iterable[Spec]) -> tuple[jax.ShapeDtypeStruct, ...]:
    """The corresponding JAX structs."""
    return tuple([s.abstract() for s in specs])


def _declared_rows(cls: type[CustomFunction]) -> AxisMap | None:
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


def undifferentiable(f: Function, advice: str) -> str:
    """The message for a gradient that meets `f`, which has none: the order, and advice."""
    if f.order == 0:
        return f"{f.op.name} cannot be differentiated: {advice}"
    origin = "" if f.origin is None else f" of {f.origin.op.name}"
    return (
        f"{f.op.name} is part of the gradient{origin} and cannot be differentiated: there is a gradient of order "
        f"{f.order}, but none of order {f.order + 1}. {advice}"
    )
