"""Attention by blocks of queries: against what JAX makes of each head by itself, and what it takes of memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import nngrad as nn
import nngrad.functions as F
from nngrad.functions import query_blocks
from nngrad.graph import Variable, functions_of
from tests.exact import exactly
from tests.leaves import leaf
from tests.samples.attention import averaged

SETTINGS = settings(max_examples=10, deadline=None, derandomize=True, database=None, phases=[Phase.generate],
                    suppress_health_check=[HealthCheck.too_slow])  # fmt: skip


@contextmanager
def blocks_of(size: int, at_once: bool = False) -> Iterator[None]:
    """All attention runs in blocks of at most so many queries; of all heads at once, as on GPUs, or of one head."""
    passes = nn.passes(without=["substitute"] if at_once else [])
    with mock.patch.multiple(query_blocks, BLOCK=size, WEIGHTS_AT_ONCE=0), passes:
        yield


def drawn(*shape: int, seed: int = 0) -> Any:
    """Normal numbers."""
    return np.random.default_rng(seed).standard_normal(shape)


def has_loop(*outputs: Variable) -> bool:
    """Whether a graph has a loop."""
    return any([f.op.name == "scan_of_body" for f in functions_of(outputs)])


def orders(f: Callable[..., Any], grad: Callable[..., Any], total: Callable[..., Any], count: int) -> list[Any]:
    """Functions of arrays: `f`, and the gradients of a number that is made of the one before, up to order `count`."""
    found = [f]
    for _ in range(count):
        def next_one(*xs: Any, below: Any = found[-1]) -> Any:
            return grad(lambda *xs: total(below(*xs)), *xs)
        found.append(next_one)
    return found


def ours(f: Callable[..., Any], xs: list[Variable], count: int) -> list[Any]:
    """By nngrad; each order is emitted once."""
    found, ys = [], [f(*xs)]
    for order in range(count + 1):
        found.append(ys)
        if order < count:
            ys = nn.grad(sum([F.sum(F.sin(y)) for y in ys]), xs)
    nn.forward_all([y for ys in found for y in ys])
    return [[y.d for y in ys] for ys in found]


def theirs(f: Callable[..., Any], xs: list[Any], count: int) -> list[Any]:
    """By JAX."""
    def grad(f: Any, *xs: Any) -> Any:
        return jax.grad(f, tuple(range(len(xs))))(*xs)

    def total(ys: Any) -> Any:
        return sum([jnp.sum(jnp.sin(y)) for y in jax.tree.leaves(ys)])

    several = orders(f, grad, total, count)
    return [jax.tree.leaves(y) for y in exactly(lambda *xs: [g(*xs) for g in several], *xs)]


def assert_close(found: list[Any], expected: list[Any]) -> None:
    """To 1e-12, relative to the largest."""
    for mine, other in zip(found, expected, strict=True):
        for a, b in zip(mine, other, strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-12 * max(1, np.abs(b).max(initial=0)))


MASKS = {
    "none": None,
    "bool": (1, 1, 1, 1),
    "bool, two axes": (1, 1),
    "bool, of sources": (1, 1, 0, 1),
    "floating": (0, 1, 1, 1),
    "floating, of all": (1, 1, 1, 1),
}
"""Kinds of masks, and which axes they have."""


@given(
    sizes=st.tuples(*[st.integers(1, n) for n in (2, 2, 2, 7, 5, 3, 2)]), kind=st.sampled_from(sorted(MASKS)),
    causal=st.booleans(), block=st.integers(1, 4), at_once=st.booleans(), seed=st.integers(0, 100),
)  # fmt: skip
@SETTINGS
def test_every_order_by_blocks(
    sizes: tuple[int, ...], kind: str, causal: bool, block: int, at_once: bool, seed: int
) -> None:
    batch, shared, groups, targets, sources, size, width = sizes
    heads = shared * groups
    arrays = [drawn(batch, heads, targets, size, seed=seed), drawn(batch, shared, sources, size, seed=seed + 1),
              drawn(batch, shared, sources, width, seed=seed + 2)]  # fmt: skip
    mask, axes = None, MASKS[kind]
    if axes is not None:
        whole = (batch, heads, targets, sources)[-len(axes) :]
        shape = [n if a else 1 for a, n in zip(axes, whole, strict=True)]
        seen = np.random.default_rng(seed).random(shape) < 0.6
        mask = seen if kind.startswith("bool") else np.where(seen, drawn(*shape, seed=seed), -np.inf)
    with blocks_of(block, at_once):
        leaves = [leaf(x) for x in arrays]
        found = ours(lambda *xs: F.attention(*xs, mask, causal=causal), leaves, 3)
    assert_close(found, theirs(lambda *xs: averaged(*xs, mask, causal), arrays, 3))


Q, K, V = drawn(1, 2, 5, 3), drawn(1, 2, 4, 3, seed=1), drawn(1, 2, 4, 2, seed=2)


def test_tangents_and_their_gradients_by_blocks() -> None:
    directions = [drawn(*x.shape, seed=3 + i) for i, x in enumerate((Q, K, V))]

    def pushed(*xs: Any) -> Any:
        return jax.jvp(averaged, xs, tuple([jnp.asarray(d) for d in directions]))[1]

    def mine(*xs: Variable) -> Variable:
        return nn.jvp(F.attention(*xs), list(xs), [leaf(d) for d in directions])[0]

    with blocks_of(2):
        found = ours(mine, [leaf(x) for x in (Q, K, V)], 2)
    assert_close(found, theirs(pushed, [Q, K, V], 2))


@pytest.mark.parametrize("shape", [(2, 5, 4), (5, 4)])
@pytest.mark.parametrize("at_once", [False, True])
def test_the_gradient_of_a_mask_by_blocks(shape: tuple[int, ...], at_once: bool) -> None:
    mask = drawn(*shape, seed=4)
    with blocks_of(2, at_once):
        found = ours(F.attention, [leaf(x) for x in (Q, K, V, mask)], 2)
    assert_close(found, theirs(averaged, [Q, K, V, mask], 2))


def test_batches_by_blocks() -> None:
    several = drawn(3, 1, 2, 5, 3, seed=5)
    with blocks_of(2):
        x, k, v = leaf(several), leaf(K), leaf(V)
        y = nn.vmap(lambda q: F.attention(q, k, v, causal=True))(x)
        (g,) = nn.grad(F.sum(y * y), x)
        nn.forward_all([y, g])
    assert has_loop(y)

    def value(x: Any) -> Any:
        return jax.vmap(lambda q: averaged(q, K, V, causal=True))(x)

    assert_close([[y.d, g.d]], [exactly(lambda x: [value(x), jax.grad(lambda x: jnp.sum(value(x) ** 2))(x)], several)])


def test_targets_that_see_nothing() -> None:
    mask = np.ones((5, 4), bool)
    mask[[1, 4]] = False
    for size in (128, 2):
        with blocks_of(size):
            leaves = [leaf(x) for x in (Q, K, V)]
            y = F.attention(*leaves, mask)
            first = nn.grad(F.sum(y * y), leaves)
            second = nn.grad(sum([F.sum(g * g) for g in first]), leaves)
            nn.forward_all([y, *first, *second])
        assert not y.d[:, :, [1, 4]].any() and y.d[:, :, [0, 2, 3]].all()
        assert all([np.isfinite(g.d).all() for g in (*first, *second)])
        assert not first[0].d[:, :, [1, 4]].any() and not second[0].d[:, :, [1, 4]].any()


def test_lengths_of_zero() -> None:
    none = leaf(np.zeros((1, 2, 0, 3)))
    assert F.attention(none, leaf(K), leaf(V)).d.shape == (1, 2, 0, 2)
    y = F.attention(leaf(Q), none, none)
    np.testing.assert_array_equal(y.d, np.zeros((1, 2, 5, 3)))


@pytest.mark.parametrize("at_once", [False, True])
def test_dropout_by_blocks(at_once: bool) -> None:
    sources, p = 40, 0.25
    q, k, v = leaf(np.zeros((1, 2, 30, 3))), leaf(np.zeros((1, 2, sources, 3))), leaf(np.eye(sources)[None, None])
    v = F.broadcast(v, shape=(1, 2, sources, sources))
    seed = drawn(1, 2, 30, sources, seed=6)
    with blocks_of(8, at_once):
        weights = F.attention(q, k, v, dropout=p)  # what the rows of a unit matrix are averaged with
        (g,) = nn.grad(F.sum(weights * leaf(seed)), v)
        nn.forward_all([weights, g])
    w = weights.d
    assert 0.2 < (w == 0).mean() < 0.3
    np.testing.assert_allclose(w[w != 0], 1 / sources / (1 - p))
    np.testing.assert_allclose(g.d, np.einsum("bhts,bhtd->bhsd", w, seed), atol=1e-12)
    assert not (w[:, :, :8] == w[:, :, 8:16]).all() and not (w[:, 0] == w[:, 1]).all()
    first = w.copy()
    weights.forward()
    assert (weights.d != first).any()


# ---------------------------------------------------------------- by the shapes alone


def temporaries(order: int, length: int, causal: bool = False) -> int:
    """Bytes, by the compiler's account."""
    xs = [nn.Variable((1, 2, length, 16), need_grad=True) for _ in range(3)]
    ys = [F.attention(*xs, causal=causal)]
    for _ in range(order):
        ys = nn.grad(sum([F.sum(y * y) for y in ys]), xs)
    found = nn.memory_report(ys).compiled
    assert found
    return found


@pytest.mark.parametrize("order", [1, 2])
def test_memory_grows_with_the_length(order: int) -> None:
    short, long = temporaries(order, 1024), temporaries(order, 4096)
    assert 3 * short < long < 4.2 * short
    with mock.patch.object(query_blocks, "WEIGHTS_AT_ONCE", 1 << 40):
        dense = [temporaries(order, length) for length in (1024, 4096)]
    assert dense[1] > 10 * dense[0]
    assert long < 0.1 * dense[1]


@pytest.mark.parametrize("causal", [False, True])
def test_weights_are_in_memory_once(causal: bool) -> None:
    head, weights = 1024 * 16 * 4, query_blocks.BLOCK * 1024 * 4
    mask = weights if causal else 0
    assert temporaries(0, 1024, causal) < 5 * head + mask + 1.1 * weights  # keys and values, and what is cut


@pytest.mark.parametrize(("batch", "apart"), [(2, True), (1, False)])
def test_heads_of_a_large_batch_are_computed_one_by_one(batch: int, apart: bool) -> None:
    xs = [nn.Variable((batch, 8, 512, 16)) for _ in range(3)]
    assert has_loop(F.attention(*xs)) is apart
