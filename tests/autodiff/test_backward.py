"""`nn.backward` and the options of `Variable.backward`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
from tests.leaves import vector
from tests.slow import slow_but_every

# ---------------------------------------------------------------- nn.backward


def test_gradients_of_several_outputs_are_given_or_taken_from_them_and_added_up() -> None:
    x, w = vector(0.5), vector(2.0)
    y, z = F.sin(x) * w, x * x
    nn.backward([y, z], [[1.0], [10.0]])
    assert x.g == pytest.approx(2 * np.cos(0.5) + 10.0)
    assert w.g == pytest.approx(np.sin(0.5))
    nn.backward([y, z], [1.0, 10.0])
    assert w.g == pytest.approx(2 * np.sin(0.5))  # accumulated
    x = vector(0.5)
    y, z = F.sin(x), x * x
    y.g, z.g = [3.0], [10.0]
    nn.backward([y, z])
    assert x.g == pytest.approx(3 * np.cos(0.5) + 10.0)


def test_an_output_without_a_gradient_counts_for_nothing_and_is_named() -> None:
    x = vector(0.5)
    y, z = F.sin(x), x * x
    y.g = [3.0]
    with pytest.warns(RuntimeWarning, match=r"outputs\[1\] has no gradient in its \.grad.*give grad_outputs") as caught:
        nn.backward([y, z])
    assert caught[0].filename == __file__
    assert x.g == pytest.approx(3 * np.cos(0.5))


def test_one_output_once_twice_on_the_way_to_another_and_none_at_all() -> None:
    x = vector(0.5)
    y = F.sin(x)
    nn.backward([y, y], [1.0, 2.0])
    assert x.g == pytest.approx(3 * np.cos(0.5))
    x = vector(0.5)
    nn.backward(F.sin(x), [None])
    assert x.g == pytest.approx(np.cos(0.5))
    nn.backward([], [])
    assert x.g == pytest.approx(np.cos(0.5))
    x = vector(0.5)
    h = F.sin(x)
    nn.backward([h * h, h], [1.0, 1.0])
    assert x.g == pytest.approx((2 * np.sin(0.5) + 1) * np.cos(0.5))


def test_each_output_is_differentiated_where_its_own_forward_was_if_it_needs_a_gradient() -> None:
    x = vector(1.0)
    y, z = x**2, x**3
    y.forward()
    x.d = [2.0]
    z.forward()
    x.d = [5.0]
    nn.backward([y, z], [1.0, 1.0])
    assert x.g == pytest.approx(2 * 1.0 + 3 * 4.0)
    x = vector(1.0)
    y, z = x**2, x**3
    z.need_grad = False
    nn.backward([y, z], [1.0, 1.0])
    assert x.g == pytest.approx(2.0)


def test_a_variable_whose_gradient_is_taken_and_holds_nothing_is_warned_of() -> None:
    x = vector(3.0)
    y = x * x
    with pytest.warns(UserWarning, match="grad=None starts from this Variable's .grad, which is not set"):
        y.backward(None)
    assert x.g == 0
    y.g = 2.0
    y.backward(None)
    assert x.g == 12


# ---------------------------------------------------------------- options


@pytest.mark.parametrize("route", ["backward", "Variable.backward", "hooked"])
def test_gradients_in_the_middle_are_kept_if_asked_for(route: str) -> None:
    x = vector(0.5)
    h = F.sin(x)
    y = h * h
    y.backward()
    with pytest.raises(RuntimeError, match=r"backward\(retain_grad=True\)"):
        _ = h.g
    x.cleargrad()
    if route == "backward":
        nn.backward([y], [1.0], retain_grad=True)
    else:
        hooks = {"function_pre_hook": lambda f: None} if route == "hooked" else {}
        y.backward(retain_grad=True, **hooks)
    assert h.g == pytest.approx(2 * np.sin(0.5))
    assert x.g == pytest.approx(2 * np.sin(0.5) * np.cos(0.5))
    y.backward(retain_grad=True)
    assert h.g == pytest.approx(2 * np.sin(0.5))  # of the last backward; leaves add up
    assert x.g == pytest.approx(4 * np.sin(0.5) * np.cos(0.5))


HOOKS: list[dict[str, Any]] = [{}, {"function_pre_hook": lambda f: None}]


@pytest.mark.parametrize("hooks", HOOKS, ids=["compiled", "op by op"])
def test_what_a_backward_has_passed_and_not_kept_cannot_be_read(hooks: dict[str, Any]) -> None:
    x = vector(0.5)
    h = F.sin(x)
    before = h.grad  # somebody has the cell
    k, beside, stopped = F.exp(h), h * 3.0, F.unlink(h * 2.0)
    y = k * k * stopped
    y.backward(**hooks)
    for read in (lambda: h.g, lambda: k.g, lambda: before.data, lambda: h.grad.view, lambda: k.grad.array,
                 lambda: x.data.copy_from(k.grad), lambda: k.backward(None)):
        with pytest.raises(RuntimeError, match=r"intermediate value; call backward\(retain_grad=True\)"):
            read()
    assert "not kept" in repr(k.grad) and h.grad_var is None
    stopped_from = stopped.parent.inputs[0]
    assert beside.g == stopped_from.g == y.g == 0, "no gradient has passed these"
    h.grad.zero()
    k.g = 7.0
    assert h.g == 0 and k.g == 7, "what is written since can be read"
    y.backward(retain_grad=True, **hooks)
    assert h.g == pytest.approx(2 * y.d)
    y.backward(**hooks)
    for v in (h, k):
        with pytest.raises(RuntimeError, match="did not keep"):  # not what was kept before, nor what was written
            _ = v.g


@pytest.mark.parametrize("hooks", HOOKS, ids=["compiled", "op by op"])
@pytest.mark.parametrize("read", ["each", "last"])
def test_persistent_variables_keep_their_gradient(hooks: dict[str, Any], read: str) -> None:
    """A loop as in virtual adversarial training: the gradient in the middle is the next direction."""
    noise, w = vector(0.3, -0.7), vector(0.5, 2.0)
    r = noise * 2.0
    r.persistent = True
    y = F.sum(F.sin(r) * w)
    expected = noise.d.copy()
    for step in range(5):
        r.grad.zero()
        y.forward(clear_no_need_grad=True)
        y.backward(clear_buffer=True, **hooks)
        gradient = np.cos(2 * expected) * w.d
        if read == "each" or step == 4:
            np.testing.assert_allclose(r.g, gradient, rtol=1e-14)
        noise.data.copy_from(r.grad)
        expected = gradient
    assert r.grad_var is None


@pytest.mark.parametrize("seed", slow_but_every(5, range(30)))
def test_gradients_in_the_middle_of_random_graphs(seed: int) -> None:
    """What is kept is what `nn.grad` gives, what is passed and not kept cannot be read, the rest are zeros."""
    rng = np.random.default_rng(seed)
    leaves = [vector(*rng.uniform(0.5, 1.5, 2)) for _ in range(3)]
    leaves[2].need_grad = False
    found = list(leaves)
    for _ in range(10):
        a, b = (found[i] for i in rng.integers(0, len(found), 2))
        found.append([lambda a, b: a * b, lambda a, b: a + F.sin(b), lambda a, b: F.tanh(a) - b,
                      lambda a, b: a * F.unlink(b)][rng.integers(0, 4)](a, b))
    middle, y = found[3:], found[-1] * leaves[0]
    for h in middle:
        h.persistent = bool(rng.integers(0, 2))
        if rng.integers(0, 6) == 0:
            h.need_grad = False
    expected = {id(h): nn.grad(y, h, unreachable="none")[0] for h in middle}
    for _ in range(3):
        y.forward()
        y.backward()
    for h in middle:
        gh = expected[id(h)]
        if gh is None or not h.need_grad:  # as nnabla, which asks need_grad alone, also above F.unlink
            np.testing.assert_array_equal(h.g, 0)
        elif h.persistent:
            np.testing.assert_allclose(h.g, gh.d, rtol=1e-12, atol=1e-14)
        else:
            with pytest.raises(RuntimeError, match="did not keep"):
                _ = h.g


@pytest.mark.parametrize("hooks", HOOKS, ids=["compiled", "op by op"])
def test_a_sink_that_gives_no_gradient_starts_from_those_that_are_set(hooks: dict[str, Any]) -> None:
    x, w, alone = vector(2.0), vector(3.0), vector(5.0)
    a, b = x * x, x * w
    inner = F.sink(b, one_input_grad=False)
    s = F.sink(a, inner, alone, F.greater(x, w), one_input_grad=False)
    for times in (1, 2):
        a.g, b.g, alone.g = 10.0, 100.0, 1000.0
        s.forward()
        s.backward(**hooks)
        assert x.g == times * (10 * 4 + 100 * 3) and w.g == times * 100 * 2
        assert (a.g, b.g, alone.g) == (10, 100, 1000), "they stay what they are"
    x.cleargrad()
    nn.backward([s], [1.0], enable_double_backprop=True)
    assert x.grad_var is not None and x.grad_var.d == x.g == 340


def test_a_sink_of_which_no_gradient_is_set_says_so() -> None:
    x = vector(2.0)
    with pytest.warns(UserWarning, match=r"F\.sink with one_input_grad=False starts from the \.grad"):
        F.sink(x * x, one_input_grad=False).backward()
    assert x.g == 0


@pytest.mark.parametrize("grad", [1, None, 3.0, [2.0, 5.0]])
def test_loss_scale_multiplies_the_gradient(grad: Any) -> None:
    def gradient(**options: Any) -> Any:
        x = vector(0.5, 1.0)
        y = F.tanh(x)
        if grad is None:
            y.g = [7.0, 8.0]
        y.backward(grad, **options)
        return x.g

    np.testing.assert_allclose(gradient(loss_scale=16.0), 16 * gradient(), rtol=1e-14)


def test_double_backprop_keeps_gradients_as_variables() -> None:
    x = vector(0.5)
    y = F.sin(x)
    y.backward()
    assert x.grad_var is None
    x.cleargrad()
    y.backward(enable_double_backprop=True)
    assert x.g == pytest.approx(np.cos(0.5))
    assert x.grad_var is not None
    np.testing.assert_array_equal(x.grad_var.d, x.g)
    (ggx,) = nn.grad(x.grad_var, x)
    assert ggx.d == pytest.approx(-np.sin(0.5))
    (y * y).backward(enable_double_backprop=True)
    np.testing.assert_allclose(x.grad_var.d, [x.g[0]])
    (ggx,) = nn.grad(x.grad_var, x)
    np.testing.assert_allclose(ggx.d, [-np.sin(0.5) + 2 * np.cos(1.0)])


def test_a_gradient_variable_that_is_set_is_kept() -> None:
    x, w = vector(2.0, 3.0), vector(1.0, 4.0)
    h = x * 2.0
    for v in (x, h):
        gradient = w * w
        v.grad_var = gradient
        assert v.grad_var is gradient
        np.testing.assert_array_equal(v.g, [1, 16])
        assert v.grad_var is gradient
    x.grad_var = w
    np.testing.assert_array_equal(x.g, w.d)
    x.grad_var = vector(0.0, 0.0)
    np.testing.assert_array_equal(x.g, 0)
    with pytest.raises(TypeError, match=r"grad_var: expected a Variable or None, got ndarray; set arrays through \.g"):
        x.grad_var = np.ones(2)
    with pytest.raises(ValueError, match=r"grad_var: the gradient must be float64\[2\], .*, got float64\[1\]"):
        x.grad_var = vector(1.0)


def test_a_gradient_penalty_through_backward() -> None:
    x, w = vector(0.5), vector(2.0)
    (F.sin(x * w)).backward(enable_double_backprop=True)
    assert x.grad_var is not None
    penalty = x.grad_var**2
    x.cleargrad()
    w.cleargrad()
    penalty.backward()
    s, c = np.sin(1.0), np.cos(1.0)
    assert w.g == pytest.approx(2 * c * 2 * (c - 2 * 0.5 * s))
