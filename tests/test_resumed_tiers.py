"""A run that is resumed from a checkpoint, at whatever step, runs the tiers that it would have run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
import nngrad.solvers as S
from nngrad.execution import compiling
from nngrad.execution.executable import continue_counts

STEPS, SWITCH = 7, 3
X = np.random.default_rng(1).normal(size=(STEPS, 16, 8)).astype("f")


@pytest.fixture(autouse=True)
def early_switch(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Programs of any size have two tiers, which round in different ways, and the quick one runs in so many calls."""
    monkeypatch.setattr(compiling, "LARGE", 1)
    # All that tests compile is compiled quickly (conftest.py), so that here the quick tier is what is optimised.
    optimised: dict[str, str | bool] = {"xla_backend_optimization_level": "3", "xla_cpu_enable_fast_math": True}
    monkeypatch.setattr(compiling, "_OPTIONS", optimised)
    compiling.quick_options.cache_clear()
    monkeypatch.setattr(compiling.Work, "quick_calls", SWITCH)
    monkeypatch.setattr(compiling, "_counts", {})
    nn.executables.clear()
    yield
    nn.executables.clear()
    compiling.quick_options.cache_clear()


class Run:
    """A training, from its begin or from a checkpoint."""

    def __init__(self, path: Path, by_steps: bool) -> None:
        nn.clear_parameters()
        nn.seed(3)
        self.x = nn.Variable((16, 8))
        h = self.x
        for i in range(4):
            h = F.tanh(PF.affine(h, 8, name=f"layer {i}"))
        (gx,) = nn.grad(F.sum(F.exp(h)), self.x)
        self.loss = F.mean(h**2) + F.mean((F.sum(gx**2, axis=1) ** 0.5 - 1) ** 2)
        self.solver = S.Adam(0.05)
        self.solver.set_parameters(nn.get_parameters())
        self.saved = nn.Checkpointer(path, self.solver, keep=None)
        self.step = nn.train_step(self.loss, nn.get_parameters(), self.solver, [self.x]) if by_steps else self.classic

    def classic(self, x: Any) -> None:
        """A step as nnabla's examples have it."""
        self.x.d = x
        self.loss.forward()
        self.solver.zero_grad()
        self.loss.backward()
        self.solver.update()

    def train(self, first: int, saving: bool = False) -> bytes:
        """The bits of the parameters after the last step."""
        for done in range(first, STEPS):
            if saving and done:
                self.saved.save(done)
            self.step(X[done])
        self.saved.close()
        return b"".join([p.d.tobytes() for p in nn.get_parameters().values()])


@pytest.mark.parametrize("by_steps", [True, False])
def test_a_run_that_is_resumed_at_any_step_ends_in_the_same_bits(
    by_steps: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Run(tmp_path, by_steps).train(0, saving=True)
    with nn.deterministic():
        assert Run(tmp_path / "other", by_steps).train(0) != whole  # the tiers differ in bits
    for step in range(1, STEPS):
        run = Run(tmp_path, by_steps)
        assert run.saved.restore(step) == step
        assert run.train(step) == whole, f"in the process that goes back to step {step}"
        monkeypatch.setattr(compiling, "_counts", {})  # as in a process of its own
        nn.executables.clear()
        run = Run(tmp_path, by_steps)
        run.saved.restore(step)
        assert run.train(step) == whole, f"in another process, from step {step} on"


def test_what_was_not_called_until_the_checkpoint_begins_anew(tmp_path: Path) -> None:
    run = Run(tmp_path, by_steps=True)
    run.step(X[0])
    run.saved.save(1)
    x = nn.Variable.from_numpy_array(X[0])
    function = nn.compile(F.sum(F.exp(F.sin(x))), [x])
    first = [np.asarray(function(X[0])) for _ in range(SWITCH + 1)]
    assert nn.executables.info().optimised == 1
    run.saved.restore(1)
    nn.executables.clear()
    assert [np.asarray(function(X[0])) for _ in range(SWITCH + 1)] == first
    assert nn.executables.info().optimised == 1
    run.saved.close()


def test_parts_of_a_checkpoint_leave_calls_as_they_are(tmp_path: Path) -> None:
    run = Run(tmp_path, by_steps=True)
    run.step(X[0])
    run.saved.save(1)
    run.step(X[1])
    before = compiling.counted()
    run.saved.restore(1, only=["parameters", "solver"])
    assert compiling.counted() == before
    run.saved.restore(1)
    assert sum(compiling.counted().values()) < sum(before.values())
    run.saved.close()


def test_calls_that_threads_make_at_once_are_counted_one_by_one() -> None:
    x = nn.Variable((4,))
    graphs = [F.exp(F.sin(x)) * 3.5 for _ in range(2)]
    together = Barrier(len(graphs))

    def call(graph: nn.Variable) -> Callable[[], None]:
        def run() -> None:
            function = nn.compile(graph, [x])
            together.wait()
            function(np.ones(4, "f"))

        return run

    with ThreadPoolExecutor(len(graphs)) as threads:
        for done in [threads.submit(call(graph)) for graph in graphs]:
            done.result()
    assert list(compiling.counted().values()) == [len(graphs)]
    count, calls = compiling.CallCount(), 20_000
    with ThreadPoolExecutor(4) as threads:
        counted = sum(threads.map(lambda _: sum([count.count(calls) for _ in range(calls)]), range(4)))
    assert counted == calls and not count.below(calls)


def test_counts_are_set_as_they_were_told() -> None:
    continue_counts({"00ff": 2})
    assert compiling.counted() == {"00ff": 2}
    assert compiling.count_of(bytes.fromhex("00ff")).below(3)
    continue_counts({})
    assert compiling.counted() == {}
