"""Two tiers: the first calls of a structure run what is compiled quickly, those that follow what is optimised."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
import nngrad.solvers as S
from nngrad.execution import compiling
from nngrad.execution.compiling import work_of
from nngrad.execution.executable import Executable
from nngrad.execution.lower import linearize, lower
from tests.conftest import known

V = nn.Variable


def counted() -> tuple[int, int]:
    """How many executables of the quick tier were compiled, and how often the optimised tier has taken over."""
    info = nn.executables.info()
    return info.quick, info.optimised


ESTIMATE: Callable[[compiling.Work], int] = compiling.Work.quick_calls.fget  # type: ignore[attr-defined]

FEW = 3
"""So many calls run the quick tier in these tests."""


@pytest.fixture(autouse=True)
def few_calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No executables are kept, programs of any size have two tiers, and none was called before."""
    monkeypatch.setattr(compiling, "LARGE", 1)
    monkeypatch.setattr(compiling.Work, "quick_calls", FEW)
    monkeypatch.setattr(compiling, "_counts", {})
    nn.executables.clear()
    yield
    nn.executables.clear()


@pytest.fixture
def compiled() -> Iterator[list[float]]:
    """The seconds of each compilation by XLA, since the options for the first tier were asked for."""
    compiling.quick_options()
    seconds: list[float] = []

    def listen(event: str, duration: float, **_: Any) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            seconds.append(duration)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield seconds
    from jax._src import monitoring

    remove = getattr(monitoring, "unregister_event_duration_listener", None)
    remove = remove or monitoring._unregister_event_duration_listener_by_callback  # type: ignore[attr-defined]
    remove(listen)


def network(width: int = 8) -> tuple[V, V]:
    """The loss of a small network, with a gradient in it, and its input."""
    rng = np.random.default_rng(0)
    x = V.from_numpy_array(rng.normal(size=(4, width)).astype("f"))
    h = x
    for _ in range(3):
        h = F.tanh(F.affine(h, V.from_numpy_array(rng.normal(size=(width, width)).astype("f"))))
    (gx,) = nn.grad(F.sum(h**2), x)
    return F.mean(gx**2), x


def function() -> Callable[[Any], Any]:
    """The network as a function of its input."""
    y, x = network()
    return nn.compile(y, [x])


POINTS = np.linspace(-1, 1, 32, dtype="f").reshape(4, 8)


def reference() -> np.ndarray[Any, Any]:
    """The result, compiled by JAX as it always does."""
    y, x = network()
    linear = linearize([y], first=[x])
    return np.asarray(jax.jit(lower(linear.program))(POINTS, *[leaf.d for leaf in linear.leaves[1:]])[0])


def test_the_optimised_tier_takes_over_after_so_many_calls() -> None:
    f = function()
    expected = reference()
    results, counts = [], []
    for _ in range(FEW + 3):
        results.append(np.asarray(f(POINTS)))
        counts.append(counted())
    assert counts == [(1, 0)] * FEW + [(1, 1)] * 3
    assert nn.executables.info().misses == 1 and nn.executables.info().seconds > 0
    assert results[FEW:] == [expected] * 3
    np.testing.assert_allclose(results, np.broadcast_to(expected, len(results)), rtol=1e-5)


def test_calls_are_counted_by_structure_whatever_is_forgotten() -> None:
    counts = []
    for _ in range(FEW + 2):
        nn.executables.clear()
        function()(POINTS)
        counts.append(counted())
    assert counts == [(1, 0)] * FEW + [(0, 0)] * 2


def test_a_program_that_is_run_once_is_compiled_once(compiled: list[float]) -> None:
    y, _ = network()
    y.forward()
    y.d  # noqa: B018
    assert len(compiled) == 1 and counted() == (1, 0)


def test_forward_and_backward_hand_over() -> None:
    rng = np.random.default_rng(0)
    w = V.from_numpy_array(rng.normal(size=(8, 8)).astype("f"), need_grad=True)

    def step() -> np.ndarray[Any, Any]:
        y = F.sum(F.tanh(F.affine(V.from_numpy_array(POINTS), w)) ** 2)
        y.forward()
        w.grad.zero()
        y.backward()
        return w.g.copy()

    results = [step() for _ in range(FEW + 2)]
    assert counted() == (1, 1)
    np.testing.assert_allclose(results, np.broadcast_to(results[0], (len(results), 8, 8)), rtol=1e-5, atol=1e-6)


def test_it_takes_over_under_load_from_several_threads() -> None:
    f = function()
    expected = reference()
    with ThreadPoolExecutor(4) as threads:
        results = list(threads.map(lambda _: float(f(POINTS)), range(40)))
    assert sum([result != expected for result in results]) <= FEW
    np.testing.assert_allclose(results, float(expected), rtol=1e-5)
    assert counted() == (1, 1)


def test_deterministic_is_one_tier_and_counts_nothing() -> None:
    expected = reference()
    f = function()
    with nn.deterministic():
        results = [f(POINTS) for _ in range(FEW + 1)]
    assert counted() == (0, 0)
    assert all([result == expected for result in results])
    for _ in range(FEW):
        f(POINTS)
    assert counted() == (1, 0)
    assert nn.deterministic()(f)(POINTS) == expected
    assert f(POINTS) == expected
    assert counted() == (1, 1)


def test_compile_and_train_step_may_run_the_optimised_tier_alone() -> None:
    y, x = network()
    f = nn.compile(y, [x], wait_for_best=True)
    assert [f(POINTS) for _ in range(2)] == [reference()] * 2
    step, _ = training(wait_for_best=True)
    step(POINTS)
    assert counted() == (0, 0)


def training(**options: Any) -> tuple[nn.training.TrainStep, V]:
    """A training step, and its weight."""
    x, w = V((4, 8)), V.from_numpy_array(np.full((8, 8), 0.1, "f"), need_grad=True)
    return nn.train_step(F.sum(F.tanh(F.affine(x, w)) ** 2), [w], S.Sgd(1e-5), [x], **options), w


def test_a_training_step_takes_over_and_then_updates_in_place() -> None:
    step, w = training()
    other, v = training(wait_for_best=True)
    for _ in range(FEW + 4):  # of those after the quick ones two return through Python
        np.testing.assert_allclose(step(POINTS), other(POINTS), rtol=1e-4)
    assert counted() == (1, 1)
    held = step._update._owner.held[-1][2]  # type: ignore[union-attr]
    step(POINTS), other(POINTS)
    assert held[0].is_deleted()
    np.testing.assert_allclose(w.d, v.d, rtol=1e-4)
    assert (w.d < 0.1).any()


def test_within_deterministic_a_training_step_updates_in_place_too() -> None:
    step, _ = training()
    with nn.deterministic():
        for _ in range(3):
            step(POINTS)
        held = step._update._owner.held[-1][2]  # type: ignore[union-attr]
        step(POINTS)
    assert held[0].is_deleted()
    assert counted() == (0, 0)


def moved(count: int, calls: int, size: int = 3) -> list[V]:
    """So many parameters after updates."""
    ps = [V.from_numpy_array(np.full((2, size), 1 + i, "f"), need_grad=True) for i in range(count)]
    solver = S.Adam(0.1)
    solver.set_parameters({str(i): p for i, p in enumerate(ps)})
    for p in ps:
        p.g = 0.5
    for _ in range(calls):
        solver.update()
    return ps


@pytest.mark.parametrize("count", [1, 8])
def test_an_update_has_two_tiers(count: int) -> None:
    ps = moved(count, FEW + 2)
    assert counted() == (1, 1)
    nn.executables.clear()
    with nn.deterministic():
        others = moved(count, FEW + 2)
    assert counted() == (0, 0)
    for p, other in zip(ps, others, strict=True):
        np.testing.assert_allclose(p.d, other.d, rtol=1e-5)


@pytest.mark.parametrize(("count", "level"), [(8, "1"), (9, "0")])
def test_the_quick_tier_of_few_parameters_is_compiled_to_run_fast(
    count: int, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []
    compile_it = jax.stages.Lowered.compile

    def spy(lowered: Any, compiler_options: Any = None) -> Any:
        told.append(compiler_options)
        return compile_it(lowered, compiler_options)

    monkeypatch.setattr(jax.stages.Lowered, "compile", spy)
    moved(count, 1)
    assert [options["xla_backend_optimization_level"] for options in told] == [level]  # and nothing for the state


def test_updates_are_counted_by_their_shapes() -> None:
    moved(8, 1)
    moved(8, FEW, size=4)
    moved(8, FEW - 1)
    assert counted() == (3, 0)
    moved(8, 1)
    assert counted() == (3, 0)  # the optimised one, and no other before it
    moved(8, 1, size=4)
    assert counted() == (3, 0)


def test_a_solver_may_be_given_as_many_parameters_of_other_shapes() -> None:
    solver = S.Sgd(0.5)
    for shape in (2, 3), (5,), (2, 3):
        ps = {str(i): V.from_numpy_array(np.full(shape, i, "f"), need_grad=True) for i in range(8)}
        solver.set_parameters(ps)
        for p in ps.values():
            p.g = 1
        for _ in range(2):
            solver.update()
        for i, p in enumerate(ps.values()):
            np.testing.assert_array_equal(p.d, np.full(shape, i - 1, "f"))


def test_where_the_optimised_one_cannot_be_compiled_the_quick_one_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: Executable, arrays: Any) -> Any:
        raise jax.errors.JaxRuntimeError("no more room")

    monkeypatch.setattr(Executable, "_optimise", fails)
    f = function()
    first = f(POINTS)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(FEW + 3):
            assert f(POINTS) == first
        nn.executables.clear()
        assert function()(POINTS) == first  # as in a resumed run, whose quick executable is not there yet
    assert len(caught) == 2
    for warning in caught:
        assert warning.category is RuntimeWarning and warning.filename == __file__
        assert "no more room" in str(warning.message)


def test_the_second_step_of_a_loop_compiles_the_sum_of_gradients_alone(compiled: list[float]) -> None:
    w = V.from_numpy_array(np.full((8, 8), 0.1, "f"), need_grad=True)
    solver = S.Momentum(1e-3)

    @nn.deterministic()
    def step() -> np.ndarray[Any, Any]:
        loss = F.sum(F.tanh(F.affine(V.from_numpy_array(POINTS), w)) ** 2)
        solver.set_parameters({"w": w}, reset=False, retain_state=True)
        loss.forward()
        loss.backward()
        solver.update()
        return w.g.copy()

    step()
    count = len(compiled)
    step()
    assert len(compiled) <= count + 1
    count = len(compiled)
    step()
    assert len(compiled) == count


def test_calls_are_fewer_where_arrays_are_large_and_more_where_more_is_to_be_compiled() -> None:
    def calls(rows: int, functions: int) -> int:
        """By the estimate, whatever the fixture has in its place."""
        x = V((rows, 4))
        y = x
        for i in range(functions):
            y = F.sin(y) * (i + 2)
        work = work_of(linearize([y]).program)
        assert work == (functions + 1, 2 * functions * rows * 4)
        return ESTIMATE(work)

    assert calls(10**6, 10) < calls(10, 10) < calls(10, 100)


def test_the_work_of_a_loop_is_that_of_its_steps() -> None:
    x = V((100, 3))
    _, y = F.scan(lambda h, row: (F.tanh(h + row), F.tanh(h + row)), V((3,)), x)
    assert work_of(linearize([F.sum(y)]).program) == (3, 100 * 4 * 3 + 300)


def test_without_the_options_there_is_one_tier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "_OPTIONS", {"xla_there_is_no_such_option": True})
    compiling.quick_options.cache_clear()
    assert function()(POINTS) == reference()
    assert counted() == (0, 0)
    compiling.quick_options.cache_clear()


def test_an_option_that_xla_does_not_know_is_left_out_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    known = dict(compiling.quick_options())
    assert known["xla_backend_optimization_level"] == "0" and "xla_cpu_parallel_codegen_split_count" in known
    wanted = {"xla_there_is_no_such_option": True, **known, "xla_backend_optimization_level_of_old": "0"}
    monkeypatch.setattr(compiling, "_OPTIONS", wanted)
    compiling.quick_options.cache_clear()
    try:
        assert compiling.quick_options() == known
        np.testing.assert_allclose(function()(POINTS), reference(), rtol=1e-6)
        assert nn.executables.info().quick == 1
    finally:
        compiling.quick_options.cache_clear()


@pytest.mark.slow
def test_flags_that_this_xla_does_not_know_are_left_out_of_those_of_tests() -> None:
    flag = "--xla_backend_optimization_level=0"
    assert known((flag,)) == (flag,)
    assert known(("--xla_there_is_no_such_flag=1", flag)) == (flag,)


def test_other_settings_and_places_are_compiled_by_jax() -> None:
    f = function()
    expected = f(POINTS)
    with jax.default_matmul_precision("highest"):
        np.testing.assert_allclose(f(POINTS), expected, rtol=1e-5)
    placed = jax.device_put(POINTS, jax.devices()[-1])
    np.testing.assert_allclose(f(placed), expected, rtol=1e-5)
    np.testing.assert_allclose(jax.jit(lambda x: f(x))(POINTS), expected, rtol=1e-5)


def test_what_is_compiled_to_decide_by_a_policy_runs_first(compiled: list[float]) -> None:
    rng = np.random.default_rng(0)
    x = V.from_numpy_array(rng.normal(size=(64, 16)).astype("f"))
    weights = [V.from_numpy_array(rng.normal(0, 0.3, (16, 16)).astype("f"), need_grad=True) for _ in range(12)]
    h = x
    for w in weights:
        h = F.tanh(F.affine(h, w))
    loss = F.sum(h**2)
    plain = [g.d.copy() for g in nn.grad(loss, weights)]
    gradients = nn.grad(loss, weights, recompute="sqrt")
    tried = len(compiled)
    F.sink(*gradients).forward()
    for g, expected in zip(gradients, plain, strict=True):
        np.testing.assert_allclose(g.d, expected, rtol=1e-4, atol=1e-5)
    assert len(compiled) <= tried + 1 and counted()[1] == 0
