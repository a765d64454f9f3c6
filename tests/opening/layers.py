"""Convolutions, windows, loops, branches, random numbers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .rows import RNG, VECTOR, X, row

IMAGE, KERNEL = RNG.standard_normal((2, 4, 4, 2)), RNG.standard_normal((2, 2, 2, 2)) / 3


def convolved(x: Any, w: Any, *, strides: Any = (1, 1), padding: Any = "SAME", **kwargs: Any) -> Any:
    return lax.conv_general_dilated(x, w, strides, padding, dimension_numbers=("NHWC", "HWIO", "NHWC"), **kwargs) ** 2


def windows(x: Any, initial: float, operation: Any, padding: Any = "SAME", **kwargs: Any) -> Any:
    return lax.reduce_window(x, initial, operation, (1, 3, 2, 1), (1, 2, 2, 1), padding, **kwargs) ** 2


ROWS = [
    row("lax.conv_general_dilated", lambda x, w: convolved(x, w, strides=(2, 1)), IMAGE, KERNEL),
    row("lax.conv(dilated)", lambda x, w: convolved(x, w, padding=[(1, 0), (2, -1)], lhs_dilation=(2, 1),
                                                    rhs_dilation=(1, 2)), IMAGE, KERNEL),
    row("lax.conv(feature groups)", lambda x, w: convolved(x, w[:, :, :1], feature_group_count=2), IMAGE, KERNEL),
    row("lax.conv(batch groups)", lambda x, w: convolved(x, w, batch_group_count=2), IMAGE, KERNEL),
    row("lax.conv_transpose", lambda x, w: lax.conv_transpose(x, w, (2, 2), "SAME") ** 2, IMAGE, KERNEL),
    row("lax.conv_general_dilated_patches",
        lambda x: lax.conv_general_dilated_patches(x, (2, 2), (1, 1), "VALID") ** 2, IMAGE),
    row("lax.conv", lambda x: lax.conv_general_dilated(x[None, None, 0], x[None, None, 1, :2], (1,), "SAME") ** 2, X),
    row("max of windows", lambda x: windows(x, -jnp.inf, lax.max), IMAGE),
    row("min of windows", lambda x: windows(x, jnp.inf, lax.min), IMAGE),
    row("sum of windows", lambda x: windows(x, 0.0, lax.add, [(0, 0), (1, 0), (0, 1), (0, 0)]), IMAGE),
    row("sum of dilated windows", lambda x: windows(x, 0.0, lax.add, window_dilation=(1, 2, 1, 1)), IMAGE),
    row("max of dilated windows", lambda x: windows(x, -jnp.inf, lax.max, "VALID", base_dilation=(1, 2, 1, 1)), IMAGE),
    row("product of windows", lambda x: windows(x, 1.0, lax.mul), IMAGE, orders=1),
    row("lax.scan", lambda x: lax.scan(lambda h, t: (jnp.tanh(h + t), h * t), jnp.zeros(4), x, reverse=True), X),
    row("lax.map", lambda x: lax.map(lambda r: jnp.sin(r) * r.sum(), x), X),
    row("lax.fori_loop", lambda x: lax.fori_loop(0, 3, lambda i, h: jnp.sin(h) * (i + 1), x), X),
    row("lax.while_loop", lambda x: lax.while_loop(
        lambda c: c[0] < 3, lambda c: (c[0] + 1, jnp.sin(c[1]) * 2), (0, x))[1], X[0], orders=0, opaque=1),
    row("lax.while_loop(mapped)", lambda x: jax.vmap(lambda n: lax.while_loop(lambda k: k < n, lambda k: 2 * k, 1))(
        np.array([3, 17])) * x[0, :2], X),
    row("lax.cond", lambda x: lax.cond(x[0, 0] > 0, jnp.sin, lambda x: x**2, x), X),
    row("lax.switch", lambda x: lax.switch(jnp.argmax(x[0]), [jnp.cos, jnp.tanh, lambda x: 3 * x, jnp.sin], x), X),
    row("lax.custom_root", lambda x: lax.custom_root(
        lambda y: y**3 + y - x, jnp.zeros_like(x),
        lambda f, y: lax.fori_loop(0, 40, lambda i, y: y - f(y) / (3 * y**2 + 1), y),
        lambda g, y: y / g(jnp.ones_like(y))), VECTOR, orders=2, opaque=1),
    row("jax.checkpoint", lambda x: jax.checkpoint(lambda x: jnp.tanh(x @ x.T))(x), X),
    row("jax.vmap", lambda x: jax.vmap(lambda r: lax.cond(r[0] > 0, jnp.sin, lambda r: r**2, r))(x), X),
    row("jax.grad", lambda x: jax.vmap(jax.grad(lambda r: jnp.tanh(r * r[0]).sum()))(x) ** 2, X),
    row("jax.hessian", lambda x: jax.hessian(lambda x: jnp.sin(x).prod())(x), VECTOR),
    row("jax.random", lambda x: x * jax.random.normal(jax.random.key(3), x.shape) * jax.random.uniform(
        jax.random.PRNGKey(2), (4,)), X),
    row("jax.random.bernoulli", lambda x: jnp.where(jax.random.bernoulli(jax.random.key(0), 0.5, x.shape), x**2, 0), X),
    row("jax.random.permutation", lambda x: jax.random.permutation(jax.random.key(1), x) ** 2, X),
    row("lax.ragged_dot", lambda x: lax.ragged_dot(x, jnp.stack([x.T, 2 * x.T]), np.array([1, 2])) ** 2, X, orders=1,
        opaque=1),
    row("lax.expm1 of integers", lambda x: (x[0] > 0).astype(int) * x[0] + lax.population_count(jnp.arange(4)) * x[0]
        + lax.clz(jnp.arange(4)) * x[0], X),
]  # fmt: skip
