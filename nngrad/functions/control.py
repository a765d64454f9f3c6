"""Functions that steer gradients and effects: sink, unlink, update."""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
from jax import lax

from ..graph import Variable, apply, op
from . import array


@op
def sink(*x, one_input_grad: bool = True):
    """One scalar 0 that depends on all of `x`, so that they are computed and differentiated together.

    Its dtype is the one that the floating inputs promote to; float32 if there is none.

    Args:
        one_input_grad: Whether the gradient at each of `x` is ones, whatever arrives at the sink; else none is.
    """
    del one_input_grad
    dtypes = [each.dtype for each in x if jnp.issubdtype(each.dtype, jnp.floating)]
    return lax.full((), 0, jnp.result_type(*dtypes) if dtypes else jnp.float32)


@op(elementwise=True)
def unlink(x, /):
    """`x` unchanged; no gradient passes."""
    return x


@op(several=True)
def update(*x):
    """All of `x` unchanged. `with_updates` ties the leaves that `forward()` writes to the second and later
    outputs; applied by itself it updates nothing."""
    return x


def with_updates(y: Variable, updates: Mapping[Variable, Variable]) -> Variable:
    """`y`, computed so that each `forward()` also puts new values into leaves: running statistics and the like.

    The new values are computed from what the leaves held when `forward()` was called, and are written once
    per `forward()`, however often `y` is read; reading `y` without `forward()` writes nothing. Gradients pass
    through to `y` and do not see the writing.

    Args:
        y: What is computed.
        updates: The new value of each leaf, of the leaf's shape; it is cast to the leaf's dtype.

    Returns:
        A Variable with the value of `y`.

    Raises:
        ValueError: A key is not a leaf, or its new value has another shape.
    """
    values = []
    for leaf, value in updates.items():
        if leaf.parent is not None:
            raise ValueError(f"with_updates: only leaves can be updated, got an output of {leaf.parent.op.name}")
        if value.shape != leaf.shape:
            raise ValueError(f"with_updates: a leaf of shape {leaf.shape} cannot take a value of shape {value.shape}")
        values.append(value if value.dtype == leaf.dtype else array.cast(value, leaf.dtype))
    result: Variable = apply(update, (y, *values), (), tuple([(leaf, i) for i, leaf in enumerate(updates, start=1)]))[0]
    return result
