"""Movement, selection and creation of arrays."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from ..graph import Variable, composite, op
from ..graph.arguments import Dims, DTypeName, Ignored, Ints, Shape
from ..graph.spec import FLOAT32
from . import reduction


@op
def constant(*, val: float = 0, shape: Shape = (), dtype: DTypeName = FLOAT32):
    """An array of `shape` and `dtype` filled with `val`."""
    return lax.full(shape, val, dtype)


@op(linear=True)
def cast(x, /, dtype: DTypeName):
    """`x` in another dtype."""
    return lax.convert_element_type(x, dtype)


@op(linear=True)
def reshape(x, /, shape: Dims, inplace: Ignored = True):
    """The elements of `x` in a new shape; one size may be -1."""
    return jnp.reshape(x, shape)


@op(linear=True)
def transpose(x, /, axes: Ints | None = None):
    """The axes of `x` in the order `axes`; None reverses them."""
    return jnp.transpose(x, axes)


@op(linear=True)
def broadcast(x, /, shape: Shape):
    """`x` expanded to `shape`: axes of size 1 are repeated and missing leading ones added."""
    return jnp.broadcast_to(x, shape)


def getitem(x: Variable, key: Any) -> Variable:
    """`x[key]` with NumPy's basic and advanced indexing."""
    raise NotImplementedError


@composite
def sum_to(x, /, shape: Shape):
    """`x` summed over the axes along which `shape` would be repeated to give `x.shape`: the transpose of
    `broadcast`."""
    if x.shape == shape:
        return x
    lead = len(x.shape) - len(shape)
    axes = tuple(range(lead)) + tuple(
        lead + i for i, n in enumerate(shape) if n == 1 and x.shape[lead + i] != 1
    )
    return reshape(reduction.sum(x, axis=axes), shape=shape)
