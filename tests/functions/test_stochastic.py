"""Random functions: when they draw, who shares what was drawn, and whether it can be had again."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

import nngrad as nn
import nngrad.functions as F
from nngrad import random
from nngrad.graph import Variable
from tests.refusals import refused


def ones(*shape: int, dtype: Any = np.float32) -> Variable:
    """A leaf of ones that needs a gradient."""
    return Variable.from_numpy_array(np.ones(shape, dtype), need_grad=True)


def draws(y: Variable, count: int) -> list[np.ndarray]:
    """The values of `y` at `count` forwards."""
    values = []
    for _ in range(count):
        y.forward()
        values.append(y.d.copy())
    return values


# ---------------------------------------------------------------- one mask for a forward


def test_gradients_of_every_order_share_the_mask() -> None:
    x = ones(64)
    w = Variable.from_numpy_array(np.full(64, 3.0, np.float32), need_grad=True)
    y = F.dropout(x * w) ** 3
    (gx,) = nn.grad(y, x)
    (ggx,) = nn.grad(gx, w)
    nn.forward_all([y, gx, ggx])
    z = np.cbrt(y.d)
    mask = z / 3
    assert set(np.round(mask, 4)) == {0.0, 2.0}
    # y = m^3 x^3 w^3
    np.testing.assert_allclose(gx.d, 3 * mask**3 * 27, rtol=1e-5)
    np.testing.assert_allclose(ggx.d, 9 * mask**3 * 9, rtol=1e-5)


def test_a_mask_is_drawn_again_at_each_forward_and_only_then() -> None:
    y = F.dropout(ones(64))
    first, second, third = draws(y, 3)
    assert not np.array_equal(first, second) and not np.array_equal(second, third)
    np.testing.assert_array_equal(y.d, third)
    np.testing.assert_array_equal(y.d, third)


def test_two_calls_have_two_masks_and_are_never_merged() -> None:
    x = ones(64)
    a, b = F.dropout(x), F.dropout(x)
    ga, gb = nn.grad(a, x)[0], nn.grad(b, x)[0]
    (both,) = nn.grad([a, b], x)
    nn.forward_all([a, b, ga, gb, both])
    assert not np.array_equal(a.d, b.d)
    np.testing.assert_array_equal(ga.d, a.d)
    np.testing.assert_array_equal(gb.d, b.d)
    np.testing.assert_array_equal(both.d, a.d + b.d)


# ---------------------------------------------------------------- seeds


def test_the_seed_decides() -> None:
    x = ones(64)

    def run() -> list[np.ndarray]:
        random.seed(3)
        return draws(F.dropout(x), 2) + draws(F.randn(shape=(5,)), 2) + draws(F.rand(shape=(5,)), 1)

    first, second = run(), run()
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)
    random.seed(4)
    assert not np.array_equal(draws(F.dropout(x), 1)[0], first[0])


def test_a_seed_of_its_own_is_reproducible_whatever_else_is_drawn() -> None:
    first = draws(F.rand(shape=(4,), seed=5), 3)
    random.seed(99)
    y, other = F.rand(shape=(4,), seed=5), F.rand(shape=(4,))
    second = []
    for _ in range(3):
        draws(other, 2)
        second += draws(y, 1)
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(first[0], first[1])
    assert not np.array_equal(first[0], draws(F.rand(shape=(4,), seed=6), 1)[0])


def in_thread(function: Any) -> Any:
    """What `function` returns when another thread calls it."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    thread.join()
    return results[0]


def test_threads_have_streams_of_their_own() -> None:
    def keys() -> list[tuple[int, ...]]:
        return [tuple(random.next_key().tolist()) for _ in range(50)]

    def run() -> list[list[tuple[int, ...]]]:
        random.seed(3)
        return [in_thread(keys), keys(), in_thread(keys)]

    streams = run()
    assert len({key for stream in streams for key in stream}) == 150
    assert run() == streams

    random.seed(3)
    before = random.next_key().tolist()
    in_thread(lambda: (random.seed(8), keys()))
    after = random.next_key().tolist()
    random.seed(3)
    assert [random.next_key().tolist() for _ in range(2)] == [before, after]


def test_no_key_comes_twice() -> None:
    keys = {tuple(k().tolist()) for k in [random.KeyStream(s) for s in range(20)] for _ in range(500)}
    assert len(keys) == 10000


# ---------------------------------------------------------------- what is drawn


def test_dropout_keeps_the_mean() -> None:
    random.seed(0)
    y = F.dropout(ones(100_000), p=0.3).d
    kept = y != 0
    np.testing.assert_allclose(y[kept], 1 / 0.7, rtol=1e-6)
    assert abs(kept.mean() - 0.7) < 0.01


def test_distributions() -> None:
    random.seed(0)
    n = (100_000,)
    u, z, k = F.rand(-1, 3, n).d, F.randn(2, 0.5, n).d, F.randint(-2, 3, n).d
    assert u.dtype == z.dtype == np.float32 and k.dtype == np.int32
    assert u.min() >= -1 and u.max() < 3 and abs(u.mean() - 1) < 0.02 and abs(u.var() - 16 / 12) < 0.02
    assert abs(z.mean() - 2) < 0.01 and abs(z.std() - 0.5) < 0.01
    assert set(k) == {-2, -1, 0, 1, 2} and abs(k.mean()) < 0.02


def test_the_upper_end_is_left_out() -> None:
    high = np.nextafter(np.float32(1), np.float32(2))
    assert set(F.rand(1.0, float(high), (1000,)).d) == {np.float32(1)}
    np.testing.assert_array_equal(F.rand(2.0, 2.0, (3,)).d, np.full(3, 2.0, np.float32))


test_errors_name_the_argument = refused([
    (lambda: F.dropout(ones(2), p=1.0), "p"),
    (lambda: F.rand(1, 0, (2,)), "low"),
    (lambda: F.randn(0, -1.0, (2,)), "sigma"),
    (lambda: F.randint(3, 3, (2,)), "low"),
    (lambda: F.bernoulli(np.zeros(2, np.uint32), p=2.0), "p"),
], pattern=r"\b{}\b")


def test_a_graph_that_is_built_once_more_after_draws_were_restored_changes_no_noise() -> None:
    def steps(x: nn.Variable, count: int) -> list[Any]:
        found = []
        for _ in range(count):
            x.forward()
            found.append(x.d.copy())
        return [*found, F.randn(shape=(3,)).d.copy()]  # read before its first forward

    nn.seed(3)
    x = F.randn(shape=(3,))
    steps(x, 2)
    draws = nn.random.get_draws()
    expected, after = steps(x, 2), nn.random.get_draws()
    nn.random.set_draws(draws)
    np.testing.assert_array_equal(steps(F.randn(shape=(3,)), 2), expected)
    assert nn.random.get_draws() == after
    del draws["built"]  # as in checkpoints of versions that did not count it
    nn.random.set_draws(draws)
    np.testing.assert_array_equal(steps(F.randn(shape=(3,)), 2)[:2], expected[:2])
