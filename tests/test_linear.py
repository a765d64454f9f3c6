"""Products, einsum, embedding and functions of matrices, beyond what the sample table says."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
from nngrad.graph import functions_of


def filled(*shape: int) -> nn.Variable:
    size = int(np.prod(shape))
    return nn.Variable.from_numpy_array((np.arange(size) % 7 - 3.0).reshape(shape).astype(np.float32), need_grad=True)


def ops_of(*outputs: nn.Variable) -> list[str]:
    """Names of the functions that compute `outputs`, sorted."""
    return sorted(f.name for f in functions_of(outputs))


SHAPES = [(), (3,), (2, 3), (3, 2), (2, 2, 3), (2, 3, 2), (1, 3, 3)]


@pytest.mark.parametrize("a, b", list(itertools.product(SHAPES, SHAPES)))
@pytest.mark.parametrize("name", ["dot", "matmul"])
def test_products_are_numpys(name: str, a: Any, b: Any) -> None:
    """Same values where NumPy has one, and an error where it has one."""
    x, y = filled(*a), filled(*b)
    try:
        expected = getattr(np, name)(x.d, y.d)
    except ValueError:
        with pytest.raises(ValueError):
            getattr(F, name)(x, y)
    else:
        result = getattr(F, name)(x, y)
        assert result.shape == expected.shape
        np.testing.assert_array_equal(result.d, expected)


def test_the_operator_is_matmul() -> None:
    a, b = filled(2, 2, 3), filled(2, 3, 2)
    np.testing.assert_array_equal((a @ b).d, a.d @ b.d)
    np.testing.assert_array_equal((a @ b.d).d, a.d @ b.d)
    np.testing.assert_array_equal((a.d @ b).d, a.d @ b.d)
    np.testing.assert_array_equal((a.d.tolist() @ b).d, a.d @ b.d)


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


@pytest.mark.parametrize("equation, shapes", [
    ("ij,jk", [(2, 3), (3, 2)]), ("ba", [(2, 3)]), ("ii", [(3, 3)]), ("ii->i", [(3, 3)]), ("iji->j", [(2, 3, 2)]),
    ("...ii->...i", [(2, 3, 3)]), ("...i,...i", [(2, 3), (3,)]), ("...i,...i->...", [(2, 1, 3), (4, 3)]),
    ("i...->...i", [(2, 3, 4)]), ("...", [(2, 3)]), ("i->", [(3,)]), ("i,j->ij", [(2,), (3,)]),
    (",i->i", [(), (3,)]), ("ab,bc,cd->ad", [(2, 3), (3, 4), (4, 2)]), ("aA,Ab", [(2, 3), (3, 2)]),
    ("...i, ...j -> i j...", [(2, 3), (1, 2)]), ("ij->", [(0, 3)]), ("i,i->i", [(1,), (1,)]),
    ("i...,i...->...", [(2,), (2, 3)]),
])
def test_einsum_is_numpys(equation: str, shapes: Any) -> None:
    xs = [filled(*shape) for shape in shapes]
    expected = np.einsum(equation, *[x.d for x in xs])
    y = F.einsum(*xs, equation=equation)
    assert y.shape == expected.shape
    np.testing.assert_allclose(y.d, expected, rtol=1e-5)
    for x, gx in zip(xs, nn.grad([y], xs), strict=True):
        assert gx.shape == x.shape
        assert np.isfinite(gx.d).all()


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


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.int8, np.float32])
def test_embedding_of_what_is_no_row_is_nan(dtype: Any) -> None:
    w = filled(3, 2)
    there = np.array([2, 0, 3], np.float32).astype(dtype)
    y = F.embed(there, w)
    np.testing.assert_array_equal(y.d[:2], w.d[[2, 0]])
    assert np.isnan(y.d[2]).all()
    (gw,) = nn.grad([y], [w])
    np.testing.assert_array_equal(gw.d, [[1, 1], [0, 0], [1, 1]])
    if dtype is not np.uint8:
        y = F.embed(np.array([-1, 1], dtype), w)
        assert np.isnan(y.d[0]).all() and not np.isnan(y.d[1]).any()
        np.testing.assert_array_equal(nn.grad([y], [w])[0].d, [[0, 0], [1, 1], [0, 0]])


def test_embedding_in_more_rows_than_the_dtype_counts() -> None:
    w = filled(300, 1)
    y = F.embed(np.array([100, -1], np.int8), w)
    assert y.d[0, 0] == w.d[100, 0] and np.isnan(y.d[1, 0])
    assert nn.grad([y], [w])[0].d.sum() == 1


def test_embedding_of_integers() -> None:
    np.testing.assert_array_equal(F.embed(np.array([1, 0]), np.array([5, 6])).d, [6, 5])


@pytest.mark.parametrize("name", ["batch_inv", "batch_det", "batch_logdet", "batch_cholesky", "batch_cofactor"])
def test_matrix_functions_name_what_is_not_square(name: str) -> None:
    for shape in ((2, 3), (3,), ()):
        with pytest.raises(ValueError, match="square"):
            getattr(F, name)(filled(*shape))


@pytest.mark.parametrize("name", ["batch_inv", "batch_det", "batch_logdet", "batch_cholesky", "batch_cofactor"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("size", [1, 3])
def test_matrix_functions_keep_dtypes(name: str, dtype: str, size: int) -> None:
    x = nn.Variable((2, size, size), need_grad=True, dtype=dtype)
    x.d = np.broadcast_to(2 * np.eye(size), x.shape)
    y = getattr(F, name)(x)
    (gx,) = nn.grad([y], [x])
    assert y.dtype == gx.dtype == x.dtype
    assert np.isfinite(y.d.astype(float)).all() and np.isfinite(gx.d.astype(float)).all()


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_gradient_of_the_determinant_of_singular_matrices(rank: int) -> None:
    x = nn.Variable.from_numpy_array(np.diag([2.0, 3.0, 0.0] if rank == 2 else [2.0 * rank, 0.0, 0.0]), need_grad=True)
    (gx,) = nn.grad([F.batch_det(x)], [x])
    np.testing.assert_allclose(gx.d, np.diag([0.0, 0.0, 6.0 if rank == 2 else 0.0]), atol=1e-12)


@pytest.mark.parametrize("call, argument", [
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
def test_wrong_arguments_are_named(call: Any, argument: str) -> None:
    with pytest.raises(ValueError, match=argument):
        call()


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
