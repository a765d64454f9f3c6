"""The options of `nn.grad`, each by itself and in a gradient of a gradient."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nngrad as nn
import nngrad.functions as F
from nngrad.graph import Variable


def leaf(*values: float, **kwargs: Any) -> Variable:
    return Variable.from_numpy_array(np.array(values, np.float64), need_grad=True, **kwargs)


# ---------------------------------------------------------------- set_grad, retain_grad


def test_set_grad_keeps_the_gradients_at_the_inputs() -> None:
    x, w = leaf(1.0, 2.0), leaf(3.0, 4.0)
    h = x * w
    assert x.grad_var is None
    gx, gw = nn.grad(F.sum(h**2), [x, w], set_grad=True)
    assert x.grad_var is gx and w.grad_var is gw and h.grad_var is None
    np.testing.assert_array_equal(x.g, 2 * x.d * w.d**2)
    np.testing.assert_array_equal(gx.d, x.g)


def test_cleargrad_forgets_value_and_graph() -> None:
    x = leaf(2.0)
    (gx,) = nn.grad(F.exp(x), x, set_grad=True)
    assert gx.parent is not None
    alive = weakref.ref(gx.parent)
    del gx
    gc.collect()
    assert alive() is not None
    x.cleargrad()
    assert x.grad_var is None
    assert x.g == pytest.approx(0.0)
    gc.collect()
    assert alive() is None
    x.cleargrad()


def test_retain_grad_keeps_every_gradient_on_the_way() -> None:
    x, other = leaf(0.5), leaf(2.0)
    h = F.sin(x)
    k = other * 2.0
    y = h * h * k
    (gx,) = nn.grad(y, x, retain_grad=True)
    s = np.sin(0.5)
    assert x.grad_var is gx
    assert y.g == pytest.approx(1.0)
    assert h.g == pytest.approx(2 * s * 4)
    assert x.g == pytest.approx(8 * s * np.cos(0.5))
    assert k.grad_var is None and other.grad_var is None  # not on a way to x
    for v in (x, h, y):
        assert v.grad_var is not None
        np.testing.assert_array_equal(v.grad_var.d, v.g)


# ---------------------------------------------------------------- loss_scale


def test_small_gradients_in_float16_survive_with_a_loss_scale() -> None:
    x = Variable.from_numpy_array(np.array([1.0], np.float16), need_grad=True)
    y = F.sin(x * 0.0001) * 0.0001
    (gone,) = nn.grad(y, x)
    (gx,) = nn.grad(y, x, loss_scale=2.0**14)
    assert gx.d.astype(np.float64) / 2**14 == pytest.approx(1e-8, rel=5e-3)
    assert gone.d == 0.0


# ---------------------------------------------------------------- enable_double_backprop


def test_without_double_backprop_results_are_constants_for_a_further_gradient() -> None:
    x = leaf(0.5)
    y = F.sin(x)
    (gx,) = nn.grad(y, x, enable_double_backprop=False)
    assert gx.d == pytest.approx(np.cos(0.5))
    (zero,) = nn.grad(gx, x)
    assert zero.d == pytest.approx(0.0)
    (ggx,) = nn.grad(gx * y, x)
    assert ggx.d == pytest.approx(np.cos(0.5) ** 2)  # not -sin^2 + cos^2


# ---------------------------------------------------------------- unreachable


def test_unreachable_inputs() -> None:
    x, other = leaf(1.0), leaf(1.0, 2.0)
    y = x * 2.0
    gx, zeros = nn.grad(y, [x, other])
    np.testing.assert_array_equal(zeros.d, [0, 0])
    gx, nothing = nn.grad(y, [x, other], unreachable="none")
    assert nothing is None
    assert gx.d == pytest.approx(2.0)
    with pytest.raises(ValueError, match=r"inputs\[1\]: the outputs do not depend on them, or gradients cannot reach"):
        nn.grad(y, [x, other], unreachable="raise")
    assert nn.grad(y, [x], unreachable="raise")[0].d == pytest.approx(2.0)
    with pytest.raises(ValueError, match="unreachable: expected 'zero' or 'none' or 'raise', got 'zeros'"):
        nn.grad(y, x, unreachable="zeros")


def blocked(x: Variable) -> Variable:
    h = F.sin(x)
    h.need_grad = False
    return h * 2.0


@pytest.mark.parametrize(
    "cut",
    [
        blocked,
        lambda x: F.greater_scalar(x, val=0.0) * 2.0,
        lambda x: F.cast(F.cast(x, dtype="int32"), dtype="float64"),
    ],
    ids=["need_grad", "comparison", "integers"],
)
def test_what_is_cut_off_is_unreachable(cut: Any) -> None:
    x = leaf(1.0)
    assert nn.grad(cut(x), x, unreachable="none") == [None]
    with pytest.raises(ValueError, match=r"inputs\[0\]"):
        nn.grad(cut(F.exp(x)), x, unreachable="raise")


@pytest.mark.parametrize("zero", [lambda x: x * 0.0, lambda x: F.tanh(x) * 0.0, lambda x: x - x])
def test_a_gradient_of_zero_has_reached(zero: Any) -> None:
    x = leaf(1.0)
    (gx,) = nn.grad(zero(x), x, unreachable="raise")
    assert gx.d == pytest.approx(0.0)


# ---------------------------------------------------------------- stop_gradients


def test_stop_gradients_as_in_tensorflow() -> None:
    a = Variable.from_numpy_array(np.float64(0))
    b = 2.0 * a
    total = nn.grad(a + b, [a, b])
    assert [float(g.d) for g in total] == [3.0, 1.0]
    partial = nn.grad(a + b, [a, b], stop_gradients=[a, b])
    assert [float(g.d) for g in partial] == [1.0, 1.0]


# ---------------------------------------------------------------- all together, and eagerly


@settings(max_examples=10, deadline=None)
@given(
    stop=st.booleans(), scale=st.sampled_from([None, 8.0, "variable"]), retain=st.booleans(), double=st.booleans(),
    simplify=st.booleans(), eager=st.booleans(),
)
def test_any_options_together_to_order_2(
    stop: bool, scale: Any, retain: bool, double: bool, simplify: bool, eager: bool
) -> None:
    point, weights = np.array([0.3, -0.8, 1.1]), np.array([[1.0, 0.5, -1.0], [0.2, 2.0, 0.7], [-0.4, 0.1, 0.9]])
    factor = 8.0 if scale else 1.0
    with nn.simplify(simplify), nn.auto_forward(eager):
        x = leaf(*point)
        h = F.tanh(F.sum(F.reshape(x, (1, 3)) * weights, axis=1))
        y = F.sum(h * h * F.sin(x) + F.exp(x))
        (g,) = nn.grad(
            y, x, loss_scale=leaf(8.0)[0] if scale == "variable" else scale, stop_gradients=[h] if stop else (),
            retain_grad=retain, enable_double_backprop=double,
        )
        (gg,) = nn.grad(F.sum(g * g), x)

    def first(z: Any) -> Any:
        def total(z: Any, h: Any) -> Any:
            return jnp.sum(h * h * jnp.sin(z) + jnp.exp(z))

        hidden = jnp.tanh(weights @ z)
        of_z = jax.grad(total)(z, hidden) if stop else jax.grad(lambda z: total(z, jnp.tanh(weights @ z)))(z)
        return factor * of_z

    with jax.enable_x64(True):
        np.testing.assert_allclose(g.d, first(point), rtol=1e-12)
        second = jax.grad(lambda z: jnp.sum(first(z) ** 2))(point)
        np.testing.assert_allclose(gg.d, second if double else np.zeros(3), rtol=1e-11)
    assert (x.grad_var is not None) == retain
    if retain:
        np.testing.assert_array_equal(x.g, g.d)


def test_a_sum_of_many_runs_by_itself_without_being_compiled() -> None:
    from nngrad.execution.interpret import single_ops

    xs = [leaf(float(i), 1.0) for i in range(150)]
    with nn.auto_forward():
        np.testing.assert_array_equal(F.add_n(*xs).d, [150 * 149 / 2, 150])
    assert single_ops.find((F.add_n, (), None, True, False, None)) is not None
