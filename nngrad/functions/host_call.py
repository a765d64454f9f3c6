"""Calls of NumPy functions from graphs that JAX traces, through `jax.pure_callback`."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import lax

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
    specs = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in arrays]
    held = weakref.ref(instance)

    def call(*packed: Any) -> tuple[Any, ...]:
        living = held()
        if living is None:
            raise RuntimeError(f"{name}: the compiled function no longer exists; keep a reference to its graph")
        results = function(living, *[_unpacked(np.asarray(a), s) for a, s in zip(packed, specs, strict=True)])
        results = results if isinstance(results, tuple | list) else (results,)
        if len(results) != len(outputs):
            raise ValueError(f"{name}: expected {len(outputs)} arrays, as declared, got {len(results)}")
        packed_results = []
        for i, (array, spec) in enumerate(zip(map(np.asarray, results), outputs, strict=True)):
            if array.shape != spec.shape:
                raise ValueError(f"{name}: output {i} must have shape {spec.shape}, as declared or inferred, got "
                                 f"{array.shape}")
            packed_results.append(_packed(array.astype(spec.dtype, copy=False)))
        return tuple(packed_results)

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
    several = isinstance(results, tuple | list)
    arrays = [np.asarray(r) for r in (results if several else (results,))]
    specs = tuple([jax.ShapeDtypeStruct(array.shape, array.dtype) for array in arrays])
    return specs if several else specs[0]


def _narrowed(spec: Any, name: str) -> jax.ShapeDtypeStruct:
    """`spec` with a dtype that JAX's current setting of x64 allows, since NumPy often computes float64."""
    if not (hasattr(spec, "shape") and hasattr(spec, "dtype")):
        raise TypeError(f"{name}: infer must return a jax.ShapeDtypeStruct(shape, dtype) for each output, got {spec!r}")
    return jax.ShapeDtypeStruct(tuple(spec.shape), jax.dtypes.canonicalize_dtype(spec.dtype))


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
    return np.ascontiguousarray(array).view(spec.dtype)[..., 0] if _needs_x64(spec.dtype) else array


def _packed(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.ascontiguousarray(array[..., None]).view(np.uint32) if _needs_x64(array.dtype) else array
