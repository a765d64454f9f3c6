"""The values that opened equations work on: Variables, known arrays, random keys, complex pairs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import numpy as np
from jax.extend.core import Literal

from .. import functions as F
from ..extend import NdArray, Variable, dtype_of, leaf_of
from ..functions.traced import KeyData, is_key


class KnownArray:
    """An array that depends on no argument of the function.

    Args:
        array: A NumPy array, or a `jax.Array` of random keys.
        number: The number that fills it, if any; then `array` is made on demand.
    """

    __slots__ = ("_array", "_variable", "dtype", "number", "shape")

    def __init__(
        self, array: Any = None, number: Any = None, shape: tuple[int, ...] = (), dtype: np.dtype[Any] | None = None
    ) -> None:
        self._array = array
        self._variable: Variable | None = None
        self.number = number
        self.shape: tuple[int, ...] = shape if array is None else tuple(array.shape)
        self.dtype: Any = dtype if array is None else array.dtype

    @property
    def array(self) -> Any:
        """The array itself."""
        if self._array is None:
            self._array = np.full(self.shape, self.number, self.dtype)
        return self._array

    @property
    def key(self) -> Any:
        """A key that is equal for equal arrays, as far as this is cheap to tell."""
        return id(self) if self.number is None else ("filled", repr(self.number), self.shape, str(self.dtype))

    def variable(self) -> Variable:
        """The array as a Variable: a constant of the graph, which can be simplified, if it is filled with one number;
        otherwise a leaf."""
        if self._variable is None:
            if _fits_constant(self.number):
                self._variable = F.constant(val=float(self.number), shape=self.shape, dtype=self.dtype)
            else:
                self._variable = leaf_of(NdArray.from_numpy_array(np.asarray(self.array), self.dtype))
        return self._variable

    @property
    def scalar(self) -> float | None:
        """The number that fills it; None if there is none, or if a float cannot hold it."""
        n = self.number
        if n is None or (isinstance(n, int) and not isinstance(n, bool) and abs(n) > _MOST_EXACT):
            return None
        return float(n)


_MOST_EXACT = 1 << 53
"""The limit up to which a float holds every whole number."""


def _fits_constant(number: Any) -> bool:
    if number is None or isinstance(number, bool):
        return False
    if isinstance(number, float) and number == 0 and math.copysign(1, number) < 0:
        return False  # comparing numbers would lose the sign of a zero
    return abs(number) <= _MOST_EXACT or math.isinf(number)


class Keys:
    """An array of random keys: their data as a Variable, and the name of their generator."""

    __slots__ = ("data", "implementation", "shape")

    def __init__(self, data: Variable, implementation: str, shape: tuple[int, ...]) -> None:
        self.data, self.implementation, self.shape = data, implementation, shape


class Delayed:
    """A result whose dtype no Variable holds. It is computed within the equations that use it, which form one opaque
    function with it.

    Args:
        equation: The equation that computes it.
        values: The equation's inputs.
        index: Which of its results it is.
    """

    __slots__ = ("equation", "index", "values")

    def __init__(self, equation: Any, values: list[Value], index: int) -> None:
        self.equation, self.values, self.index = equation, values, index


@jax.tree_util.register_pytree_node_class
class ComplexPair:
    """An array of complex numbers as its real and imaginary parts, each a Variable or `KnownArray`. It is a pytree
    node, and becomes a complex array when Variables become arrays."""

    __slots__ = ("imaginary", "real")

    def __init__(self, real: Any, imaginary: Any) -> None:
        self.real, self.imaginary = real, imaginary

    def tree_flatten(self) -> tuple[tuple[Any, Any], None]:
        """Both parts."""
        return (self.real, self.imaginary), None

    @classmethod
    def tree_unflatten(cls, _: None, parts: Any) -> Any:
        """A pair of Variables, or an array of complex numbers."""
        real, imaginary = parts
        if all([isinstance(p, jax.Array | np.ndarray) and p.dtype.kind == "f" for p in parts]):
            return jax.lax.complex(real, imaginary)
        return cls(real, imaginary)

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return tuple(self.real.shape)

    @property
    def dtype(self) -> Any:
        """The complex dtype that belongs to its parts."""
        return np.dtype(np.complex128 if self.real.dtype == np.float64 else np.complex64)

    @property
    def spec(self) -> str:
        """Its shape and dtype as errors show them."""
        return f"{self.dtype.name}{list(self.shape)}"


Value = Variable | KnownArray | Keys | Delayed | ComplexPair


def known(array: Any) -> KnownArray:
    """An array as `KnownArray`, noting whether it is filled with one number."""
    if is_key(array):
        return KnownArray(array)
    host = np.asarray(array)
    if host.size and host.dtype.kind in "fiub" and _is_filled(host):
        return KnownArray(None, host.flat[0].item(), host.shape, host.dtype)
    return KnownArray(host)


def read(variables: Iterable[Any], values: Mapping[Any, Value]) -> list[Value]:
    """The values of variables of a jaxpr, and of its literals."""
    return [
        known(np.asarray(v.val, getattr(v.aval, "dtype", None))) if isinstance(v, Literal) else values[v]
        for v in variables
    ]


def constant_of(array: Any) -> Value:
    """An array that a function closes over, as a leaf. It is not folded into constants, so that functions that differ
    only in such arrays share one structure."""
    if is_key(array) or array.size <= 1 or not is_held(array):
        return known(array)
    return leaf_of(NdArray.from_numpy_array(array, array.dtype))


def _is_filled(host: np.ndarray[Any, Any]) -> bool:
    first = host.flat[0]
    if host.size > 1 and not bool((host == first).all()):
        return False
    return host.dtype.kind != "f" or first != 0 or host.size == 1 or not np.signbit(host).any()


def implementation_of(described: Any) -> str:
    """The name of the generator of these keys."""
    names: list[str] = []
    jax.eval_shape(lambda key: names.append(str(jax.random.key_impl(key))), jax.ShapeDtypeStruct((), described.dtype))
    return names[0]


def is_held(described: Any) -> bool:
    """True if a Variable, or `Keys`, can hold an array of this aval."""
    if is_key(described):
        return True
    try:
        dtype_of(described.dtype)
    except TypeError:
        return False
    return True


def is_complex(described: Any) -> bool:
    """True if the dtype of an array or aval is complex."""
    return hasattr(described, "dtype") and bool(jax.numpy.issubdtype(described.dtype, jax.numpy.complexfloating))


def parted(tree: Any) -> Any:
    """A pytree with `ComplexPair` in place of complex numbers and arrays, and `KeyData` in place of random keys, so
    that Variables can hold all its leaves."""

    def parts_of(leaf: Any) -> Any:
        if not has_parts(leaf):
            return leaf
        if is_key(leaf):
            return KeyData.of(leaf)
        array = jax.numpy.asarray(leaf)
        return ComplexPair(jax.lax.real(array), jax.lax.imag(array))

    return jax.tree.map(parts_of, tree)


def has_parts(leaf: Any) -> bool:
    """True if a leaf of arguments or results is complex, or an array of random keys."""
    dtype = getattr(leaf, "dtype", None)
    return dtype.kind == "c" if isinstance(dtype, np.dtype) else isinstance(leaf, complex) or is_key(leaf)


def is_pair(value: Any) -> bool:
    """True if `value` is a `ComplexPair`, as `is_leaf` of pytrees."""
    return isinstance(value, ComplexPair)


def complex_parts(value: KnownArray) -> KnownArray | ComplexPair:
    """The parts of a known complex array; a real one unchanged."""
    if is_key(value) or not is_complex(value):
        return value
    return ComplexPair(known(np.real(value.array)), known(np.imag(value.array)))


def needs_x64(described: Any) -> bool:
    """True if an array or aval has a 64-bit dtype, or complex numbers have such parts."""
    return not is_key(described) and np.dtype(described.dtype).itemsize >= (16 if is_complex(described) else 8)
