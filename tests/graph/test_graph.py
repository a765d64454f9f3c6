"""Variables, cells and Functions: construction, Python's protocols and operators, and what bad arguments give."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
from nngrad.graph import NdArray, Variable
from nngrad.graph.arguments import as_int


def leaf(*values: Any, dtype: Any = np.float64) -> Variable:
    """A leaf with these values."""
    return Variable.from_numpy_array(np.array(values, dtype))


# ---------------------------------------------------------------- construction


def test_unlinked_variables_share_cells() -> None:
    x = Variable.from_numpy_array([1.0, 2.0], need_grad=True)
    y = F.exp(x)
    u = y.get_unlinked_variable(need_grad=True)
    assert u.parent is None and u.data is y.data and u.grad is y.grad and u.need_grad
    np.testing.assert_allclose(u.d, np.exp(x.d), rtol=1e-6)
    v = x.get_unlinked_variable()
    assert v.need_grad and v is not x
    v.d = 7.0
    v.g = 8.0
    assert x.d.tolist() == [7, 7] and x.g.tolist() == [8, 8]
    assert not x.get_unlinked_variable(need_grad=False).need_grad
    F.sum(u * 3).backward()
    assert y.g.tolist() == [3, 3] and x.g.tolist() == [8, 8]


# ---------------------------------------------------------------- Python's protocols


def test_numpy_and_jax_take_variables() -> None:
    x = Variable.from_numpy_array([1.0, 4.0])
    y = x * 1.0
    for v in (x, y, x.data):
        np.testing.assert_array_equal(np.asarray(v), [1, 4])
        assert np.asarray(v, np.float64).dtype == np.float64
        np.testing.assert_array_equal(np.sqrt(np.asarray(v)), [1, 2])
        np.testing.assert_allclose(jnp.sqrt(jnp.asarray(v)), [1, 2])
    assert jnp.asarray(x).dtype == np.float32
    assert isinstance(x.__jax_array__(), jax.Array)
    np.testing.assert_array_equal(np.stack([np.array(x), np.array(y)]), [[1, 4], [1, 4]])


def test_conversions_to_python_numbers() -> None:
    x = leaf(2.75)
    assert float(x) == 2.75 and int(x) == 2 and bool(x) and not bool(x * 0)
    assert float(Variable.from_numpy_array(1.5)) == 1.5
    assert [10, 20, 30][Variable.from_numpy_array(2)] == 30
    for convert in (float, int, bool):
        with pytest.raises((ValueError, TypeError)):
            convert(leaf(1.0, 2.0))
    with pytest.raises(TypeError):
        operator.index(leaf(1.0))


# ---------------------------------------------------------------- Functions


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_constant_has_the_bits_of_the_number_in_the_dtype_of_the_others(dtype: str) -> None:
    x = nn.Variable.from_numpy_array(np.zeros(3, dtype))
    for number in 0.1, -0.0, 1e-7, -np.inf, np.nan, 1 / 3:
        y = F.where(np.array([False] * 3), x, number)
        assert y.dtype == dtype and y.d.tobytes() == np.full(3, number, dtype).tobytes()


# ---------------------------------------------------------------- operators

ARITHMETIC = [operator.add, operator.sub, operator.mul, operator.truediv, operator.pow]
COMPARISONS = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]
A = np.array([[0.5, 1.5, 2.0], [2.5, 3.0, 1.0]])
B = np.array([1.5, 1.5, 2.0])


def close(ours: Variable, theirs: Any) -> None:
    """Compare a Variable with what NumPy says."""
    assert ours.shape == np.shape(theirs)
    np.testing.assert_allclose(ours.d, theirs, rtol=1e-14)


@pytest.mark.parametrize("f", ARITHMETIC + COMPARISONS, ids=lambda f: f.__name__)
def test_operators(f: Callable[[Any, Any], Any]) -> None:
    a, b = Variable.from_numpy_array(A), Variable.from_numpy_array(B)
    for left, right in ((A, B), (B, A), (A, A), (A[:, :1], B), (A[0, 0], A)):
        close(f(Variable.from_numpy_array(left), Variable.from_numpy_array(right)), f(left, right))
    for number in (2, 2.0, 1.5, -1, 0.5, True, np.float32(2), np.float64(1.5), np.int32(2), np.bool_(True)):
        with np.errstate(invalid="ignore"):
            close(f(a, number), f(A, float(number)))
            close(f(number, a), f(float(number), A))
    close(f(a, B), f(A, B))
    close(f(A, b), f(A, B))
    close(f(a, B.tolist()), f(A, np.float32(B)))
    close(f(B.tolist(), a), f(np.float32(B), A))
    assert isinstance(f(jnp.asarray(B), a), Variable)
    close(f(jnp.asarray(B), a), f(B, A))
    close(f(a, jnp.asarray(B)), f(A, B))
    close(f(a, np.array(2.0)), f(A, 2.0))


def test_operators_of_one_operand_and_in_place() -> None:
    x = leaf(-1.5, 0.5)
    close(-x, [1.5, -0.5])
    close(abs(x), [1.5, 0.5])
    assert +x is x
    x = y = leaf(1.0)
    y += 1
    y *= 3
    assert x.d == 1 and y.d == 6 and y.parent is not None


def test_division_by_zero_and_zero_powers() -> None:
    x = leaf(1.0, -1.0, 0.0)
    np.testing.assert_array_equal((x / 0).d, [np.inf, -np.inf, np.nan])
    np.testing.assert_array_equal((1 / x).d[:2], [1, -1])
    np.testing.assert_array_equal((x**0).d, [1, 1, 1])
    np.testing.assert_array_equal((x**2).d, [1, 1, 0])
    np.testing.assert_array_equal((x**-1).d, [1, -1, np.inf])
    np.testing.assert_array_equal((2**x).d, [2, 0.5, 1])


def test_integers() -> None:
    i = Variable.from_numpy_array(np.array([1, 2, 3], np.int32))
    assert (i + 1).dtype == np.int32 and (i + 1).d.tolist() == [2, 3, 4]
    assert (i * 2).dtype == np.int32 and (-i).d.tolist() == [-1, -2, -3]
    assert (i * 0.5).dtype == np.float32 and (i * 0.5).d.tolist() == [0.5, 1, 1.5]
    assert (i / 2).dtype == np.float32 and (i / 2).d.tolist() == [0.5, 1, 1.5]
    assert (i + i).dtype == np.int32 and (i / i).dtype == np.float32
    assert (i + 1.0).dtype == np.float32
    assert (i**2).d.tolist() == [1, 4, 9]
    assert (i > 1).d.tolist() == [0, 1, 1]
    truth = Variable.from_numpy_array(np.array([True, False]))
    assert (truth * 3).d.tolist() == [3, 0]
    small = Variable.from_numpy_array(np.array([1], np.uint8))
    assert (small + 254).dtype == np.uint8 and (small + 254).d == 255
    assert (small + 300).d == 301


def test_matrix_products() -> None:
    a, b = Variable.from_numpy_array(A), Variable.from_numpy_array(A.T.copy())
    close(a @ b, A @ A.T)
    close(a @ A.T, A @ A.T)
    close(A @ b, A @ A.T)
    close(F.batch_matmul(a, a, transpose_b=True), A @ A.T)


# ---------------------------------------------------------------- NdArray


def test_cells() -> None:
    cell = NdArray((2, 3))
    assert (cell.shape, cell.dtype, cell.ndim, cell.size, cell.is_zero) == ((2, 3), np.float32, 2, 6, True)
    cell.fill(2.5)
    assert not cell.is_zero and (cell.data == 2.5).all()
    cell.zero()
    assert cell.is_zero and (cell.data == 0).all()
    cell.data = np.arange(6).reshape(2, 3)
    assert cell.data.dtype == np.float32 and cell[1, 2] == 5 and cell[0].tolist() == [0, 1, 2]
    cell[0, 1] = 9.0
    cell[1] = NdArray.from_numpy_array([7.0, 7.0, 7.0])
    assert cell.data.tolist() == [[0, 9, 2], [7, 7, 7]]
    other = NdArray((2, 3), np.float64)
    other.copy_from(cell)
    assert other.dtype == np.float64 and other.data.tolist() == cell.data.tolist()
    cast = cell.cast(np.int32)
    assert cast.dtype == np.int32 and cast.data.tolist() == cell.data.tolist()
    cell.clear()
    assert cell.is_zero and other[0, 1] == 9
    assert isinstance(other.array, jax.Array) and other.array.dtype == np.float64


@pytest.mark.parametrize("size", [3, 1 << 15])
def test_leaves_are_written_in_place_and_outputs_are_not(size: int) -> None:
    x = Variable.from_numpy_array(np.ones(size, np.float32), need_grad=True)
    y = x * 2
    y.forward()
    x.d[0] = 5
    x.d[1:] += 1
    x.g[...] = 7
    assert y.d[0] == 2, "a forward has its own copy"
    y.forward()
    held = x.d
    held[1] = 9  # after the forward was called, and before it ran
    np.testing.assert_array_equal(y.d[:3], [10, 4, 4])
    y.forward()
    assert y.d[1] == 18 and x.data.array[1] == 9
    held[1] = 3
    assert x.d[1] == 3 and y.d[1] == 18
    np.testing.assert_array_equal(x.g, np.full(size, 7))
    x.d = 0
    held[0] = 4
    assert x.d[0] == 0, "what was handed out before is no longer the cell's"


# ---------------------------------------------------------------- bad arguments


def test_large_whole_numbers_are_exact() -> None:
    x = Variable.from_numpy_array(np.array([2**60 + 1]))
    assert (x == 2**60 + 1).d == 1 and (x == 2**60).d == 0
    assert (x - (2**53 + 1)).d == 2**60 - 2**53
    with pytest.raises(ValueError, match="is out of range for the dtype of the Variable, int8"):
        Variable.from_numpy_array(np.array([1], np.int8)) + 2**60


@pytest.mark.parametrize("whole, fits", [
    (2**63 - 1, True), (-(2**63), True), (2**63, False), (-(2**63) - 1, False), (float(2**62), True), (2.5, None),
    (True, None),
])  # fmt: skip
def test_whole_numbers_are_those_that_64_bits_hold(whole: Any, fits: bool | None) -> None:
    if fits:
        assert as_int(whole) == whole
    else:
        with pytest.raises(OverflowError if fits is False else TypeError):
            as_int(whole)
