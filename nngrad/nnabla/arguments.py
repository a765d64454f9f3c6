"""The arguments of methods in nnabla's protocol: shapes, and cells to read and write.

A cell holds either a Variable of a graph that is being recorded (`Symbol`), or an array's values (`HostCell`).
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

import nngrad.functions as F

from ..extend import NdArray, Spec, Variable, as_variable, spec_of
from ..functions.array import in_dtype


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
        value = as_variable(source, self.label, floating=self.dtype if self.spec.differentiable else None)
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
        shape = NdArray(shape, self.spec.dtype).shape
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
