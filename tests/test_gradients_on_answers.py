"""Gradients of gradients that come again: what is closed in one step is answered as what is gone through."""

from __future__ import annotations

import gc
import math
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nngrad as nn
import nngrad.functions as F
from nngrad.autodiff import known_gradients
from nngrad.graph import Function, Variable, functions_of
from nngrad.graph.closing import Closing
from tests.faults.moments import INTERRUPTED, Interrupts
from tests.test_properties import SETTINGS, Recipe, follow, recipes
from tests.test_replay import Built, described, leaf

grad_module = sys.modules["nngrad.autodiff.grad"]
TIMES = 6
"""The third time the full form of a question is answered, and from the fourth on the shorter one; a time later what is
built on that."""


@pytest.fixture(autouse=True)
def nothing_known() -> Iterator[None]:
    """Nothing is known from other tests, nor they from these."""
    nn.executables.clear()
    yield
    nn.executables.clear()


def emitted(build: Callable[[], Built]) -> list[Any]:
    """What is built where nothing is known, and nothing is answered in one step; and its values."""
    nn.executables.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grad_module, "question_on_answer", lambda *_: None)
        built = build()
    nn.executables.clear()
    return [described(*built), [y.d.tobytes() for y in built[1]]]


def seen(build: Callable[[], Built]) -> list[Any]:
    """What is built, and its values."""
    built = build()
    return [described(*built), [y.d.tobytes() for y in built[1]]]


class Counted:
    """How many requests are asked in their shorter form, and how many of these are answered."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.asked = self.answered = 0
        ask, find = known_gradients.question_on_answer, known_gradients.known_answer

        def counted_question(*args: Any) -> Any:
            question = ask(*args)
            self.asked += question is not None
            return question

        def counted_answer(question: Any, shorter: Any = None) -> Any:
            answer = find(question, shorter)
            self.answered += answer is not None and question.key[0] is not None
            return answer

        patch.setattr(grad_module, "question_on_answer", counted_question)
        patch.setattr(grad_module, "known_answer", counted_answer)


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(monkeypatch)


# ---------------------------------------------------------------- the same graphs


def test_what_is_built_on_an_answer_is_closed_in_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    write = Closing.write

    def counted(self: Closing, functions: list[Function]) -> None:
        written.append(len(functions))
        write(self, functions)

    def orders() -> list[Variable]:
        x = leaf(3)
        h = x
        for _ in range(20):
            h = F.sin(h * 1.01)
        results = [F.sum(h)]
        for _ in range(3):
            monkeypatch.setattr(Closing, "write", counted)
            written.clear()
            results += nn.grad(F.sum(results[-1] * results[-1]), x)
            monkeypatch.setattr(Closing, "write", write)
            sizes.append(sum(written))
        return results

    for _ in range(TIMES):
        sizes: list[int] = []
        orders()
    first, *later = sizes
    assert first > 40
    assert max(later) <= 4


@pytest.mark.parametrize("dtype", ["d", "f"])
def test_orders_of_a_polynomial(dtype: str, count: Counted) -> None:
    """Of x^7, which needs no library to be differentiated."""
    for _ in range(TIMES):
        x = leaf(5, dtype=dtype)
        g = F.tanh(x) * 0 + x * x * x * x * x * x * x
        for order in range(1, 4):
            (g,) = nn.grad(F.sum(g), x)
            expected = math.perm(7, order) * x.d.astype("d") ** (7 - order)
            np.testing.assert_allclose(g.d, expected, rtol=1e-12 if dtype == "d" else 1e-5)
    assert count.answered == (TIMES - 3) + (TIMES - 4)


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
    "gradients at the inputs": lambda: two_gradients(grad_inputs=lambda x, h: [1.0, 2.0]),
    "gradients that end": lambda: two_gradients(enable_double_backprop=False),
    "no simplification": nn.simplify(False)(two_gradients),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_changes_between_two_gradients_is_seen(name: str, count: Counted) -> None:
    changed = emitted(CHANGES[name])
    plain = emitted(two_gradients)
    assert changed != plain or name in ("a leaf that needs none", "another function at the end", "kept gradients")
    for _ in range(TIMES):
        assert seen(two_gradients) == plain
    assert count.answered > 0
    for _ in range(TIMES):
        assert seen(CHANGES[name]) == changed
        assert seen(two_gradients) == plain


def test_the_first_gradient_may_be_of_another_graph() -> None:
    """The same functions are built on gradients of two graphs, or on one gradient and a leaf."""

    def build(kind: str) -> Built:
        x = leaf(3, 6)
        h = {"tanh": F.tanh, "sin": F.sin, "leaf": F.tanh}[kind](F.sin(x) * 1.5)
        (gx,) = nn.grad(F.sum(h * h * h), x)
        total = F.sum(gx * gx)
        if kind == "leaf":
            total = F.sum(gx * leaf(3, 6, seed=2))
        return [x], [gx, *nn.grad(total, x)]

    kinds = ["tanh", "sin", "leaf"]
    expected = {kind: emitted(lambda kind=kind: build(kind)) for kind in kinds}
    for _ in range(TIMES):
        for kind in kinds:
            assert seen(lambda kind=kind: build(kind)) == expected[kind]


@pytest.mark.parametrize("kind", ["none", "gone", "revived", "another"])
def test_outputs_that_are_gone(kind: str) -> None:
    def build() -> Built:
        x = leaf(2, 6)
        first, second = F.split(F.sin(x * 1.5), 1)[:2]
        f = first.parent
        if kind != "none":
            del second
        (gx,) = nn.grad(F.sum(F.tanh(first) * first * first), x)
        total = F.sum(gx * gx)
        if kind == "revived":
            total = total + F.sum(f.outputs[1] * first)
        if kind == "another":
            total = total + F.sum(F.split(F.sin(x * 1.5), 1)[1] * first)
        return [x], [gx, *nn.grad(total, x)]

    expected = emitted(build)
    for _ in range(TIMES):
        assert seen(build) == expected


def test_a_result_that_is_gone_is_asked_about_in_full(count: Counted) -> None:
    def build(kept: bool) -> Built:
        x, w = leaf(3, 3), leaf(3, 3, seed=1)
        y = F.sum(F.tanh(x @ w) * x)
        gx, gw = nn.grad(y, [x, w])
        if not kept:
            del gw
        return [x, w], [gx, *nn.grad(F.sum(gx * gx), [x, w])]

    expected = [emitted(lambda: build(True)), emitted(lambda: build(False))]
    for _ in range(TIMES):
        assert [seen(lambda: build(True)), seen(lambda: build(False))] == expected
    assert count.answered == TIMES - 3


def test_laplacians_come_again_and_their_questions_hold_nothing() -> None:
    def build() -> tuple[Built, list[weakref.ref[Any]]]:
        x, w = leaf(4, 3), leaf(3, 3, seed=1)
        y = F.sum(F.tanh(x @ w), axis=1, keepdims=True)
        lap = nn.laplacian(y, x)
        results = nn.grad(F.sum(lap * lap), [x, w])
        return ([x, w], results), [weakref.ref(each) for each in (x, w, y, lap, *results, *functions_of(results))]

    gc.disable()
    try:
        hits = []
        for _ in range(TIMES):
            built, graph = build()
            hits.append(known_gradients._known.info().hits)
            expected = described(*built)
            del built
            assert not any([ref() for ref in graph])
        assert hits[-1] > hits[0]
        assert described(*build()[0]) == expected
    finally:
        gc.enable()


# ---------------------------------------------------------------- memory, threads, interrupts


def test_what_is_known_of_an_answer_keeps_nothing_alive(count: Counted) -> None:
    def build() -> tuple[Variable, dict[str, weakref.ref[Any]]]:
        x, w = leaf(3, 5), leaf(3, 5, seed=1)
        h, unread = F.tanh(x * w), F.exp(x)
        gx, gw = nn.grad(F.sum(F.sin(h) * h), [x, w])
        (ggx,) = nn.grad(F.sum(gx * gx), x)
        gone = {"unread": unread, "gradient": gw, "second": ggx, "its function": ggx.parent}
        return gx, {name: weakref.ref(each) for name, each in gone.items()}

    gc.disable()
    try:
        for _ in range(TIMES):
            gx, gone = build()
            assert [name for name, ref in gone.items() if ref() is not None] == []
            above = [weakref.ref(each) for each in (gx, *functions_of([gx]))]
            del gx
            assert not any([ref() for ref in above])
    finally:
        gc.enable()
    assert count.answered == TIMES - 3


def test_an_interrupt_in_the_middle_leaves_all_as_it_was() -> None:
    expected = emitted(two_gradients)
    for _ in range(TIMES):
        two_gradients()
    moment, step = 1, 97  # a prime: it meets all parts of what is done
    for _ in range(1000):
        interrupts = Interrupts(moment)
        try:
            with interrupts:
                two_gradients()
        except INTERRUPTED:
            pass
        if not interrupts.where:
            break
        if moment % 5 == 0:
            assert seen(two_gradients) == expected
        moment += step
    assert moment > 10 * step
    assert seen(two_gradients) == expected
