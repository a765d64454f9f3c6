"""Graphs that are built again: gradients that are instantiated are what would have been emitted."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
from nngrad.autodiff import known_gradients
from nngrad.autodiff.request import derivation_of
from nngrad.graph import Function, Variable, functions_of

Built = tuple[list[Variable], list[Variable]]
"""Leaves and gradients."""


@pytest.fixture(autouse=True)
def nothing_known() -> Iterator[None]:
    """Nothing is known from other tests, nor they from these."""
    nn.executables.clear()
    yield
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
        return nn.grad([h, y], [x, h], grad_outputs=[2.0, F.sum(w)], loss_scale=4.0)

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

    def decomposed(x: Variable, w: Variable, h: Variable, y: Variable) -> list[Variable]:
        _, singular, _ = F.batch_svd(F.reshape(h, (1, 4, 5)))
        return nn.grad(F.sum(singular**3), x)

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
        "read by a rule alone": build(decomposed),
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


# ---------------------------------------------------------------- what is emitted each time


def wave(x: Variable, between: Callable[[Variable], Variable] = F.tanh, **options: Any) -> list[Variable]:
    return nn.grad(F.sum(F.sin(between(F.exp(x))) * x), x, **options)


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


def test_how_many_objects_the_collector_visits() -> None:
    """Four for a function: itself, its inputs, its output and the reference to that; two for each call of a rule."""

    def build() -> tuple[list[Variable], int]:
        h = x = leaf(3)
        for _ in range(100):
            h = F.sin(F.exp(h))
        y = F.sum(h)
        before = len(gc.get_objects())
        return nn.grad(y, x), len(gc.get_objects()) - before

    gc.disable()
    try:
        for _ in range(4):  # the third time what is known is prepared
            results, visited = build()
    finally:
        gc.enable()
    functions = [f for f in functions_of(results) if f.order]
    calls = {id(f.call): f.call for f in functions if f.call is not None}
    assert visited <= 4 * len(functions) + 2 * len(calls) + 20


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
