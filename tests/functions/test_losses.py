"""Losses where the table of samples does not reach: odd labels, saturated probabilities, 16 bits, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
from nngrad.graph import Variable
from tests.refusals import refused
from tests.together import Test, at_once

SCORES = np.float32([[1, 2, 3], [0, -1, 5], [2, 2, 2], [9, 0, 1]])


def leaf(values: Any, dtype: Any = np.float32) -> Variable:
    """A leaf with a gradient."""
    return Variable.from_numpy_array(np.asarray(values, dtype), need_grad=True)


def value_and_gradients(y: Variable, *inputs: Variable) -> list[Variable]:
    """`y`, and the gradients with respect to `inputs`."""
    return [y, *nn.grad(y, inputs)]


# ---------------------------------------------------------------- labels


@at_once
@pytest.mark.parametrize("function", [F.softmax_cross_entropy, F.categorical_cross_entropy])
@pytest.mark.parametrize("labels", [
    np.array([[0], [-1], [3], [2]], np.int64),
    np.array([[0], [-1], [3], [2]], np.int8),
    np.array([[0], [-1], [1.5], [2]], np.float32),
    np.array([[0], [-2], [np.nan], [2]], np.float16),
])
def test_a_negative_label_counts_for_nothing_and_one_that_is_no_class_is_nan(function: Any, labels: Any) -> Test:
    x = leaf(np.abs(SCORES) + 0.5)
    y, gx = yield value_and_gradients(function(x, labels), x)
    assert y.shape == (4, 1)
    assert np.isfinite(y[[0, 3]]).all() and np.isfinite(gx[[0, 3]]).all()
    assert y[1] == 0 and not gx[1].any()
    assert np.isnan(y[2]).all() and np.isnan(gx[2]).any()


@at_once
def test_unsigned_labels_do_not_wrap() -> Test:
    x = leaf(SCORES)
    y, gx = yield value_and_gradients(F.softmax_cross_entropy(x, np.array([[0], [255], [1], [2]], np.uint8)), x)
    assert np.isnan(y[1]).all() and np.isnan(gx[1]).all()
    assert np.isfinite(y[[0, 2, 3]]).all()


@at_once
def test_large_scores_neither_overflow_nor_vanish() -> Test:
    x = leaf([[1e4, 0, -1e4], [-np.inf, 0, 0]])
    y, gx = yield value_and_gradients(F.softmax_cross_entropy(x, np.array([[1], [2]])), x)
    np.testing.assert_allclose(y.ravel(), [1e4, np.log(2)], rtol=1e-6)
    np.testing.assert_allclose(gx, [[1, -1, 0], [0, 0.5, -0.5]], atol=1e-7)


@at_once
def test_many_classes_in_16_bits() -> Test:
    x = leaf(np.zeros((1, 5000)), np.float16)
    y, gx = yield value_and_gradients(F.softmax_cross_entropy(x, np.array([[4999]])), x)
    assert y.dtype == gx.dtype == np.float16
    np.testing.assert_allclose(y, np.log(5000), rtol=1e-3)


# ---------------------------------------------------------------- probabilities


@at_once
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_saturated_probabilities_stay_finite(dtype: str) -> Test:
    p = Variable((4,), dtype=dtype, need_grad=True)
    t = Variable((4,), dtype=dtype, need_grad=True)
    p.d, t.d = [0, 1, 0, 1], [0, 1, 1, 0]
    y, gp, gt = yield value_and_gradients(F.binary_cross_entropy(p, t), p, t)
    for array in (y, gp, gt):
        assert array.dtype == p.dtype and np.isfinite(array.astype(float)).all()
    np.testing.assert_array_equal(y[:2].astype(float), 0)
    np.testing.assert_array_equal(gp[:2].astype(float), [1, -1])


@at_once
def test_through_a_saturated_sigmoid_no_gradient_is_nan() -> Test:
    x = leaf([200.0, -200.0])
    y, gx = yield value_and_gradients(F.binary_cross_entropy(F.sigmoid(x), np.float32([0, 1])), x)
    assert np.isfinite(y).all() and np.isfinite(gx).all()


@at_once
def test_what_is_no_probability_is_nan() -> Test:
    assert np.isnan((yield (F.binary_cross_entropy(np.float32([-0.1, 1.1]), np.float32([1, 1])),))).all()


@at_once
def test_sigmoid_cross_entropy_far_out() -> Test:
    x = leaf([-1e4, 1e4, -1e4, 1e4])
    t = leaf([1, 0, 0, 1])
    y, gx, gt = yield value_and_gradients(F.sigmoid_cross_entropy(x, t), x, t)
    np.testing.assert_array_equal(y, [1e4, 1e4, 0, 0])
    np.testing.assert_array_equal(gx, [-1, 1, 0, 0])
    np.testing.assert_array_equal(gt, -x.d)


@at_once
def test_divergence_of_zeros_in_16_bits() -> Test:
    p = leaf([[0.0, 1.0]], np.float16)
    y, gp = yield value_and_gradients(F.kl_multinomial(p, p), p)
    assert y.dtype == np.float16 and y.shape == (1, 1) and np.isfinite(gp).all()
    np.testing.assert_array_equal(y, 0)


# ---------------------------------------------------------------- differences


test_errors_name_the_argument = refused([
    (lambda x: F.softmax_cross_entropy(x, np.zeros(4, int)), "target"),
    (lambda x: F.categorical_cross_entropy(x, np.zeros((4, 3), int)), "target"),
    (lambda x: F.squared_error(x, np.zeros(4, np.float32)), "broadcast"),
    (lambda x: F.huber_loss(x, x, delta=0), "delta"),
    (lambda x: F.epsilon_insensitive_loss(x, x, epsilon=-1), "epsilon"),
    (lambda x: F.kl_multinomial(x, x, base_axis=2), "base_axis"),
], pattern=r"\b{}\b", given=lambda: leaf(SCORES))


@at_once
def test_distances_of_equal_rows_and_angles_with_zero() -> Test:
    """The slope of the norm at 0 is 0; that of the similarity is PyTorch's, the other direction divided by eps."""
    rows, zero, other = (nn.Variable.from_numpy_array(x) for x in
                         (np.eye(2)[[0, 0]], np.zeros((1, 2)), np.array([[3.0, 4.0]])))
    similarity = F.cosine_similarity(zero, other, eps=0.5)
    got = yield F.cdist(rows, rows), *nn.grad(F.cdist(rows, rows), rows), similarity, *nn.grad(similarity, zero)
    for one, expected in zip(got, [np.zeros((2, 2)), np.zeros((2, 2)), [0.0], [[1.2, 1.6]]], strict=True):
        np.testing.assert_allclose(one, expected, rtol=1e-14)
