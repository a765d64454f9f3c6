"""NumPy's functions of Variables: those that would end the graph without a word are refused."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F

X = nn.Variable.from_numpy_array(np.array([[1.0, 2.0], [2.0, 0.5]]))

OF_VALUES = {
    "allclose", "array2string", "array_equal", "array_equiv", "array_repr", "array_str", "ndim", "save", "savetxt",
    "savez", "savez_compressed", "shape", "size",
}  # fmt: skip
"""Functions that compare, print or store, or read only the shape."""


def _outcome(function: Callable[..., Any]) -> object:
    """What a function returns of Variables, as many as it takes, or "refused"."""
    for count in range(1, 5):
        for args in ([X] * count, [[X]] * count, [abs, *[X] * count]):
            try:
                return function(*args)
            except TypeError as error:
                if "a Variable is not an array. Use " in str(error):
                    return "refused"
            except (ValueError, AttributeError, LookupError):
                pass
    return "not called"


def test_each_function_of_numpy_is_refused_or_has_a_gradient() -> None:
    for module in (np, np.linalg, np.fft):
        for name, function in vars(module).items():
            if (hasattr(function, "_implementation") and name not in OF_VALUES) or isinstance(function, np.ufunc):
                outcome = _outcome(function)
                assert outcome == "refused" if isinstance(outcome, str) else isinstance(outcome, nn.Variable), name


def test_methods_of_arrays_are_refused_too() -> None:
    for method in (np.eye(2).dot, np.eye(2, dtype="float32").dot, np.array(2).dot):
        for x in (X, X[0], X[0, 0]):
            with pytest.raises(TypeError, match=r"array\.dot: a Variable is not an array"):
                method(x)


def test_values_can_be_had() -> None:
    expected, target = X.d, np.zeros((2, 2))
    target[...] = X
    for array in (np.asarray(X), np.array(X), np.asarray(X, "float32"), X.to_numpy(), target, np.array([X[0], X[1]])):
        assert type(array) is np.ndarray and (array == expected).all() and (array * 2)[:1].copy().sum() == 6
    assert type(np.float64(X[0, 0])) is np.float64
    assert np.shape(F.sum(X)) == () and np.size(X) == 4 and np.ndim(X) == 2
    assert np.allclose(X, expected) and np.array_equal(expected, X) and np.array_str(X) == str(expected)
    np.savez(file := io.BytesIO(), x=X)
    assert (np.load(io.BytesIO(file.getvalue()))["x"] == expected).all()


def test_the_remainder_has_the_sign_of_the_divisor() -> None:
    x = nn.Variable.from_numpy_array(np.array([-2.6, -2.0, -1e-20, 0.0, 0.3, 1.7, 7.5]), need_grad=True)
    for divisor in (2.0, -1.5):
        y = nn.Variable.from_numpy_array(np.full(7, divisor), need_grad=True)
        results = (x % divisor, x % y, divisor % (x + 10), np.full(7, divisor) % (x + 10), x.d % y)
        expected = (x.d % divisor, x.d % divisor, divisor % (x.d + 10), divisor % (x.d + 10), x.d % divisor)
        by_x, by_y = nn.grad(F.sum(results[1]), [x, y])
        nn.forward_all([*results, by_x, by_y])
        for found, right in zip(results, expected, strict=True):
            np.testing.assert_array_equal(found.d, right)
        np.testing.assert_array_equal(by_x.d, np.ones(7))
        np.testing.assert_array_equal(by_y.d, -np.floor(x.d / divisor))
    whole = nn.Variable.from_numpy_array(np.array([-7, -6, 0, 5]))
    np.testing.assert_array_equal((whole % 3).d, np.array([-7, -6, 0, 5]) % 3)


def test_arguments_as_numpy_takes_them() -> None:
    a, b = np.arange(24.0).reshape(2, 3, 4), np.arange(24.0).reshape(4, 2, 3)
    x, y = map(nn.Variable.from_numpy_array, (a, b))
    for axes in (([1, 0], [2, 1]), [[1, 0], [2, 1]], ((1, 0), (2, 1)), [[-2, 0], (-1, 1)]):
        np.testing.assert_array_equal(F.tensordot(x, y, axes=axes).d, np.tensordot(a, b, axes=([1, 0], [2, 1])))
    expected = np.einsum("ijk,kij->ij", a, b)
    for product in (F.einsum("ijk,kij->ij", x, y), F.einsum(x, y, equation="ijk,kij->ij")):
        np.testing.assert_array_equal(product.d, expected)
    target = nn.Variable((2,))
    assert F.dot(np.eye(2), np.ones(2), out=target) is None
    assert target.d.tolist() == [1, 1]
