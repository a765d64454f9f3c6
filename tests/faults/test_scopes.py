"""Scopes and switches hold in one thread and one asyncio task, as long as they should; and so does the collector."""

from __future__ import annotations

import asyncio
import gc
import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
from nngrad.graph.options import build_options

State = tuple[Any, ...]


def leaf() -> nn.Variable:
    return nn.Variable.from_numpy_array(np.array([0.5, 2.0]), need_grad=True)


def state() -> State:
    """What is in force, as far as what is built shows it."""
    x = leaf()
    y, again = F.tanh(x), F.tanh(x)
    f = y.parent
    return (
        again.parent is f,
        y.need_grad,
        f.mark is not None,
        hasattr(f, "location"),
        f.context,
        build_options().watched,
        nn.get_auto_forward(),
        nn.count(nn.grad([x * 2.0 * 3.0], [x])).functions,
        id(nn.get_current_parameter_scope()),
    )


def hook() -> nn.FunctionHook:
    """A hook that does nothing, with a name of its own."""
    made = nn.FunctionHook()
    made.name = f"hook {next(numbers)}"
    return made


numbers = itertools.count()

SCOPES: dict[str, Callable[[], Any]] = {
    "no_grad": nn.no_grad,
    "auto_forward": nn.auto_forward,
    "context_scope": lambda: nn.context_scope(nn.Context("cpu")),
    "simplify": lambda: nn.simplify(False),
    "recompute": nn.recompute,
    "debug": nn.debug,
    "hook": hook,
    "parameter_scope": lambda: nn.parameter_scope("one"),
}
each_scope = pytest.mark.parametrize("scope", SCOPES.values(), ids=list(SCOPES))


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    before = state()
    yield
    assert state() == before
    assert gc.isenabled()
    nn.clear_parameters()


# ---------------------------------------------------------------- tasks


async def passing_on(steps: list[str], order: list[str], step: str) -> None:
    """Wait until it is the turn of `step`, and let the next one have its turn."""
    while order[len(steps)] != step:
        await asyncio.sleep(0)
    steps.append(step)


@each_scope
@pytest.mark.parametrize("order", ["abAB", "abBA", "aAbB"])
def test_tasks_do_not_see_the_scopes_of_others(scope: Callable[[], Any], order: str) -> None:
    """Small letters enter, capital ones leave, and an onlooker looks after each step."""
    plain = state()
    with scope():
        within = state()
    assert within != plain
    steps: list[str] = []
    sequence = [s for letter in order for s in (letter, letter + "?")] + ["end"]

    async def one(name: str) -> None:
        await passing_on(steps, sequence, name)
        with scope():
            assert state() == within
            await passing_on(steps, sequence, name.upper())
            assert state() == within
        assert state() == plain

    async def onlooker() -> None:
        for letter in order:
            await passing_on(steps, sequence, letter + "?")
            assert state() == plain

    async def main() -> None:
        await asyncio.wait_for(asyncio.gather(one("a"), one("b"), onlooker()), 30)
        assert state() == plain

    asyncio.run(main())


def test_a_task_takes_over_what_is_in_force_where_it_is_made() -> None:
    async def made_within() -> State:
        return state()

    async def main() -> tuple[State, State]:
        with nn.no_grad():
            task = asyncio.create_task(made_within())
            within = state()
        return await task, within

    seen, within = asyncio.run(main())
    assert seen == within


def test_what_is_set_from_now_on_is_set_in_one_task() -> None:
    async def setting() -> bool:
        nn.set_auto_forward(True)
        nn.set_default_context(nn.Context("cpu"))
        await asyncio.sleep(0)
        return nn.get_auto_forward()

    async def main() -> None:
        plain = state()
        assert await asyncio.create_task(setting())
        assert state() == plain

    asyncio.run(main())


def test_parameters_are_made_in_the_scope_of_their_task() -> None:
    x = nn.Variable((1, 2))

    async def model(name: str) -> None:
        with nn.parameter_scope(name):
            for i in range(3):
                PF.affine(x, 2, name=f"layer{i}")
                await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(*[model(name) for name in ("a", "b", "c")])

    asyncio.run(main())
    assert sorted(nn.get_parameters()) == sorted(
        [f"{name}/layer{i}/affine/{p}" for name in "abc" for i in range(3) for p in ("W", "b")]
    )


def test_a_parametric_function_that_fails_takes_out_its_own_parameters_only() -> None:
    """While it runs, its initializer makes a parameter by another parametric function."""
    x = nn.Variable((1, 2))

    def first(shape: tuple[int, ...]) -> Any:
        PF.affine(x, 3, name="inner")
        return np.zeros(shape)

    def second(shape: tuple[int, ...]) -> Any:
        raise ValueError("no bias today")

    PF.affine(x, 2, name="before")
    with pytest.raises(ValueError, match="no bias today"):
        PF.affine(x, 2, w_init=first, b_init=second, name="failing")
    assert sorted(nn.get_parameters()) == ["before/affine/W", "before/affine/b"]


# ---------------------------------------------------------------- threads


@each_scope
def test_threads_start_from_the_defaults(scope: Callable[[], Any]) -> None:
    plain = state()
    seen: list[State] = []
    with scope():
        thread = threading.Thread(target=lambda: seen.append(state()))
        thread.start()
        thread.join(30)
    assert seen == [plain]


def test_the_collector_stays_off_where_the_user_has_switched_it_off() -> None:
    x = leaf()
    gc.disable()
    try:
        nn.grad([F.tanh(x)], [x])
        assert not gc.isenabled()
    finally:
        gc.enable()


@pytest.mark.parametrize("fails", [False, True])
def test_the_collector_is_on_while_the_error_of_a_build_is_handled(fails: bool) -> None:
    x, during = leaf(), []

    class Doubled(nn.CustomFunction):
        def forward(self, x: Any) -> Any:
            return x * 2

        def backward(self, f: nn.Function, gy: nn.Variable) -> Any:
            during.append(gc.isenabled())
            if fails:
                raise ArithmeticError
            return gy * 2

    try:
        nn.grad([Doubled()(x)], [x])
    except ArithmeticError:
        assert gc.isenabled()
    assert during == [False] and gc.isenabled()


# ---------------------------------------------------------------- blocks


@each_scope
def test_generators_may_leave_blocks_in_any_order(scope: Callable[[], Any]) -> None:
    def within() -> Iterator[None]:
        with scope():
            yield

    plain = state()
    first, second = within(), within()
    next(first)
    next(second)
    assert list(first) == []
    assert state() != plain
    assert list(second) == []
    assert state() == plain
    abandoned = within()
    next(abandoned)
    del abandoned
    assert state() == plain


@pytest.mark.parametrize("scope", [s for s in SCOPES.values() if s is not hook], ids=[n for n in SCOPES if n != "hook"])
def test_a_block_may_be_entered_again(scope: Callable[[], Any]) -> None:
    plain, block = state(), scope()
    with block:
        within = state()
        with block:
            assert state()[:-1] == within[:-1]
        assert state() == within
    assert state() == plain
    with block:
        assert state() == within


def test_a_scope_within_itself() -> None:
    """One object: entered again it leads one further down."""
    block = nn.parameter_scope("a")
    with block, block:
        PF.affine(nn.Variable((1, 2)), 2, with_bias=False)
    assert list(nn.get_parameters()) == ["a/a/affine/W"]


def test_a_decorated_function_runs_within() -> None:
    @nn.parameter_scope("deep")
    def model(x: nn.Variable, depth: int) -> nn.Variable:
        return PF.affine(x if depth == 0 else model(x, depth - 1), 2, with_bias=False)

    model(nn.Variable((1, 2)), 2)
    assert sorted(nn.get_parameters()) == ["deep/affine/W", "deep/deep/affine/W", "deep/deep/deep/affine/W"]


def test_what_runs_in_pieces_is_not_decorated() -> None:
    async def coroutine() -> None: ...

    async def both() -> Any:
        yield 0

    def generator() -> Any:
        yield 0

    for function in (coroutine, both, generator):
        with pytest.raises(TypeError, match="generator or coroutine, which cannot be decorated; use `with` in its"):
            nn.no_grad()(function)
