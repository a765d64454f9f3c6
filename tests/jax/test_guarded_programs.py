"""Random programs with kinks, poles and guards: no derivative is NaN, or another, where JAX's is finite."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy import special

import nngrad.jax as nj
from tests.slow import slow_but

Function = Callable[[Any], Any]

X = np.asarray([0.0, 1.0, -1.0, 0.5, 2.0, 0.0])
"""Zeros, ties, and edges of what is clipped, among other numbers."""
WEIGHTS = np.asarray([1.0, 0.7, 1.3, -0.4, 0.9, 1.1])

SINGULAR: list[Function] = [
    lambda x: 1 / x, jnp.log, jnp.sqrt, lambda x: x**-3, lambda x: x**1.5, lambda x: jnp.arctan2(x, x**2),
    lambda x: jnp.sin(x) / x, lambda x: jnp.exp(-1 / x), lambda x: x / jnp.abs(x), jax.lax.rsqrt, jnp.arccosh, jnp.cbrt,
]  # fmt: skip
"""What has no derivative somewhere in `X`, or no value."""

KINKED: list[Function] = [
    jnp.abs, lambda x: jnp.maximum(x, 0), lambda x: jnp.minimum(x, x**2), lambda x: jnp.clip(x, 0, 1), jnp.sign,
    jnp.floor, lambda x: jnp.mod(x, 1.0), jnp.sort, jnp.sinc, lambda x: special.xlogy(x**2, x**2), lambda x: x**0,
    lambda x: x**2.0,
    lambda x: jnp.power(x, jnp.arange(6)), jax.nn.relu, jax.nn.softplus, lambda x: jnp.max(x**2) * x, jnp.cumprod,
    lambda x: jnp.linalg.norm(jnp.stack([x, x**2]), axis=0), lambda x: jnp.prod(x) * x, jax.nn.softmax,
    lambda x: special.logsumexp(x) * x, lambda x: jnp.logaddexp(x, 0.0), lambda x: jnp.linalg.norm(x) * x, jax.nn.elu,
]  # fmt: skip
"""What has a value everywhere, and derivatives by agreement."""

GUARDS: list[Callable[[Function, Any], Any]] = [
    lambda f, x: jnp.where(x > 0.2, f(jnp.where(x > 0.2, x, 1.5)), 0.0),
    lambda f, x: jnp.where(x > 0.2, f(x), 0.0),
    lambda f, x: jnp.nan_to_num(f(x), posinf=0.0, neginf=0.0),
    lambda f, x: jnp.where(x > 0.2, jnp.nan_to_num(f(jnp.where(x > 0.2, x, 0.0))), x),
    lambda f, x: f(jnp.maximum(x, 0.3)),
    lambda f, x: f(jnp.clip(x, 0.2, 1.8)),
    lambda f, x: f(jnp.abs(x) + 0.3) * (x > 0),
    lambda f, x: jnp.where(x > 0.2, f(jax.lax.stop_gradient(jnp.abs(x)) + 0.5), x**2),
]


def program(seed: int) -> Function:
    """A product or a sum of guarded functions."""
    draw = random.Random(seed)
    guarded = [(draw.choice(GUARDS), draw.choice(SINGULAR)) for _ in range(2)]
    inner, outer = draw.choice(KINKED), draw.choice(KINKED)
    multiplied = draw.random() < 0.5

    def run(x: Any) -> Any:
        (guard, f), (other, g) = guarded
        a, b = guard(f, x), other(g, inner(x))
        return outer(a * b if multiplied else a + b)

    return run


def derivative(transforms: Any, function: Function, order: int) -> Function:
    """The gradient of weighted sums of gradients."""
    found: Function = lambda x: jnp.sum(function(x) * WEIGHTS)  # noqa: E731
    for _ in range(order):
        found = weighted(transforms.grad(found))
    return transforms.grad(found)


def weighted(gradient: Function) -> Function:
    """A number of a gradient."""
    return lambda x: jnp.sum(gradient(x) * WEIGHTS)


@pytest.mark.parametrize("seed", slow_but(range(2), range(12)))
def test_finite_and_equal_where_jax_is_finite(seed: int) -> None:
    function = program(seed)
    with jax.enable_x64(True):
        ours, theirs = [
            jax.jit(lambda x, m=m: [derivative(m, function, order)(x) for order in range(4)])(X) for m in (nj, jax)
        ]
    for order, (a, b) in enumerate(zip(ours, theirs, strict=True), start=1):
        finite = np.isfinite(b)
        scale = np.abs(b[finite]).max(initial=1.0)
        np.testing.assert_allclose(a[finite], b[finite], rtol=1e-7, atol=1e-10 * scale, err_msg=f"order {order}")


@pytest.mark.parametrize(("function", "expected"), [
    (lambda x: jnp.where(x > 0, jnp.sqrt(x), 0.0), lambda x: 0.5 / np.sqrt(x)),
    (lambda x: jnp.where(x > 0, jnp.log(x), 0.0), lambda x: 1 / x),
], ids=["square root", "logarithm"])  # fmt: skip
def test_finite_where_jax_is_not(function: Function, expected: Function) -> None:
    """What a mask leaves out has no part in a derivative; JAX multiplies its infinite derivative by 0."""
    with jax.enable_x64(True):
        ours, theirs = [m.grad(lambda x: jnp.sum(function(x)))(X) for m in (nj, jax)]
    positive = X > 0
    assert not np.isfinite(theirs).all()
    np.testing.assert_allclose(ours[positive], expected(X[positive]))
    np.testing.assert_array_equal(ours[~positive], 0)


def test_a_masked_pair_energy_to_third_order() -> None:
    """Pairs of a particle with itself are removed by a selection, and what they made is replaced by numbers."""

    def energy(positions: Any) -> Any:
        squares = jnp.sum((positions[:, None] - positions[None]) ** 2, -1)
        r = jnp.where(squares > 0, jnp.sqrt(jnp.where(squares > 0, squares, 0)), 0)
        scale = jnp.where(r < 2, 1.0, 0.5 * r)
        return jnp.sum(jnp.nan_to_num(scale * jnp.nan_to_num((1 / r) ** 2)) * (1 - jnp.eye(2)))

    def third(transforms: Any, x: Any, v: Any) -> Any:
        return transforms.grad(lambda x: jnp.sum(v * transforms.jvp(transforms.grad(energy), (x,), (v,))[1]))(x)

    with jax.enable_x64(True):
        x, v = jnp.array([[0.1, 0.2], [0.9, 0.7]]), jnp.array([[0.3, -0.2], [0.5, 1.0]])
        np.testing.assert_allclose(third(nj, x, v), third(jax, x, v), rtol=1e-9)


def test_a_mask_of_edges_is_broadcast() -> None:
    """Features of edges, of which the last is padding, of length 0."""
    target, source = np.array([1, 2, 0, 0]), np.array([0, 1, 2, 0])

    def loss(x: Any, mask: Any, edges: slice) -> Any:
        vectors = x[target[edges]] - x[source[edges]]
        lengths = jnp.sqrt((vectors**2).sum(1))[:, None]
        features = vectors / lengths + jnp.exp(-((lengths - jnp.arange(2.0)) ** 2))
        return jnp.sum(jnp.where(mask[edges, None], features, 0) ** 3)

    with jax.enable_x64(True):
        x, mask = jnp.array([[0.1, 0.2], [0.9, 0.7], [-0.4, 0.5]]), jnp.asarray(target != source)
        ours = nj.hessian(lambda x: loss(x, mask, slice(4)))(x)
        np.testing.assert_allclose(ours, jax.hessian(lambda x: loss(x, mask, slice(3)))(x), rtol=1e-9, atol=1e-12)
