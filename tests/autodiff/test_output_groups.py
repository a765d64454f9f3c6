"""Variables that belong together are computed together when one of them is read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F


def network(layers: int = 4) -> tuple[nn.Variable, list[nn.Variable], nn.Variable]:
    """An input, parameters, and a loss."""
    rng = np.random.default_rng(0)
    x = h = nn.Variable.from_numpy_array(rng.standard_normal((3, 5)))
    ws = [nn.Variable.from_numpy_array(rng.standard_normal((5, 5)), need_grad=True) for _ in range(layers)]
    for w in ws:
        h = F.tanh(F.affine(h, w))
    return x, ws, F.sum(h * h)


def expected(x: Any, ws: list[Any]) -> list[np.ndarray]:
    """The gradients by hand."""
    hs = [x]
    for w in ws:
        hs.append(np.tanh(hs[-1] @ w))
    g, found = 2 * hs[-1], []
    for w, before, after in list(zip(ws, hs[:-1], hs[1:], strict=True))[::-1]:
        g = g * (1 - after**2)
        found.append(before.T @ g)
        g = g @ w.T
    return found[::-1]


def compilations() -> int:
    return nn.executables.info().misses


@pytest.fixture(autouse=True)
def no_executables() -> None:
    nn.executables.clear()


def test_gradients_that_are_read_one_by_one_are_compiled_once() -> None:
    x, ws, loss = network()
    gradients = nn.grad(loss, ws)
    for gw, wanted in zip(gradients, expected(x.d, [w.d for w in ws]), strict=True):
        np.testing.assert_allclose(gw.d, wanted, rtol=1e-12)
    assert compilations() == 1


def test_forward_of_a_sink_is_that_of_its_inputs() -> None:
    x, ws, loss = network()
    gradients = nn.grad(loss, ws)
    F.sink(*gradients).forward()
    assert all(gw.is_computed for gw in gradients)
    before = [w.d.copy() for w in ws]
    for w in ws:
        w.d = np.zeros((5, 5))  # after the forward, so of no effect on its values
    for gw, wanted in zip(gradients, expected(x.d, before), strict=True):
        np.testing.assert_allclose(gw.d, wanted, rtol=1e-12)
    assert compilations() == 1


def test_what_is_read_after_a_forward_of_some_is_of_that_forward() -> None:
    x, ws, loss = network()
    gradients = nn.grad(loss, ws)
    nn.forward_all(gradients[:2])
    wanted = expected(x.d, [w.d for w in ws])
    np.testing.assert_allclose(gradients[0].d, wanted[0], rtol=1e-12)
    ws[-1].d = np.zeros((5, 5))
    np.testing.assert_allclose(gradients[1].d, wanted[1], rtol=1e-12)
    np.testing.assert_allclose(gradients[3].d, expected(x.d, [w.d for w in ws])[3], rtol=1e-12)


def test_members_are_computed_from_the_graph_as_it_has_become() -> None:
    x, a, c = (nn.Variable.from_numpy_array(np.arange(3.0) + i, need_grad=True) for i in range(3))
    h, k = x * 2, x * 5
    ga, gc, gd = nn.grad(F.sum(h * a + k * c * c + F.sin(a)), [a, c, x])
    del gd
    h.rewire_on(x * 3)
    np.testing.assert_allclose(gc.d, 10 * x.d * c.d)
    np.testing.assert_allclose(ga.d, 3 * x.d + np.cos(a.d))


def test_an_error_of_one_is_not_that_of_another() -> None:
    class Refuses(nn.nnabla.FunctionNode):
        numpy = True

        def forward(self, x: Any) -> Any:
            return x * 1.0

        def backward(self, indexes: Any, grad_outputs: Any) -> Any:
            return Fails()(grad_outputs[0])

    class Fails(nn.nnabla.FunctionNode):
        numpy = True

        def infer(self, x: Any) -> Any:
            return x

        def forward(self, x: Any) -> Any:
            raise ZeroDivisionError("on the host")

    a, b = (nn.Variable.from_numpy_array(np.arange(3.0), need_grad=True) for _ in range(2))
    ga, gb = nn.grad(F.sum(a * a) + F.sum(Refuses()(b)), [a, b])
    np.testing.assert_array_equal(ga.d, [0, 2, 4])
    with pytest.raises(Exception, match="on the host"):
        _ = gb.d
    np.testing.assert_array_equal(ga.d, [0, 2, 4])


def test_values_in_hooks_and_debug_mode_are_the_same() -> None:
    x, ws, loss = network()
    gradients = nn.grad(loss, ws)
    with nn.debug():
        values = [gw.d for gw in gradients]
    for value, wanted in zip(values, expected(x.d, [w.d for w in ws]), strict=True):
        np.testing.assert_allclose(value, wanted, rtol=1e-12)
