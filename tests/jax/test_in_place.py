"""Slices of an array that are written into it, shifted.

XLA on CPUs may read what it has overwritten where JAX by itself gives it such a program; graphs do not hold one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import nngrad as nn
import nngrad.jax as nj

X = np.random.RandomState(0).standard_normal((8, 6))


def written(update: Callable[[Any], Any], *start: Any) -> Callable[[Any], Any]:
    """A function that writes what is made of an array into that array, which gets a further axis then."""
    return lambda x: lax.dynamic_update_slice(jnp.sin(x), update(jnp.sin(x)), start)[None]


def rows(a: Any) -> Any:
    return a[:-1]


SHIFTED: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "rows": (written(rows, 1, 0), lambda a: np.concatenate([a[:1], a[:-1]])),
    "columns": (written(lambda a: a[:, :-1], 0, 1), lambda a: np.concatenate([a[:, :1], a[:, :-1]], 1)),
    "scaled": (written(lambda a: 2 * a[:-1], 1, 0), lambda a: np.concatenate([a[:1], 2 * a[:-1]])),
    "turned": (written(lambda a: a[:-1][::-1], 1, 0), lambda a: np.concatenate([a[:1], a[:-1][::-1]])),
    "added": (lambda x: jnp.sin(x).at[1:].add(jnp.sin(x)[:-1])[None],
              lambda a: np.concatenate([a[:1], a[1:] + a[:-1]])),
    "set": (lambda x: jnp.sin(x).at[1:].set(jnp.sin(x)[:-1])[None], lambda a: np.concatenate([a[:1], a[:-1]])),
    "at an index that is computed": (
        lambda x: written(rows, jnp.int32(x[0, 0] * 0 + 1), jnp.int32(0))(x),
        lambda a: np.concatenate([a[:1], a[:-1]]),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SHIFTED)
def test_what_is_opened_is_not_overwritten_before_it_is_read(name: str) -> None:
    f, wanted = SHIFTED[name]
    v = nn.Variable.from_numpy_array(X)
    y = nn.from_jax(f)(v)
    np.testing.assert_allclose(y.d, wanted(np.sin(X))[None], rtol=1e-12)
    np.testing.assert_allclose(nn.compile([y**2], [v])(X)[0], wanted(np.sin(X))[None] ** 2, rtol=1e-12)
    (g,) = nn.grad([nn.functions.sum(y**3)], [v])
    shifts = np.stack([wanted(e.reshape(X.shape)) for e in np.eye(X.size)], -1)  # it is linear in the sine
    first = np.einsum("ijk,ij->k", shifts, 3 * wanted(np.sin(X)) ** 2).reshape(X.shape) * np.cos(X)
    np.testing.assert_allclose(g.d, first, rtol=1e-11, atol=1e-14)
    with jax.enable_x64(True):
        by_call = nj.grad(lambda x: jnp.sum(f(x) ** 3))(X)
    np.testing.assert_allclose(by_call, first, rtol=1e-11, atol=1e-14)
