"""Policies of jax.checkpoint: how many products gradients compute again, and values, against JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.ad_checkpoint import checkpoint_name

import nngrad.jax as nj
from tests.slow import slow_but_every

P = jax.checkpoint_policies
RANDOM = np.random.default_rng(0)
WEIGHTS = RANDOM.normal(size=(2, 3, 3)).astype(np.float32) * 0.7
X = RANDOM.normal(size=(2, 3)).astype(np.float32)

POLICIES = {
    "none": None,
    "products": P.dots_saveable,
    "products without batches": P.dots_with_no_batch_dims_saveable,
    "one name": P.save_only_these_names("product"),
    "both": P.save_from_both_policies(P.save_only_these_names("product"), P.save_only_these_names("activation")),
    "a function": lambda prim, *_, **__: prim.name == "sin",
}


def block(x: Any, w: Any) -> Any:
    product = checkpoint_name(x @ w, "product")
    return jnp.sin(jnp.exp(checkpoint_name(jnp.tanh(product), "activation")) @ w) * x


def chain(checkpoint: Callable[..., Any]) -> Callable[..., Any]:
    """Checkpoints in a row."""

    def value(x: Any) -> Any:
        for w in WEIGHTS:
            x = checkpoint(block)(x, w)
        return jnp.sum(jnp.cos(x) ** 2)

    return value


def loop(checkpoint: Callable[..., Any]) -> Callable[..., Any]:
    """A scan of checkpointed steps."""

    def value(x: Any) -> Any:
        return jnp.sum(jax.lax.scan(lambda h, w: (checkpoint(block)(h, w), None), x, WEIGHTS)[0] ** 2)

    return value


def scanned(checkpoint: Callable[..., Any]) -> Callable[..., Any]:
    """A checkpoint with a scan in it."""

    def inner(x: Any) -> Any:
        return jax.lax.scan(lambda h, w: (block(h, w), None), jnp.sin(x), WEIGHTS)[0]

    return lambda x: jnp.sum(checkpoint(inner)(x) ** 2)


def nested(checkpoint: Callable[..., Any]) -> Callable[..., Any]:
    """A checkpoint with a scan of scans, and products around it; it gives its argument as well."""

    def step(h: Any, w: Any) -> Any:
        return jax.lax.scan(lambda h, v: (jnp.sin(checkpoint_name(h @ v, "product")), None), jnp.cos(h @ w), WEIGHTS)

    def inner(x: Any) -> Any:
        return jnp.tanh(jax.lax.scan(step, x @ WEIGHTS[0], WEIGHTS)[0] @ WEIGHTS[1]), x

    return lambda x: sum(jnp.sum(y**2) for y in checkpoint(inner)(x))


def with_policy(checkpoint: Callable[..., Any], policy: Any) -> Callable[..., Any]:
    return lambda f: checkpoint(f, policy=policy)


@pytest.mark.parametrize("name", POLICIES)
def test_what_a_policy_saves_is_not_computed_again(name: str) -> None:
    def lowered(grad: Any) -> Any:
        return jax.jit(grad(chain(with_policy(jax.checkpoint, POLICIES[name])))).lower(X)

    ours, theirs = lowered(nj.grad), lowered(jax.grad)
    count = ours.as_text().count("dot_general")
    products = 8 if name in ("products", "products without batches") else None
    products = 12 if name == "none" else products
    assert count <= theirs.as_text().count("dot_general") and products in (None, count)
    np.testing.assert_allclose(ours.compile()(X), theirs.compile()(X), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("name", "shape"), slow_but_every(8, [
    *[(name, shape) for name in ("none", "products", "one name") for shape in (chain, loop)],
    ("products", scanned), ("one name", nested),
]))
def test_higher_orders(name: str, shape: Any) -> None:
    def third(grad: Any) -> Any:
        value = shape(with_policy(jax.checkpoint, POLICIES[name]))
        second = grad(lambda x: jnp.sum(jnp.sin(grad(value)(x))))
        return jax.jit(lambda x: (second(x), grad(lambda x: jnp.sum(second(x) ** 2))(x)))

    for ours, theirs in zip(third(nj.grad)(X), third(jax.grad)(X), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-3, atol=2e-3)


def test_memory_is_as_with_jax() -> None:
    x, weights = jax.ShapeDtypeStruct((2048, 32), np.float32), jax.ShapeDtypeStruct((8, 32, 32), np.float32)

    def temporaries(grad: Any, checkpoint: Any) -> int:
        def value(x: Any, weights: Any) -> Any:
            return jnp.sum(jax.lax.scan(lambda h, w: (checkpoint(block)(h, w), None), x, weights)[0] ** 2)

        compiled = jax.jit(grad(value, argnums=1)).lower(x, weights).compile()
        return int(compiled.memory_analysis().temp_size_in_bytes)

    for policy in (None, P.save_only_these_names("product")):
        kept = with_policy(jax.checkpoint, policy)
        assert temporaries(nj.grad, kept) <= 1.1 * temporaries(jax.grad, kept)
        assert temporaries(nj.grad, kept) < 0.8 * temporaries(nj.grad, lambda f: f)


def test_what_would_go_to_the_host_is_computed_again() -> None:
    policy = P.save_and_offload_only_these_names(
        names_which_can_be_saved=["activation"], names_which_can_be_offloaded=["product"], offload_src="device",
        offload_dst="pinned_host",
    )  # fmt: skip
    counts = []
    for each in (policy, P.save_only_these_names("activation")):
        opened = nj.grad(chain(with_policy(jax.checkpoint, each)))
        counts.append(jax.jit(opened).lower(X).as_text().count("dot_general"))
    assert counts[0] == counts[1]
    opened = nj.grad(chain(with_policy(jax.checkpoint, policy)))
    np.testing.assert_allclose(opened(X), jax.grad(chain(lambda f: f))(X), rtol=1e-4, atol=1e-5)
    assert not opened.report().opaque
