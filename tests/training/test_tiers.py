"""Two tiers: the first call of a structure runs what is compiled quickly, those that follow what is optimised."""

from __future__ import annotations

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
from nngrad.extend import BoundedCache, linearize, lower

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


def test_it_takes_over_under_load_from_several_threads() -> None:
    expected, runs = reference(), [reading() for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        results = list(threads.map(lambda run: [float(run()) for _ in range(10)], runs))
    assert sum([result != expected for each in results for result in each]) <= 1
    np.testing.assert_allclose(results, np.broadcast_to(float(expected), (4, 10)), rtol=1e-5)
    assert counted() == (1, 1)


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
