"""Interrupts and signal handlers at any moment of training: all is as before a step or as after it."""

from __future__ import annotations

import functools
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import nngrad as nn

from .counting import Counting
from .moments import INTERRUPTED

TRIES = 200
MOST_STEPS = 1000
"""How many steps are taken if Python drops an interrupt: what counts them is exact for some 5,000."""
WARM = 3
"""After so many steps nothing is compiled any more."""


@pytest.fixture(autouse=True)
def dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python drops what a handler raises while an object is collected (in JAX's callback, say); that is no failure."""
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)


@pytest.fixture
def alarm() -> Iterator[Callable[[float, Callable[[], None]], None]]:
    """`alarm(seconds, handler)`: a real signal, after a while; an interrupt again and again, until it arrives."""
    before = signal.getsignal(signal.SIGALRM)

    def arm(seconds: float, handler: Callable[[], None]) -> None:
        signal.signal(signal.SIGALRM, lambda *_: handler())
        signal.setitimer(signal.ITIMER_REAL, seconds, 0.5 if handler is interrupt else 0.0)

    yield arm
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def interrupt() -> None:
    raise KeyboardInterrupt


class Loop:
    """Many steps. It is a function of its own, since Python 3.13 does not see that a jump back within `try` may be
    interrupted: the `except` beside it misses that.

    Args:
        step: Takes a step.
    """

    def __init__(self, step: Callable[[], Any]) -> None:
        self.step = step
        self.taken = 0

    def run(self) -> None:
        while self.taken < MOST_STEPS:
            self.step()
            self.taken += 1


def classic(model: Counting) -> Callable[[Any], Any]:
    """A step as it is written in nnabla."""
    model.solver.set_parameters(model.parameters)

    def step(x: np.ndarray) -> None:
        model.x.d = x
        model.loss.forward()
        model.solver.zero_grad()
        model.loss.backward()
        model.solver.update()

    return step


@pytest.mark.slow
@pytest.mark.parametrize("statistics", [False, True])
@pytest.mark.parametrize("reading", [False, True])
def test_an_interrupted_step_is_done_or_not_done(alarm: Any, statistics: bool, reading: bool) -> None:
    model = Counting(statistics=statistics)
    step = model.warm_step()

    def read(x: np.ndarray) -> float:
        return float(step(x))

    start = time.perf_counter()
    read(model.ones)
    seconds = max(2e-3, 3 * (time.perf_counter() - start))
    rng = np.random.default_rng(0)
    tries = done = 0
    while tries < TRIES or done <= 10:
        before = model.restart_statistics()
        loop = Loop(functools.partial(read if reading else step, model.ones))
        try:
            alarm(rng.uniform(1e-5, seconds), interrupt)
            loop.run()
        except INTERRUPTED:
            pass
        signal.setitimer(signal.ITIMER_REAL, 0)
        assert model.count() - before in (loop.taken, loop.taken + 1)
        tries, done = tries + 1, done + loop.taken
        seconds *= 1 if loop.taken else 1.02  # on a busy machine no step would be done otherwise
        for _ in range(0 if loop.taken else WARM):  # what was interrupted while it was being made is made anew
            step(model.ones)
        if model.count() > 4000:  # whole numbers are exact in float32 up to 2^24
            model = Counting(statistics=statistics)
            step = model.warm_step()


def test_an_interrupted_loop_of_forward_backward_and_update(alarm: Any) -> None:
    model = Counting()
    step = classic(model)
    for _ in range(8):
        step(model.ones)
    rng = np.random.default_rng(2)
    for _ in range(TRIES):
        before = model.restart_statistics()
        loop = Loop(functools.partial(step, model.ones))
        try:
            alarm(rng.uniform(1e-5, 3e-3), interrupt)
            loop.run()
        except INTERRUPTED:
            pass
        signal.setitimer(signal.ITIMER_REAL, 0)
        assert model.count() - before in (loop.taken, loop.taken + 1)
        (g,) = {float(v) for w in model.parameters.values() for v in np.unique(w.grad.view)}
        assert g in (0.0, 1.0)
        if model.count() > 4000:
            model = Counting()
            step = classic(model)
            for _ in range(8):
                step(model.ones)


@pytest.mark.slow
def test_a_signal_handler_sees_the_state_before_or_after_a_step(alarm: Any, tmp_path: Any) -> None:
    model = Counting(statistics=True)
    step = model.warm_step()
    rng = np.random.default_rng(3)
    seen: list[int] = []

    def checkpoint() -> None:
        nn.save_parameters(tmp_path / "checkpoint.safetensors", model.parameters)
        seen.append(model.count())

    for i in range(TRIES):
        before = model.restart_statistics()
        alarm(rng.uniform(1e-5, 1e-3), checkpoint)
        taken = 0
        while len(seen) <= i:
            step(model.ones)
            taken += 1
        assert before <= seen[-1] <= before + taken == model.count()
        if model.count() > 4000:
            model = Counting(statistics=True)
            step = model.warm_step()
