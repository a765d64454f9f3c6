"""nnabla's positional hooks, its names in the registry, cells that are shared; and Chainer's names on Variables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
import nngrad.solvers as S


def leaf(*shape: int) -> nn.Variable:
    return nn.Variable.from_numpy_array(np.ones(shape, np.float32), need_grad=True)


def test_hooks_by_position() -> None:
    x = leaf(2)
    loss = F.sum(F.sin(x))
    seen: list[str] = []
    hooks = (lambda f: seen.append(f"before {f.name}"), lambda f: seen.append(f"after {f.name}"))
    wanted = ["before sin", "after sin", "before sum", "after sum"]
    loss.forward(False, False, *hooks)
    assert seen == wanted
    seen.clear()
    nn.forward_all([loss], False, False, *hooks)
    assert seen == wanted
    seen.clear()
    loss.backward(1, False, None, *hooks)
    assert seen == ["before cos", "after cos"]
    np.testing.assert_allclose(x.g, np.cos(x.d), rtol=1e-6)
    with pytest.raises(TypeError, match="multiple values for argument 'function_pre_hook'"):
        loss.forward(False, False, hooks[0], function_pre_hook=hooks[0])
    with pytest.raises(TypeError, match="from 1 to 6 positional arguments but 7 were given"):
        loss.backward(1, False, None, *hooks, 3)


def test_hooks_of_solvers() -> None:
    x, seen = leaf(2), []
    solver = S.Sgd(lr=1.0)
    solver.set_parameters({"x": x})
    x.g = [3.0, 4.0]
    hooks = (lambda: seen.append("before"), lambda: seen.append("after"))
    for act in (
        lambda: solver.weight_decay(0.0, *hooks), lambda: solver.clip_grad_by_norm(5.0, *hooks),
        lambda: solver.scale_grad(2.0, *hooks), lambda: solver.update(*hooks),
        lambda: solver.check_inf_grad(*hooks), lambda: solver.check_nan_grad(*hooks),
        lambda: solver.check_inf_or_nan_grad(*hooks),
    ):
        seen.clear()
        act()
        assert seen == ["before", "after"]
    np.testing.assert_allclose(x.d, [-5.0, -7.0])
    solver.clip_grad_by_norm(clip_norm=1.0)
    np.testing.assert_allclose(x.g, [0.6, 0.8], rtol=1e-6)


def truncated(share: Any) -> list[float]:
    """Losses of an LSTM over three windows of four steps, whose state goes on by `share`."""
    nn.clear_parameters()
    batch, steps, sizes, states = 2, 4, 3, 5

    def numbers(shape: Any) -> np.ndarray[Any, Any]:
        return np.random.RandomState(sum(shape)).randn(*shape).astype(np.float32) * np.float32(0.3)

    x, t = nn.Variable((batch, steps, sizes)), nn.Variable((batch, steps, states))
    h0, c0 = nn.Variable((batch, states)), nn.Variable((batch, states))
    h0.d, c0.d = 0, 0
    h, c, loss = h0, c0, 0.0
    for i in range(steps):
        with nn.parameter_scope("lstm"):
            h, c = PF.lstm_cell(x[:, i], h, c, states, w_init=numbers, b_init=numbers)
        loss = loss + F.mean(F.squared_error(h, t[:, i]))
    solver = S.Adam(0.05)
    solver.set_parameters(nn.get_parameters())
    losses = []
    for window in range(3):
        x.d = np.random.RandomState(window).randn(batch, steps, sizes)
        t.d = np.random.RandomState(9 + window).randn(batch, steps, states)
        loss.forward()
        solver.zero_grad()
        loss.backward()
        solver.update()
        losses.append(float(loss.d))
        share(h0, h)
        share(c0, c)
    return losses


def test_states_that_go_on_as_in_nnabla() -> None:
    """The figures are nnabla 1.36's with `h0.d = h.d`. With `h0.data = h.data` a forward of nnabla's overwrites what
    its backward reads then, so that its third loss is 3.6962; here a backward has the values of its forward."""
    figures = [4.244062423706055, 4.093393325805664, 3.6935393810272217]

    def copied(state: nn.Variable, new: nn.Variable) -> None:
        state.d = new.d

    def shared(state: nn.Variable, new: nn.Variable) -> None:
        state.data = new.data
        assert state.data is new.data

    np.testing.assert_allclose(truncated(copied), figures, rtol=5e-6)
    np.testing.assert_allclose(truncated(shared), figures, rtol=5e-6)


# ---------------------------------------------------------------- Chainer


@pytest.mark.parametrize("backward", [False, True])
def test_unchain(backward: bool) -> None:
    x = leaf(2)
    y = F.exp(x)
    z = 3 * y
    loss = F.sum(z * z)
    (z.unchain_backward if backward else z.unchain)()
    assert z.creator is None and (y.creator is None) is backward and loss.creator is not None
    np.testing.assert_allclose(z.d, 3 * np.exp([1, 1]), rtol=1e-6)
    x.d = 0
    loss.forward()
    loss.backward()
    np.testing.assert_allclose(loss.d, 18 * np.exp(2.0), rtol=1e-6)
    assert not x.g.any()
    np.testing.assert_allclose(z.g, 2 * z.d)
    x.unchain()  # a leaf stays one


def test_addgrad() -> None:
    x, y = leaf(2), leaf(2)
    x.addgrad(y)
    assert not x.g.any()
    y.g = [1, 2]
    x.addgrad(y)
    x.addgrad(y)
    np.testing.assert_array_equal(x.g, [2, 4])
    x.cleargrad()
    y.cleargrad()
    nn.backward(F.sum(y**3), 1, enable_double_backprop=True)
    x.addgrad(y)
    x.addgrad(y)
    np.testing.assert_allclose(x.g, [6, 6])
    (gg,) = nn.grad([F.sum(x.grad_var)], [y])
    np.testing.assert_allclose(gg.d, [12, 12])
    with pytest.raises(ValueError, match=r"addgrad: the gradient must be float32\[2\], .*, got float32\[3\]"):
        x.addgrad(leaf(3))
    with pytest.raises(TypeError, match="addgrad: expected a Variable, got int"):
        x.addgrad(3)


def test_chainer_backward_warns_of_outputs_without_a_gradient() -> None:
    y = F.exp(leaf(2))
    with pytest.warns(RuntimeWarning):
        nn.backward([y])
