"""Spec: a shape and dtype, one object per distinct pair.

Below: arrays that are given as values, which dtypes they may have, and what fits into another dtype.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any

import jax
import ml_dtypes
import numpy as np
from jax.export import is_symbolic_dim

Shape = tuple[int, ...]
DType = np.dtype[Any]

FLOAT32: DType = np.dtype(np.float32)
_DIFFERENTIABLE = frozenset(
    np.dtype(t) for t in (np.float16, ml_dtypes.bfloat16, np.float32, np.float64)
)
SUPPORTED = _DIFFERENTIABLE | {np.dtype(t) for t in ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")}
_BUILT_IN = {dtype: dtype for dtype in SUPPORTED}
"""NumPy's own dtypes; those of pickled and byte-swapped arrays are equal to them, but other objects."""


class Spec:
    """A shape and a dtype. Equal ones are the same object, so they compare and hash by identity."""

    __slots__ = ("alone", "differentiable", "dtype", "needs_x64", "shape")

    shape: Shape
    dtype: DType
    needs_x64: bool
    """Whether the dtype has 64 bits, which JAX supports only with x64 enabled."""
    differentiable: bool
    """Whether the dtype is floating; gradients stop at all others."""

    alone: tuple[Spec, ...]
    """The tuple of just this Spec: the specs of a function with one output."""

    def __init__(self, shape: Shape, dtype: DType) -> None:
        self.alone = (self,)
        self.shape = shape
        self.dtype = dtype
        self.needs_x64 = dtype.itemsize == 8
        self.differentiable = is_differentiable(dtype)

    @property
    def size(self) -> int:
        """Number of elements."""
        size = 1
        for n in self.shape:
            size *= n
        return size

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """The size of an array of this shape and dtype, in bytes."""
        return self.size * self.dtype.itemsize

    def abstract(self, sharding: Any = None) -> jax.ShapeDtypeStruct:
        """The corresponding `jax.ShapeDtypeStruct`, with `sharding`."""
        return jax.ShapeDtypeStruct(self.shape, self.dtype, sharding=sharding)

    def __repr__(self) -> str:
        return f"{self.dtype.name}{list(self.shape)}"

    def __reduce__(self) -> tuple[Any, ...]:
        return spec_of, (self.shape, self.dtype)


_specs: dict[tuple[Shape, DType], Spec] = {}
_lock = threading.Lock()


def spec_of(shape: Shape, dtype: DType) -> Spec:
    """The Spec of `shape` and `dtype`."""
    spec = _specs.get((shape, dtype))
    if spec is None:
        with _lock:
            spec = _specs.setdefault((shape, dtype), Spec(shape, _BUILT_IN.get(dtype, dtype)))
    return spec


def dtype_of(dtype: object) -> DType:
    """`dtype` as a NumPy dtype in native byte order; a `TypeError` names one that is not supported."""
    try:
        if dtype is None:  # which means float64 to NumPy
            raise TypeError
        result: DType = np.dtype(dtype)  # type: ignore[call-overload]
    except (TypeError, ValueError, SyntaxError) as error:
        raise TypeError(f"dtype: expected a dtype such as 'float32' or np.float64, got {dtype!r}") from error
    if not result.isnative:
        result = result.newbyteorder("=")
    known = _BUILT_IN.get(result)
    if known is None:
        raise TypeError(f"dtype: {result.name!r} is not supported; use a real, integer or bool dtype of up to 64 bits"
                        f"{complex_hint(result)}")
    return known


def complex_hint(dtype: Any) -> str:
    """A hint on complex numbers, for messages that `dtype` is not supported."""
    is_complex = getattr(dtype, "kind", "") == "c"
    return "; complex numbers are not supported: pass x.real and x.imag as two arrays" if is_complex else ""


def is_differentiable(dtype: DType) -> bool:
    """True if `dtype` is a supported floating dtype."""
    return dtype in _DIFFERENTIABLE


def x64_if(needs_x64: bool) -> Any:
    """A context that enables 64-bit types in JAX if `needs_x64`, and otherwise keeps JAX's setting."""
    return jax.enable_x64(True) if needs_x64 else _UNCHANGED


_UNCHANGED = nullcontext()


# ---------------------------------------------------------------- sizes that have a name, in programs for any size


def has_name(sizes: Iterable[Any]) -> bool:
    """True if any size is symbolic."""
    return any([type(n) is not int and is_symbolic_dim(n) for n in sizes])



def array_of(value: object, name: str, dtype: DType | None = None) -> Any:
    """`value` as a NumPy or JAX array of a dtype that a cell can hold, in native byte order; `converted` to `dtype`, if
    that is passed.

    Raises:
        TypeError: A cell cannot hold its dtype, or some of it is masked. The message begins with `name`.
        ValueError: It is not a rectangular array, or `dtype` cannot hold its values.
    """
    if dtype is not None:
        return converted(array_of(value, name), dtype, name)
    if value.__class__ is np.ndarray and value.dtype in SUPPORTED:
        return value
    refuse_tracer(value, name)
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise TypeError(f"{name}: masked arrays are not supported; pass x.filled(0), for example")
    array: Any = value
    if not isinstance(value, jax.Array):
        try:
            array = np.asarray(value)
        except ValueError as error:
            raise ValueError(f"{name}: expected a rectangular array of numbers ({error})") from error
    try:
        dtype = dtype_of(array.dtype)
    except TypeError:
        raise TypeError(
            f"{name}: dtype {array.dtype} is not supported; pass an array of a real, integer or bool dtype of up to "
            f"64 bits, such as np.asarray(x, np.float32){complex_hint(array.dtype)}"
        ) from None
    return array if array.dtype == dtype else array.astype(dtype)


def refuse_tracer(value: object, name: str) -> None:
    """Raise a TypeError that begins with `name` if `value` is a JAX tracer."""
    if isinstance(value, jax.core.Tracer):
        raise TypeError(
            f"{name}: got a JAX tracer, which a Variable cannot hold. In functions that JAX traces (jax.grad, jit, "
            "F.jax_function, the forward of a FunctionNode), use jax.numpy instead of F; or build the graph outside "
            "and convert it with nn.to_jax(outputs, inputs)"
        )


def narrowed(array: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
    """An array that NumPy made from Python numbers in 64 bits, in 32 bits."""
    if array.dtype == np.float64:
        return array.astype(np.float32)
    if array.dtype.kind in "iu":
        bounds = np.iinfo(np.int32)
        if array.size and (array.min() < bounds.min or array.max() > bounds.max):
            raise ValueError(f"{name}: an int does not fit in int32; pass dtype='int64', or a NumPy array of int64")
        return array.astype(np.int32)
    return array


def converted(array: Any, dtype: DType, name: str) -> Any:
    """`array` in `dtype`, if that can hold its values.

    Floating dtypes round values, and overflow to infinity, as NumPy's casts do (with its warning). In bool, whatever is
    not 0 is True.

    Raises:
        ValueError: `dtype` is an integer dtype, and a number is out of its range or not whole. The message begins with
            `name`, and gives the number and `dtype`.
    """
    if array.dtype == dtype:
        return array
    if dtype.kind in "iu" and array.size:
        _check_whole_numbers(np.asarray(array), dtype, name)
    with x64_if(dtype.itemsize == 8):
        return array.astype(dtype)


def _check_whole_numbers(values: np.ndarray[Any, Any], dtype: DType, name: str) -> None:
    """Raise unless every number is whole and in the range of the integer `dtype`."""
    bounds = np.iinfo(dtype)
    if values.dtype.kind in "iub":
        extremes = values.min(), values.max()
        strays = [v for v in extremes if not bounds.min <= int(v) <= bounds.max]
    else:
        wide = values.astype(np.float64)
        fits = (wide >= float(bounds.min)) & (wide < float(bounds.max) + 1) & (np.trunc(wide) == wide)
        strays = wide[~fits].reshape(-1).tolist()
    if strays:
        raise ValueError(
            f"{name}: {dtype.name} holds integers between {bounds.min} and {bounds.max}, got {strays[0]}; cast the "
            "array yourself, or use another dtype"
        )
