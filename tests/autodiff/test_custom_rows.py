"""Functions of the user's own with one more axis: mapped one row after another, or in one call where they say that
their rows are independent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
from nngrad.graph import Variable, functions_of
from tests.leaves import leaf
from tests.oracle import check

RNG = np.random.default_rng(0)
X, W = RNG.standard_normal((4, 3)), RNG.standard_normal((3, 3))
calls: list[tuple[int, ...]] = []
"""The shapes that the functions below were called with on the host."""


class Cumulated(nn.FunctionNode):
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


class Product(nn.PythonFunction):
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


class Squared(nn.PythonFunction):
    """In nnabla's protocol, with values."""

    rows = (0,)

    def setup_impl(self, inputs: Any, outputs: Any) -> None:
        outputs[0].reset_shape(inputs[0].shape, True)

    def forward_impl(self, inputs: Any, outputs: Any) -> None:
        calls.append(inputs[0].d.shape)
        outputs[0].d = inputs[0].d ** 2

    def backward_impl(self, inputs: Any, outputs: Any, propagate_down: Any, accum: Any) -> None:
        inputs[0].g = 2 * inputs[0].d * outputs[0].g


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


def test_without_a_word_of_rows_it_is_called_for_each() -> None:
    y = nn.vmap(lambda x: Cumulated()(x))(leaf(np.stack([X, 2 * X, X])))
    calls.clear()
    np.testing.assert_allclose(y.d, np.cumsum(np.sin(np.stack([X, 2 * X, X])), axis=-1))
    assert calls == [(4, 3)] * 3


def test_rows_are_handed_over_in_one_call() -> None:
    y = nn.vmap(lambda x: CumulatedByRows()(x))(leaf(np.stack([X, 2 * X, X])))
    calls.clear()
    assert y.d.shape == (3, 4, 3) and calls == [(12, 3)]


def test_what_has_no_rows_is_shared_or_mapped() -> None:
    x, w = leaf(np.stack([X, 2 * X])), leaf(W)
    check(nn.vmap(lambda x, w: Product()(x, w), in_axes=(0, None)), lambda x, w: x @ w, [x.d, W], 2)
    check(nn.vmap(lambda x, w: Product()(x, w)), lambda x, w: x @ w, [x.d, np.stack([W, W + 1])], 2)
    y = nn.vmap(lambda x: Product()(x, w))(x)
    calls.clear()
    np.testing.assert_allclose(y.d, x.d @ W)
    assert calls == [(8, 3)]


def test_nnablas_protocol() -> None:
    x = leaf(np.stack([X, 2 * X]))
    y = nn.vmap(lambda x: Squared()(x))(x)
    (gx,) = nn.grad(F.sum(F.sin(y)), x)
    np.testing.assert_allclose(gx.d, np.cos(x.d**2) * 2 * x.d)
    assert (8, 3) in calls


def test_derivatives_of_each_row_need_to_be_shown_that_rows_are_independent() -> None:
    x = leaf(X)
    with pytest.raises(ValueError, match="cannot be shown"):
        nn.jacobian(Cumulated()(x), x)
    matrix = nn.jacobian(CumulatedByRows()(x), x)
    np.testing.assert_allclose(matrix.d, np.tril(np.ones((3, 3))) * np.cos(X)[:, None, :])
    assert nn.jacobian(Product()(x, leaf(W)), x).shape == (4, 3, 3)
    with pytest.raises(ValueError, match="cannot be shown"):
        nn.jacobian(Product()(leaf(RNG.random((4, 4))), x), x)


def test_rows_of_jax_functions() -> None:
    def both(p: Any, x: Any) -> Any:
        return jnp.tanh(x["a"] @ p["w"]), jnp.sum(x["a"] ** 3, axis=-1)

    p, x = {"w": leaf(W)}, {"a": leaf(X)}
    y, z = F.jax_function(both, rows=1)(p, x)
    slope = 1 - np.tanh(X @ W) ** 2
    np.testing.assert_allclose(nn.jacobian(y, x["a"]).d, slope[:, :, None] * W.T, rtol=1e-12)
    np.testing.assert_allclose(nn.laplacian(z, x["a"]).d, 6 * X.sum(-1), rtol=1e-12)
    full = nn.hessian(F.sum(y), x["a"], batched=False).d
    np.testing.assert_allclose(nn.hessian(F.sum(y, axis=1), x["a"]).d, np.einsum("bibj->bij", full), atol=1e-12)
    with pytest.raises(ValueError, match="cannot be shown"):
        nn.jacobian(F.jax_function(both)(p, x)[0], x["a"])
    with pytest.raises(ValueError, match="cannot be shown"):
        nn.jacobian(nn.grad(F.sum(y), p["w"])[0], p["w"])


def test_jax_functions_are_mapped_by_jax() -> None:
    y = nn.vmap(F.jax_function(lambda x: jnp.cumsum(jnp.sin(x))))(leaf(X))
    np.testing.assert_allclose(y.d, np.cumsum(np.sin(X), axis=1))
    assert "scan_of_body" not in [f.name for f in functions_of([y])]
    x = leaf(X)
    each = nn.vmap(F.jax_function(lambda x: jnp.cumsum(jnp.sin(x))))(x)
    np.testing.assert_allclose(nn.jacobian(each, x).d, np.tril(np.ones((3, 3))) * np.cos(X)[:, None, :])


class Mixed(nn.PythonFunction):
    """Rows that are not there in the output."""

    rows = (0,)

    def forward(self, x: Any) -> Any:
        return jnp.sum(x)


class Third(nn.PythonFunction):
    """An input that is not there."""

    rows = (2,)

    def forward(self, x: Any) -> Any:
        return x


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: Mixed()(leaf(X)), ValueError, r"Mixed: with rows = \(0,\).* got shapes \(4, 3\), \(\)"),
        (lambda: Third()(leaf(X)), ValueError, r"Third: rows must be indexes of its 1 inputs, from 0, got \(2,\)"),
        (lambda: type("Wrong", (nn.FunctionNode,), {"rows": True}), TypeError, "Wrong: rows must be a tuple"),
        (lambda: F.jax_function(jnp.sum, rows=0)(leaf(X)), ValueError, "jax_function.sum.: with rows=.0,."),
        (lambda: F.jax_function(jnp.sin, rows=1)(leaf(X)), ValueError, "rows must be positions among the 1 arguments"),
        (lambda: F.jax_function(jnp.sin, rows=True), TypeError, "rows must be positions"),
    ],
)  # fmt: skip
def test_what_is_refused(call: Callable[[], Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()
