"""Normalisation by norms, by the largest singular value and by a running mean: special values, effects, errors."""

from __future__ import annotations

import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
from tests.refusals import refused
from tests.together import Test, at_once

from_ = nn.Variable.from_numpy_array


@at_once
def test_the_norm_is_at_least_eps() -> Test:
    x = from_(np.array([[0.0, 0.0], [3e-4, 4e-4], [3.0, 4.0]]))
    y = F.norm_normalization(x, axes=-1, eps=1e-3)
    (g,) = nn.grad(y, x, grad_outputs=[np.ones((3, 2))])
    found, first, second = yield y, g, *nn.grad(g, x)
    np.testing.assert_allclose(found, [[0, 0], [0.3, 0.4], [0.6, 0.8]], rtol=1e-12)
    np.testing.assert_allclose(first[:2], np.full((2, 2), 1e3), rtol=1e-12)
    np.testing.assert_allclose(first[2], [0.2 - 0.6 * 0.28, 0.2 - 0.8 * 0.28], rtol=1e-12)
    assert np.isfinite(second).all() and not second[:2].any()


def test_the_gradient_of_spectral_norm_is_that_of_the_singular_value_once_u_has_converged() -> None:
    data = np.random.default_rng(0).standard_normal((3, 4))
    w, u = from_(data), from_(np.ones(3))
    y, last = F.spectral_norm(w, u, itr=40, output_u=True)
    (g,) = nn.grad(F.sum(y), w)
    left, values, right = np.linalg.svd(data)
    expected = 1 / values[0] - data.sum() / values[0] ** 2 * np.outer(left[:, 0], right[0])
    np.testing.assert_allclose(g.d, expected, rtol=1e-8)
    np.testing.assert_allclose(np.abs(last.d), np.abs(left[:, 0]), rtol=1e-8)
    assert nn.grad([y], [u], unreachable="none") == [None]


@pytest.mark.parametrize("how", ["forward", "hooks", "loop"])
def test_several_calls_move_u_in_their_order(how: str) -> None:
    """Each begins where the call before it ended, and gradients belong to the u of their call."""
    data, x = np.random.default_rng(0).standard_normal((2, 3, 4))
    w, u = from_(data), from_(np.ones(3))
    if how == "loop":
        given = F.map(lambda each: [F.spectral_norm(w, u) * each for _ in range(3)], x[None])
    else:
        ys = [F.spectral_norm(w, u) for _ in range(3)]
        given = [*ys, *[nn.grad(F.sum(y * x), w)[0] for y in ys], *nn.grad([F.sum(y * x) for y in ys], [w])]
    nn.forward_all(given, function_pre_hook=(lambda f: None) if how == "hooks" else None)
    row, values, slopes = np.ones(3), [], []
    for _ in range(3):
        column = row @ data / np.linalg.norm(row @ data)
        row = data @ column / np.linalg.norm(data @ column)
        s = row @ data @ column
        values.append(data / s)
        slopes.append(x / s - np.sum(x * data) / s**2 * np.outer(row, column))
    np.testing.assert_allclose(u.d, row, rtol=1e-9)
    wanted = [v * x for v in values] if how == "loop" else [*values, *slopes, sum(slopes)]
    for y, each in zip(given, wanted, strict=True):
        np.testing.assert_allclose(y.d.reshape(3, 4), each, rtol=1e-9, atol=1e-12)


def test_several_calls_of_mean_subtraction_follow_one_another() -> None:
    xs = np.random.default_rng(0).standard_normal((3, 4, 2))
    mean, t = from_(np.zeros(2)), from_(np.int32(0))
    ys = [F.mean_subtraction(x, mean, t) for x in xs]
    nn.forward_all(ys)
    means = [xs[: k + 1].mean((0, 1)) for k in range(3)]
    for y, x, m in zip(ys, xs, means, strict=True):
        np.testing.assert_allclose(y.d, x - m, rtol=1e-12)
    np.testing.assert_allclose(mean.d, means[-1], rtol=1e-12)
    assert t.d == 3


def test_mean_subtraction_with_what_is_no_leaf_updates_what_is_one() -> None:
    x, mean, t = from_(np.arange(6.0).reshape(3, 2)), from_(np.zeros(2)), from_([1.0])
    y = F.mean_subtraction(x, mean * 1, t)
    y.forward()
    np.testing.assert_allclose(y.d, x.d - x.d.mean(0) / 2)
    assert (t.d, mean.d.any()) == ([2.0], False)
    by_row = F.mean_subtraction(x, from_(np.zeros((3, 2))), np.int32(0), base_axis=0)
    assert not by_row.d.any()


X = from_(np.ones((3, 2)))


test_what_is_refused = refused([
    ("norm_normalization: axes 2 is out of range", lambda: F.norm_normalization(X, axes=2)),
    (r"spectral_norm: u must have 3 elements, .*got shape", lambda: F.spectral_norm(X, np.ones(2))),
    (r"mean_subtraction: mean must have the shape of x from base_axis on, \(2,\), got \(3,\)",
     lambda: F.mean_subtraction(X, np.ones(3), 0)),
], pattern="^{}")  # fmt: skip
