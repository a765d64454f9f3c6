"""Gradients through loops whose steps take gradients: against reverse mode through the written-out steps, and JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nngrad as nn
import nngrad.functions as F
from nngrad.functions.bodies.loop import Loop
from nngrad.graph import Variable, functions_of
from tests.autodiff.test_properties import SETTINGS, Recipe, draw_leaves, follow, recipes
from tests.slow import slow_but

RNG = np.random.default_rng(0)
STEPS, BATCH, SIZE = 3, 5, 4
X, T = RNG.standard_normal((BATCH, SIZE)), RNG.standard_normal((BATCH, 2))
W0, W1 = RNG.standard_normal((SIZE, 3)) / 2, RNG.standard_normal((3, 2)) / 2


def leaf(values: Any) -> Variable:
    return Variable.from_numpy_array(np.asarray(values, np.float64), need_grad=True)


class Hyper(NamedTuple):
    """What the outer gradient is with respect to."""

    rate: Variable
    momentum: Variable
    decay: Variable
    weights: Variable
    w0: Variable
    w1: Variable


def hyper() -> Hyper:
    weights = np.linspace(0.5, 1.5, BATCH)
    return Hyper(*map(leaf, (0.1, 0.8, np.full((SIZE, 3), 0.02), weights, W0, W1)))


def errors(ws: Any, act: Callable[[Variable], Variable] = F.tanh) -> Variable:
    """The squared error of each sample."""
    return F.sum((act(leaf(X) @ ws[0]) @ ws[1] - leaf(T)) ** 2, axis=1)


def train_loss(h: Hyper, ws: Any, act: Callable[[Variable], Variable] = F.tanh) -> Variable:
    return F.mean(h.weights * errors(ws, act)) + F.sum(h.decay * ws[0] ** 2)


Step = Callable[[Hyper, Any], Any]
"""The carry after a step: weights, and as many buffers."""


def momentum(h: Hyper, carry: Any) -> Any:
    """Gradient descent with momentum."""
    ws, ms = carry
    ms = [h.momentum * m + g for m, g in zip(ms, nn.grad(train_loss(h, ws), ws), strict=True)]
    return [w - h.rate * m for w, m in zip(ws, ms, strict=True)], ms


def second_moments(h: Hyper, carry: Any) -> Any:
    """A solver that reads the square of the gradient."""
    ws, vs = carry
    gs = nn.grad(train_loss(h, ws), ws)
    vs = [h.momentum * v + (1 - h.momentum) * g * g for v, g in zip(vs, gs, strict=True)]
    return [w - h.rate * g / F.sqrt(v + 0.1) for w, g, v in zip(ws, gs, vs, strict=True)], vs


def descent(loss: Callable[[Hyper, Any], Any], **options: Any) -> Step:
    """Plain gradient descent on a loss; the buffers are the last gradients."""

    def step(h: Hyper, carry: Any) -> Any:
        ws, _ = carry
        given = {k: v(h) if callable(v) else v for k, v in options.items()}
        gs = nn.grad(loss(h, ws), ws, **given)
        return [w - h.rate * g for w, g in zip(ws, gs, strict=True)], gs

    return step


def twice(h: Hyper, carry: Any) -> Any:
    """Two steps in one, the second from a value within."""
    return momentum(h, descent(train_loss)(h, carry))


def masked(h: Hyper, carry: Any) -> Any:
    """The gradient with respect to a value within, and not to the carry."""
    ws, ms = carry
    inner = [F.sin(w) * 2.0 for w in ws]
    gs = nn.grad(train_loss(h, inner), inner)
    return [w - h.rate * g for w, g in zip(ws, gs, strict=True)], ms


def of_dependent(h: Hyper, carry: Any) -> Any:
    """Gradients with respect to two values of which one is computed from the other."""
    ws, ms = carry
    more = F.tanh(ws[0])
    gs = nn.grad(train_loss(h, [ws[0] * more, ws[1]]), [ws[0], more])
    return [ws[0] - h.rate * (gs[0] + gs[1] ** 2), ws[1]], ms


def of_outside(h: Hyper, carry: Any) -> Any:
    """A gradient with respect to what is outside, through what was computed from it there."""
    ws, ms = carry
    (g,) = nn.grad(train_loss(h, [ws[0] + OUTSIDE["more"], ws[1] + OUTSIDE["x"]]), OUTSIDE["x"])
    return [ws[0], ws[1] - h.rate * g], ms


def curvature(h: Hyper, carry: Any) -> Any:
    """A gradient of a gradient within."""
    ws, _ = carry
    gs = nn.grad(train_loss(h, ws), ws)
    hs = nn.grad(sum([F.sum(g * g) for g in gs]), ws)
    return [w - h.rate * (g + 0.1 * b) for w, g, b in zip(ws, gs, hs, strict=True)], gs


def shared(h: Hyper, carry: Any) -> Any:
    """What the gradient goes through has a part in the result by other ways, too."""
    ws, ms = carry
    loss = train_loss(h, ws)
    gs = nn.grad(loss, ws)
    ms = [m + g * g for m, g in zip(ms, gs, strict=True)]
    return [w - h.rate * g * loss for w, g in zip(ws, gs, strict=True)], ms


def need_grad_false(h: Hyper, ws: Any) -> Variable:
    error = errors(ws)
    error.need_grad = False
    return F.mean(error * errors(ws)) + train_loss(h, ws)


OUTSIDE: dict[str, Variable] = {}


class Surrogate(nn.CustomFunction):
    """A product, with gradients that are those of no function: their derivatives do not commute."""

    exact = False

    def forward(self, x: Any, y: Any) -> Any:
        return x * y

    def backward(self, f: nn.Function, gz: Variable) -> Any:
        x, y = f.inputs
        return gz * y * y, gz * x


STEPS_IN_GOOD_FORM: dict[str, Step] = {
    "momentum": momentum,
    "second moments": second_moments,
    "relu": descent(lambda h, ws: train_loss(h, ws, F.relu)),
    "two losses": descent(lambda h, ws: [train_loss(h, ws), F.sum(h.weights * errors(ws) ** 2)]),
    "numbers as seeds": descent(lambda h, ws: errors(ws), grad_outputs=0.3),
    "unlink": descent(lambda h, ws: F.mean(F.unlink(errors(ws)) * errors(ws)) + train_loss(h, ws)),
    "two steps in one": twice,
    "a value within": masked,
    "gradient of a gradient": curvature,
    "loss and gradient": shared,
}
OTHER_STEPS: dict[str, Step] = {
    "seed that is learned": descent(lambda h, ws: errors(ws), grad_outputs=lambda h: h.weights),
    "seed that depends": descent(lambda h, ws: errors(ws), grad_outputs=lambda h: F.exp(h.weights)),
    "no double backprop": descent(train_loss, enable_double_backprop=False),
    "need_grad False": descent(need_grad_false),
    "surrogate": descent(lambda h, ws: train_loss(h, ws, lambda x: Surrogate()(x, F.sin(2 * x)))),
    "straight through": descent(lambda h, ws: train_loss(h, ws, lambda x: F.sin(F.round(x * 3)))),
    "dependent": of_dependent,
    "outside": of_outside,
}


def outer_loss(step: Step, h: Hyper, written_out: bool, recompute: Any = None, **options: Any) -> Variable:
    """What the weights are worth after all steps, and the buffers."""
    OUTSIDE["x"] = h.w1 * 0.5
    OUTSIDE["more"] = F.sum(OUTSIDE["x"] ** 2)
    carry: Any = [h.w0, h.w1], [h.w0 * 0.1, h.w1 * 0.0]
    if written_out:
        for _ in range(STEPS):
            carry = step(h, carry)
    else:
        carry, _ = F.scan(lambda c, _: (step(h, c), None), carry, length=STEPS, **options)
    ws, ms = carry
    return F.mean(errors(ws) ** 2) + sum([F.sum(F.sin(m)) for m in ms])


def hypergradients(step: Step, written_out: bool, order: int = 1, **options: Any) -> list[Variable]:
    h = hyper()
    loss = outer_loss(step, h, written_out, **options)
    gs = nn.grad(loss, list(h))
    for _ in range(order - 1):
        gs = nn.grad(sum([F.sum(g * g) for g in gs]), list(h))
    return gs


def keeps_carries_alone(gs: list[Variable]) -> bool:
    """Whether all that gradients read of each step of the loop of training is what is carried, before or after it."""
    functions = functions_of(gs)
    (f, *_) = [f for f in functions if f.name == "scan_of_body"]
    loop = Loop(*f.arguments)
    read = {x.index for g in functions for x in g.inputs if x.parent is f and x.index >= loop.carries}
    carried = {*loop.body.outputs[: loop.carries], *range(len(loop.body.inputs))}
    return all([loop.stacked[i - loop.carries] in carried for i in read])


def agree(found: list[Variable], expected: list[Variable]) -> None:
    nn.forward_all([*found, *expected])
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a.d, b.d, rtol=1e-9, atol=1e-11)


QUICK = {"second moments", "a value within", "seed that is learned"}


@pytest.mark.parametrize("name", slow_but(QUICK, [*STEPS_IN_GOOD_FORM, *OTHER_STEPS]))
def test_as_reverse_mode_through_all_steps(name: str) -> None:
    step = {**STEPS_IN_GOOD_FORM, **OTHER_STEPS}[name]
    found = hypergradients(step, False)
    with nn.simplify(False):  # a carry that is written out depends on what is outside
        expected = hypergradients(step, name != "outside")
    agree(found, expected)
    assert keeps_carries_alone(found) == (name in STEPS_IN_GOOD_FORM)


@pytest.mark.slow
@settings(SETTINGS, max_examples=20)
@given(recipes(), st.integers(0, 2))
def test_random_losses(recipe: Recipe, moving: int) -> None:
    """A random function, trained by a step from any of its leaves, that the others are learned with."""
    arrays, moving = draw_leaves(recipe), moving % len(recipe.shapes)

    def gradients() -> list[Variable]:
        leaves = [leaf(a) for a in arrays]

        def step(x: Variable, _: None) -> tuple[Variable, None]:
            values = [x if i == moving else F.sin(z) for i, z in enumerate(leaves)]
            (g,) = nn.grad(follow(recipe, values, ours=True), x)
            return x - 0.1 * g, None

        x, _ = F.scan(step, leaves[moving], length=2)
        return nn.grad(F.sum(x**2), leaves)

    with nn.simplify(False):
        expected = gradients()
    agree(gradients(), expected)
