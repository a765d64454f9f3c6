"""What a row of the table is, and the arrays that functions are tried on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.scipy.special
import numpy as np
from jax import lax

RNG = np.random.default_rng(7)


def within(low: float, high: float, *shape: int) -> np.ndarray:
    """Random numbers between `low` and `high`; none is a whole number or a half, where steps and kinks are."""
    x = RNG.uniform(low, high, shape)
    return np.where(np.abs(2 * x - np.round(2 * x)) < 0.05, x + 0.04, x)


X, Y = within(-2, 2, 3, 4), within(-2, 2, 3, 4)
POSITIVE, MORE = within(0.3, 2.5, 3, 4), within(0.3, 2.5, 3, 4)
UNIT, LESS = within(0.05, 0.95, 3, 4), within(-0.9, 0.9, 3, 4)
ABOVE_ONE = within(1.1, 3.0, 3, 4)
VECTOR, OTHER = within(-2, 2, 5), within(-2, 2, 5)
SQUARE, SECOND = within(-1, 1, 3, 3) + 2 * np.eye(3), within(-1, 1, 3, 3)
SYMMETRIC = SECOND @ SECOND.T + np.diag([1.0, 2.0, 4.0])
TALL, WIDE = within(-1, 1, 4, 2), within(-1, 1, 2, 4)
WHOLE = np.asarray([[2, 0, 1], [1, 2, 0]])


class Row(NamedTuple):
    """A function, and where it is tried."""

    name: str
    function: Callable[..., Any]
    inputs: tuple[Any, ...]
    orders: int = 3
    """Up to which order JAX differentiates it, or it is worth it."""
    opaque: int = 0
    """How many equations that gradients pass stay opaque."""
    single: bool = False
    """Whether JAX computes a part of it in float32."""


def rows_of(where: Any, prefix: str, names: str, *inputs: Any, **more: Any) -> list[Row]:
    """A row for each function of a module that takes these inputs, of those that there are in this version of JAX."""
    return [Row(prefix + name, getattr(where, name), inputs, **more) for name in names.split() if hasattr(where, name)]


def is_there(r: Row) -> bool:
    """Whether JAX has the function that a row is named after."""
    for prefix, where in {"jax.scipy.special.": jax.scipy.special, "jax.nn.": jax.nn, "jnp.": jnp, "lax.": lax}.items():
        name = r.name.removeprefix(prefix)
        if name != r.name and name.isidentifier():
            return hasattr(where, name)
    return True


def row(name: str, function: Callable[..., Any], *inputs: Any, **more: Any) -> Row:
    """A row."""
    return Row(name, function, inputs, **more)
