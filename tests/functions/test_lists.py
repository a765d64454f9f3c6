"""Functions of lists of arrays and others that are no entry of the sample table, against NumPy and plain JAX."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
from tests.oracle import check
from tests.refusals import refused
from tests.samples.stochastic import ZEROS, as_key, kept

rng = np.random.default_rng(3)
A, B, C = (rng.standard_normal((n, 2)) for n in (3, 3, 1))
from_ = nn.Variable.from_numpy_array


@pytest.mark.parametrize("name, shapes", [
    ("hstack", [(2, 3), (2, 1)]), ("hstack", [(3,), (2,)]), ("hstack", [(2, 1, 2), (2, 2, 2)]),
    ("vstack", [(2, 3), (1, 3)]), ("vstack", [(3,), (3,)]),
    ("dstack", [(3,), (3,)]), ("dstack", [(2, 3), (2, 3)]), ("dstack", [(2, 3, 1), (2, 3, 2)]),
])
def test_joins(name: str, shapes: list[tuple[int, ...]]) -> None:
    arrays = [rng.standard_normal(shape) for shape in shapes]
    expected = getattr(np, name)(arrays)
    np.testing.assert_array_equal(getattr(F, name)(arrays).d, expected)
    np.testing.assert_array_equal(getattr(F, name)(*map(from_, arrays)).d, expected)


def test_arrays_are_broadcast_together() -> None:
    arrays = [rng.standard_normal(shape) for shape in ((2, 1), (3,), ())]
    for ours, theirs in zip(F.broadcast_arrays(*arrays), np.broadcast_arrays(*arrays), strict=True):
        np.testing.assert_array_equal(ours.d, theirs)


@pytest.mark.parametrize("cuts, axis", [(3, 1), ([1, 1, 4], -1), ((2,), 0), (1, 0)])
def test_parts(cuts: Any, axis: int) -> None:
    x = rng.standard_normal((4, 6))
    parts = F.split_axis(from_(x), cuts, axis)
    for ours, theirs in zip(parts, np.split(x, cuts, axis), strict=True):
        np.testing.assert_array_equal(ours.d, theirs)
    if cuts == 1:
        np.testing.assert_array_equal(F.split_axis(from_(x), 1, 0, force_tuple=False).d, x)


def test_items() -> None:
    x = from_(A)
    np.testing.assert_array_equal(F.get_item(x, (slice(0, 2), 1)).d, A[:2, 1])
    np.testing.assert_array_equal(F.get_item(x, [1, [0, 1, 0]]).d, A[1, [0, 1, 0]])
    np.testing.assert_array_equal(F.get_item(x, [2, 0]).d, A[[2, 0]])


def test_sequences_are_padded_and_transposed() -> None:
    padded = F.pad_sequence([A, C], padding=-1)
    np.testing.assert_array_equal(padded.d, [A, [C[0], [-1, -1], [-1, -1]]])
    assert F.pad_sequence([C, A], length=5).shape == (2, 5, 2)
    steps = F.transpose_sequence([A, B, C])
    assert [step.shape for step in steps] == [(3, 2), (2, 2), (2, 2)]
    for t, step in enumerate(steps):
        np.testing.assert_array_equal(step.d, [x[t] for x in (A, B, C) if len(x) > t])
    for ours, theirs in zip(F.transpose_sequence(steps), (A, B, C), strict=True):
        np.testing.assert_array_equal(ours.d, theirs)


# ---------------------------------------------------------------- chains


def score_of(cost: Any, xs: Any, y: Any) -> Any:
    return sum(x[k] for x, k in zip(xs, y, strict=True)) + sum(cost[a, b] for a, b in itertools.pairwise(y))


def brute_force(cost: Any, chains: list[Any], ys: Any) -> Any:
    """Minus the logarithm of a probability, from all ways through the labels, for each chain."""
    losses = []
    for chain, y in zip(chains, ys, strict=True):
        ways = itertools.product(range(cost.shape[0]), repeat=len(chain))
        total = jax.scipy.special.logsumexp(jnp.stack([score_of(cost, chain, way) for way in ways]))
        losses.append(total - score_of(cost, chain, y))
    return jnp.stack(losses)


@pytest.mark.parametrize("orders, lengths", [(3, (2, 1)), (1, (3, 3, 2)), (1, (1, 1))])
def test_crf1d_is_the_sum_over_all_ways(orders: int, lengths: tuple[int, ...]) -> None:
    labels = 2
    cost = rng.standard_normal((labels, labels))
    steps = [rng.standard_normal((sum(n > t for n in lengths), labels)) for t in range(lengths[0])]
    ys = [rng.integers(0, labels, len(x)).astype(np.int32) for x in steps]

    def reference(cost: Any, *steps: Any) -> Any:
        chains = [[x[i] for x in steps[:n]] for i, n in enumerate(lengths)]
        return brute_force(cost, chains, [[int(y[i]) for y in ys[:n]] for i, n in enumerate(lengths)])

    check(lambda cost, *xs: F.crf1d(cost, xs, ys, reduce="no"), reference, [cost, *steps], orders)
    np.testing.assert_allclose(F.crf1d(cost, steps, ys).d, np.mean(reference(cost, *steps)), rtol=1e-6)


@pytest.mark.parametrize("lengths", [(4, 4, 2), (1, 1)])
def test_argmax_crf1d_is_the_best_of_all_ways(lengths: tuple[int, ...]) -> None:
    cost = rng.standard_normal((3, 3))
    steps = [rng.standard_normal((sum(n > t for n in lengths), 3)) for t in range(lengths[0])]
    scores, path = F.argmax_crf1d(cost, steps)
    for i, n in enumerate(lengths):
        chain = [x[i] for x in steps[:n]]
        best = max(itertools.product(range(3), repeat=n), key=lambda way: float(score_of(cost, chain, way)))
        assert tuple(int(y.d[i]) for y in path[:n]) == best
        np.testing.assert_allclose(scores.d[i], score_of(cost, chain, best), rtol=1e-6)
    assert [y.shape for y in path] == [x.shape[:1] for x in steps]


# ---------------------------------------------------------------- sparse matrices

ROW, COL = np.array([0, 2, 0, 2]), np.array([1, 0, 1, 2])  # two elements at one place


def dense(data: Any, shape: tuple[int, int] = (3, 4)) -> Any:
    return jnp.zeros(shape).at[ROW, COL].add(data)


@pytest.mark.parametrize("transa, transb", list(itertools.product((False, True), repeat=2)))
def test_sparse_products(transa: bool, transb: bool) -> None:
    turn: Callable[[Any, bool], Any] = lambda x, do: x.T if do else x  # noqa: E731
    data = rng.standard_normal(4)
    other = rng.standard_normal(((3 if transa else 4), 2))
    other = turn(other, transb)
    check(lambda d, b: F.sparse_matmul(F.CooMatrix(d, ROW, COL, (3, 4)), b, transa, transb),
          lambda d, b: turn(dense(d), transa) @ turn(b, transb), [data, other], 2)
    left = turn(rng.standard_normal((2, (4 if transb else 3))), transa)
    np.testing.assert_allclose(
        F.sparse_matmul(left, F.CooMatrix(data, ROW, COL, (3, 4)), transa, transb).d,
        turn(left, transa) @ turn(np.asarray(dense(data)), transb), rtol=1e-5, atol=1e-6,
    )


def test_sparse_products_of_a_batch() -> None:
    data, other = rng.standard_normal((2, 4)), rng.standard_normal((2, 4, 2))
    row, col = np.stack([ROW, [0, 1, 2, -1]]), np.stack([COL, [0, 1, 2, -1]])
    second = np.zeros((3, 4))
    second[[0, 1, 2], [0, 1, 2]] = data[1, :3]
    d, b = from_(data), from_(other)
    y = F.sparse_matmul(F.CooMatrix(d, row, col, (3, 4)), b)
    np.testing.assert_allclose(y.d, np.stack([dense(data[0]), second]) @ other, rtol=1e-6, atol=1e-12)
    gd, gb = nn.grad([F.sum(y)], [d, b])
    np.testing.assert_allclose(gd.d[1], [*other[1, :3].sum(1), 0], rtol=1e-6)
    np.testing.assert_allclose(gb.d[1], np.repeat(second.sum(0)[:, None], 2, 1), rtol=1e-6)


# ---------------------------------------------------------------- weights, samples, noise


@pytest.mark.parametrize("weights, axis, keepdims", [((3, 2), None, False), ((2,), 1, False), ((2,), -1, True),
                                                     ((3, 2), (0, 1), True), ((3, 2), 0, False)])
def test_average(weights: tuple[int, ...], axis: Any, keepdims: bool) -> None:
    w = rng.uniform(0.5, 2, weights)
    expected = np.average(A, axis, w, keepdims=keepdims)
    np.testing.assert_allclose(F.average(from_(A), axis, w, keepdims).d, expected, rtol=1e-12)
    np.testing.assert_allclose(F.average(A, 1).d, A.mean(1), rtol=1e-6)


def test_negative_sampling() -> None:
    x, w = rng.standard_normal((3, 2)), rng.standard_normal((4, 2))
    t, s = np.array([2, -1, 0], np.int32), np.array([[0, 1], [1, 1], [3, 0]], np.int32)

    def reference(x: Any, w: Any) -> Any:
        def of(i: int) -> Any:
            return -jax.nn.log_sigmoid(x[i] @ w[t[i]]) - sum(jax.nn.log_sigmoid(-x[i] @ w[k]) for k in s[i])
        return jnp.stack([of(0), 0 * x[1, 0], of(2)])

    check(lambda x, w: F.negative_sampling(x, t, w, lambda shape: s, 2, reduce="no"), reference, [x, w], 2)
    loss, classes = F.negative_sampling(x, t, w, lambda shape: F.randint(0, 4, shape), 5, return_samples=True)
    assert loss.shape == () and classes.shape == (3, 6) and list(classes.d[:, 0]) == [2, -1, 0]


def test_rrelu_draws_slopes() -> None:
    x = rng.standard_normal((3, 4))
    slopes = np.asarray(jax.random.uniform(as_key(ZEROS), (3, 4), jnp.float32)) * 0.3 + 0.1  # float32 in F.rrelu
    check(lambda x: F.rrelu(x, 0.1, 0.4), lambda x: jnp.where(x >= 0, x, x * slopes), [x], 2, rtol=1e-6)
    y, r = F.rrelu(x, r=np.full((3, 4), 0.5), return_r=True)
    np.testing.assert_allclose(y.d, np.where(x > 0, x, x / 2))
    np.testing.assert_array_equal(r.d, np.full((3, 4), 0.5))


def test_simplified_dropconnect() -> None:
    x, w, b = rng.standard_normal((2, 3)), rng.standard_normal((4, 3)), rng.standard_normal(4)
    check(lambda *given: F.simplified_dropconnect(*given, ratio=0.25),
          lambda x, w, b: jnp.einsum("noi,ni->no", w * kept(ZEROS, 0.75, (2, 4, 3)) / 0.75, x) + b, [x, w, b], 2)
    mask = np.array([[1, 0, 1]] * 4)
    one = F.simplified_dropconnect(x, w, b, mask=mask, use_batchwise_mask=False)
    np.testing.assert_allclose(one.d, x @ (w * mask * 2).T + b, rtol=1e-5)
    np.testing.assert_allclose(F.simplified_dropconnect(x, w, train=False).d, x @ w.T, rtol=1e-5)


def test_losses_are_finite_where_a_distance_is_0() -> None:
    """The loss of alike pairs is the square of a distance; that of others is not smooth where it is 0."""
    x = from_(np.zeros((2, 3)))
    (g,) = nn.grad([F.contrastive(x, np.zeros((2, 3)), [0, 1])], [x])
    (gg,) = nn.grad([F.sum(g * g)], [x])
    assert not g.d.any() and not np.isfinite(gg.d[0]).any() and np.isfinite(gg.d[1]).all()
    (g,) = nn.grad([F.contrastive(x, np.zeros((2, 3)), [1, 1])], [x])
    (gg,) = nn.grad([F.sum(g * g)], [x])
    assert not g.d.any() and np.isfinite(gg.d).all()


test_what_is_wrong_is_said = refused([
    (lambda: F.hstack([]), ValueError, "^hstack: xs must not be empty"),
    (lambda: F.vstack("ab"), TypeError, "^vstack: xs"),
    (lambda: F.broadcast_arrays(A, np.ones(3)), ValueError, r"broadcast_arrays: the shapes \(3, 2\) \(3,\) do not"),
    (lambda: F.split_axis(A, 2, 0), ValueError, "indices_or_sections must divide size 3 of axis 0"),
    (lambda: F.pad_sequence([A], length=2), ValueError, "length must be at least 3, the longest of xs, got 2"),
    (lambda: F.transpose_sequence([C, A]), ValueError, "must be sorted by length, longest first"),
    (lambda: F.crf1d(np.ones((2, 2)), [A], [np.zeros(2, int)]), ValueError, "ys must have a label for each"),
    (lambda: F.sparse_matmul(A, A), TypeError, "one of a and b must be a CooMatrix"),
    (lambda: F.average(A, 0, np.ones(2)), ValueError, r"weights must have the shape of x, \(3, 2\), or.*got \(2,\)"),
    (lambda: F.rrelu(A, 0.5, 0.1), ValueError, r"l must not exceed u, got l=0\.5 and u=0\.1"),
    (lambda: F.simplified_dropconnect(A, A, ratio=1), ValueError, "ratio must be at least 0 and below 1, got 1"),
    (lambda: F.negative_sampling(A, [0, 0, 0], A, 3, 2), TypeError, "sampler must be a function of a shape, got 3"),
    (lambda: F.triplet(A, A, A, margin=0), ValueError, "margin must be positive, got 0"),
    (lambda: F.contrastive(A, A, [0, 0, 0], reduce="sum"), ValueError, "reduce must be 'mean' or 'no', got 'sum'"),
    (lambda: F.maxout(A, 3), ValueError, "pool_size must divide the size 2 of axis 1, got 3"),
    (lambda: F.tensordot(A, A, 1), ValueError, r"axes \(1,\) of a \(3, 2\) do not match axes \(0,\) of b \(3, 2\)"),
    (lambda: F.diagonal(A, axis2=0), ValueError, "axis1 and axis2 must differ, got axis 0 for both"),
])
