"""Checkpoints and input: what an interrupt or the end of the interpreter leaves of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nngrad as nn

from .moments import INTERRUPTED, Interrupts, instructions_of


@pytest.fixture(autouse=True)
def lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python drops what is raised while an object is taken down, an interrupt too; that is no failure."""
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)


# ---------------------------------------------------------------- checkpoints


class Saving:
    """A parameter that holds the step, and checkpoints of it."""

    def __init__(self, path: Path, keep: int | None = None) -> None:
        self.path = path
        self.w = nn.Variable((3,), need_grad=True)
        self.checkpointer = nn.Checkpointer(path, parameters={"w": self.w}, keep=keep)

    def save(self, step: int) -> None:
        self.w.d = float(step)
        self.checkpointer.save(step)

    def restored(self, step: int) -> float:
        self.checkpointer.restore(step)
        return float(self.w.d[0])


    def resumed(self) -> float:
        """What another process restores."""
        w = nn.Variable((3,), need_grad=True)
        step = nn.Checkpointer(self.path, parameters={"w": w}).restore()
        assert w.d.tolist() == [step] * 3
        return step


@pytest.mark.parametrize(("again", "share"), [(False, 19), (True, 20), pytest.param(True, 1, marks=pytest.mark.slow)])
def test_what_is_acknowledged_after_an_interrupt_is_there(tmp_path: Path, again: bool, share: int) -> None:
    """At each moment of saving, or a share of them; then the same step is saved again, or the next one."""
    saving, step = Saving(tmp_path, keep=2), 2
    saving.save(1)
    for moment in range(1, instructions_of(lambda: saving.save(2)), share):
        step += 1
        with suppress(*INTERRUPTED), Interrupts(moment):
            saving.save(step)
        step += not again
        saving.save(step)
        assert saving.resumed() == step, moment
    before, last = saving.checkpointer.steps()
    assert last == step
    assert before in ({step - 1} if again else {step - 2, step - 1})  # what was interrupted last may be there


@pytest.mark.parametrize("share", [23])
def test_what_is_acknowledged_after_an_error_is_there(tmp_path: Path, share: int) -> None:
    """An error at each moment of saving."""
    saving, step, told = Saving(tmp_path, keep=2), 2, 0
    saving.save(1)
    for moment in range(1, instructions_of(lambda: saving.save(2)), share):
        step += 1
        try:
            with Interrupts(moment, OSError):
                saving.save(step)
        except OSError:
            told += 1
        else:
            assert saving.resumed() == step, moment
        step += 1
        saving.save(step)
        assert saving.resumed() == step, moment
    assert told > 20
    assert len(os.listdir(tmp_path)) == len(saving.checkpointer.steps())


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
