"""Convert given values to arrays: the supported dtypes, and which values fit into which dtype."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from .spec import SUPPORTED, DType, complex_hint, dtype_of, x64_if


def array_of(value: object, name: str) -> Any:
    """`value` as a NumPy or JAX array of a dtype that a cell can hold, in native byte order.

    Raises:
        TypeError: A cell cannot hold its dtype, or some of it is masked. The message begins with `name`.
        ValueError: It is not a rectangular array.
    """
    if value.__class__ is np.ndarray and value.dtype in SUPPORTED:
        return value
    refuse_tracer(value, name)
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise TypeError(f"{name}: a part of the array is masked, and an array here has no mask; give e.g. x.filled(0)")
    array: Any = value
    if not isinstance(value, jax.Array):
        try:
            array = np.asarray(value)
        except ValueError as error:
            raise ValueError(f"{name}: not a rectangular array of numbers ({error})") from error
    try:
        dtype = dtype_of(array.dtype)
    except TypeError:
        raise TypeError(
            f"{name}: dtype {array.dtype} is not supported; give an array of a real, integer or bool dtype of up to "
            f"64 bits, such as np.asarray(x, np.float32){complex_hint(array.dtype)}"
        ) from None
    return array if array.dtype == dtype else array.astype(dtype)


def refuse_tracer(value: object, name: str) -> None:
    """Raise a TypeError that begins with `name` if `value` is a JAX tracer."""
    if isinstance(value, jax.core.Tracer):
        raise TypeError(
            f"{name}: got a tracer of JAX, which no Variable can hold. In what JAX traces (jax.grad, jit, "
            "F.jax_function, the forward of a FunctionNode) use jax.numpy in place of F; or build the graph outside, "
            "and have nn.to_jax(outputs, inputs) make a JAX function of it"
        )


def narrowed(array: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
    """An array that NumPy made from Python numbers in 64 bits, in 32 bits."""
    if array.dtype == np.float64:
        return array.astype(np.float32)
    if array.dtype.kind in "iu":
        bounds = np.iinfo(np.int32)
        if array.size and (array.min() < bounds.min or array.max() > bounds.max):
            raise ValueError(f"{name}: an int does not fit int32; give dtype='int64' or a NumPy array of that dtype")
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
            f"{name}: {strays[0]} is not a whole number from {bounds.min} to {bounds.max}, which is what {dtype.name} "
            "holds; cast the array yourself if that is meant, or use another dtype"
        )
