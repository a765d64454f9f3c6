"""The inputs of training steps: what is given as an array, and whether it fits."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from ..execution.convert import SHAPES_ARE_FIXED
from ..graph import NdArray, Spec, Variable
from ..graph.ndarray import host_array
from ..solvers.gradients import Arrays


def check_count(arrays: Arrays, specs: list[Spec]) -> None:
    """Raise a TypeError unless there is one array for each input."""
    if len(arrays) != len(specs):
        raise TypeError(f"{len(arrays)} arrays given for {len(specs)} inputs")


def input_array(value: Any, spec: Spec, name: str) -> Any:
    """Returns what is given for an input, as an array that an executable takes."""
    if isinstance(value, Variable):
        return value.data.raw()
    if isinstance(value, NdArray):
        return value.raw()
    try:
        # Numbers and lists have 64 bits at first, which an input of so many shall get.
        return host_array(np.asarray(value) if spec.needs_x64 and not hasattr(value, "dtype") else value, None)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}: expected an array of {spec}, got {type(value).__name__} ({error})") from None


def fitting(arrays: Arrays, specs: list[Spec], names: list[str]) -> list[Any]:
    """`arrays` in the dtypes of `specs`, checked against their shapes. It runs only while JAX traces."""
    check_count(arrays, specs)
    fitted = []
    for array, spec, name in zip(arrays, specs, names, strict=True):
        if array.shape != spec.shape:
            raise ValueError(f"{name}: expected shape {spec.shape}, got {array.shape}, {SHAPES_ARE_FIXED}")
        if jnp.issubdtype(array.dtype, jnp.floating) and not spec.differentiable:
            raise TypeError(f"{name}: expected {spec.dtype.name}, got {array.dtype.name}")
        fitted.append(array if array.dtype == spec.dtype else array.astype(spec.dtype))
    return fitted
