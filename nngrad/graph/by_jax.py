"""JAX's derivatives of functions of arrays, with respect to some inputs. Nothing else in the kernel asks for one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

ArrayFunction = Callable[..., Sequence[Any]]
"""Arrays in, arrays out."""


def of_some(function: ArrayFunction, arrays: Sequence[Any], places: Sequence[int]) -> Callable[..., tuple[Any, ...]]:
    """`function` of only the inputs at `places`, with the others held fixed at `arrays`."""

    def of_moving(*moving: Any) -> tuple[Any, ...]:
        inputs = list(arrays)
        for i, array in zip(places, moving, strict=True):
            inputs[i] = array
        return tuple(function(*inputs))

    return of_moving


def along(
    function: ArrayFunction, arrays: Sequence[Any], places: Sequence[int], directions: Sequence[Any]
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The results at `arrays`, and their JVP along directions of the inputs at `places`."""
    at: list[Any] = [arrays[i] for i in places]
    values, derivatives = jax.jvp(of_some(function, arrays, places), at, list(directions))
    return values, derivatives


def back(
    function: ArrayFunction, arrays: Sequence[Any], places: Sequence[int], weights: Sequence[Any]
) -> tuple[Any, ...]:
    """The VJP of the weights: the gradients of the weighted sum of all results in the inputs at `places`."""
    return tuple(_pulled(function, arrays, places)[1](tuple(weights)))


def value_of_back(function: ArrayFunction, arrays: Sequence[Any], places: Sequence[int]) -> tuple[Any, ...]:
    """The results as a custom VJP rule's forward computes them, when differentiated by the inputs at `places`."""
    return _pulled(function, arrays, places)[0] if places else tuple(function(*arrays))


def _pulled(function: ArrayFunction, arrays: Sequence[Any], places: Sequence[int]) -> tuple[tuple[Any, ...], Any]:
    values, pull = jax.vjp(of_some(function, arrays, places), *[arrays[i] for i in places])
    return values, pull


def transposed(function: ArrayFunction, arrays: Sequence[Any], places: Sequence[int], ts: Sequence[Any]) -> Any:
    """The transpose of a function that is linear in the inputs at `places`, applied to `ts`; raises if JAX cannot see
    that it is."""
    shapes = [jax.ShapeDtypeStruct(arrays[i].shape, arrays[i].dtype) for i in places]
    return jax.linear_transpose(of_some(function, arrays, places), *shapes)(tuple(ts))
