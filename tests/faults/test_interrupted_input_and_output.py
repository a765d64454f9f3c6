"""Checkpoints and input: what an interrupt or the end of the interpreter leaves of them."""

from __future__ import annotations

import gc
import itertools
import random
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nngrad as nn
from tests.slow import slow_but
from tests.test_feeding import none_ahead

from .moments import INTERRUPTED, Interrupts, instructions_of
from .scripts import ended, output_of


@pytest.fixture(autouse=True)
def lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python drops what is raised while an object is taken down, an interrupt too; that is no failure."""
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)


# ---------------------------------------------------------------- checkpoints


class Saving:
    """A parameter that holds the step, and checkpoints of it."""

    def __init__(self, path: Path) -> None:
        self.w = nn.Variable((3,), need_grad=True)
        self.checkpointer = nn.Checkpointer(path, parameters={"w": self.w}, keep=None)

    def save(self, step: int) -> None:
        self.w.d = float(step)
        self.checkpointer.save(step)

    def restored(self, step: int) -> float:
        self.checkpointer.restore(step)
        return float(self.w.d[0])


@pytest.mark.slow
def test_the_saves_after_one_that_was_interrupted_work(tmp_path: Path) -> None:
    saving = Saving(tmp_path)
    saving.save(1)
    saving.checkpointer.wait()
    total = instructions_of(lambda: saving.save(2))
    steps, again = itertools.count(3), 0
    for moment in random.Random(0).sample(range(1, total), 40):
        step = next(steps)
        with pytest.raises(INTERRUPTED), Interrupts(moment):
            saving.save(step)
        if moment % 2:
            saving.save(step)  # once more the same
            again += 1
        saving.save(other := next(steps))
        assert saving.restored(other) == other
        if moment % 2 or step in saving.checkpointer.steps():
            assert saving.restored(step) == step
            saving.restored(other)
    assert again > 10
    assert not [found for found in tmp_path.iterdir() if not found.name.isdecimal()]


def test_a_save_that_failed_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saving = Saving(tmp_path)

    def full(*_: object) -> None:
        raise OSError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("nngrad.training.checkpoints.storing.write_seal", full)
        saving.save(1)
        with pytest.raises(OSError, match="No space left"):
            saving.checkpointer.wait()
    saving.save(1)
    assert saving.checkpointer.steps() == [1]


RUN = """
import sys
import numpy as np
import nngrad as nn, nngrad.functions as F, nngrad.solvers as S

def main():
    w = nn.Variable((300, 300), need_grad=True)
    solver = S.Adam(0.01)
    step = nn.train_step(F.sum(w**2), {"w": w}, solver)
    checkpointer = nn.Checkpointer(sys.argv[1], solver, parameters={"w": w}, every=20, keep=2)
    for done in range(1, 61):
        step()
        if done == 60:
            LAST
        checkpointer.after_step(done)
    AFTER

main()
"""


writes_at_exit = pytest.mark.skipif(
    (3, 12) <= sys.version_info < (3, 12, 3), reason="these releases of Python start no threads at exit (gh-113964)"
)


@writes_at_exit
@pytest.mark.parametrize("after", slow_but(["pass"], ["pass", "raise SystemExit(0)"]))
def test_what_was_begun_is_written_when_the_interpreter_ends(tmp_path: Path, after: str) -> None:
    done = ended(RUN.replace("LAST", "pass").replace("AFTER", after), tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(found.name for found in tmp_path.iterdir()) == ["40", "60"]
    assert nn.Checkpointer(tmp_path, parameters={"w": nn.Variable((300, 300), need_grad=True)}).restore(
        60, only=["parameters"]) == 60


@writes_at_exit
@pytest.mark.slow
def test_what_cannot_be_written_when_the_interpreter_ends_is_an_error(tmp_path: Path) -> None:
    last = """from nngrad.training.checkpoints import storing
            def full(*_):
                raise OSError("No space left on device")
            checkpointer.wait()
            storing.write_seal = full"""
    done = ended(RUN.replace("LAST", last).replace("AFTER", "print('done')"), tmp_path)
    assert (done.returncode, done.stdout) == (1, "done\n"), done.stderr
    assert "the checkpoint of step 60 could not be written: No space" in done.stderr


STORM = """
import random, signal, sys
import numpy as np
import nngrad as nn

def interrupt(*_):
    raise KeyboardInterrupt

signal.signal(signal.SIGALRM, interrupt)
w = nn.Variable((50, 50), need_grad=True)
checkpointer = nn.Checkpointer(sys.argv[1], parameters={"w": w}, keep=2)
checkpointer.save(1)
checkpointer.wait()
moments, step, met = random.Random(0), 1, 0
for _ in range(60):
    step += 1
    w.d = step
    try:
        signal.setitimer(signal.ITIMER_REAL, moments.uniform(1e-4, 2e-2))
        checkpointer.save(step)
        signal.setitimer(signal.ITIMER_REAL, 0)  # within, since the signal may come just before
    except KeyboardInterrupt:
        met += 1
    step += 1
    w.d = step
    checkpointer.save(step)
    checkpointer.wait()
    assert checkpointer.steps()[-1] == step
    assert checkpointer.restore() == step and (w.d == step).all()
print(met)
"""


@pytest.mark.slow
def test_saves_in_a_storm_of_signals(tmp_path: Path) -> None:
    assert int(output_of(STORM, tmp_path)[-1]) > 5


# ---------------------------------------------------------------- input


def batches() -> Iterator[np.ndarray]:
    for i in range(4):
        yield np.full(2, float(i))


def test_a_feed_interrupted_at_its_start_is_ended_or_goes_on() -> None:
    def start() -> None:
        with nn.feed(lambda _: batches()) as feed:
            next(feed)

    total = instructions_of(start)
    for moment in range(1, total + 1):
        feed = nn.feed(lambda _: batches())
        with suppress(*INTERRUPTED), Interrupts(moment), feed:
            next(feed)
        with feed:
            rest = [float(np.asarray(batch)[0]) for batch in feed]
        # An interrupt may come when a batch is already taken.
        assert rest in ([0.0, 1.0, 2.0, 3.0], [1.0, 2.0, 3.0]), moment
    assert none_ahead()


def test_a_feed_that_is_dropped_at_its_start_leaves_no_thread() -> None:
    def start() -> None:
        next(nn.feed(lambda _: batches()))

    for moment in range(1, instructions_of(start) + 1):
        with suppress(*INTERRUPTED), Interrupts(moment):
            start()
    gc.collect()
    assert none_ahead()


def test_the_end_of_a_feed_is_not_lost_to_an_interrupt() -> None:
    def end(feed: Any) -> None:
        with suppress(StopIteration):
            next(feed)

    def taken() -> Any:
        feed = nn.feed(lambda _: batches())
        for _ in range(4):
            next(feed)
        return feed

    finished = taken()
    for moment in range(1, instructions_of(lambda: end(finished)) + 1):
        with taken() as feed:
            with suppress(*INTERRUPTED), Interrupts(moment):
                end(feed)
            assert list(feed) == []
