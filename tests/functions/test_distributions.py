"""What distributions samples have, and how they move with the parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.special
import scipy.stats

import nngrad as nn
import nngrad.functions as F
from nngrad import random
from nngrad.graph import Variable
from tests.refusals import refused

from_ = Variable.from_numpy_array
COUNT = (4000,)


@pytest.mark.parametrize(("draw", "distribution"), [
    (lambda: F.rand_gamma(0.5, 2.0, COUNT), scipy.stats.gamma(0.5, scale=2.0)),
    (lambda: F.rand_gamma(7.0, shape=COUNT), scipy.stats.gamma(7.0)),
    (lambda: F.rand_beta(shape=COUNT), scipy.stats.beta(0.5, 0.5)),
    (lambda: F.rand_beta(2.0, 3.5, COUNT), scipy.stats.beta(2.0, 3.5)),
])
def test_samples_have_their_distribution(draw: Any, distribution: Any) -> None:
    random.seed(0)
    y = draw()
    assert y.dtype == np.float32
    assert scipy.stats.kstest(y.d, distribution.cdf).pvalue > 0.001


def test_counts_have_their_distribution() -> None:
    random.seed(0)
    y = F.rand_binomial(6, 0.3, COUNT).d
    expected = scipy.stats.binom(6, 0.3).pmf(np.arange(7)) * len(y)
    assert scipy.stats.chisquare(np.bincount(y.astype(int), minlength=7), expected).pvalue > 0.001
    assert F.rand_binomial(5, 1.0, (3,)).d.tolist() == [5, 5, 5]


def test_samples_move_with_the_shape_as_quantiles_do() -> None:
    """From very flat to nearly normal distributions, and far into both tails."""
    k = np.array([0.02, 0.3, 1.0, 4.0, 40.0, 900.0])
    part = np.array([0.001, 0.3, 0.5, 0.9, 0.9999])[:, None]
    step = 1e-4 * k
    z = scipy.special.gammaincinv(k, part)
    logs = [np.log(scipy.special.gammaincinv(k + i * step, part)) for i in (-2, -1, 1, 2)]
    expected = (logs[0] - 8 * logs[1] + 8 * logs[2] - logs[3]) / (12 * step)
    wide = np.broadcast_to(k, z.shape)
    m0, m1 = F.gamma_moment(wide, z), F.gamma_moment(wide, z, order=1)
    found = (np.log(z) - scipy.special.digamma(k)) * m0.d + m1.d
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_the_mean_moves_as_it_should() -> None:
    random.seed(0)
    k, theta = from_(np.array(1.7), need_grad=True), from_(np.array(0.6), need_grad=True)
    y = F.mean(F.rand_gamma(k, theta, (20000,)))
    first = nn.grad(y, [k, theta])
    (mixed,) = nn.grad(first[0], theta)
    (second,) = nn.grad(first[0], k)
    nn.forward_all([*first, mixed, second])
    np.testing.assert_allclose([first[0].d, first[1].d, mixed.d, second.d], [0.6, 1.7, 1.0, 0.0], atol=0.03)
    alpha, beta = from_(np.array(2.0), need_grad=True), from_(np.array(3.0), need_grad=True)
    ga, gb = nn.grad(F.mean(F.rand_beta(alpha, beta, (20000,))), [alpha, beta])
    np.testing.assert_allclose([ga.d, gb.d], [3 / 25, -2 / 25], atol=0.005)


def test_samples_too_small_for_their_dtype_have_a_ratio() -> None:
    y = F.rand_beta(1e-3, 1e-3, (200,), seed=1).d
    assert np.isfinite(y).all() and set(np.round(y)) == {0.0, 1.0}


# ---------------------------------------------------------------- choices


def test_choices_have_the_proportions_of_the_weights() -> None:
    random.seed(0)
    x, w = from_(np.array([[1.0, 2.0, 3.0]]), need_grad=True), np.array([[1.0, 0.0, 3.0]])
    y = F.random_choice(x, w, shape=(50, 100))
    (gx,) = nn.grad(y, x)
    nn.forward_all([y, gx])
    assert y.shape == (1, 50, 100) and abs((y.d == 3).mean() - 0.75) < 0.02
    np.testing.assert_array_equal(gx.d, [[(y.d == v).sum() for v in (1, 2, 3)]])


def test_choices_without_replacement_are_all_different() -> None:
    random.seed(0)
    x = np.tile(np.arange(5.0), (1000, 1))
    y = F.random_choice(x, np.tile([4.0, 1, 1, 1, 1], (1000, 1)), shape=(5,), replace=False).d
    np.testing.assert_array_equal(np.sort(y, 1), x)
    assert abs((y[:, 0] == 0).mean() - 0.5) < 0.05


test_bad_arguments = refused([
    (lambda: F.rand_gamma(-1.0), ValueError, "^rand_gamma: k must be positive, got -1"),
    (lambda: F.rand_beta(beta=0), ValueError, "^rand_beta: beta must be positive"),
    (lambda: F.rand_binomial(-1), ValueError, "n must be between 0"),
    (lambda: F.random_choice(np.ones(3), np.ones(2)), ValueError, "^random_choice: x and w must have the same shape"),
])
