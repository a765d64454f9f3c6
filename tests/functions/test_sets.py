"""Results whose size depends on values; sets, masks and sorted search against NumPy; effects and measures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
from nngrad.graph import Variable
from tests.refusals import refused
from tests.together import Test, at_once

from_ = Variable.from_numpy_array
RNG = np.random.default_rng(0)
WHOLE = RNG.integers(0, 4, (3, 4)).astype(np.int32)
X = RNG.standard_normal((3, 4, 2, 2))


# ---------------------------------------------------------------- against NumPy


@at_once
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_unique(axis: int | None) -> Test:
    x = np.concatenate([WHOLE, WHOLE[:1]])
    options: dict[str, Any] = {"with_index": True, "with_inverse": True, "with_counts": True}
    got = F.unique(x, flatten=axis is None, axis=axis, **options)
    found = yield *got, *F.unique(x, flatten=axis is None, axis=axis, sorted=False, **options)
    expected = np.unique(x, return_index=True, return_inverse=True, return_counts=True, axis=axis)
    for i, (a, b) in enumerate(zip(found[:4], expected, strict=True)):
        np.testing.assert_array_equal(a, np.reshape(b, -1) if i else b)
    y, index, inverse, counts = found[4:]
    flat = x.reshape(-1) if axis is None else x
    np.testing.assert_array_equal(np.take(flat, index, axis or 0), y)
    np.testing.assert_array_equal(np.take(y, inverse, axis or 0), flat)
    np.testing.assert_array_equal(np.bincount(inverse), counts)
    assert (np.diff(index) > 0).all()


@at_once
@pytest.mark.parametrize("axis", [None, 0])
def test_nothing_has_no_distinct_elements(axis: int | None) -> Test:
    x, given = np.zeros((0, 3), np.float32), (axis is None, axis)
    y, index, inverse, counts, unsorted, padded, none = yield (
        *F.unique(x, *given, with_index=True, with_inverse=True, with_counts=True), F.unique(x, *given, False),
        *F.unique(x, *given, with_counts=True, size=2),
    )  # fmt: skip
    assert y.shape == unsorted.shape == ((0,) if axis is None else (0, 3))
    assert index.shape == inverse.shape == counts.shape == (0,)
    np.testing.assert_array_equal(padded, np.zeros((2, 3)[: y.ndim]))
    np.testing.assert_array_equal(none, [0, 0])


@at_once
@pytest.mark.parametrize("right", [False, True])
def test_searchsorted(right: bool) -> Test:
    rows, values = np.sort(RNG.integers(0, 9, (2, 3, 7)), -1), RNG.integers(-1, 10, (2, 3, 5))
    expected = [np.searchsorted(r, v, "right" if right else "left")
                for r, v in zip(rows.reshape(6, 7), values.reshape(6, 5), strict=True)]
    found, last = yield F.searchsorted(rows, values, right=right), F.searchsorted(rows[0, 0], [0.5, np.nan])
    np.testing.assert_array_equal(found.reshape(6, 5), expected)
    np.testing.assert_array_equal(last, np.searchsorted(rows[0, 0], [0.5, 99]))


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


@at_once
def test_a_size_may_be_given() -> Test:
    mask, x = np.array([0, 1, 0, 3]), from_(np.arange(4.0), need_grad=True)
    y = F.bool_gather(x, mask, size=3)
    found = yield (F.nonzero(mask, size=3), F.nonzero(mask, size=1), y, *nn.grad(F.sum(y * y), x),
                   *F.unique(mask, with_counts=True, size=5))  # fmt: skip
    assert [each.tolist() for each in found] == [
        [[1, 3, 4]], [[1]], [1, 3, 0], [0, 2, 0, 6], [0, 1, 3, 0, 0], [2, 1, 1, 0, 0]
    ]  # fmt: skip


@pytest.mark.parametrize("function", [lambda x: F.bool_gather(x, x), F.nonzero, F.unique])
def test_in_bodies_a_size_is_needed(function: Any) -> None:
    x = from_(np.array([[1.0, 0.0], [0.0, 2.0]]))
    with pytest.raises(ValueError, match=r"not known yet. Pass size=. \(cannot read a value in the body of vmap"):
        nn.vmap(function)(x)
    with pytest.raises(ValueError, match=r"not known yet. Pass size=. \(cannot read a value in the body of scan"):
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


# ---------------------------------------------------------------- what is refused


test_bad_arguments = refused([
    (lambda: F.bool_gather(X, np.ones(4)), ValueError, r"^bool_gather: input must begin with the axes of mask \(4,\)"),
    (lambda: F.bool_scatter(X[0], WHOLE, X[:, :3]), ValueError, "^bool_scatter: output must begin with the axes of"),
    (lambda: F.bool_fill(X, np.ones(3)), ValueError, r"^bool_fill: mask of shape \(3,\) does not broadcast"),
    (lambda: F.unique(X, flatten=False), ValueError, "^unique: axis is required with flatten=False"),
    (lambda: F.searchsorted(X, X[0]), ValueError, "sorted_sequence and values must have the same shape"),
    (lambda: F.take_along_axis(X, WHOLE), ValueError, "^take_along_axis: indices must have as many axes as x"),
    (lambda: F.assign(from_(X) * 2, X), ValueError, "^assign: dst must be a leaf, got an output of mul_scalar"),
    (lambda: F.top_n_error(X, X), ValueError, r"^top_n_error: target must be of shape \(3, 4, 2, 1\), that of"),
    (lambda: F.confusion_matrix(X, X, axis=4), ValueError, "^confusion_matrix: axis 4 is out of range"),
])


@at_once
def test_products_of_groups_do_not_leak_into_each_other() -> Test:
    x = from_(np.array([np.inf, 2.0, 0.0, np.nan, 3.0, 0.0]))
    y = F.segment_prod(x, np.array([0, 1, 2, 7, 1, 2]), count=4)
    values, g = yield y, nn.grad([y], [x])[0]
    assert values.tolist() == [np.inf, 6.0, 0.0, 1.0]
    assert g.tolist() == [1.0, 3.0, 0.0, 0.0, 2.0, 0.0]
