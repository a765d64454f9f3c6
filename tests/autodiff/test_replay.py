"""Graphs that are built again: gradients that are instantiated are what would have been emitted."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nngrad as nn
import nngrad.functions as F
from nngrad import hooks
from nngrad.autodiff import known_gradients
from nngrad.autodiff import request as request_module
from nngrad.autodiff.request import derivation_of
from nngrad.graph import Function, Variable, functions_of
from nngrad.graph import traverse as graph_traverse
from tests.autodiff.test_properties import SETTINGS, Recipe, follow, recipes
from tests.samples import Sample, all_samples

Built = tuple[list[Variable], list[Variable]]
"""Leaves and gradients."""


@pytest.fixture(autouse=True)
def nothing_known() -> Iterator[None]:
    """Nothing is known from other tests, nor they from these."""
    nn.executables.clear()
    yield
    known_gradients._known.resize(1024, 64 << 20)
    nn.executables.clear()


def replays() -> int:
    """How many requests were answered by what is known."""
    return known_gradients._known.info().hits


def described(leaves: Sequence[Variable], results: Sequence[Variable]) -> list[Any]:
    """All that there is to a graph, in terms that do not depend on which one it is."""
    functions = functions_of(results)
    numbers: dict[Any, int] = {f: i for i, f in enumerate(functions)}
    by_serial = {f: i for i, f in enumerate(sorted(functions, key=lambda f: f.serial))}
    places = {id(x): i for i, x in enumerate(leaves)}

    def of(x: Variable | None) -> Any:
        if x is None:
            return None
        return (places.get(id(x), "a leaf"), x.spec) if x.parent is None else (numbers.get(x.parent), x.index)

    def of_function(f: Function) -> Any:
        call = f.call if f.origin in numbers else None
        emitted_by = None if call is None else (numbers[call.function], call.context, list(map(of, call.grad_outputs)))
        outputs = [(y.name, y.persistent, y._need_grad, of_result(y)) for y in f.outputs]
        effects = [(of(x), i) for x, i in f.effects]
        plain = f.op.name, repr(f.arguments), f.specs, f.rank, f.order, f.context, by_serial[f], f.mark
        return *plain, list(map(of, f.inputs)), effects, emitted_by, outputs

    def of_result(y: Variable) -> Any:
        known = derivation_of(y)
        if known is None or known.derivation is None:
            return known
        d = known.derivation
        parts = d.outputs, d.inputs, d.seeds, d.stop_gradients, [ref() for ref in d.results]
        return of(known.input), known.mode, known.order, [list(map(of, each)) for each in parts]

    group = [y._group is not None and y._group is results[0]._group for y in results]
    return [*map(of_function, functions), *map(of, results), *group]


def check_replay(build: Callable[[], Built], requests: int, values: bool = True) -> list[Variable]:
    """Build a graph three times; the third time all of its `requests` are to be replayed. Returns the last results."""
    first, second = build(), build()
    before = replays()  # none, unless one of them is like another
    third = build()
    assert replays() - before == requests
    expected = described(*first)
    assert described(*second) == expected
    assert described(*third) == expected
    for y, z in zip(first[1], third[1], strict=True) if values else ():
        np.testing.assert_array_equal(y.d, z.d)
    return third[1]


def leaf(*shape: int, seed: int = 0, dtype: Any = "f") -> Variable:
    array = np.random.default_rng(seed).uniform(0.5, 1, shape).astype(dtype)
    return Variable.from_numpy_array(array, need_grad=True)


# ---------------------------------------------------------------- the same graph

DIFFERENTIABLE = [s for s in all_samples() if s.orders and not s.surrogate]
FIRST = {s.name: s for s in reversed(DIFFERENTIABLE)}
"""One sample of each op."""


@pytest.mark.parametrize("sample", [
    pytest.param(s, id=s.id, marks=() if s is FIRST[s.name] else pytest.mark.slow) for s in DIFFERENTIABLE
])
def test_every_op_is_replayed_as_it_is_emitted(sample: Sample) -> None:
    rng = np.random.default_rng(7)
    arrays = [draw(rng) for draw in sample.inputs]
    orders = min(sample.orders, 3)

    def build() -> Built:
        leaves = [Variable.from_numpy_array(a) for a in arrays]
        inputs = [x for x in leaves if x.spec.differentiable]
        out = getattr(F, sample.name)(*leaves, **sample.arguments)
        outputs = [y for y in (out if isinstance(out, tuple | list) else [out]) if y.spec.differentiable]
        total = F.add_n(*[F.sum(F.tanh(y * y) + y) for y in outputs])
        results: list[Variable] = []
        for _ in range(orders):
            gradients = nn.grad(total, inputs)
            results += gradients
            total = F.add_n(*[F.sum(F.sin(g) * g) for g in gradients])
        return leaves, results

    check_replay(build, 0 if sample.name in USERS_CODE else orders, values=False)


USERS_CODE = {"jax_function"}
"""Functions that run what the user gives them: what is emitted for them may depend on more than the structure."""


# ---------------------------------------------------------------- what decides


def requests() -> dict[str, Callable[[], Built]]:
    """Requests of all kinds, by what they are about."""

    def build(ask: Callable[[Variable, Variable, Variable, Variable], list[Variable]]) -> Callable[[], Built]:
        def built() -> Built:
            x, w = leaf(4, 3), leaf(3, 5, seed=1)
            h = F.tanh(x @ w)
            return [x, w], ask(x, w, h, F.sum(F.sin(h) * h))

        return built

    def seeded(x: Variable, w: Variable, h: Variable, y: Variable) -> list[Variable]:
        return nn.grad([h, y], [x, h], grad_outputs=[2.0, F.sum(w)], grad_inputs=[None, h * h], loss_scale=4.0)

    def kept(x: Variable, w: Variable, h: Variable, y: Variable) -> list[Variable]:
        found = nn.grad(y, [x, w], retain_grad=True)
        return [*found, *[each.grad_var for each in (h, y) if each.grad_var is not None]]

    def at_its_input(x: Variable, w: Variable, h: Variable, y: Variable) -> list[Variable]:
        nn.grad(y, x, set_grad=True)
        return [] if x.grad_var is None else [x.grad_var]

    def twice(**options: Any) -> Callable[[Variable, Variable, Variable, Variable], list[Variable]]:
        def ask(x: Variable, w: Variable, h: Variable, y: Variable) -> list[Variable]:
            (gx,) = nn.grad(y, x, **options)
            return [gx, *nn.grad(F.sum(gx * gx) + y, [x, w])]

        return ask

    def stopped(x: Variable, w: Variable, h: Variable, y: Variable) -> list[Variable]:
        (gx,) = nn.grad(y, x, stop_gradients=h)
        return [gx, *nn.grad(F.sum(gx) + y, [x, h], stop_gradients=h)]

    def unlinked(x: Variable, w: Variable, h: Variable, y: Variable) -> list[Variable]:
        return nn.grad(y, [w.get_unlinked_variable(), x, leaf(2, seed=5)])

    def some_gone(x: Variable, w: Variable, h: Variable, y: Variable) -> list[Variable]:
        g = nn.grad(y, [x, w])[0]
        return nn.grad(F.sum(g**3), x)

    def shared(x: Variable, w: Variable, h: Variable, y: Variable) -> list[Variable]:
        return nn.grad(y * F.sum(F.cos(h)) + F.sum(h), [x, x, h])

    return {
        "plain": build(twice()),
        "seeds": build(seeded),
        "kept": build(kept),
        "set_grad": build(at_its_input),
        "bound": build(lambda x, w, h, y: nn.grad(y, [x, w], bind_grad_output=True)),
        "no double backprop": build(twice(enable_double_backprop=False)),
        "stops": build(stopped),
        "unlinked": build(unlinked),
        "a result that is gone": build(some_gone),
        "shared": build(shared),
        "in the middle": build(lambda x, w, h, y: nn.grad(y, [h, x])),
        "unreachable": build(lambda x, w, h, y: nn.grad(y, [x, leaf(2)], unreachable="none")[:1]),
    }


@pytest.mark.parametrize("name", requests())
def test_requests_of_every_kind(name: str) -> None:
    build = requests()[name]
    calls = 2 if name in ("plain", "no double backprop", "stops", "a result that is gone") else 1
    results = check_replay(build, calls)
    if name == "plain":
        assert "symmetric" not in str(nn.explain(results[:1]))
        assert str(nn.explain(results)) == str(nn.explain(build()[1]))


def test_structures_that_differ_get_graphs_of_their_own() -> None:
    builds = list(requests().values())
    expected = [described(*build()) for build in builds]
    for _ in range(3):
        assert [described(*build()) for build in builds] == expected
    assert len({repr(each) for each in expected}) == len(expected)


@pytest.mark.parametrize("change", ["need_grad", "context", "simplify", "without", "order", "dtype", "number"])
def test_what_a_gradient_depends_on_is_part_of_the_structure(change: str) -> None:
    def build(changed: bool) -> Built:
        x, w = leaf(3, 3), leaf(3, 3, seed=1, dtype="d" if changed and change == "dtype" else "f")
        h = F.tanh(x * x * x) @ (F.tanh(w) if change != "order" or not changed else nn.grad(F.sum(F.sin(w)), w)[0])
        y = F.sum(F.exp(h) * (3.0 if changed and change == "number" else 2.0))
        if changed and change == "need_grad":
            h.need_grad = False
        if changed and change == "context":
            with nn.context_scope(nn.Context("cpu")):
                return [x, w], nn.grad(y, [x, w])
        if changed and change in ("simplify", "without"):
            with nn.simplify(False) if change == "simplify" else nn.simplify(without=["monomials"]):
                return [x, w], nn.grad(y, [x, w])
        return [x, w], nn.grad(y, [x, w])

    plain, changed = described(*build(False)), described(*build(True))
    assert plain != changed
    for _ in range(3):
        assert described(*build(False)) == plain
        assert described(*build(True)) == changed


@SETTINGS
@given(recipe=recipes(), after=st.sampled_from(["", "sum", "product"]))
def test_random_graphs(recipe: Recipe, after: str) -> None:
    if any(name == "two outputs" for name, _ in recipe.steps):
        return

    def build() -> Built:
        leaves = [leaf(*shape, seed=i) for i, shape in enumerate(recipe.shapes)]
        outputs = follow(recipe, leaves, ours=True)
        gradients = nn.grad(outputs, leaves)
        total = F.add_n(*[F.sum(g * g) if after == "product" else F.sum(g) for g in gradients])
        if after:
            total = total + F.sum(outputs[0])
        return leaves, [*gradients, *nn.grad(F.sum(F.tanh(total)), leaves)]

    expected = described(*build())
    for _ in range(2):
        assert described(*build()) == expected


# ---------------------------------------------------------------- what is emitted each time


class Doubled(nn.CustomFunction):
    """2 x, by code of the user's."""

    def forward(self, x: Any) -> Any:
        return x * 2

    def backward(self, f: nn.Function, gy: Variable) -> Any:
        return gy * 2


def wave(x: Variable, between: Callable[[Variable], Variable] = F.tanh, **options: Any) -> list[Variable]:
    return nn.grad(F.sum(F.sin(between(F.exp(x))) * x), x, **options)


def summed(gradients: list[Variable]) -> Variable:
    total: Variable = F.add_n(*gradients)
    return total


@pytest.mark.parametrize(
    "ask",
    [
        pytest.param(lambda x: wave(x, Doubled()), id="a function of the user's"),
        pytest.param(lambda x: wave(x, F.jax_function(lambda a: a * a)), id="jax_function"),
        pytest.param(lambda x: wave(x, aggregate=summed), id="aggregate"),
        pytest.param(lambda x: wave(x, recompute="sqrt"), id="recompute"),
    ],
)
def test_code_of_the_users_and_recomputation_are_met_each_time(ask: Callable[[Variable], list[Variable]]) -> None:
    for _ in range(4):
        ask(leaf(3))
    assert replays() == 0
    assert known_gradients._known.info().size == 0


def test_what_watches_and_what_is_marked_is_emitted_each_time() -> None:
    for _ in range(3):
        wave(leaf(3))
    assert replays() == 1
    with hooks.TimerHook():
        wave(leaf(3))
    with nn.debug():
        wave(leaf(3))
    with nn.no_grad():
        assert wave(leaf(3))[0].need_grad is False
    with nn.recompute():
        wave(leaf(3))
    assert replays() == 1


# ---------------------------------------------------------------- values, memory, threads


def test_what_is_known_holds_nothing_of_the_graph() -> None:
    def build() -> list[weakref.ref[Any]]:
        x = leaf(3)
        (gx,) = wave(x)
        (ggx,) = nn.grad(F.sum(gx * gx), x)
        return [weakref.ref(each) for each in (x, gx, ggx, gx.parent, *functions_of([ggx]))]

    gc.disable()
    try:
        for expected in (0, 0, 2):
            graph = build()
            assert replays() == expected
            assert not any([ref() for ref in graph])
    finally:
        gc.enable()


def test_what_is_known_is_bounded() -> None:
    known_gradients._known.resize(capacity=3)
    for _ in range(2):
        for n in range(1, 7):
            wave(leaf(n))
    info = known_gradients._known.info()
    assert info.size == 3
    assert 0 < info.nbytes < info.size * 40_000
    known_gradients._known.resize(most_bytes=info.nbytes // 2)
    assert known_gradients._known.info().size == 1


def test_gradients_of_long_graphs_are_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_gradients, "MOST_ASKED", 9)
    for _ in range(3):
        wave(leaf(3))  # five functions, and more in the gradient
    assert known_gradients._known.info().size == 0
    monkeypatch.setattr(known_gradients, "MOST_ASKED", 4)
    for _ in range(3):
        wave(leaf(4))
    assert known_gradients._known.info().size == 0
    monkeypatch.setattr(known_gradients, "MOST_ASKED", 30)
    for _ in range(3):
        wave(leaf(5))
    assert known_gradients._known.info().size == 1


def test_functions_that_run_as_they_are_made() -> None:
    with nn.auto_forward():
        for _ in range(4):
            x = leaf(3)
            (gx,) = wave(x)
            assert gx.is_computed
            np.testing.assert_allclose(gx.d, wave(leaf(3))[0].d)
    assert replays() == 6


def test_a_number_that_changes_is_emitted_anew_and_not_remembered() -> None:
    for k in range(5):
        x = leaf(3)
        y = F.sum(F.sin(F.exp(x)) * (1.0 + k))
        (gx,) = nn.grad(y, x)
        np.testing.assert_allclose(gx.d, (1 + k) * np.cos(np.exp(x.d)) * np.exp(x.d), rtol=1e-5)
    assert known_gradients._known.info().size == 0


def test_threads_replay_at_the_same_time() -> None:
    expected = described(*requests()["plain"]())

    def work(_: int) -> list[Any]:
        build = requests()["plain"]
        return [described(*build()) for _ in range(10)]

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(work, range(4))) == [[expected] * 10] * 4
    assert replays() >= 40


def test_noise_and_running_statistics() -> None:
    losses, statistics = [], []
    for replaying in (False, True):
        nn.seed(7)
        mean, variance = [Variable.from_numpy_array(np.full((1, 3), n, "f")) for n in (0, 1)]
        scale, shift = leaf(1, 3, seed=2), leaf(1, 3, seed=3)
        for _ in range(5):
            if not replaying:
                known_gradients._seen.clear()
            x = leaf(8, 3)
            h = F.batch_normalization(x, shift, scale, mean, variance)
            y = F.sum(F.dropout(F.exp(h), 0.5))
            (gx,) = nn.grad(y, x)
            total = y + F.sum(gx * gx)
            total.forward()
            losses.append(float(total))
            assert gx.d.any()
        statistics.append((mean.d.copy(), variance.d.copy()))
        assert (replays() > 0) is replaying
    assert losses[:5] == losses[5:]
    assert len(set(losses[:5])) == 5  # each step has noise of its own
    for before, after in zip(*statistics, strict=True):
        np.testing.assert_array_equal(before, after)


def test_a_gradient_is_that_of_the_forward_that_covers_it() -> None:
    for _ in range(4):
        x = leaf(3)
        before = x.d.copy()
        (gx,) = wave(x)
        y = F.sum(gx)
        y.forward()
        x.d = np.zeros(3)
        expected = leaf(3)
        np.testing.assert_array_equal(gx.d, wave(expected)[0].d)
        np.testing.assert_array_equal(expected.d, before)


def test_a_hook_on_a_function_sees_a_gradient_that_was_replayed() -> None:
    seen: list[str] = []
    for _ in range(4):
        x = leaf(3)
        h = F.exp(x)
        (gx,) = nn.grad(F.sum(F.sin(F.tanh(h)) * x), x)

        class Seen(nn.FunctionHook):
            def backward_preprocess(self, f: Any, inputs: Any, grad_outputs: Any) -> None:
                seen.append(f.op.name)

        assert h.parent is not None
        h.parent.add_hook(Seen())
        gx.forward()
        gx.d  # noqa: B018
        h.parent.delete_hook(next(iter(h.parent.hooks)))
    assert replays() == 2
    assert seen == ["exp"] * 4


def test_where_functions_are_applied_is_noted_however_they_are_made() -> None:
    def places(remembered: bool) -> list[bool]:
        x = leaf(3)
        y = F.sum(F.sin(F.tanh(F.exp(x))) * x)
        if not remembered:
            return [hasattr(f, "location") for f in functions_of(nn.grad(y, x))]
        with nn.source_locations():
            return [hasattr(f, "location") for f in functions_of(nn.grad(y, x))]

    expected = places(True)
    assert any(expected)
    for _ in range(3):
        assert not any(places(False))
    before = replays()
    assert places(True) == expected
    assert replays() == before + 1


def test_hooks_see_the_same_calls_of_rules_however_a_gradient_was_built() -> None:
    """A gradient that was built before a hook watched has the functions of each call, without what arrived there."""

    class Seen(nn.FunctionHook):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[Any] = []

        def backward_preprocess(self, function: Function, in_data: Any, out_grad: Any) -> None:
            self.seen.append((function.name, function.rank, [np.asarray(a) for a in in_data], out_grad))

    def build() -> tuple[Variable, list[Variable]]:
        x = y = leaf(2, 3)
        for _ in range(4):
            y = F.tanh(y * 1.01)
        return y, nn.grad(nn.grad(y, x), x)

    seen = []
    for _, gradients in [build() for _ in range(3)]:
        with Seen() as hook:
            nn.forward_all(gradients)
        seen.append(hook.seen)
    assert len(seen[0]) == 4
    for other in seen[1:]:
        for (*call, arrays, out_grad), (*same_call, same, same_grad) in zip(seen[0], other, strict=True):
            assert call == same_call and out_grad == same_grad == (None,)
            for a, b in zip(arrays, same, strict=True):
                np.testing.assert_array_equal(a, b)


def test_a_gradient_at_an_intermediate_value_walks_only_what_lies_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    x = leaf(3)
    for _ in range(50):
        x = F.sin(x) * 1.01
    walked = []
    walk = graph_traverse.functions_of
    for module in (sys.modules["nngrad.autodiff.grad"], request_module, known_gradients):
        monkeypatch.setattr(module, "functions_of", lambda *a, **k: walked.append(found := walk(*a, **k)) or found)
    for _ in range(3):
        (g,) = nn.grad(F.sum(F.exp(x) * x * F.tanh(x)), [x])
    assert max(map(len, walked)) < 20
    v = x.d
    np.testing.assert_allclose(
        g.d, np.exp(v) * (v * np.tanh(v) + np.tanh(v) + v / np.cosh(v) ** 2), rtol=1e-5
    )
    assert replays() == 1


def test_calls_of_what_was_made_again_hold_no_more_than_they_did() -> None:
    def build() -> tuple[weakref.ref[Function], list[Variable]]:
        x = leaf(2, 3)
        y = F.tanh(F.sin(x) * 1.01)
        return weakref.ref(F.sum(y).parent), nn.grad(F.sum(y), x)

    build(), build()
    gc.disable()
    try:
        above, (gx,) = build()
        f = gx.parent
        assert [g.origin and g.origin.name for g in functions_of([gx]) if g.order]
        assert above() is None
        ref = weakref.ref(f)
        del f, gx
        assert ref() is None
    finally:
        gc.enable()
