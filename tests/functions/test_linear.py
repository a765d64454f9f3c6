"""Products, einsum, embedding and functions of matrices, beyond what the sample table says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
from tests.refusals import refused
from tests.together import Test, at_once


def filled(*shape: int) -> nn.Variable:
    size = int(np.prod(shape))
    return nn.Variable.from_numpy_array((np.arange(size) % 7 - 3.0).reshape(shape).astype(np.float32), need_grad=True)


SHAPES = [(), (3,), (2, 3), (3, 2), (2, 2, 3), (2, 3, 2), (1, 3, 3)]


@at_once
@pytest.mark.parametrize("a", SHAPES)
@pytest.mark.parametrize("name", ["dot", "matmul"])
def test_products_are_numpys(name: str, a: Any) -> Test:
    """Same values where NumPy has one, and an error where it has one."""
    results, expected = [], []
    for x, y in [(filled(*a), filled(*b)) for b in SHAPES]:
        try:
            expected.append(getattr(np, name)(x.d, y.d))
        except ValueError:
            with pytest.raises(ValueError):
                getattr(F, name)(x, y)
        else:
            results.append(getattr(F, name)(x, y))
            assert results[-1].shape == expected[-1].shape
    for found, value in zip((yield results), expected, strict=True):
        np.testing.assert_array_equal(found, value, strict=True)


@at_once
@pytest.mark.parametrize("equation, shapes", [
    ("ij,jk", [(2, 3), (3, 2)]), ("ba", [(2, 3)]), ("ii", [(3, 3)]), ("ii->i", [(3, 3)]), ("iji->j", [(2, 3, 2)]),
    ("...ii->...i", [(2, 3, 3)]), ("...i,...i", [(2, 3), (3,)]), ("...i,...i->...", [(2, 1, 3), (4, 3)]),
    ("i...->...i", [(2, 3, 4)]), ("...", [(2, 3)]), ("i->", [(3,)]), ("i,j->ij", [(2,), (3,)]),
    (",i->i", [(), (3,)]), ("ab,bc,cd->ad", [(2, 3), (3, 4), (4, 2)]), ("aA,Ab", [(2, 3), (3, 2)]),
    ("...i, ...j -> i j...", [(2, 3), (1, 2)]), ("ij->", [(0, 3)]), ("i,i->i", [(1,), (1,)]),
    ("i...,i...->...", [(2,), (2, 3)]),
])
def test_einsum_is_numpys(equation: str, shapes: Any) -> Test:
    xs = [filled(*shape) for shape in shapes]
    expected = np.einsum(equation, *[x.d for x in xs])
    y = F.einsum(*xs, equation=equation)
    found, *slopes = yield y, *nn.grad([y], xs)
    assert y.shape == found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    for x, gx in zip(xs, slopes, strict=True):
        assert gx.shape == x.shape and np.isfinite(gx).all()


@pytest.mark.parametrize("equation, shapes", [
    ("ij,jk->ik", [(2, 3), (2, 3)]), ("ij->k", [(2, 3)]), ("ij->ii", [(2, 2)]), ("ij", [(2,)]), ("i", [(2, 3)]),
    ("ij,jk", [(2, 3)]), ("i1->i", [(2, 3)]), ("i..->i", [(2, 3)]), ("......", [(2, 3)]),
    ("ii", [(2, 3)]), ("ij,ij->ij", [(3, 2), (2, 2)]),
    ("...i,...i", [(2, 3), (4, 3)]), ("...i->i", [(2, 3)]), ("...->", [(2, 3)]), ("i->i->i", [(2,)]),
    ("...i->i...k", [(2, 3)]), ("(a)->a", [(2,)]),
])
def test_wrong_equations_are_named(equation: str, shapes: Any) -> None:
    with pytest.raises(ValueError, match="equation"):
        F.einsum(*[filled(*shape) for shape in shapes], equation=equation)


@at_once
@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.int8, np.float32])
def test_embedding_of_what_is_no_row_is_nan(dtype: Any) -> Test:
    w, negative = filled(3, 2), [-1, 1] if dtype is not np.uint8 else [5, 1]
    y, z = F.embed(np.array([2, 0, 3], dtype), w), F.embed(np.array(negative, dtype), w)
    rows, first, others, second = yield y, *nn.grad([y], [w]), z, *nn.grad([z], [w])
    np.testing.assert_array_equal(rows, [*w.d[[2, 0]], [np.nan, np.nan]])
    np.testing.assert_array_equal(first, [[1, 1], [0, 0], [1, 1]])
    np.testing.assert_array_equal(others, [[np.nan, np.nan], w.d[1]])
    np.testing.assert_array_equal(second, [[0, 0], [1, 1], [0, 0]])


@at_once
def test_embedding_in_more_rows_than_the_dtype_counts_and_of_integers() -> Test:
    w = filled(300, 1)
    y = F.embed(np.array([100, -1], np.int8), w)
    found, slope, integers = yield y, *nn.grad([y], [w]), F.embed(np.array([1, 0]), np.array([5, 6]))
    assert found[0, 0] == w.d[100, 0] and np.isnan(found[1, 0]) and slope.sum() == 1
    np.testing.assert_array_equal(integers, [6, 5])


test_wrong_arguments_are_named = refused([
    (lambda: F.affine(filled(2, 3), filled(4, 2)), "weight|multiply"),
    (lambda: F.batch_matmul(filled(3), filled(3, 2)), "axes"),
    (lambda: F.embed_filter_grad(filled(2, 2), np.array([0, 1]), shape=(3, 3)), "gy"),
    (lambda: F.embed(np.array([0, 1]), filled()), "w"),
])


def test_dot_puts_its_result_where_it_is_told() -> None:
    a, b = np.arange(6.0).reshape(2, 3), np.arange(3.0)
    cell, leaf = nn.NdArray((2,), "float64"), nn.Variable((2,), dtype="float64")
    assert F.dot(a, b, out=cell) is None and F.dot(a, b, out=leaf) is None
    np.testing.assert_array_equal(cell.data, a @ b)
    np.testing.assert_array_equal(leaf.d, a @ b)
    with pytest.raises(TypeError, match="dot: out must be an NdArray or a Variable"):
        F.dot(a, b, out=3)
    with pytest.raises(ValueError, match="shape"):
        F.dot(a, b, out=nn.NdArray((3,)))
