"""Spec: a shape and dtype, one object per distinct pair."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
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
            spec = _specs.setdefault((shape, dtype), Spec(shape, dtype))
    return spec


def dtype_of(dtype: object) -> DType:
    """`dtype` as a NumPy dtype in native byte order; a `TypeError` names one that is not supported."""
    try:
        if dtype is None:  # which NumPy takes for float64
            raise TypeError
        result: DType = np.dtype(dtype)  # type: ignore[call-overload]
    except (TypeError, ValueError, SyntaxError) as error:
        raise TypeError(f"dtype: {dtype!r} is not a dtype; give e.g. 'float32' or np.float64") from error
    if not result.isnative:
        result = result.newbyteorder("=")
    if result not in SUPPORTED:
        raise TypeError(f"dtype: {result.name!r} is not supported; use a real, integer or bool dtype of up to 64 bits"
                        f"{complex_hint(result)}")
    return result


def complex_hint(dtype: Any) -> str:
    """A hint on complex numbers, for messages that `dtype` is not supported."""
    is_complex = getattr(dtype, "kind", "") == "c"
    return "; there are no complex numbers here: give x.real and x.imag as two arrays" if is_complex else ""


def is_differentiable(dtype: DType) -> bool:
    """Whether it is a supported floating dtype."""
    return dtype in _DIFFERENTIABLE


def x64_if(needs_x64: bool) -> Any:
    """A context that enables 64-bit types in JAX if `needs_x64`, and else leaves JAX's setting alone."""
    return jax.enable_x64(True) if needs_x64 else _UNCHANGED


def arguments_need_x64(arguments: tuple[Any, ...]) -> bool:
    """Whether a 64-bit dtype is among an op's arguments, or occurs in a body among them."""
    return any([
        a.itemsize == 8 if isinstance(a, np.dtype)
        else arguments_need_x64(a) if isinstance(a, tuple)
        else getattr(a, "needs_x64", False)
        for a in arguments
    ])


class _Unchanged:
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


_UNCHANGED = _Unchanged()


# ---------------------------------------------------------------- sizes that have a name, in programs for any size


def has_name(sizes: Iterable[Any]) -> bool:
    """Whether any size is symbolic."""
    return any([type(n) is not int and is_symbolic_dim(n) for n in sizes])


def surely(holds: Callable[[], bool]) -> bool:
    """Whether a comparison of sizes holds; False if it involves a symbolic size and is inconclusive. Use it only where
    both answers are correct, and one is merely faster."""
    try:
        return bool(holds())
    except Exception as error:
        if type(error).__name__ != "InconclusiveDimensionOperation":
            raise
        return False
