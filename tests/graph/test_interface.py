"""nnabla's interface beside its functions: methods of Variable, cells, results that are written to, graphs tied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
from nngrad import NdArray, Variable
from nngrad.graph import functions_of

A = np.arange(6, dtype=np.float32).reshape(2, 3) / 4


def leaf(array: Any = A, need_grad: bool = True) -> Variable:
    """A leaf with `array`."""
    return Variable.from_numpy_array(array, need_grad=need_grad)


# ---------------------------------------------------------------- methods that are functions


@pytest.mark.parametrize("name", ["sum", "mean", "max", "min", "prod"])
@pytest.mark.parametrize("arguments", [{}, {"axis": 1}, {"axis": (0, 1), "keepdims": True}])
def test_reductions(name: str, arguments: dict[str, Any]) -> None:
    result = getattr(leaf(A + 1), name)(**arguments)
    assert result.parent is not None
    np.testing.assert_allclose(result.d, getattr(A + 1, name)(**arguments), rtol=1e-6)


def test_an_unlinked_reshape_has_the_value_of_now() -> None:
    x = leaf()
    y = F.exp(x).reshape((6,), unlink=True)
    assert y.is_leaf and y.need_grad
    np.testing.assert_allclose(y.d, np.exp(A).reshape(6), rtol=1e-6)


@pytest.mark.parametrize("mask", [A > 0.5, (A > 0.5).astype(np.float32), leaf(A > 0.5, False), np.arange(3) > 1])
def test_filling_by_a_mask(mask: Any) -> None:
    x = leaf()
    chosen = np.broadcast_to(np.asarray(mask) != 0, A.shape)
    for fill in (x.bool_fill_, x.masked_fill_):
        y = fill(mask, -2.5)
        np.testing.assert_array_equal(y.d, np.where(chosen, -2.5, A))
        np.testing.assert_array_equal(nn.grad(y, x)[0].d, ~chosen)
    cell = NdArray.from_numpy_array(A)
    assert cell.masked_fill(mask, -2.5) is cell
    np.testing.assert_array_equal(cell.view, np.where(chosen, -2.5, A))


# ---------------------------------------------------------------- what there is around a Variable


def test_no_gradient_passes_what_was_built() -> None:
    x = leaf()
    h = F.tanh(x)
    y = F.sum(h * 2).no_grad()
    assert not y.need_grad and not h.need_grad and x.need_grad
    (F.sum(x) + y).backward()
    np.testing.assert_array_equal(x.g, np.ones_like(A))


def test_marking_one_function_for_recomputation() -> None:
    def loss(marked: bool) -> tuple[Variable, Variable]:
        x = leaf(np.linspace(0, 1, 1 << 10, dtype=np.float32))
        h = x
        for _ in range(8):
            h = F.tanh(F.sin(h))
            h.recompute = marked
            h.parent.inputs[0].recompute = marked
            assert h.recompute is marked
        return F.sum(h), x

    plain, marked = [nn.grad(*loss(m)) for m in (False, True)]
    np.testing.assert_allclose(plain[0].d, marked[0].d, rtol=1e-5)
    assert nn.count(marked).functions > nn.count(plain).functions, "something is computed again"
    x = leaf()
    x.recompute = True
    assert x.recompute is False
    with pytest.raises(TypeError, match="recompute must be True or False"):
        F.exp(x).recompute = 2


# ---------------------------------------------------------------- graphs that are tied anew


def test_rewiring() -> None:
    xa = leaf()
    ya = F.sum(F.tanh(xa) * 2)
    za = F.exp(ya)
    za.forward()
    assert ya.d is not None
    (before,) = nn.grad(za, xa)
    assert before.d is not None
    xb = leaf(A - 1)
    yb = F.sin(xb)
    assert xa.rewire_on(yb) is None
    assert xa.parent.name == "sin" and xa.parent.outputs[0] is xa and yb.is_leaf and yb.parent is None
    assert za.rank > ya.rank > xa.rank > xb.rank
    h = np.sin(A - 1)
    expected = np.exp(np.sum(2 * np.tanh(h)))
    np.testing.assert_allclose(za.d, expected, rtol=1e-6)
    za.forward()
    np.testing.assert_allclose(yb.d, h, rtol=1e-6)
    za.backward()
    gradient = expected * 2 / np.cosh(h) ** 2 * np.cos(A - 1)
    np.testing.assert_allclose(xb.g, gradient, rtol=1e-5)
    np.testing.assert_allclose(nn.grad(za, xb)[0].d, gradient, rtol=1e-5)
    assert next(f.name for f in functions_of([za])) == "sin"


def test_a_gradient_of_before_is_no_gradient_of_what_was_rewired() -> None:
    z, x, w = leaf(A[0] + 1), leaf(A[1]), leaf(np.arange(9, dtype=np.float32).reshape(3, 3) / 9)
    y = F.sum(F.tanh(F.reshape(z, (1, 3)) @ w)) * F.sum(x)
    (gz,) = nn.grad(y, z)
    x.d = z.d**3
    before = nn.grad(gz, w)[0].d.copy()
    x.rewire_on(z * z * z)
    np.testing.assert_allclose(nn.grad(gz, w)[0].d, before, rtol=1e-5)
    assert not np.allclose(nn.grad(nn.grad(y, z), w)[0].d, before)


def test_truncated_backpropagation() -> None:
    x = leaf()
    state = F.tanh(x)
    other = F.exp(state)
    other.d  # noqa: B018  computed, and by a plan that goes through the state
    function = state.parent
    expected = np.tanh(A)
    state.clear_all_graph_links()
    assert state.is_leaf and state.need_grad and function.outputs[0] is not state
    np.testing.assert_allclose(state.d, expected, rtol=1e-6)
    x.d = 0
    np.testing.assert_allclose(state.d, expected, rtol=1e-6)
    np.testing.assert_allclose(other.d, np.exp(expected), rtol=1e-6)
    state.d = 1
    other.forward()
    np.testing.assert_allclose(other.d, np.e, rtol=1e-6)
    other.backward()
    assert not x.g.any() and state.g.all()


# ---------------------------------------------------------------- cells


@pytest.mark.parametrize(
    "compute",
    [
        lambda a, b: a + b, lambda a, b: a - b, lambda a, b: a * b, lambda a, b: a / b, lambda a, b: a**b,
        lambda a, b: a + 2, lambda a, b: 2 - a, lambda a, b: 2 / a, lambda a, b: 2**a, lambda a, b: -a, lambda a, b: +a,
        lambda a, b: a @ np.ones((3, 1), np.float32), lambda a, b: np.ones((1, 2), np.float32) @ a,
        lambda a, b: np.ones((2, 3), np.float32) * a,
    ],
)  # fmt: skip
def test_arithmetic_of_cells(compute: Callable[[Any, Any], Any]) -> None:
    a, b = A + 1, A[::-1] + 2
    result = compute(NdArray.from_numpy_array(a), NdArray.from_numpy_array(b))
    assert isinstance(result, NdArray) and not result.is_deferred
    np.testing.assert_allclose(result.view, compute(a, b), rtol=1e-6)


# ---------------------------------------------------------------- results that are written to


def test_results_are_written_to_until_the_next_forward() -> None:
    x = leaf()
    y = F.tanh(x)
    z = F.sum(y)
    z.forward()
    y.d[0] = 5
    y.data.data[1, 0] = 6
    np.testing.assert_array_equal(y.d[:, 0], [5, 6])
    np.testing.assert_allclose(z.d, np.tanh(A).sum(), rtol=1e-6, err_msg="z is what that forward says")
    z.backward()
    np.testing.assert_allclose(x.g, 1 / np.cosh(A) ** 2, rtol=1e-5, err_msg="and so is its gradient")
    np.testing.assert_array_equal(y.d[:, 0], [5, 6])
    z.forward()
    np.testing.assert_allclose(y.d, np.tanh(A), rtol=1e-6)
    (gx,) = nn.grad(z, x)
    gx.d[...] *= 2
    np.testing.assert_allclose(gx.d, 2 / np.cosh(A) ** 2, rtol=1e-5)
    y.g = 3
    y.g[0] += 1
    assert (y.g[1:] == 3).all() and (y.g[0] == 4).all()


def test_a_written_result_is_not_what_others_hold() -> None:
    x = leaf()
    y = F.tanh(x)
    z = F.exp(y)
    y.forward()
    held, view = y.data.array, y.data.view
    y.d[...] = 0
    np.testing.assert_allclose(held, np.tanh(A), rtol=1e-6)
    np.testing.assert_allclose(view, np.tanh(A), rtol=1e-6)
    np.testing.assert_allclose(z.d, np.exp(np.tanh(A)), rtol=1e-6)
    array = y.d
    y.forward()
    array[...] = 9
    np.testing.assert_allclose(y.d, np.tanh(A), rtol=1e-6, err_msg="that array is of a forward before")


def test_a_forward_fills_cells_that_somebody_holds() -> None:
    x = leaf()
    h = F.tanh(x)
    z = F.sum(F.exp(h))
    z.forward()
    cell, unlinked = h.data, h.get_unlinked_variable()
    cell.zero()
    z.forward()
    np.testing.assert_allclose(cell.data, np.tanh(A), rtol=1e-6)
    x.d = A + 1
    z.forward()
    x.d = 0
    z.backward()
    assert cell.is_deferred
    np.testing.assert_allclose(unlinked.d, np.tanh(A + 1), rtol=1e-6)
    cell.data[...] = 4
    assert (h.d == 4).all()
    z.forward()
    del h
    assert not cell.data.any(), "x is 0, and the cell outlives the Variable"


@pytest.mark.parametrize("run", ["forward", "together", "backward", "all", "hooks"])
def test_zeroed_results_come_back(run: str) -> None:
    x = leaf()
    h0, h1 = F.tanh(x), F.sigmoid(x)
    h0.forward()
    h1.forward()
    expected = h0.d.copy(), h1.d.copy()
    for h in (h0, h1):
        h.data.zero()
        assert not h.d.any()
    sink = F.sink(h0, h1, one_input_grad=True)
    if run == "forward":
        (h0 * h1).forward()
    elif run == "all":
        nn.forward_all([h0, h1])
    elif run == "hooks":
        sink.forward(function_pre_hook=lambda f: None)
    else:
        sink.forward()
    if run == "backward":
        sink.backward()
    for h, value in zip((h0, h1), expected, strict=True):
        np.testing.assert_allclose(h.d, value, rtol=1e-6)
        np.testing.assert_allclose(h.data.data, value, rtol=1e-6)


# ---------------------------------------------------------------- hooks and logging


def test_function_hooks_by_key() -> None:
    x = leaf()
    loss = F.sum(F.tanh(x))
    calls: list[tuple[str, str]] = []
    nn.set_function_pre_hook("k", lambda f: calls.append(("replaced", f.name)))
    nn.set_function_pre_hook("k", lambda f: calls.append(("pre", f.name)))
    nn.set_function_post_hook("k", lambda f: calls.append(("post", f.name)))
    nn.set_function_post_hook("none", None)
    try:
        loss.forward()
        assert calls == [("pre", "tanh"), ("post", "tanh"), ("pre", "sum"), ("post", "sum")]
        nn.unset_function_post_hook("k")
        calls.clear()
        loss.backward()
        assert calls == [("pre", "sum"), ("pre", "tanh")]
    finally:
        nn.unset_function_pre_hook("k")
        nn.unset_function_post_hook("k")
    calls.clear()
    loss.forward()
    loss.backward()
    assert not calls
    with pytest.raises(TypeError, match="function_pre_hook: expected a function of a Function, got 3"):
        nn.set_function_pre_hook("k", 3)
