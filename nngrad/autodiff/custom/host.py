"""Run users' forwards in compiled graphs. A forward on JAX arrays is traced when it is applied; this trace is inserted,
and is all that is compared. One on NumPy arrays is called on the host, through `jax.pure_callback`.

Also the arguments of methods in nnabla's protocol: shapes, and cells to read and write. A cell holds either a Variable
of a graph that is being recorded (`Symbol`), or an array's values (`HostCell`).
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import jax
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr
from numpy.lib.mixins import NDArrayOperatorsMixin

import nngrad.functions as F

from ...functions.array import in_dtype
from ...functions.jaxpr_structure import array_value, is_opaque, structure_of
from ...graph import NdArray, Spec, Variable, as_variable, spec_of
from ...graph.jaxpr import does_much, jaxpr_for
from ...graph.leaf import common_floating
from ...graph.ndarray import checked_shape

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
        """Whether it does much arithmetic for each element."""
        return does_much(self._closed.jaxpr)

    def __call__(self, arrays: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(jax.core.eval_jaxpr(self._closed.jaxpr, self._closed.consts, *arrays))

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, TracedForward) and self._hash == other._hash and self._key == other._key
        )

    def __hash__(self) -> int:
        return self._hash


def traced(function: Callable[..., tuple[Any, ...]], inputs: Specs) -> TracedForward:
    """`function` of JAX arrays, traced for inputs of these shapes and dtypes."""
    return TracedForward(jaxpr_for(function, inputs))


# ---------------------------------------------------------------- on the host

Result = Any
"""One `jax.ShapeDtypeStruct` (or another thing with a shape and a dtype), or a tuple of them."""


def called_on_host(
    function: Callable[..., Any], instance: Any, outputs: Sequence[jax.ShapeDtypeStruct], arrays: Sequence[Any],
    name: str,
) -> tuple[Any, ...]:  # fmt: skip
    """Call `function` of NumPy arrays from a graph that JAX traces.

    Args:
        function: Takes `instance` and NumPy arrays, which it must not write to, and returns one, or a tuple of them.
            It must depend on nothing else: JAX may call it twice, or not at all if nobody reads the result.
        instance: The instance whose method it is. Executables refer to it weakly, since Python's collector does not see
            their references, and its class may hold them; the program they were made from holds it.
        outputs: Shape and dtype of each returned array.
        arrays: The arguments.
        name: Its name, for messages.
    """
    given = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in arrays]
    held = weakref.ref(instance)

    def call(*packed: Any) -> tuple[Any, ...]:
        living = held()
        if living is None:
            raise RuntimeError(f"{name}: the compiled function no longer exists; keep a reference to its graph")
        results = function(living, *[_unpacked(np.asarray(a), s) for a, s in zip(packed, given, strict=True)])
        results = results if isinstance(results, tuple | list) else (results,)
        if len(results) != len(outputs):
            raise ValueError(f"{name}: expected {len(outputs)} arrays, as declared, got {len(results)}")
        return tuple([_packed(_fitted(r, s, i, name)) for i, (r, s) in enumerate(zip(results, outputs, strict=True))])

    results = jax.pure_callback(
        call, tuple(map(_transport, outputs)), *map(_sent, arrays), vmap_method="sequential"
    )
    return tuple([_received(r, s) for r, s in zip(results, outputs, strict=True)])


def declared_shapes(outputs: Result, name: str) -> tuple[jax.ShapeDtypeStruct, ...]:
    """The result of `infer` as a tuple, with dtypes that JAX's current setting of x64 allows."""
    return tuple([_narrowed(s, name) for s in (outputs if isinstance(outputs, tuple | list) else (outputs,))])


def shapes_by_running(function: Callable[..., Any], inputs: Sequence[jax.ShapeDtypeStruct]) -> Result:
    """Shapes and dtypes of the results of `function`, which runs once on arrays of ones."""
    with np.errstate(all="ignore"):
        results = function(*[np.ones(s.shape, s.dtype) for s in inputs])
    if isinstance(results, tuple | list):
        return tuple([_spec(r) for r in results])
    return _spec(results)


def _spec(array: Any) -> jax.ShapeDtypeStruct:
    array = np.asarray(array)
    return jax.ShapeDtypeStruct(array.shape, array.dtype)


def _narrowed(spec: Any, name: str) -> jax.ShapeDtypeStruct:
    """`spec` with a dtype that JAX's current setting of x64 allows, since NumPy often computes float64."""
    if not (hasattr(spec, "shape") and hasattr(spec, "dtype")):
        raise TypeError(f"{name}: infer must return a jax.ShapeDtypeStruct(shape, dtype) for each output, got {spec!r}")
    return jax.ShapeDtypeStruct(tuple(spec.shape), jax.dtypes.canonicalize_dtype(spec.dtype))


def _fitted(result: Any, spec: jax.ShapeDtypeStruct, i: int, name: str) -> np.ndarray[Any, Any]:
    array = np.asarray(result)
    if array.shape != spec.shape:
        raise ValueError(f"{name}: output {i} must have shape {spec.shape}, as declared or inferred, got {array.shape}")
    return array.astype(spec.dtype, copy=False)


# The callback runs in a thread of its own, where JAX's x64 is off even if it is on in the graph, and 64-bit values
# would lose half of their bits on the way there and back. So they travel as pairs of 32-bit words.


def _needs_x64(dtype: Any) -> bool:
    return bool(np.dtype(dtype).itemsize == 8)


def _transport(spec: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((*spec.shape, 2), np.uint32) if _needs_x64(spec.dtype) else spec


def _sent(array: Any) -> Any:
    return lax.bitcast_convert_type(array, np.uint32) if _needs_x64(array.dtype) else array


def _received(array: Any, spec: jax.ShapeDtypeStruct) -> Any:
    return lax.bitcast_convert_type(array, spec.dtype) if _needs_x64(spec.dtype) else array


def _unpacked(array: np.ndarray[Any, Any], spec: jax.ShapeDtypeStruct) -> np.ndarray[Any, Any]:
    if not _needs_x64(spec.dtype):
        return array
    values: np.ndarray[Any, Any] = np.ascontiguousarray(array).reshape(-1).view(spec.dtype)
    return values.reshape(spec.shape)


def _packed(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if not _needs_x64(array.dtype):
        return array
    return np.ascontiguousarray(array).reshape(-1).view(np.uint32).reshape(*array.shape, 2)

# ---------------------------------------------------------------- arguments of methods in nnabla's protocol


class NeedsValues(Exception):
    """A method asks for an array's values while it is recorded as a graph, which has no values."""


class Symbol(Variable):
    """An array in a graph that is being recorded: it supports operators and copies, but has no values."""

    __slots__ = ("content", "label", "writable")

    content: Variable | None
    """The Variable written to it."""
    label: str
    writable: bool

    def __init__(self, spec: Spec, label: str, writable: bool) -> None:
        super().__init__(spec.shape, dtype=spec.dtype)
        self.content = None
        self.label = label
        self.writable = writable

    def copy_from(self, source: Any) -> None:
        """Copy a value, cast to this array's dtype."""
        if not self.writable:
            raise ValueError(f"{self.label} is read-only; a function of nngrad does not change its inputs")
        if not hasattr(source, "shape"):
            source = F.constant(val=float(source), shape=self.shape, dtype=self.dtype)
        value = as_variable(source, self.label, floating=common_floating([self]))
        if value.shape != self.shape:
            if value.shape != ():
                raise ValueError(f"{self.label}: cannot copy shape {value.shape} to shape {self.shape}")
            value = F.broadcast(value, shape=self.shape)
        self.content = in_dtype(value, self.dtype)

    fill = copy_from

    def zero(self) -> None:
        """Fill with zeros."""
        self.copy_from(0.0)

    def cast(self, dtype: Any) -> Variable:
        """The value in another dtype."""
        result: Variable = F.cast(self, dtype=dtype)
        return result

    def _changed(self, change: Any) -> Symbol:
        if self.content is None and self.writable:
            self.zero()
        self.copy_from(change(self if self.content is None else self.content))
        return self

    def __iadd__(self, other: Any) -> Symbol:  # type: ignore[misc]
        return self._changed(lambda value: value + other)

    def __isub__(self, other: Any) -> Symbol:  # type: ignore[misc]
        return self._changed(lambda value: value - other)

    def __imul__(self, other: Any) -> Symbol:  # type: ignore[misc]
        return self._changed(lambda value: value * other)

    def __itruediv__(self, other: Any) -> Symbol:  # type: ignore[misc]
        return self._changed(lambda value: value / other)

    def _no_values(self, *_: Any, **__: Any) -> NoReturn:
        raise NeedsValues(self.label)

    cell = property(_no_values, _no_values)
    data = property(_no_values, _no_values)
    grad = property(_no_values, _no_values)
    d = property(_no_values, _no_values)
    g = property(_no_values, _no_values)
    __array__ = __array_ufunc__ = __setitem__ = __jax_array__ = _no_values

    def __getattr__(self, name: str) -> Any:
        if hasattr(NdArray, name):
            raise NeedsValues(self.label)
        raise AttributeError(f"{self.label} has no attribute {name!r}")


class HostCell(NdArray, NDArrayOperatorsMixin):
    """An array's values, with NumPy's operators."""

    __slots__ = ("_label", "_writable")

    def __init__(self, array: np.ndarray[Any, Any], label: str, writable: bool) -> None:
        super().__init__(array.shape, array.dtype)
        self.put(array)
        self._label = label
        self._writable = writable

    @property
    def data(self) -> np.ndarray[Any, Any]:
        """The values; those of inputs are read-only."""
        return NdArray.data.fget(self) if self._writable else self.view  # type: ignore[attr-defined]

    @data.setter
    def data(self, value: object) -> None:
        self.copy_from(value)

    def copy_from(self, source: Any) -> None:
        """Copy a value, cast to this array's dtype."""
        if not self._writable:
            raise ValueError(f"{self._label} is read-only; a function of nngrad does not change its inputs")
        value = np.asarray(source.d if isinstance(source, Variable) else source)
        if value.shape not in ((), self.shape):
            raise ValueError(f"{self._label}: cannot copy shape {value.shape} to shape {self.shape}")
        self.data[...] = value

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if any([isinstance(x, Variable) for x in inputs]):
            return NotImplemented
        values = [x.view if isinstance(x, NdArray) else x for x in inputs]
        out = options.pop("out", ())
        result = getattr(ufunc, method)(*values, **options)
        if out:
            out[0].copy_from(result)
            return out[0]
        return result


class Denied:
    """Data on which a gradient was declared not to depend.

    Reading it raises no ValueError, since array conversions would catch that.
    """

    __slots__ = ("label", "method")

    def __init__(self, label: str, method: str) -> None:
        self.label = label
        self.method = method

    def refuse(self) -> NoReturn:
        """Raise a RuntimeError."""
        raise RuntimeError(f"backward_impl reads {self.label}, but {self.method} says that no gradient depends on it")

    def __getattr__(self, name: str) -> Any:
        return self.refuse()


class Argument:
    """A stand-in for a Variable in nnabla's protocol: a shape, and cells for data and gradient.

    Args:
        spec: Shape and dtype.
        label: Its name, for messages.
        data: The cell of its data; None if there is none yet.
        grad: The cell of its gradient.
    """

    def __init__(self, spec: Spec, label: str, data: Any = None, grad: Any = None) -> None:
        self.spec = spec
        self.need_grad = spec.differentiable
        self._label = label
        self._cells = {"data": data, "grad": grad}

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return self.spec.shape

    @property
    def dtype(self) -> Any:
        """Its dtype."""
        return self.spec.dtype

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.spec.size

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self.spec.ndim

    def size_from_axis(self, axis: int = -1) -> int:
        """Number of elements in the axes from `axis` on; all for -1."""
        return int(np.prod(self.shape[max(axis, 0) :], dtype=int))

    def reset_shape(self, shape: Any, force: bool = False) -> None:
        """In `setup_impl`: set the shape of an output."""
        shape = checked_shape(shape)
        if self._cells["data"] is not None and shape != self.shape:
            raise ValueError(f"{self._label}: cannot change shape {self.shape} to {shape} here; set it in setup_impl")
        self.spec = spec_of(shape, self.spec.dtype)

    def _cell(self, kind: str) -> Any:
        cell = self._cells[kind]
        if cell is None:
            raise RuntimeError(f"{self._label}.{kind} is not available in this method")
        return cell

    def _values(self, kind: str) -> Any:
        cell = self._cell(kind)
        if isinstance(cell, Denied):
            cell.refuse()
        if isinstance(cell, Symbol):
            raise NeedsValues(cell.label)
        return cell.data

    data = property(lambda self: self._cell("data"), lambda self, value: self._cell("data").copy_from(value))
    """The cell of its data."""
    grad = property(lambda self: self._cell("grad"), lambda self, value: self._cell("grad").copy_from(value))
    """The cell of its gradient."""
    d = property(lambda self: self._values("data"), lambda self, value: self._cell("data").copy_from(value))
    """Its values as a NumPy array."""
    g = property(lambda self: self._values("grad"), lambda self, value: self._cell("grad").copy_from(value))
    """The values of its gradient as a NumPy array."""
