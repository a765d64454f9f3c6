"""Two tiers: the first call of a structure runs what is compiled quickly, those that follow what is optimised."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
import nngrad.solvers as S
from nngrad.execution import executable
from nngrad.execution.executable import Executable
from nngrad.execution.lower import linearize, lower
from nngrad.graph.bounded_cache import BoundedCache
from nngrad.inspection import compilations
from tests.conftest import known

V = nn.Variable


def counted() -> tuple[int, int]:
    """How many executables of the quick tier were compiled, and how often the optimised tier has taken over."""
    info = nn.executables.info()
    return info.quick, info.optimised


@pytest.fixture(autouse=True)
def none_called(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No executables are kept, programs of any size have two tiers, and none was called before."""
    monkeypatch.setattr(executable, "LARGE", 1)
    monkeypatch.setattr(executable, "_called", BoundedCache(100))
    nn.executables.clear()
    yield
    nn.executables.clear()


@pytest.fixture
def compiled() -> Iterator[list[float]]:
    """The seconds of each compilation by XLA, since the options for the first tier were asked for."""
    executable.quick_options()
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


POINTS = np.linspace(-1, 1, 32, dtype="f").reshape(4, 8)


def reading() -> Callable[[], np.ndarray[Any, Any]]:
    """A function that computes the network's result anew."""
    y, x = network()

    def run() -> np.ndarray[Any, Any]:
        x.d = POINTS
        y.forward()
        return y.d.copy()

    return run


def reference() -> np.ndarray[Any, Any]:
    """The result, compiled by JAX as it always does."""
    y, x = network()
    linear = linearize([y], first=[x])
    return np.asarray(jax.jit(lower(linear.program))(POINTS, *[leaf.d for leaf in linear.leaves[1:]])[0])


def test_the_optimised_tier_takes_over_at_the_second_call() -> None:
    run, expected = reading(), reference()
    results, counts = [], []
    for _ in range(4):
        results.append(run())
        counts.append(counted())
    assert counts == [(1, 0)] + [(1, 1)] * 3
    assert nn.executables.info().misses == 1 and nn.executables.info().seconds > 0
    assert results[1:] == [expected] * 3
    np.testing.assert_allclose(results[0], expected, rtol=1e-5)


def test_calls_are_remembered_by_structure_whatever_is_forgotten() -> None:
    counts = []
    for _ in range(3):
        nn.executables.clear()
        reading()()
        counts.append(counted())
    assert counts == [(1, 0), (0, 0), (0, 0)]


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

    results = [step() for _ in range(3)]
    assert counted() == (1, 1)
    np.testing.assert_allclose(results, np.broadcast_to(results[0], (len(results), 8, 8)), rtol=1e-5, atol=1e-6)


def test_it_takes_over_under_load_from_several_threads() -> None:
    expected, runs = reference(), [reading() for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        results = list(threads.map(lambda run: [float(run()) for _ in range(10)], runs))
    assert sum([result != expected for each in results for result in each]) <= 1
    np.testing.assert_allclose(results, np.broadcast_to(float(expected), (4, 10)), rtol=1e-5)
    assert counted() == (1, 1)


def test_deterministic_is_one_tier() -> None:
    expected, run = reference(), reading()
    with nn.deterministic():
        assert run() == expected
    assert counted() == (0, 0)
    assert run() == expected  # it is there, at its best
    assert counted() == (0, 0)
    nn.executables.clear()
    assert nn.deterministic()(reading())() == expected


def test_compile_and_train_step_run_the_optimised_tier_alone() -> None:
    y, x = network()
    f = nn.compile(y, [x])
    assert [f(POINTS) for _ in range(2)] == [reference()] * 2
    assert nn.compile(lambda x: F.exp(F.sin(x)))(POINTS).shape == POINTS.shape
    step, _ = training()
    step(POINTS)
    assert counted() == (0, 0)
    run = reading()
    assert nn.compile(y, [x])(POINTS) == reference()
    assert run() == reference() and counted() == (0, 0)


def training() -> tuple[nn.training.TrainStep, V]:
    """A training step, and its weight."""
    x, w = V((4, 8)), V.from_numpy_array(np.full((8, 8), 0.1, "f"), need_grad=True)
    return nn.train_step(F.sum(F.tanh(F.affine(x, w)) ** 2), [w], S.Sgd(1e-5), [x]), w


def test_an_update_is_compiled_once(compiled: list[float]) -> None:
    ps = [V.from_numpy_array(np.full((2, 3), 1 + i, "f"), need_grad=True) for i in range(3)]
    solver = S.Momentum(0.5, momentum=0.0)
    solver.set_parameters({str(i): p for i, p in enumerate(ps)})
    for p in ps:
        p.g = 0.5
    for _ in range(3):
        solver.update()
    for i, p in enumerate(ps):
        np.testing.assert_allclose(p.d, np.full((2, 3), 1 + i - 0.75), rtol=1e-6)
    assert counted() == (0, 0)
    assert len(compiled) <= 2  # copies that the first calls donate, and the update


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


def test_without_the_options_there_is_one_tier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executable, "_OPTIONS", {"xla_there_is_no_such_option": True})
    executable.quick_options.cache_clear()
    assert reading()() == reference()
    assert counted() == (0, 0)
    executable.quick_options.cache_clear()


def test_an_option_that_xla_does_not_know_is_left_out_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    known = dict(executable.quick_options())
    assert known["xla_backend_optimization_level"] == "0" and "xla_cpu_parallel_codegen_split_count" in known
    wanted = {"xla_there_is_no_such_option": True, **known, "xla_backend_optimization_level_of_old": "0"}
    monkeypatch.setattr(executable, "_OPTIONS", wanted)
    executable.quick_options.cache_clear()
    try:
        assert executable.quick_options() == known
        np.testing.assert_allclose(reading()(), reference(), rtol=1e-6)
        assert nn.executables.info().quick == 1
    finally:
        executable.quick_options.cache_clear()


@pytest.mark.slow
def test_flags_that_this_xla_does_not_know_are_left_out_of_those_of_tests() -> None:
    flag = "--xla_backend_optimization_level=0"
    assert known((flag,)) == (flag,)
    assert known(("--xla_there_is_no_such_flag=1", flag)) == (flag,)


def test_what_the_compiler_fails_at_quickly_is_optimised(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_it = Executable._compile

    def fails_once(self: Executable, function: Any, arrays: Any) -> Any:
        if function is not self.function:
            raise jax.errors.JaxRuntimeError("no more room")
        return compile_it(self, function, arrays)

    monkeypatch.setattr(Executable, "_compile", fails_once)
    assert reading()() == reference()


@pytest.fixture
def cache_not_refused() -> Iterator[None]:
    """JAX's cache may be used, though there is none."""
    names = "jax_enable_compilation_cache", "jax_compilation_cache_dir"
    before = {name: jax.config.values[name] for name in names}
    jax.config.update("jax_enable_compilation_cache", True)
    jax.config.update("jax_compilation_cache_dir", None)
    yield
    for name, value in before.items():
        jax.config.update(name, value)


@pytest.mark.usefixtures("cache_not_refused")
def test_a_hint_at_the_cache_comes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilations, "_hints", itertools.count())
    monkeypatch.setattr(compilations, "LONG", 0.0)
    run = reading()
    with pytest.warns(UserWarning, match=r"compiling this took .* nn\.cache_compilations") as caught:
        run(), run()
        compilations.hint_at_cache(7.0)  # seconds of another compilation
    assert len(caught) == 1 and caught[0].filename == __file__


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
