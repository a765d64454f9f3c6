"""`x[key]` against NumPy, iteration, scatters into a Variable, and updates of leaves."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import basic_indices

import nngrad as nn
import nngrad.functions as F
from nngrad.functions.control import with_updates
from nngrad.graph import Variable
from tests.oracle import arrays_of
from tests.refusals import refused
from tests.together import Test, at_once

SHAPE = (3, 4, 2)
MASK = np.arange(12).reshape(3, 4) % 3 == 0


def variable(array: Any, need_grad: bool = False) -> Variable:
    x = Variable.from_numpy_array(np.asarray(array))
    x.need_grad = need_grad
    return x


def counted(shape: tuple[int, ...] = SHAPE) -> Any:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def placed(key: Any, addends: Any, shape: tuple[int, ...] = SHAPE) -> Any:
    """Zeros, with `addends` added where `key` points."""
    array = np.zeros(shape, np.float32)
    np.add.at(array, key, addends)
    return array


BASIC = [
    0, -1, (2, 1), (-3, -4, -2), np.int64(1), np.array(2), ..., (), None, (..., 0), (0, ...), (0, ..., 1),
    (slice(None),), slice(1, 3), slice(None, None, -1), (slice(2, 0, -1), slice(None, None, 3)), slice(-2, None),
    slice(5, 9), slice(2, 1), (slice(None), slice(3, None, -2), 1), (None, 0, None, ..., None), (..., None),
    (slice(0, 100), slice(-100, 2)), (0, slice(None), None), slice(None, None, 7), slice(None, None, -7),
]
ADVANCED = [
    [0, 2], [[0, -1], [1, 1]], np.array([], int), [], (np.array([2, 0]), [1, -1]), ([0, 1], slice(None), [1, 0]),
    (slice(None), [0, 3]), (slice(None), [0, 3], [1, 0]), (0, [1, 2]), (0, slice(None), [1, 0]), ([1, 2], 0),
    (..., [1, 0]), ([[0], [2]], [0, 3]), (None, [0, 1], None), (slice(None, None, -1), [1, 2], None),
    ([0, 2], ..., [0, 1]), ([0, 1], None, [2, 3]), (slice(1, 3), None, [2, 3], 0), ([0], [1], [0]),
    (np.array([True, False, True]),), [True, False, True], MASK, (MASK, 0), (MASK, [1]), (MASK, slice(None, None, -1)),
    (0, MASK[0]), (slice(None), MASK[0], None), (MASK[:, 0], [0, 1]), np.zeros((3, 4), bool), np.ones(SHAPE, bool),
    True, False, (True, 0), (slice(None), True), (0, True, [1, 0]), (0, 1, [0, 0]), (np.array([1], np.uint8),),
    ([2], ..., [3], [1]), ([0, 2], ..., [0, 1], [1, 0]), (None, [0], ..., [0], [1]),
]


@at_once
@pytest.mark.parametrize("key", BASIC + ADVANCED, ids=str)
def test_value_and_gradient_as_numpy(key: Any) -> Test:
    array = counted()
    x = variable(array)
    y = x[key]
    weights = np.random.default_rng(0).standard_normal(y.shape).astype(np.float32)
    found, slope = yield y, *nn.grad([y], [x], grad_outputs=[weights])
    assert found.shape == y.shape and found.dtype == y.dtype == array.dtype
    np.testing.assert_array_equal(found, array[key])
    np.testing.assert_allclose(slope, placed(key, weights), rtol=1e-6)


@st.composite
def basic_keys(draw: st.DrawFn) -> tuple[tuple[int, ...], Any]:
    """A shape, and a key that fits it."""
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=0, max_size=3)))
    return shape, draw(basic_indices(shape, allow_newaxis=True, max_dims=6))


def advanced_entry(n: int) -> Any:
    """What may stand in a key for an axis of size `n`."""
    number = st.integers(-n, n - 1)
    alone = st.integers(0, n - 1).map(lambda i: [i])
    return st.one_of(st.lists(number, min_size=2, max_size=2), number, st.slices(n), alone)


@st.composite
def advanced_keys(draw: st.DrawFn) -> tuple[tuple[int, ...], Any]:
    """A key for `SHAPE` with an axis more."""
    entries = [draw(advanced_entry(n)) for n in SHAPE]
    entries.insert(draw(st.integers(0, 3)), None)
    return SHAPE, tuple(entries)


@settings(max_examples=4, deadline=None)
@given(st.lists(st.one_of(basic_keys(), advanced_keys()), min_size=12, max_size=16))
def test_random_keys(keys: list[tuple[tuple[int, ...], Any]]) -> None:
    """All of a list by one executable."""
    wanted = []
    for shape, key in keys:
        x = variable(counted(shape))
        y = x[key]
        (third,) = nn.grad([y * y * y], [x])
        wanted += [y, *nn.grad([y], [x]), *nn.grad([third], [x])]
    found = iter(arrays_of(*wanted))
    for shape, key in keys:
        array, ones = counted(shape), placed(key, 1, shape)
        np.testing.assert_array_equal(next(found), array[key], str(key))
        np.testing.assert_array_equal(next(found), ones, str(key))
        np.testing.assert_array_equal(next(found), 6 * array * ones, str(key))


@at_once
def test_variables_as_indices_of_values_and_gradients() -> Test:
    array = counted()
    x, i, j = variable(array), variable(np.array([2, -1, 0], np.int32)), variable(np.array(1, np.int32))
    keys = [i, j, (i, j), (j, slice(None), [0, 1])]
    ys = [x[key] for key in keys]
    found = yield *ys, *[g for y in ys for g in nn.grad([y], [x])]
    for k, same in enumerate([[2, -1, 0], 1, ([2, -1, 0], 1), (1, slice(None), [0, 1])]):
        np.testing.assert_array_equal(found[k], array[same])
        np.testing.assert_array_equal(found[4 + k], placed(same, 1))


def test_variables_as_indices_follow_what_they_hold() -> None:
    array = counted()
    x, i = variable(array), variable(np.array([2, -1, 0], np.int32))
    y = x[i]
    y.forward()
    i.d = [0, 0, 1]
    y.forward()
    np.testing.assert_array_equal(y.d, array[[0, 0, 1]])
    i.d = [0, 3, -4]
    y.forward()
    assert np.isnan(y.d[1:]).all()
    assert not np.isnan(y.d[0]).any()


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (3, "index 3 is out of range for axis 0 of size 3"),
        (-4, "index -4 is out of range for axis 0"),
        ((0, 4), "index 4 is out of range for axis 1 of size 4"),
        ((..., 2), "index 2 is out of range for axis 2"),
        ([0, 3], "index 3 is out of range for axis 0"),
        ((slice(None), [0, -5]), "index -5 is out of range for axis 1"),
        ((0, 0, 0, 0), "too many indices: the array has 3 axes, but 4"),
        ((..., ...), r"an index can only have one '\.\.\.'"),
        (1.0, "an index must be"),
        ([0.5], "an index must be"),
        ("a", "an index must be"),
        ([[0], [1, 2]], "an index must be"),
        (slice(0, 1.5), "slice indices must be ints or None, got"),
        (slice(None, None, 0), "zero"),
        (np.array([True, False]), "a mask of size 2 does not match axis 0 of size 3"),
        ((0, MASK), "a mask of size 3 does not match axis 1 of size 4"),
        (([0, 1], [0, 1, 2]), "do not broadcast"),
    ],
    ids=str,
)
def test_bad_keys(key: Any, message: str) -> None:
    x = variable(counted())
    with pytest.raises(IndexError, match=message):
        x[key]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises((IndexError, TypeError, ValueError)):
            counted()[key]


# ---------------------------------------------------------------- scatters


def test_scatter_nd_into_a_leaf() -> None:
    out, data = variable(np.ones(4, np.float32)), variable(np.array([5, 6, 7], np.float32))
    indices = np.array([[0, 3, 0]])
    y = F.scatter_nd(data, indices, None, out)
    g_out, g_data = nn.grad([y], [out, data])
    np.testing.assert_array_equal(g_out.d, [0, 1, 1, 0])
    np.testing.assert_array_equal(g_data.d, [0, 1, 1])
    np.testing.assert_array_equal(out.d, [1, 1, 1, 1])
    y.forward()
    np.testing.assert_array_equal(y.d, [7, 1, 1, 6])
    np.testing.assert_array_equal(out.d, [7, 1, 1, 6])
    z = F.scatter_nd(data, indices, out=out * 2, add=True)
    np.testing.assert_array_equal(z.d, [26, 2, 2, 18])
    np.testing.assert_array_equal(out.d, [7, 1, 1, 6])


def test_scatter_nd_leaves_no_nan() -> None:
    """What was replaced may be infinite: nothing of it remains."""
    out, data = variable(np.array([np.inf, 1], np.float32)), variable(np.array([2], np.float32))
    y = F.scatter_nd(data, np.array([[0]]), out=out * 1)
    np.testing.assert_array_equal(y.d, [2, 1])

# ---------------------------------------------------------------- conditions


test_bad_arguments = refused([
    (lambda x: F.scatter_nd(x, np.zeros((1, 3), np.int32)), "shape is required without out"),
    (lambda x: F.gather(x, np.zeros(2, np.int32), axis=2), "gather: axis 2"),
    (lambda x: F.gather_nd(x, np.zeros((3, 1), np.int32)), "indices must have size 2 or less along axis 0, got"),
    (lambda x: F.scatter_add(x, np.zeros((4, 4), np.int32), x), "indices must not exceed x1 .*, nor x0 .* except"),
    (lambda x: F.top_k_data(x, 9), "k must be"),
    (lambda x: F.sort(x, axis=2), "axis 2"),
    (lambda x: F.where(np.ones(2), x, x), "do not broadcast"),
    (lambda x: F.pad(x[:0], (3, 0, 0, 0), mode="reflect"), "mode 'reflect' cannot pad axis 0, which is empty"),
    (lambda x: F.one_hot(x, (3,)), "last axis"),
    (lambda x: F.transpose(x, (0, 0)), "axes"),
    (lambda x: F.concatenate(x, x[:1], axis=1), r"x\[1\]"),
    (lambda x: F.stack(x, x[0]), r"x\[1\]"),
    (lambda x: F.norm(x, p=0.5), "p must be"),
    (lambda x: F.max(x[:0], axis=0), "cannot take an extremum over no elements: axes .* of x"),
    (lambda x: F.broadcast_to(x, x[0], axis=2), "axis 2"),
    (lambda x: F.matrix_diag_part(x[:2]), "square"),
    (lambda x: F.slice(x, (0, 0, 0)), "start"),
    (lambda x: F.cumsum(x, axis=-3), "axis -3"),
    (lambda x: F.take_slices(x, key=(3, (0, 3, 1))), r"key \(3, .*\) is out of range for axis 0 of size 3"),
], given=lambda: variable(counted((3, 3))))


# ---------------------------------------------------------------- updates


def test_updates_are_applied_once_per_forward() -> None:
    x, total, count = variable(np.ones((2, 3), np.float32)), variable(np.zeros(3, np.float32)), variable(np.int32(0))
    y = with_updates(x * 2, {total: total + F.sum(x, axis=0), count: count + 1})
    np.testing.assert_array_equal(total.d, 0)
    y.forward()
    for _ in range(3):
        np.testing.assert_array_equal(y.d, 2 * np.ones((2, 3)))
    np.testing.assert_array_equal(total.d, [2, 2, 2])
    y.forward()
    y.forward()
    np.testing.assert_array_equal(total.d, [6, 6, 6])
    assert int(count) == 3


def test_updates_are_cast_and_checked() -> None:
    total = variable(np.zeros(2, np.float16))
    y = with_updates(total, {total: variable(np.ones(2, np.float32))})
    y.forward()
    assert total.dtype == np.float16
    np.testing.assert_array_equal(total.d, [1, 1])
    with pytest.raises(ValueError, match="shape"):
        with_updates(total, {total: variable(np.ones(3, np.float32))})
    with pytest.raises(ValueError, match="only leaves"):
        with_updates(total, {total * 2: total})


def test_sink_and_unlink() -> None:
    x, y = variable(np.array([2.0, 3.0], np.float32)), variable(np.ones((2, 2), np.float32))
    s = F.sink(x * 2, F.exp(y))
    assert s.shape == ()
    gx, gy = nn.grad([s], [x, y])
    np.testing.assert_array_equal(gx.d, [2, 2])
    np.testing.assert_allclose(gy.d, np.exp(y.d), rtol=1e-6)
    np.testing.assert_array_equal(nn.grad([F.sink(x * 2, one_input_grad=False)], [x])[0].d, 0)
    np.testing.assert_array_equal(nn.grad([x * F.unlink(x)], [x])[0].d, x.d)
