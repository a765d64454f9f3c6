"""How gradients of gradients grow, with each option of `nn.grad`; and what `nn.explain` says of it."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
from nngrad import hooks
from nngrad.extend import Variable, functions_of

GROWTH = [16, 24, 36, 49, 65, 82]
"""Functions of the gradients of `network` of orders 1 to 6."""


def network() -> tuple[Variable, Variable]:
    """Points on a line, and a network with three layers at each of them."""
    rng = np.random.default_rng(0)

    def leaf(*shape: int) -> Variable:
        return Variable.from_numpy_array(rng.standard_normal(shape), need_grad=True)

    x = h = leaf(5, 1)
    for before, after in ((1, 8), (8, 8), (8, 1)):
        h = F.affine(h if h is x else F.tanh(h), leaf(before, after), leaf(after))
    return x, h


def nested(y: Variable, x: Variable, orders: int, **options: Any) -> list[Variable]:
    """The gradients of orders 1 to `orders`, each taken with the same options."""
    results = []
    for _ in range(orders):
        (y,) = nn.grad(y, x, **options)
        results.append(y)
    return results


def sizes(gradients: list[Variable]) -> list[int]:
    return [len(functions_of([g])) for g in gradients]


# ---------------------------------------------------------------- growth


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"set_grad": True},
        {"retain_grad": True},
        {"stop_gradients": Variable((2,))},
    ],
    ids=lambda options: ",".join(options) or "none",
)
def test_options_leave_growth_as_it_is(options: dict[str, Any]) -> None:
    x, y = network()
    gradients = nested(y, x, 6, **options)
    assert sizes(gradients) == GROWTH
    x, y = network()
    for g, expected in zip(gradients, nested(y, x, 6), strict=True):
        np.testing.assert_allclose(g.d, expected.d, rtol=1e-13)  # in one tier or the other, from what was read before


def test_what_is_kept_is_the_gradient_at_every_order() -> None:
    x, y = network()
    (gx,) = nn.grad(y, x)
    on_the_way = [f.outputs[0] for f in functions_of([gx])]
    nn.grad(gx, x, retain_grad=True)
    kept = [v for v in on_the_way if v.grad_var is not None]
    assert len(kept) > 4
    for v in kept:
        np.testing.assert_allclose(v.g, nn.grad(gx, v)[0].d, rtol=1e-12, atol=1e-12)


def test_second_partial_derivatives_are_those_of_a_function_of_both() -> None:
    rng = np.random.default_rng(2)
    x, c = (Variable.from_numpy_array(rng.standard_normal((4, 3)), need_grad=True) for _ in range(2))
    w = Variable.from_numpy_array(rng.standard_normal((3, 3)), need_grad=True)

    def loss(x: Variable, h: Variable) -> Variable:
        result: Variable = F.sum(F.tanh(x @ w) * F.sin(h * x))
        return result

    h = F.tanh(x @ x.d.T) @ x
    (gx,) = nn.grad(loss(x, h), x, stop_gradients=[h])
    (ggx,) = nn.grad(gx, x, grad_outputs=[c], stop_gradients=[h])
    assert [o.mode for o in nn.explain(ggx).orders] == ["reverse", "symmetric"]
    fixed = Variable.from_numpy_array(h.d)
    (expected,) = nn.grad(nn.grad(loss(x, fixed), x)[0], x, grad_outputs=[c])
    np.testing.assert_allclose(ggx.d, expected.d, rtol=1e-10)
    (whole,) = nn.grad(gx, x, grad_outputs=[c])
    with nn.simplify(False):
        (plain,) = nn.grad(gx, x, grad_outputs=[c])
    np.testing.assert_allclose(whole.d, plain.d, rtol=1e-10)
    assert nn.explain(whole).orders[1][1:3] == (
        "reverse", "a gradient in it was taken with stop_gradients that are not given now"
    )


def test_stops_within_a_gradient_are_kept() -> None:
    x = Variable.from_numpy_array(np.array([[0.3, 0.7]]), need_grad=True)
    w = Variable.from_numpy_array(np.array([[1.0, 2.0], [3.0, 4.0]]), need_grad=True)
    h = F.tanh(x @ w)
    (gx,) = nn.grad(F.sum(h * h * F.sin(x)), x)
    (ggx,) = nn.grad(gx, x, stop_gradients=[h])
    with nn.simplify(False):
        (plain,) = nn.grad(gx, x, stop_gradients=[h])
    np.testing.assert_allclose(ggx.d, plain.d, rtol=1e-12, atol=1e-12)
    assert nn.explain(ggx).orders[1].reason == "stop_gradients are on the path of a gradient in it"


# ---------------------------------------------------------------- explain


def test_explain_counts_what_each_order_adds() -> None:
    x, y = network()
    gradients = nested(y, x, 6)
    explained = nn.explain(gradients[-1])
    assert [o.order for o in explained.orders] == [1, 2, 3, 4, 5, 6]
    assert {o.mode for o in explained.orders} == {"forward"}
    assert {o.reason for o in explained.orders} == {""}
    assert [o.functions for o in explained.orders] == [8, 7, 12, 13, 16, 19]
    assert [o.matrix_products for o in explained.orders] == [2, 1, 1, 1, 1, 2]
    assert explained.functions == nn.count(gradients[-1]).functions
    assert str(explained).splitlines()[:2] == [
        "order  mode     functions  products  because",
        "1      forward          8         2  -",
    ]


def watched(y: Variable, x: Variable) -> list[Variable]:
    with hooks.TimerHook():
        return nested(y, x, 2)


def unsimplified(y: Variable, x: Variable) -> list[Variable]:
    with nn.simplify(False):
        return nested(y, x, 2)


def debugged(y: Variable, x: Variable) -> list[Variable]:
    with nn.debug():
        return nested(y, x, 2)


def of_a_loss(y: Variable, x: Variable) -> list[Variable]:
    (gx,) = nn.grad(F.sum(y * y), x, grad_outputs=[F.sum(x)])
    return nn.grad(gx, x)


def of_parameters(y: Variable, x: Variable) -> list[Variable]:
    (gx,) = nn.grad(F.sum(y * y), x)
    parameters = [v for f in functions_of([y]) for v in f.inputs if v.parent is None and v is not x]
    return nn.grad(F.sum(gx * gx), parameters)


def cut(y: Variable, x: Variable) -> list[Variable]:
    h = y * 2.0
    h.need_grad = False
    return nested(y * h, x, 2)


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (watched, "hooks are in force"),
        (unsimplified, "simplification is off"),
        (debugged, "functions are watched as they run"),
        (lambda y, x: nested(F.sum(F.round(y) * y), x, 2), "the rule of round is not its derivative"),
        (of_a_loss, "the grad_outputs of a gradient in it depend on the inputs"),
        (of_parameters, "it contains a gradient with respect to other Variables"),
        (cut, "need_grad is False at an output of mul_scalar"),
    ],
)
def test_explain_says_what_the_obstacle_is(build: Callable[..., list[Variable]], reason: str) -> None:
    x, y = network()
    gradients = build(y, x)
    last = nn.explain(gradients).orders[-1]
    assert (last.order, last.mode, last.reason) == (2, "reverse", reason)


def test_explain_checks_what_it_is_given() -> None:
    x, y = network()
    with pytest.raises(ValueError, match=r"gradients\[1\] is not a result of nn.grad"):
        nn.explain([nn.grad(y, x)[0], y])
    with pytest.raises(TypeError, match=r"gradients\[0\]: expected a Variable"):
        nn.explain([1.0])  # type: ignore[list-item]


def test_a_last_gradient_holds_nothing_of_what_it_came_from() -> None:
    x, y = network()
    (gx,) = nn.grad(y, x)
    gone = weakref.ref(gx)
    (last,) = nn.grad(gx, x, enable_double_backprop=False)
    in_it = any(gx is v for f in functions_of([last]) for v in f.inputs)
    del gx
    assert (gone() is None) is not in_it
    assert [o.order for o in nn.explain(last).orders] == [1, 2]
