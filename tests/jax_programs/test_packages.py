"""Programs of packages that rest on JAX, where these are installed."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nngrad.jax as nj


@pytest.fixture(autouse=True)
def _in_64_bits() -> Any:
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("kind", ["checkpointed", "bounded"])
def test_loops_of_equinox(kind: str) -> None:
    loops = pytest.importorskip("equinox.internal")
    options = {"checkpoints": 2} if kind == "checkpointed" else {}

    def f(x: Any, y: Any, loop: Any = None) -> Any:
        def step(carry: Any, a: Any) -> Any:
            return jnp.sin(carry) * x + a * y, carry

        last, ys = loop(step, x, jnp.arange(3.0))
        return last + ys.sum()

    def by_equinox(x: Any, y: Any) -> Any:
        return f(x, y, lambda *given: loops.scan(*given, kind=kind, **options))

    def by_jax(x: Any, y: Any) -> Any:
        return f(x, y, jax.lax.scan)

    ours, theirs = by_equinox, by_jax
    for _ in range(2):
        ours, theirs = nj.grad(ours), jax.grad(theirs)
        np.testing.assert_allclose(ours(0.7, 0.3), theirs(0.7, 0.3), rtol=1e-12)


@pytest.mark.slow
def test_a_root_of_optimistix() -> None:
    optimistix = pytest.importorskip("optimistix")

    def root(a: Any) -> Any:
        solver = optimistix.Newton(1e-12, 1e-12)
        return optimistix.root_find(lambda y, a: y**3 + a * y - 1, solver, jnp.array(0.5), a).value ** 2

    np.testing.assert_allclose(nj.grad(root)(0.9), jax.grad(root)(0.9), rtol=1e-10)
