"""Threads that work once, whatever is asked of them and in which order."""

from __future__ import annotations

import threading

from nngrad.graph.process import OwnThread


def test_it_works_once_and_is_over_for_all_who_wait() -> None:
    done: list[int] = []
    thread = OwnThread(lambda: done.append(threading.get_ident()))
    thread.start()
    thread.start()
    thread.wait()
    assert thread.is_over, "whoever waits now would wait for ever"
    thread.start()
    thread.wait()
    assert len(done) == 1 and done[0] != threading.get_ident()
