"""Gradients of gradients that come again are what they were."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nngrad as nn
import nngrad.functions as F
from nngrad.graph import Variable
from tests.autodiff.test_properties import SETTINGS, Recipe, follow, recipes
from tests.autodiff.test_replay import Built, described, leaf
from tests.slow import slow_but_every

TIMES = 4
"""From the third time on a question is answered by what is known."""


@pytest.fixture(autouse=True)
def nothing_known() -> Iterator[None]:
    """Nothing is known from other tests, nor they from these; all executables are of one tier."""
    nn.executables.clear()
    with nn.deterministic():
        yield
    nn.executables.clear()


def emitted(build: Callable[[], Built]) -> list[Any]:
    """What is built where nothing is known, and its values."""
    nn.executables.clear()
    built = build()
    nn.executables.clear()
    return [described(*built), [y.d.tobytes() for y in built[1]]]


def seen(build: Callable[[], Built]) -> list[Any]:
    """What is built, and its values."""
    built = build()
    return [described(*built), [y.d.tobytes() for y in built[1]]]


# ---------------------------------------------------------------- the same graphs


@SETTINGS
@given(recipe=recipes(), kind=st.sampled_from(["sum", "product", "with the output", "third order", "one alone"]))
def test_random_graphs(recipe: Recipe, kind: str) -> None:
    def build() -> Built:
        leaves = [leaf(*shape, seed=i) for i, shape in enumerate(recipe.shapes)]
        outputs = follow(recipe, leaves, ours=True)
        gradients = nn.grad(outputs, leaves)
        if kind == "one alone":
            gradients = gradients[:1]
        total = F.add_n(*[F.sum(g) if kind == "sum" else F.sum(g * g) for g in gradients])
        if kind == "with the output":
            total = total + F.sum(outputs[0] * outputs[0])
        seconds = nn.grad(F.sum(F.tanh(total)), leaves)
        if kind == "third order":
            seconds += nn.grad(F.add_n(*[F.sum(g * h) for g, h in zip(seconds, gradients, strict=True)]), leaves)
        return leaves, [*gradients, *seconds]

    expected = emitted(build)
    for _ in range(TIMES):
        assert seen(build) == expected


def two_gradients(
    change: Callable[[Variable, Variable, Variable, Variable], Any] = lambda *_: None, **options: Any
) -> Built:
    """A gradient, a `change` of x, of what is in the middle, of the output or of the gradient, and another gradient of
    what is built on the first."""
    x, w = leaf(4, 3), leaf(3, 3, seed=1)
    h = F.tanh(x @ w)
    y = F.sum(F.sin(h) * h)
    (gx,) = nn.grad(y, x)
    change(x, h, y, gx)
    given = {name: each(x, h) if callable(each) else each for name, each in options.items()}
    return [x, w], [gx, *nn.grad(F.sum(gx * gx) + F.sum(h), [x, w], **given)]


def set_need_grad(variable: Variable, value: bool) -> None:
    variable.need_grad = value


HELD: list[Any] = []


def rewired(gx: Variable, other: Variable) -> None:
    """Let what a gradient is computed from be another, while what it was computed from lives on."""
    x = gx.parent.inputs[0]
    HELD[:] = [x.parent]
    x.rewire_on(other)


def set_recompute(variable: Variable) -> None:
    variable.recompute = True


CHANGES: dict[str, Callable[[], Built]] = {
    "a stop in the middle": lambda: two_gradients(lambda x, h, y, gx: set_need_grad(h, False)),
    "a stop at the gradient": lambda: two_gradients(lambda x, h, y, gx: set_need_grad(gx, False)),
    "a stop that is asked for": lambda: two_gradients(stop_gradients=lambda x, h: [h]),
    "a leaf that needs none": lambda: two_gradients(lambda x, h, y, gx: set_need_grad(x, False)),
    "a leaf that gets a function": lambda: two_gradients(lambda x, h, y, gx: x.rewire_on(F.sin(leaf(4, 3, seed=3)))),
    "another function in the middle": lambda: two_gradients(lambda x, h, y, gx: h.rewire_on(F.exp(leaf(4, 3, seed=3)))),
    "another function at the end": lambda: two_gradients(lambda x, h, y, gx: y.rewire_on(F.sum(F.exp(x)))),
    "a leaf in the middle": lambda: two_gradients(lambda x, h, y, gx: h.rewire_on(leaf(4, 3, seed=3))),
    "another function in the gradient": lambda: two_gradients(lambda x, h, y, gx: rewired(gx, F.exp(F.sin(h)))),
    "a leaf in the gradient": lambda: two_gradients(lambda x, h, y, gx: rewired(gx, leaf(4, 3, seed=3))),
    "another gradient": lambda: two_gradients(lambda x, h, y, gx: gx.rewire_on(F.exp(x * 2))),
    "no links": lambda: two_gradients(lambda x, h, y, gx: h.clear_all_graph_links()),
    "a mark": lambda: two_gradients(lambda x, h, y, gx: set_recompute(h)),
    "kept gradients": lambda: two_gradients(set_grad=True),
    "gradients at the outputs": lambda: two_gradients(grad_outputs=lambda x, h: 2.0),
    "gradients that end": lambda: two_gradients(enable_double_backprop=False),
    "no simplification": nn.simplify(False)(two_gradients),
}


@pytest.mark.parametrize("name", slow_but_every(3, CHANGES))
def test_what_changes_between_two_gradients_is_seen(name: str) -> None:
    changed = emitted(CHANGES[name])
    plain = emitted(two_gradients)
    assert changed != plain or name in ("a leaf that needs none", "another function at the end", "kept gradients")
    for _ in range(TIMES):
        assert seen(two_gradients) == plain
    for _ in range(TIMES):
        assert seen(CHANGES[name]) == changed
        assert seen(two_gradients) == plain
