"""Products, einsum, embedding and functions of matrices, beyond what the sample table says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
from nngrad.graph import functions_of
from tests.refusals import refused
from tests.together import Test, at_once


def filled(*shape: int) -> nn.Variable:
    size = int(np.prod(shape))
    return nn.Variable.from_numpy_array((np.arange(size) % 7 - 3.0).reshape(shape).astype(np.float32), need_grad=True)


def ops_of(*outputs: nn.Variable) -> list[str]:
    """Names of the functions that compute `outputs`, sorted."""
    return sorted(f.name for f in functions_of(outputs))


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
def test_the_operator_is_matmul() -> Test:
    a, b = filled(2, 2, 3), filled(2, 3, 2)
    for found in (yield a @ b, a @ b.d, a.d @ b, a.d.tolist() @ b):
        np.testing.assert_array_equal(found, a.d @ b.d)


def test_affine_of_matrices_is_two_functions() -> None:
    assert ops_of(F.affine(filled(2, 3), filled(3, 4), filled(4))) == ["add2", "batch_matmul"]


def test_gradients_of_a_product_are_two_products() -> None:
    for a, b in (((2, 3), (3, 4)), ((5, 2, 3), (5, 3, 4))):
        x, y = filled(*a), filled(*b)
        assert ops_of(*nn.grad([x @ y], [x, y])) == ["batch_matmul", "batch_matmul", "grad_end"]


def test_one_matrix_for_a_batch_takes_one_product() -> None:
    """The sum over the batch is not left to a reduction of as many products."""
    x, w = filled(5, 2, 3), filled(3, 4)
    (gw,) = nn.grad([x @ w], [w])
    assert "sum" not in ops_of(gw)
    np.testing.assert_allclose(gw.d, x.d.sum((0, 1))[:, None] * np.ones(4), rtol=1e-6)


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


@pytest.mark.parametrize("name", ["batch_inv", "batch_det", "batch_logdet", "batch_cholesky", "batch_cofactor"])
def test_matrix_functions_name_what_is_not_square(name: str) -> None:
    for shape in ((2, 3), (3,), ()):
        with pytest.raises(ValueError, match="square"):
            getattr(F, name)(filled(*shape))


@at_once
@pytest.mark.parametrize("name", ["batch_inv", "batch_det", "batch_logdet", "batch_cholesky", "batch_cofactor"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("size", [1, 3])
def test_matrix_functions_keep_dtypes(name: str, dtype: str, size: int) -> Test:
    x = nn.Variable((2, size, size), need_grad=True, dtype=dtype)
    x.d = np.broadcast_to(2 * np.eye(size), x.shape)
    y = getattr(F, name)(x)
    for found in (yield y, *nn.grad([y], [x])):
        assert y.dtype == found.dtype == x.dtype
        assert np.isfinite(found.astype(float)).all()


@at_once
@pytest.mark.parametrize("rank", [0, 1, 2])
def test_gradient_of_the_determinant_of_singular_matrices(rank: int) -> Test:
    x = nn.Variable.from_numpy_array(np.diag([2.0, 3.0, 0.0] if rank == 2 else [2.0 * rank, 0.0, 0.0]), need_grad=True)
    (slope,) = yield nn.grad([F.batch_det(x)], [x])
    np.testing.assert_allclose(slope, np.diag([0.0, 0.0, 6.0 if rank == 2 else 0.0]), atol=1e-12)


test_wrong_arguments_are_named = refused([
    (lambda: F.affine(filled(2, 3), filled(4, 2)), "weight|multiply"),
    (lambda: F.affine(filled(2, 3, 1), filled(4, 2)), "weight"),
    (lambda: F.affine(filled(2, 3), filled(3, 2), filled(1)), "bias"),
    (lambda: F.affine(filled(2, 3), filled(3, 2), filled(2, 2)), "bias"),
    (lambda: F.affine(filled(2, 3), filled(3, 2), base_axis=3), "base_axis"),
    (lambda: F.affine(filled(2, 3), filled(3, 2), base_axis=-3), "base_axis"),
    (lambda: F.batch_matmul(filled(3), filled(3, 2)), "axes"),
    (lambda: F.batch_matmul(filled(2, 3), filled(2, 3)), "multiply"),
    (lambda: F.batch_matmul(filled(2, 2, 3), filled(3, 3, 2)), "broadcast"),
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
