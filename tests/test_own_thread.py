"""Threads that work once, whatever is asked of them and in which order."""

from __future__ import annotations

import threading
from contextlib import suppress

from nngrad.graph.process import OwnThread
from tests.faults.moments import Interrupts, instructions_of

LONG = 60.0
"""Seconds that nothing here takes unless it is broken."""


def test_it_works_once_andis_over_for_all_who_wait() -> None:
    done: list[int] = []
    thread = OwnThread(lambda: done.append(threading.get_ident()))
    thread.start()
    thread.start()
    thread.wait(LONG)
    assert thread.is_over, "whoever waits now would wait for ever"
    thread.wait()
    thread.end(LONG)
    assert len(done) == 1 and done[0] != threading.get_ident()


def test_itis_over_though_its_work_ends_it_from_within() -> None:
    ended = threading.Event()

    def work() -> None:
        thread.end(LONG)  # does not wait for itself
        ended.set()

    thread = OwnThread(work)
    thread.start()
    assert ended.wait(LONG)
    thread.wait(LONG)
    assert thread.is_over


def test_what_is_ended_before_its_start_never_begins() -> None:
    done: list[None] = []
    thread = OwnThread(lambda: done.append(None))
    thread.end(LONG)
    thread.start()
    thread.wait()
    assert not done and thread.is_over


def test_an_end_that_was_interrupted_can_be_asked_for_again() -> None:
    thread = OwnThread(lambda: None)
    for moment in range(1, instructions_of(lambda: OwnThread(lambda: None).end(LONG)) + 1):
        thread = OwnThread(lambda: None)
        with suppress(KeyboardInterrupt), Interrupts(moment):
            thread.end(LONG)
        thread.end(LONG)
        assert thread.is_over
