"""Functions of the user's own with one more axis: mapped one row after another, or in one call where they say that
their rows are independent."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
from nngrad.extend import Variable
from tests.leaves import leaf
from tests.oracle import check

RNG = np.random.default_rng(0)
X, W = RNG.standard_normal((4, 3)), RNG.standard_normal((3, 3))
calls: list[tuple[int, ...]] = []
"""The shapes that the functions below were called with on the host."""


class Cumulated(nn.nnabla.FunctionNode):
    """Sums along the second axis, from the left: the rows are independent, and nothing says so."""

    numpy = True

    def forward(self, x: Any) -> Any:
        calls.append(x.shape)
        return np.cumsum(np.sin(x), axis=-1)

    def infer(self, x: Any) -> Any:
        return x

    def backward(self, indexes: Any, grad_outputs: Any) -> Any:
        (x,), (gy,) = self.inputs, grad_outputs
        return (F.cos(x) * F.cumsum(gy, axis=x.ndim - 1, reverse=True),)


class CumulatedByRows(Cumulated):
    """The same, and it says so."""

    rows = (0,)


class Product(nn.nnabla.PythonFunction):
    """A product with a matrix, on the host."""

    numpy = True
    rows = (0,)

    def forward(self, x: Any, w: Any) -> Any:
        calls.append(x.shape)
        return x @ w

    def infer(self, x: Any, w: Any) -> Any:
        return x

    def backward(self, f: Any, gy: Variable) -> Any:
        x, w = f.inputs
        return gy @ F.transpose(w), F.transpose(x) @ gy


@pytest.fixture(autouse=True)
def no_calls() -> None:
    """Forget earlier calls."""
    calls.clear()


def expected(x: Any) -> Any:
    """What both of the functions that add up compute."""
    return jnp.cumsum(jnp.sin(x), axis=-1)


@pytest.mark.parametrize("function", [Cumulated, CumulatedByRows])
def test_mapped_to_order_2(function: Any) -> None:
    many = np.stack([X, 2 * X])
    check(nn.vmap(lambda x: function()(x)), expected, [many], 2)
    check(nn.vmap(nn.vmap(lambda x: function()(x[None])[0])), expected, [many], 1)


def test_what_has_no_rows_is_shared_or_mapped() -> None:
    x, w = leaf(np.stack([X, 2 * X])), leaf(W)
    check(nn.vmap(lambda x, w: Product()(x, w), in_axes=(0, None)), lambda x, w: x @ w, [x.d, W], 2)
    check(nn.vmap(lambda x, w: Product()(x, w)), lambda x, w: x @ w, [x.d, np.stack([W, W + 1])], 2)
    y = nn.vmap(lambda x: Product()(x, w))(x)
    calls.clear()
    np.testing.assert_allclose(y.d, x.d @ W)
    assert calls == [(8, 3)]


def test_derivatives_of_each_row_need_to_be_shown_that_rows_are_independent() -> None:
    x = leaf(X)
    with pytest.raises(ValueError, match="cannot be shown"):
        nn.jacobian(Cumulated()(x), x)
    matrix = nn.jacobian(CumulatedByRows()(x), x)
    np.testing.assert_allclose(matrix.d, np.tril(np.ones((3, 3))) * np.cos(X)[:, None, :])
    assert nn.jacobian(Product()(x, leaf(W)), x).shape == (4, 3, 3)
    with pytest.raises(ValueError, match="cannot be shown"):
        nn.jacobian(Product()(leaf(RNG.random((4, 4))), x), x)
