"""Results whose size depends on values; sets, masks and sorted search against NumPy; effects and measures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
from nngrad.graph import Variable

from_ = Variable.from_numpy_array
RNG = np.random.default_rng(0)
WHOLE = RNG.integers(0, 4, (3, 4)).astype(np.int32)
X = RNG.standard_normal((3, 4, 2, 2))


# ---------------------------------------------------------------- against NumPy


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_unique(axis: int | None) -> None:
    x = np.concatenate([WHOLE, WHOLE[:1]])
    options: dict[str, Any] = {"with_index": True, "with_inverse": True, "with_counts": True}
    got = F.unique(x, flatten=axis is None, axis=axis, **options)
    expected = np.unique(x, return_index=True, return_inverse=True, return_counts=True, axis=axis)
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_array_equal(a.d, b if a is got[0] else np.reshape(b, -1))
    y, index, inverse, counts = F.unique(x, flatten=axis is None, axis=axis, sorted=False, **options)
    flat = x.reshape(-1) if axis is None else x
    np.testing.assert_array_equal(np.take(flat, index.d, axis or 0), y.d)
    np.testing.assert_array_equal(np.take(y.d, inverse.d, axis or 0), flat)
    np.testing.assert_array_equal(np.bincount(inverse.d), counts.d)
    assert (np.diff(index.d) > 0).all()


@pytest.mark.parametrize("axis", [None, 0])
def test_nothing_has_no_distinct_elements(axis: int | None) -> None:
    x = np.zeros((0, 3), np.float32)
    y, index, inverse, counts = F.unique(x, axis is None, axis, with_index=True, with_inverse=True, with_counts=True)
    assert y.d.shape == ((0,) if axis is None else (0, 3))
    assert index.d.shape == inverse.d.shape == counts.d.shape == (0,)
    assert F.unique(x, axis is None, axis, False).d.shape == y.shape
    values, counts = F.unique(x, axis is None, axis, with_counts=True, size=2)
    np.testing.assert_array_equal(values.d, np.zeros((2, 3)[: y.ndim]))
    np.testing.assert_array_equal(counts.d, [0, 0])


def test_nonzero_and_masks() -> None:
    np.testing.assert_array_equal(F.nonzero(WHOLE).d, np.stack(np.nonzero(WHOLE)))
    np.testing.assert_array_equal(F.gather_nd(WHOLE, F.nonzero(WHOLE)).d, WHOLE[WHOLE != 0])
    assert F.nonzero(np.zeros((2, 3))).d.shape == (2, 0)
    np.testing.assert_array_equal(F.bool_gather(X, WHOLE).d, X[WHOLE != 0].reshape(-1, 4))
    np.testing.assert_array_equal(F.bool_gather(X, WHOLE[:, 0]).d, X[WHOLE[:, 0] != 0].reshape(-1, 16))
    expected = np.where((WHOLE != 0)[..., None, None], X, -1.0)
    np.testing.assert_array_equal(F.bool_scatter(F.bool_gather(X, WHOLE), WHOLE, np.full(X.shape, -1.0)).d, expected)
    np.testing.assert_array_equal(F.bool_fill(X, WHOLE[0, :2] != 0, value=9).d, np.where(WHOLE[0, :2] != 0, 9, X))


@pytest.mark.parametrize("right", [False, True])
def test_searchsorted(right: bool) -> None:
    rows, values = np.sort(RNG.integers(0, 9, (2, 3, 7)), -1), RNG.integers(-1, 10, (2, 3, 5))
    expected = [np.searchsorted(r, v, "right" if right else "left")
                for r, v in zip(rows.reshape(6, 7), values.reshape(6, 5), strict=True)]
    np.testing.assert_array_equal(F.searchsorted(rows, values, right=right).d.reshape(6, 5), expected)
    np.testing.assert_array_equal(F.searchsorted(rows[0, 0], [0.5, np.nan]).d, np.searchsorted(rows[0, 0], [0.5, 99]))


# ---------------------------------------------------------------- sizes that depend on values


def test_other_values_of_the_same_size_are_right_and_others_are_no_silent_error() -> None:
    x, mask = from_(X[..., 0, 0]), from_(np.array([1.0, 0, 1]))
    picked, found, kinds = F.bool_gather(x, mask), F.nonzero(mask), F.unique(mask)
    mask.d = [0, 1, 1]
    nn.forward_all([picked, found, kinds])
    np.testing.assert_array_equal(picked.d, x.d[1:])
    assert found.d.tolist() == [[1, 2]] and kinds.d.tolist() == [0, 1]
    mask.d = [1, 1, 2]
    nn.forward_all([picked, found, kinds])
    assert np.isnan(picked.d).all() and found.d.tolist() == [[3, 3]] and kinds.d.tolist() == [1, 2]
    mask.d = [1, 2, 3]
    nn.forward_all([picked, found, kinds])
    assert np.isnan(kinds.d).all()


def test_a_size_may_be_given() -> None:
    mask = np.array([0, 1, 0, 3])
    assert F.nonzero(mask, size=3).d.tolist() == [[1, 3, 4]]
    assert F.nonzero(mask, size=1).d.tolist() == [[1]]
    x = from_(np.arange(4.0), need_grad=True)
    y = F.bool_gather(x, mask, size=3)
    assert y.d.tolist() == [1, 3, 0]
    assert nn.grad(F.sum(y * y), x)[0].d.tolist() == [0, 2, 0, 6]
    values, counts = F.unique(mask, with_counts=True, size=5)
    assert values.d.tolist() == [0, 1, 3, 0, 0] and counts.d.tolist() == [2, 1, 1, 0, 0]


@pytest.mark.parametrize("function", [lambda x: F.bool_gather(x, x), F.nonzero, F.unique])
def test_in_bodies_a_size_is_needed(function: Any) -> None:
    x = from_(np.array([[1.0, 0.0], [0.0, 2.0]]))
    with pytest.raises(ValueError, match=r"give size= where they are not known yet. \(in the body of vmap"):
        nn.vmap(function)(x)
    with pytest.raises(ValueError, match=r"give size= where they are not known yet. \(in the body of scan"):
        F.scan(lambda c, a: (c, function(a)), x[0], x)


def test_a_size_in_bodies() -> None:
    x = from_(np.array([[1.0, 0.0, 3.0], [0.0, 2.0, 0.0]]), need_grad=True)
    expected = [[1.0, 3.0], [2.0, 0.0]]
    mapped = nn.vmap(lambda a: F.bool_gather(a, a, size=2))(x)
    _, scanned = F.scan(lambda c, a: (c, F.bool_gather(a, a, size=2)), F.sum(x), x)
    for y in (mapped, scanned):
        assert y.d.tolist() == expected
        assert nn.grad(F.sum(y * y), x)[0].d.tolist() == (2 * x.d).tolist()
    assert nn.compile(lambda a: F.nonzero(a, size=2))(x.d[0]).tolist() == [[0, 2]]


# ---------------------------------------------------------------- effects and measures


def test_assign_writes_once_for_each_forward() -> None:
    w, x = from_(np.zeros(3, np.float32), need_grad=True), from_(np.arange(3.0), need_grad=True)
    y = F.assign(w, x * 2)
    assert y.d.tolist() == [0, 2, 4] and w.d.tolist() == [0, 0, 0]
    y.forward()
    assert w.d.tolist() == [0, 2, 4] and y.dtype == np.float32
    gw, gx = nn.grad(F.sum(y * y), [w, x])
    assert gw.d.tolist() == [0, 4, 8] and gx.d.tolist() == [0, 0, 0]


def test_what_is_scattered_is_written_to_a_leaf() -> None:
    x, base = from_(np.array([5.0, 6.0]), need_grad=True), from_(np.arange(4.0), need_grad=True)
    y = F.bool_scatter(x, [1, 0, 0, 1], base)
    assert y.d.tolist() == [5, 1, 2, 6] and base.d.tolist() == [0, 1, 2, 3]
    gx, gbase = nn.grad(F.sum(y * y), [x, base])
    assert gx.d.tolist() == [10, 12] and gbase.d.tolist() == [0, 2, 4, 0]
    y.forward()
    assert base.d.tolist() == [5, 1, 2, 6]
    rows = from_(np.arange(8.0).reshape(2, 4))
    mapped = nn.vmap(lambda row: F.bool_scatter(x, [1, 0, 0, 1], row * 1))(rows)
    assert mapped.d.tolist() == [[5, 1, 2, 6], [5, 5, 6, 6]]


def test_measures_against_numpy() -> None:
    scores, right = RNG.standard_normal((2, 5, 3)), RNG.integers(0, 5, (2, 1, 3))
    best = np.argsort(-scores, axis=1)
    for n in (1, 3):
        wrong = ~(best[:, :n] == right).any(1, keepdims=True)
        np.testing.assert_array_equal(F.top_n_error(scores, right, axis=1, n=n).d, wrong)
    counts = np.zeros((5, 5))
    np.add.at(counts, (right.reshape(-1), best[:, :1].reshape(-1)), 1)
    np.testing.assert_array_equal(F.confusion_matrix(scores, right, axis=1).d, counts)
    assert F.top_n_error([[np.nan, 1.0]], [[1]]).d.tolist() == [[1]]


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(("call", "kind", "message"), [
    (lambda: F.bool_gather(X, np.ones(4)), ValueError, r"^bool_gather: input .* must begin with the axes of mask \(4,"),
    (lambda: F.bool_gather(X, WHOLE, size=-1), ValueError, "^bool_gather: size must not be negative"),
    (lambda: F.bool_scatter(X[0], WHOLE, X[:, :3]), ValueError, "^bool_scatter: output .* must begin with the axes"),
    (lambda: F.bool_scatter(X[0], WHOLE, X[..., 0]), ValueError, "^bool_scatter: output .* must have slices of as"),
    (lambda: F.bool_fill(X, np.ones(3)), ValueError, r"^bool_fill: mask \(3,\) does not broadcast"),
    (lambda: F.unique(X, flatten=False), ValueError, "^unique: give an axis where flatten is False"),
    (lambda: F.searchsorted(X, X[0]), ValueError, "searchsorted.*must have the same axes before the last"),
    (lambda: F.take_along_axis(X, WHOLE), ValueError, "^take_along_axis: indices .* must have as many axes as x"),
    (lambda: F.take_along_axis(X[..., 0, 0], WHOLE[:2]), ValueError, "^take_along_axis: but for axis 1, x and indices"),
    (lambda: F.assign(from_(X) * 2, X), ValueError, "^assign: dst must be a leaf, got an output of mul_scalar"),
    (lambda: F.assign(from_(X), X[0]), ValueError, "^assign: src of shape .* must have the shape"),
    (lambda: F.top_n_error(X, X), ValueError, r"^top_n_error: target .* must have the shape \(3, 4, 2, 1\)"),
    (lambda: F.top_n_error(X, X[..., :1], n=0), ValueError, "^top_n_error: n must be at least 1"),
    (lambda: F.confusion_matrix(X, X, axis=4), ValueError, "^confusion_matrix: axis 4 is out of range"),
])
def test_bad_arguments(call: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        call()


def test_nothing_is_scattered() -> None:
    y = F.bool_scatter(np.zeros((0, 2)), np.zeros(3))
    np.testing.assert_array_equal(y.d, np.zeros((3, 2)))
    x = Variable.from_numpy_array(np.zeros((0, 2)))
    (gx,) = nn.grad(F.sum(F.bool_scatter(x, np.ones(3)) ** 2), x)
    assert gx.d.shape == (0, 2)
    assert np.isnan(F.bool_scatter(x, np.ones(3)).d).all()  # what is missing is seen
