"""Products with sparse matrices, composed of gathering and adding rows."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ..graph import Variable
from ..graph.leaf import as_variables
from ..graph.signatures import explained_by_name
from .indexing import where
from .linear import embed, embed_filter_grad
from .movement import reshape
from .shaping import swapaxes


class CooMatrix(NamedTuple):
    """A sparse matrix in coordinate (COO) format, or one for each row of a batch."""

    data: Any
    """The values, (elements,) or (batch, elements): a Variable or an array. Those at the same position add up."""
    row: Any
    """Their rows, an array of whole numbers of the same shape; -1 for no element."""
    col: Any
    """Their columns."""
    shape: tuple[int, int]
    """The shape of each matrix."""


@explained_by_name
def sparse_matmul(a: Any, b: Any, transa: bool = False, transb: bool = False) -> Variable:
    """The product of a sparse and a dense matrix, or of one of each in each row of a batch.

    It is differentiated with respect to the dense matrix and to the values of the sparse one.

    Args:
        a: A Variable or an array, (m, k) or (batch, m, k); or a `CooMatrix`.
        b: A Variable or an array, (k, n) or (batch, k, n); or a `CooMatrix`. Exactly one of `a` and `b` is sparse.
        transa: Whether to transpose `a` first.
        transb: Whether to transpose `b` first.

    Returns:
        (m, n) or (batch, m, n).

    Raises:
        TypeError: Both are dense, or both are sparse.
        ValueError: The shapes do not fit, or an element is outside of its matrix.
    """
    if isinstance(a, CooMatrix) == isinstance(b, CooMatrix):
        raise TypeError("sparse_matmul: one of a and b must be a CooMatrix, and the other a Variable or an array")
    if isinstance(a, CooMatrix):
        return _product(a, b, transa, transb, "a", "b")
    return swapaxes(_product(b, a, not transb, not transa, "b", "a"), -1, -2)


def _product(matrix: CooMatrix, dense: Any, is_turned: bool, is_dense_turned: bool, name: str, other: str) -> Variable:
    """The sparse matrix times the dense one, each optionally transposed first."""
    data, dense = as_variables((matrix.data, dense), (f"{name}.data", other), "sparse_matmul")
    row, column = _places(matrix, data, name)
    absent = (row < 0) | (column < 0)
    if absent.any():
        row, column, data = np.where(absent, 0, row), np.where(absent, 0, column), where(absent, data * 0, data)
    rows, columns = matrix.shape
    if is_turned:
        row, column, rows, columns = column, row, columns, rows
    if is_dense_turned and dense.ndim > 1:
        dense = swapaxes(dense, -1, -2)
    if dense.ndim != data.ndim + 1 or dense.shape[-2] != columns or dense.shape[:-2] != data.shape[:-1]:
        raise ValueError(f"sparse_matmul: cannot multiply {name} and {other}, of shapes "
                         f"{(*data.shape[:-1], rows, columns)} and {dense.shape} after transposition")
    batch, width = dense.shape[:-2], dense.shape[-1]
    if batch:  # as one block-diagonal matrix
        block = np.arange(batch[0])[:, None]
        row, column = (row + block * rows).ravel(), (column + block * columns).ravel()
        data, dense = reshape(data, shape=(data.size,)), reshape(dense, shape=(batch[0] * columns, width))
    terms = embed(column.astype(np.int32), dense) * reshape(data, shape=(data.size, 1))
    total = embed_filter_grad(terms, row.astype(np.int32), shape=(math.prod(batch) * rows, width))
    return reshape(total, shape=(*batch, rows, width)) if batch else total


def _places(matrix: CooMatrix, data: Variable, name: str) -> tuple[Any, Any]:
    """Rows and columns of the elements, checked."""
    row, column = np.asarray(matrix.row), np.asarray(matrix.col)
    if data.ndim not in (1, 2) or row.shape != data.shape or column.shape != data.shape:
        raise ValueError(f"sparse_matmul: data, row and col of {name} must have the same shape, (elements,) or "
                         f"(batch, elements), got {data.shape}, {row.shape} and {column.shape}")
    for places, size, axis in ((row, matrix.shape[0], "row"), (column, matrix.shape[1], "col")):
        if places.dtype.kind not in "iu" or (places.size and not -1 <= places.min() <= places.max() < size):
            raise ValueError(f"sparse_matmul: {name}.{axis} must hold whole numbers from 0 to {size - 1}, or -1")
    return row, column
