"""What gradients stop at in JAX functions: constant at every order, on every route, and where JAX differentiates."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

import nngrad.jax as nj
from tests.oracle import compiled_cheaply

MATRIX = np.random.default_rng(0).standard_normal((4, 4)) / 2

STEPS: list[Callable[[Any, Any], Any]] = [
    lambda x, h: jnp.tanh(h @ MATRIX), lambda x, h: h * lax.stop_gradient(jnp.sin(x)),
    lambda x, h: lax.stop_gradient(h) * jnp.sin(h) ** 2, lambda x, h: x * lax.stop_gradient(h.sum()) + h,
    lambda x, h: lax.fori_loop(0, 2, lambda i, c: jnp.sin(c) * lax.stop_gradient(c + x), h),
    lambda x, h: lax.cond(h[0] > 0, lambda c: c * lax.stop_gradient(c), jnp.cos, h),
    lambda x, h: lax.stop_gradient(jax.grad(lambda y: jnp.sum(jnp.tanh(y * h)))(x)) * h,
    lambda x, h: jax.checkpoint(lambda c: jnp.tanh(c) * lax.stop_gradient(c))(h) - x,
    lambda x, h: jax.vmap(lambda a, b: jnp.sin(a) * lax.stop_gradient(a * b))(h, x),
]  # fmt: skip


@settings(max_examples=4, deadline=None)
@given(st.lists(st.sampled_from(STEPS), min_size=1, max_size=4), st.integers(0, 99))
def test_what_gradients_stop_at_is_constant_at_every_order(steps: list[Any], seed: int) -> None:
    """Third derivatives of random programs, by the routes of nngrad's, and by JAX's from outside."""
    rng = np.random.default_rng(seed)
    start, *directions = rng.standard_normal((4, 4))

    def program(x: Any) -> Any:
        h = x
        for step in steps:
            h = step(x, h)
        return jnp.sum(jnp.sin(h) * x)

    def third(*grads: Any) -> Any:
        function: Any = program
        for grad, v in zip(grads, directions, strict=False):
            function = functools.partial(lambda g, v, x: jnp.sum(g(x) * v), grad(function), v)
        return function

    def all_of(grad: Any, along: Any) -> Any:
        line = along(lambda t: program(start + t * directions[0]))
        return [third(*[grad] * 3)(start), third(grad, jax.grad, jax.grad)(start), line(0.0)]

    with jax.enable_x64(True):
        ours = compiled_cheaply(lambda: all_of(nj.grad, lambda f: nj.nth_derivative(f, 3)))()
        expected = compiled_cheaply(lambda: all_of(jax.grad, lambda f: jax.grad(jax.grad(jax.grad(f)))))()
    for a, b in zip(ours, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)
