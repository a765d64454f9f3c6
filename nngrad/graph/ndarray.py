"""NdArray: a mutable cell that holds one immutable array."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, overload

import jax
import numpy as np

from .engine import CellOperators
from .options import build_options
from .placement import Axes
from .spec import (
    FLOAT32,
    SUPPORTED,
    DType,
    Shape,
    Spec,
    array_of,
    converted,
    dtype_of,
    is_differentiable,
    narrowed,
    spec_of,
    x64_if,
)
from .thresholds import SMALL_ARRAY
from .value import Thunk, Value, not_kept, on_device, on_host

_MOST_BYTES = 2**63 - 1
"""The largest number of bytes in an array that can be counted."""

_KEPT = SUPPORTED - {np.dtype(np.float64)}
"""Dtypes that NumPy arrays keep in every context."""


class NdArray(CellOperators):
    """A cell for one array of a fixed shape and dtype.

    The array in it is immutable; writing replaces it. A new cell holds zeros, which take no
    memory until they are read. After `forward()`, a cell may hold a deferred value,
    which is computed when it is read.

    Operators compute at once and return a cell, or a Variable if the other operand is one. `a += b` and the like write
    the result into `a`.

    Args:
        shape: Shape of the array.
        dtype: Its dtype; float32 by default.
    """

    __slots__ = ("__weakref__", "_spec", "axes", "by_default", "held", "variable")

    __array_priority__ = 500.0

    held: Value
    """The value; writing to the cell replaces it."""
    variable: Any
    """The Variable of the gradient that it holds, if that was kept; None once another value is set."""
    axes: Axes | str | None
    """The mesh axes over which it is divided, as given to `nn.shard`, () for none; None if unspecified, as for
    batches."""

    by_default: bool
    """Whether its dtype is that of the data it was made from, since no other was asked for."""

    def __init__(self, shape: Shape | list[int] | int = (), dtype: object = FLOAT32) -> None:
        self._spec = checked_spec(shape, dtype)
        self.held = Thunk(self._spec)
        self.variable = self.axes = None
        self.by_default = False

    @staticmethod
    def of_spec(spec: Spec) -> NdArray:
        """A cell of zeros."""
        cell = NdArray.__new__(NdArray)
        cell._spec = spec
        cell.held = Thunk(spec)
        cell.variable = cell.axes = None
        cell.by_default = False
        return cell

    @staticmethod
    def from_numpy_array(array: object, dtype: object = None) -> NdArray:
        """A cell with a copy of `array`: NumPy or JAX array, number, or (nested) list.

        NumPy and JAX arrays keep their dtype, but float64 becomes float32 in a context of type 'float'; Python floats
        become float32 and ints int32. `dtype` overrides this.
        """
        cell = NdArray.of_host_array(host_array(array, dtype))
        cell.by_default = dtype is None
        return cell

    @staticmethod
    def of_host_array(value: Any) -> NdArray:
        """A cell with a copy of a NumPy or JAX array, in its dtype, which must be one that a cell can hold."""
        cell = NdArray.__new__(NdArray)
        cell._spec = spec_of(value.shape, np.dtype(value.dtype))
        cell.held = Value(_settled(value))
        cell.variable = cell.axes = None
        cell.by_default = False
        return cell

    @property
    def shape(self) -> Shape:
        """Shape of the array."""
        return self._spec.shape

    @property
    def dtype(self) -> DType:
        """Dtype of the array."""
        return self._spec.dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self._spec.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return self._spec.size

    @property
    def spec(self) -> Spec:
        """Shape and dtype."""
        return self._spec

    @property
    def is_zero(self) -> bool:
        """True if the cell holds the zeros it was made or reset with, unwritten since."""
        value = self.held
        return value.__class__ is Thunk and value.array is None and value.source.__class__ is Spec

    zeroing = is_zero
    """nnabla's name for it."""

    @property
    def is_empty(self) -> bool:
        """True if nothing was written since it was made or reset, or since a backward that kept no gradient here: an
        arriving gradient is then not added to anything."""
        value = self.held
        if value.__class__ is not Thunk or value.array is not None:
            return False
        return value.source.__class__ is Spec or value.source is not_kept

    @property
    def is_deferred(self) -> bool:
        """True if the value is deferred and has not been read yet."""
        return self.held.__class__ is Thunk and self.held.array is None and not self.is_empty

    def raw(self) -> Any:
        """The array as stored, a `jax.Array` or a small `np.ndarray`, to pass to JAX."""
        return self.held.raw()

    @property
    def array(self) -> jax.Array:
        """The value as a `jax.Array`."""
        return self.held.as_jax()

    @property
    def data(self) -> np.ndarray[Any, Any]:
        """The value as a NumPy array. Writing to it, or assigning, changes what the cell holds."""
        return self.held.writable_view()

    @data.setter
    def data(self, value: object) -> None:
        self.set(value)

    @property
    def view(self) -> np.ndarray[Any, Any]:
        """The value as a read-only NumPy array; on a CPU without a copy."""
        view = on_host(self.raw())
        if view.flags.writeable:
            view = view.view()
            view.flags.writeable = False
        return view

    def get_data(self, mode: str = "rw", dtype: object = None) -> np.ndarray[Any, Any]:
        """The value as a NumPy array: read-only with mode 'r', without a copy on a CPU, else as `data`.

        Args:
            mode: 'r', 'w' or 'rw'.
            dtype: The dtype of the cell; any other is refused, since the cell keeps its own.

        Raises:
            ValueError: `mode` is none of these, or `dtype` is not the cell's.
        """
        if mode not in ("r", "w", "rw"):
            raise ValueError(f"mode: expected 'r', 'w' or 'rw', got {mode!r}")
        if dtype is not None and dtype_of(dtype) != self.dtype:
            raise ValueError(f"dtype: the cell's dtype is fixed at {self.dtype.name}; cast({dtype!r}) makes a new cell")
        return self.view if mode == "r" else self.data

    def set(self, value: object, name: str = "value") -> None:
        """Replace the value. It is broadcast to the cell's shape and must fit its dtype: integer dtypes take no
        fractions and nothing out of range. Errors begin with `name`."""
        new = Value(_settled(fitted_array(value, self._spec, name)))
        with Value.writing:
            self.variable = None
            self.held = new

    def put(self, array: Any) -> None:
        """Store an executable's result, of this cell's shape and dtype, unchanged."""
        if array.shape != self._spec.shape or array.dtype != self._spec.dtype:
            raise ValueError(f"array: {array.dtype.name}{list(array.shape)} does not fit a cell of {self._spec}")
        self.held = Value(array)

    def defer(self, source: Callable[[Thunk], None]) -> None:
        """Hold a value that `source` fills in when it is read."""
        self.held = Thunk(source)

    def zero(self) -> None:
        """Fill with zeros."""
        with Value.writing:
            self.variable = None
            self.held = Thunk(self._spec)

    def give_up(self) -> None:
        """Hold no gradient, after a backward that kept none here: reading it is an error."""
        with Value.writing:
            self.variable = None
            self.held = Thunk(not_kept)

    def fill(self, value: float) -> None:
        """Fill with one number."""
        self.set(value)

    def bool_fill(self, mask: object, value: float) -> NdArray:
        """Write `value` where `mask` is not 0, and return the cell itself."""
        chosen = np.broadcast_to(np.asarray(mask) != 0, self.shape)
        self.set(np.where(chosen, np.asarray(value, self.dtype), self.view))
        return self

    masked_fill = bool_fill
    """nnabla's other name for it."""

    def copy_from(self, source: NdArray) -> None:
        """Take over the value of `source`, cast to this cell's dtype."""
        if not isinstance(source, NdArray):
            raise TypeError(f"source: expected an NdArray, got {type(source).__name__}")
        self.set(source)

    def clear(self) -> None:
        """Release the value; the cell holds zeros again."""
        self.zero()

    @overload
    def cast(self, dtype: object) -> NdArray: ...
    @overload
    def cast(self, dtype: object, ctx: object) -> None: ...
    def cast(self, dtype: object, ctx: object = None) -> NdArray | None:
        """The value cast to another dtype, as by NumPy's `astype`: fractions are truncated.

        Args:
            dtype: The dtype.
            ctx: With a Context, write the cast values back into this cell, which keeps its own dtype: this is what
                `x.data.cast(np.uint8, ctx)` does in nnabla programs.

        Returns:
            A new cell of that dtype; None if there is a `ctx`.
        """
        cell = NdArray(self.shape, dtype)
        with x64_if(cell._spec.needs_x64):
            cell.put(self.raw().astype(cell.dtype))
        if ctx is None:
            return cell
        self.set(cell)
        return None

    def __getitem__(self, key: Any) -> Any:
        return self.view[key]

    def __setitem__(self, key: Any, value: object) -> None:
        self.data[key] = value.view if isinstance(value, NdArray) else value

    def __float__(self) -> float:
        return float(self._single())

    def __int__(self) -> int:
        return int(self._single())

    def _single(self) -> Any:
        """The value of a cell of one element."""
        if self.size != 1:
            raise TypeError(f"only a cell of one element converts to a number; this one has shape {self.shape}")
        return self.view.reshape(())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.array(self.view, dtype=dtype, copy=copy)

    def __jax_array__(self) -> jax.Array:
        return self.array

    def __repr__(self) -> str:
        if self.is_deferred:
            return f"<NdArray {self._spec}, not computed yet>"
        if self.is_empty and not self.is_zero:
            return f"<NdArray {self._spec}, not kept>"
        return f"<NdArray {self._spec}\n{self.view}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return NdArray.from_numpy_array, (on_host(self.raw()), self.dtype)


def checked_shape(shape: object) -> Shape:
    """`shape` as a tuple of non-negative ints; an int stands for one axis."""
    if isinstance(shape, int | np.integer) and not isinstance(shape, bool):
        shape = (int(shape),)
    try:
        result = tuple(int(n.__index__()) for n in shape)  # type: ignore[attr-defined]
    except (TypeError, AttributeError) as error:
        message = f"shape: expected a tuple of ints, got {shape!r}"
        if isinstance(shape, list | tuple | np.ndarray):
            message += "; to hold values, use nn.Variable.from_numpy_array(values)"
        raise TypeError(message) from error
    if any(n < 0 for n in result):
        raise ValueError(f"shape: sizes must not be negative, got {result}")
    return result


def checked_spec(shape: object, dtype: object) -> Spec:
    """The Spec of a user's shape and dtype, unless it is too large for any memory."""
    checked, known = checked_shape(shape), dtype_of(dtype)
    if math.prod([max(n, 1) for n in checked]) * known.itemsize > _MOST_BYTES:
        raise ValueError(f"shape: an array of shape {checked} is too large for any memory")
    return spec_of(checked, known)


def host_array(value: object, dtype: object, name: str = "value", floating: DType | None = None) -> Any:
    """`value` as a NumPy or JAX array, in the dtype of a leaf made from it.

    Unless `dtype` says otherwise, floating values get the dtype `floating`, or without it, that of the context.
    Otherwise Python numbers and lists of them become float32, int32 or bool, and arrays keep their dtype.
    `fitted_array` says which values fit into another dtype. Errors begin with `name`.
    """
    if value.__class__ is np.ndarray and dtype is None and floating is None and value.dtype in _KEPT:
        return value  # the usual case
    array = _given_array(value, name)
    if dtype is not None:
        return converted(array, dtype_of(dtype), name)
    if floating is None and array.dtype == np.float64 and (context := build_options().applying.context) is not None:
        floating = context.float_dtype
    if floating is not None and is_differentiable(array.dtype):
        return converted(array, floating, name)
    if isinstance(value, NdArray | jax.Array | np.ndarray | np.generic) or hasattr(value, "__array__"):
        return array
    return narrowed(array, name)


def fitted_array(value: object, spec: Spec, name: str = "value") -> Any:
    """`value` as a NumPy or JAX array of `spec`, copied only if needed.

    It is broadcast to the shape as in a NumPy assignment; a single number, of whatever shape, fills it. Values are
    converted to the dtype: floating dtypes round (and overflow to infinity, as in NumPy); in bool, whatever is not 0 is
    True.

    Raises:
        TypeError: A cell cannot hold the dtype of `value`. All errors begin with `name`.
        ValueError: It cannot be broadcast to the shape, or the dtype is an integer dtype and a number is out of range
            or not whole.
    """
    array = _given_array(value, name)
    if array.shape != spec.shape:
        values = np.asarray(converted(array, spec.dtype, name))
        if values.size == 1:
            return np.broadcast_to(values.reshape(()), spec.shape)
        filled = np.empty(spec.shape, values.dtype)
        try:
            filled[...] = values
            return filled
        except ValueError:
            raise ValueError(
                f"{name}: expected an array of shape {spec.shape}, or one that broadcasts to it, such as a scalar, "
                f"got shape {tuple(array.shape)}"
            ) from None
    return converted(array, spec.dtype, name)


def _given_array(value: object, name: str) -> Any:
    return value.raw() if isinstance(value, NdArray) else array_of(value, name)


def _settled(value: Any) -> Any:
    """`value` in the form in which a cell stores it: nobody else can write to it."""
    if not isinstance(value, np.ndarray):
        return value
    value = value.copy()
    # A mesh copies each device's part directly from the host.
    if value.nbytes > SMALL_ARRAY and build_options().running.mesh is None:
        return on_device(value)  # copied by NumPy, since JAX may read its argument after the call
    return value


NOT_KEPT = NdArray()
"""Stands for the gradient of a Variable that a backward has passed, until its cell is asked for."""
NOT_KEPT.give_up()
