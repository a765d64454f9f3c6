"""Derivatives of a program by nngrad's transformations against those by JAX's."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nngrad.jax as nj

from ..oracle import compiled_cheaply, is_floating


def package(name: str) -> Any:
    """A package, or a part of one; the test is skipped where it is not there, or does not import on this JAX."""
    try:
        with warnings.catch_warnings(action="ignore"):
            return importlib.import_module(name)
    except Exception as error:  # packages that are made for another JAX fail with errors of all kinds
        said = " ".join(str(error).split())
        pytest.skip(f"{name} does not import on JAX {jax.__version__}: {type(error).__name__}: {said[:150]}")


def total(tree: Any) -> Any:
    """One number of all that is floating."""
    return sum([jnp.sum(jnp.sin(y) + 0.1 * y) for y in jax.tree.leaves(tree) if is_floating(y)])


def gradients(f: Callable[..., Any], m: Any, orders: int) -> Callable[..., list[Any]]:
    """The gradient by the first argument, its gradient, and so on, by a module."""
    found = [m.grad(f)]
    for _ in range(orders - 1):
        found.append(m.grad(lambda *at, last=found[-1]: total(last(*at))))
    return lambda *at: [g(*at) for g in found]


def agree(derived: Callable[[Any], Callable[..., Any]], *at: Any, rtol: float = 1e-9, compiled: bool = True) -> None:
    """What a module gives is the same of both: structure, shapes, dtypes and values.

    Args:
        derived: A function of the arguments, by a module's transformations.
    """
    with jax.enable_x64(True):
        at = jax.tree.map(jnp.asarray, at)
        ours, theirs = [(compiled_cheaply if compiled else lambda f: f)(derived(m))(*at) for m in (nj, jax)]
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    largest = max([float(np.max(np.abs(b), initial=0.0)) for b in jax.tree.leaves(theirs)])
    assert np.isfinite(largest) and largest > 0
    for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(ours), jax.tree.leaves(theirs), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        near = rtol * float(np.max(np.abs(b), initial=0.0)) + 1e-14 * largest
        np.testing.assert_allclose(a, b, rtol=rtol, atol=near, err_msg=jax.tree_util.keystr(path))


def agree_to_order(orders: int, f: Callable[..., Any], *at: Any, rtol: float = 1e-9) -> None:
    """The gradients of a program by its first argument, to that order."""
    agree(lambda m: gradients(f, m, orders), *at, rtol=rtol)
