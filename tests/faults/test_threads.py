"""Threads that read, save and train while another one trains."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
from tests.solver_states import state_arrays

from .counting import Counting

READS = 300


def beside(step: Callable[[], Any], work: Callable[[], None]) -> None:
    """Call `step` in another thread for as long as `work` takes in this one; raise what either raises."""
    done = threading.Event()
    errors: list[BaseException] = []

    def train() -> None:
        try:
            while not done.is_set():
                step()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=train)
    thread.start()
    try:
        work()
    finally:
        done.set()
        thread.join(60)
    assert not thread.is_alive()
    if errors:
        raise errors[0]


def step_of(model: Counting, kind: str) -> Callable[[], Any]:
    """A step of one kind, called once."""
    compiled = model.train_step()

    def loop() -> None:
        model.solver.zero_grad()
        model.loss.backward()
        model.solver.update()

    def step() -> None:
        if float(model.parameters["w5"].data.view[0]) > -1e7:  # whole numbers are exact in float32 up to there
            if kind == "train_step":
                compiled(model.ones)
            else:
                loop()

    step()
    return step


@pytest.mark.parametrize("kind", ["train_step", "update"])
@pytest.mark.parametrize("how", ["d", "view"])
def test_parameters_can_be_read(kind: str, how: str) -> None:
    model = Counting((5, 3000))
    step = step_of(model, kind)
    read: dict[str, Callable[[nn.Variable], Any]] = {
        "d": lambda w: w.d,
        "view": lambda w: w.data.view,
    }

    def work() -> None:
        for _ in range(READS):
            for w in model.parameters.values():
                value = read[how](w)
                assert (value == value[0]).all()

    beside(step, work)
    model.count()


@pytest.mark.parametrize("kind", ["train_step", "update"])
def test_what_is_saved_is_of_one_step(kind: str, tmp_path: Any) -> None:
    model = Counting()
    step = step_of(model, kind)
    path = tmp_path / "parameters.safetensors"

    def work() -> None:
        for _ in range(READS // 6):
            nn.save_parameters(path, model.parameters)
            with nn.parameter_scope("loaded"):
                loaded = nn.load_parameters(path)
            assert len({float(v) for p in loaded.values() for v in np.unique(p.d)}) == 1
            states = [a for a in state_arrays(model.solver).values() if a.ndim]
            assert len({float(v) for a in states for v in np.unique(a)}) == 1

    beside(step, work)
    model.count()


@pytest.mark.parametrize("kind", ["train_step", "update"])
def test_a_graph_reads_parameters_of_one_step(kind: str) -> None:
    model = Counting()
    step = step_of(model, kind)
    first = [w[0:1] for w in model.parameters.values()]
    y = F.concatenate(*first, axis=0)
    (gy,) = nn.grad([F.sum(y * y)], [model.parameters["w5"]])

    def work() -> None:
        for _ in range(READS):
            y.forward()
            assert len(set(y.d.tolist())) == 1
            gy.forward()
            assert np.isfinite(gy.d).all()

    beside(step, work)
    model.count()


@pytest.mark.parametrize("statistics", [False, True])
def test_threads_that_call_one_step_take_turns(statistics: bool) -> None:
    model = Counting(statistics=statistics)
    step = model.train_step()
    errors: list[BaseException] = []

    def train() -> None:
        try:
            for _ in range(100):
                step(model.ones)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=train) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not errors, errors[0]
    assert model.count() == 400


def test_what_is_written_meanwhile_is_not_lost() -> None:
    model = Counting((5, 7))
    step = step_of(model, "train_step")
    w = model.parameters["w5"]

    def work() -> None:
        for i in range(READS):
            w.d = 2.0**20 + i
            # Each step takes something away, by less than all that was taken so far.
            assert float(w.d[0]) <= 2.0**20 + i

    before = float(state_arrays(model.solver)["m:w5"][0])
    beside(step, work)
    after = float(state_arrays(model.solver)["m:w5"][0])
    assert after > before
    assert float(w.d[0]) > 2.0**20 - after * (after + 1) / 2
    assert len(np.unique(w.d)) == 1


def test_a_monitor_that_reads_does_not_slow_learning_down() -> None:
    model = Counting((5, 7))
    step = model.train_step()
    for k in range(50):
        assert model.count() == k
        array = model.parameters["w5"].d  # a writable host view: it may be written to until the next step
        if k == 20:
            array += 0.0
        step(model.ones)
    assert model.count() == 50
