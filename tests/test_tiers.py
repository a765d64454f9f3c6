"""Executables in two tiers: compiled cheaply first, and the best one when it is ready."""

from __future__ import annotations

import gc
import re
import subprocess
import sys
import threading
import time
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
from nngrad.execution import background, tiers
from nngrad.execution.lower import linearize, lower
from tests.conftest import known

V = nn.Variable


def counted() -> tuple[int, int]:
    """How many executables were compiled cheaply, and of how many the best one has taken the place."""
    info = nn.executables.info()
    return info.cheap, info.best


@pytest.fixture(autouse=True)
def no_executables(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No executables are kept, and programs of any size have two tiers."""
    monkeypatch.setattr("nngrad.execution.compiled.LARGE", 1)
    background.wait()
    nn.executables.clear()
    yield
    background.wait()
    nn.executables.clear()


@pytest.fixture
def compiled() -> Iterator[list[float]]:
    """The seconds of each compilation by XLA, since the options for the first tier were asked for."""
    tiers.cheap_options()
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


def until_best(call: Callable[[], Any], number: int = 1) -> list[Any]:
    """Call again and again until the best executable has taken over; returns the results."""
    results, deadline = [call()], time.monotonic() + 120
    while nn.executables.info().best < number:
        assert time.monotonic() < deadline
        results.append(call())
    return [*results, call()]


def test_the_best_executable_takes_over_with_equal_results() -> None:
    f = function()
    expected = reference()
    results = until_best(lambda: np.asarray(f(POINTS)))
    info = nn.executables.info()
    assert (info.cheap, info.best, info.misses) == (1, 1, 1)
    assert info.seconds > 0 < info.background_seconds
    assert results[-1] == expected
    np.testing.assert_allclose(results, np.broadcast_to(expected, len(results)), rtol=1e-5)


def test_a_program_that_is_run_once_is_compiled_once(compiled: list[float]) -> None:
    y, _ = network()
    y.forward()
    y.d  # noqa: B018
    assert len(compiled) == 1 and nn.executables.info().cheap == 1
    assert background.wait(0)


def test_forward_and_backward_hand_over() -> None:
    rng = np.random.default_rng(0)
    w = V.from_numpy_array(rng.normal(size=(8, 8)).astype("f"), need_grad=True)

    def step() -> np.ndarray[Any, Any]:
        y = F.sum(F.tanh(F.affine(V.from_numpy_array(POINTS), w)) ** 2)
        y.forward()
        w.grad.zero()
        y.backward()
        return w.g.copy()

    results = until_best(step)
    np.testing.assert_allclose(results, np.broadcast_to(results[0], (len(results), 8, 8)), rtol=1e-5, atol=1e-6)


def test_it_takes_over_under_load_from_several_threads() -> None:
    f = function()
    expected = reference()
    deadline = time.monotonic() + 120

    def use(_: int) -> float:
        after, worst = 20, 0.0
        while after and time.monotonic() < deadline:
            worst = max(worst, abs(float(f(POINTS)) / float(expected) - 1))
            after -= nn.executables.info().best
        return worst

    with ThreadPoolExecutor(4) as threads:
        assert max(threads.map(use, range(4))) < 1e-5
    assert counted() == (1, 1)


def test_deterministic_has_one_tier() -> None:
    expected = reference()
    with nn.deterministic():
        f = function()
        results = [f(POINTS) for _ in range(3)]
    assert nn.executables.info().cheap == 0
    assert all([result == expected for result in results])


def test_deterministic_waits_where_the_first_tier_has_begun() -> None:
    f = function()
    f(POINTS)
    assert counted() == (1, 0)

    @nn.deterministic()
    def run() -> Any:
        return f(POINTS)

    assert run() == reference()
    assert counted() == (1, 1)


def test_compile_and_train_step_may_wait_for_the_best() -> None:
    y, x = network()
    f = nn.compile(y, [x], wait_for_best=True)
    assert f(POINTS) == reference()
    step, _ = training(wait_for_best=True)
    step(POINTS)
    assert nn.executables.info().cheap == 0


def training(**options: Any) -> tuple[nn.training.TrainStep, V]:
    """A training step, and its weight."""
    x, w = V((4, 8)), V.from_numpy_array(np.full((8, 8), 0.1, "f"), need_grad=True)
    return nn.train_step(F.sum(F.tanh(F.affine(x, w)) ** 2), [w], S.Sgd(1e-5), [x], **options), w


def test_a_training_step_takes_over_and_then_updates_in_place() -> None:
    step, w = training()
    other, v = training(wait_for_best=True)
    count = len(until_best(lambda: step(POINTS)))
    count += len([step(POINTS) for _ in range(3)])  # which return through Python, before those that do not
    for _ in range(count):
        other(POINTS)
    assert step._update._calls == other._update._calls
    np.testing.assert_allclose(step(POINTS), other(POINTS), rtol=1e-4)
    np.testing.assert_allclose(w.d, v.d, rtol=1e-4)
    assert (w.d < 0.1).any()


def moved(count: int, calls: int | None) -> tuple[list[V], int]:
    """So many parameters after updates, as many as there are asked for or until the best executable moves them, and
    how many there were."""
    ps = [V.from_numpy_array(np.full((2, 3), 1 + i, "f"), need_grad=True) for i in range(count)]
    solver = S.Adam(0.1)
    solver.set_parameters({str(i): p for i, p in enumerate(ps)})
    for p in ps:
        p.g = 0.5
    done = 0

    def update() -> None:
        nonlocal done
        solver.update()
        done += 1

    if calls is None:
        until_best(update)
    else:
        for _ in range(calls):
            update()
    return ps, done


def test_the_update_of_many_parameters_is_compiled_cheaply_first() -> None:
    ps, calls = moved(8, None)
    assert counted() == (1, 1)
    nn.executables.clear()
    with nn.deterministic():
        others, _ = moved(8, calls)
    assert counted() == (0, 0)
    for p, other in zip(ps, others, strict=True):
        np.testing.assert_allclose(p.d, other.d, rtol=1e-5)
    moved(7, 1)
    assert counted() == (0, 0)


def test_an_error_in_the_background_is_told_once_and_the_first_tier_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: tiers.Tiers) -> None:
        raise RuntimeError("no more room")

    monkeypatch.setattr(tiers.Tiers, "_compile_best", fails)
    f = function()
    first = f(POINTS)

    def told(seconds: float) -> list[Any]:
        deadline = time.monotonic() + seconds
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            while not caught and time.monotonic() < deadline:
                assert f(POINTS) == first
        return caught

    (warning,) = told(60)
    assert warning.category is RuntimeWarning and warning.filename == __file__
    assert "no more room" in str(warning.message)
    assert not told(0.2)


def test_the_second_step_of_a_loop_compiles_nothing(compiled: list[float]) -> None:
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
    assert len(compiled) == count


def test_gradients_add_up_alike_before_and_after_the_sum_is_compiled() -> None:
    w = V.from_numpy_array(np.full((8, 9), 0.1, "f"), need_grad=True)
    loss = F.sum(F.exp(w))
    expected = np.exp(w.d) * np.arange(1, 7).reshape(6, 1, 1)
    for n in range(6):
        loss.forward()
        loss.backward()
        if n == 3:
            background.wait()
        np.testing.assert_allclose(w.g, expected[n], rtol=1e-6)
    assert isinstance(w.grad.array, jax.Array)


class Busy:
    """Keeps the background busy until it is released."""

    def __init__(self) -> None:
        self.began, self.released = threading.Event(), threading.Event()

    def work(self) -> None:
        self.began.set()
        self.released.wait(60)


def test_work_that_fails_does_not_end_the_thread() -> None:
    class Failing(Busy):
        def work(self) -> None:
            self.began.set()
            raise KeyboardInterrupt

    failing, busy = Failing(), Busy()
    busy.released.set()
    background.request(failing)
    background.request(busy)
    assert failing.began.wait(60) and busy.began.wait(60)
    assert background.wait(60)


def test_what_nobody_holds_any_more_is_not_begun() -> None:
    busy = Busy()
    background.request(busy)
    assert busy.began.wait(60)
    functions = [nn.compile(*network(width)) for width in (8, 9)]
    for f, width in zip(functions, (8, 9), strict=True):
        points = np.ones((4, width), "f")
        f(points)
        f(points)
        time.sleep(1.1 * nn.executables.info().seconds)
        f(points)
    del f
    assert len(background._queue.waiting) == 2
    nn.executables.clear()
    functions.pop(0)
    gc.collect()
    assert [ref() is None for ref in background._queue.waiting] == [True, False]
    busy.released.set()
    background.wait()
    assert nn.executables.info().best == 1


def test_without_the_options_there_is_one_tier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "_CHEAP", {"xla_there_is_no_such_option": True})
    tiers.cheap_options.cache_clear()
    assert function()(POINTS) == reference()
    assert nn.executables.info().cheap == 0
    tiers.cheap_options.cache_clear()


def test_an_option_that_xla_does_not_know_is_left_out_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    known = dict(tiers.cheap_options())
    assert known["xla_backend_optimization_level"] == "0" and "xla_cpu_parallel_codegen_split_count" in known
    wanted = {"xla_there_is_no_such_option": True, **known, "xla_backend_optimization_level_of_old": "0"}
    monkeypatch.setattr(tiers, "_CHEAP", wanted)
    tiers.cheap_options.cache_clear()
    try:
        assert tiers.cheap_options() == known
        np.testing.assert_allclose(function()(POINTS), reference(), rtol=1e-6)
        assert nn.executables.info().cheap == 1
    finally:
        tiers.cheap_options.cache_clear()


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
    assert len(compiled) <= tried + 1 and nn.executables.info().best == 0


LEAVES = """
import sys
import numpy as np
import nngrad as nn, nngrad.functions as F
from nngrad.execution import background

x = nn.Variable.from_numpy_array(np.ones((4, 3, 16, 16), "f"))
h = x
for i in range(30):
    h = F.relu(F.convolution(h, nn.Variable((3, 3, 3, 3)), pad=(1, 1)))
(gx,) = nn.grad(F.sum(h**2), x)
f = nn.compile(F.sum(gx**2), [x])
while background.wait(0):
    f(x.d)
assert nn.executables.info().best == 0
{end}
"""


@pytest.mark.slow
@pytest.mark.parametrize(("end", "code"), [("", 0), ("sys.exit(3)", 3), ("raise ValueError('its own')", 1)])
def test_a_process_ends_while_it_compiles(end: str, code: int) -> None:
    script = LEAVES.format(end=end)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == code, done.stderr
    assert re.findall(r"^\w*Error.*", done.stderr, re.M) == ["ValueError: its own"] * (code == 1)
