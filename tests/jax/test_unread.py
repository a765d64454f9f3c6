"""What nobody reads is not lowered; what is known stays known where JAX traces what is around."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import nngrad.jax as nj


def test_keys_that_are_known_are_opened_under_jit() -> None:
    key = jax.random.key(3)

    def f(x: Any) -> Any:
        def step(c: Any, k: Any) -> tuple[Any, None]:
            return jnp.sin(c) * jax.random.normal(k, c.shape), None

        return jnp.sum(jax.lax.scan(step, x, jax.random.split(key, 3))[0])

    gradient, x = nj.grad(f), jnp.asarray([0.1, 0.4])
    found = jax.jit(gradient)(x)
    assert "its rule failed" not in str(gradient.report())
    np.testing.assert_allclose(found, jax.grad(f)(x), rtol=1e-5)
