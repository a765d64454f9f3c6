"""Failure detection: each process reports its progress to the others, and ends when one of them cannot go on.

Each process runs two threads. The first writes heartbeats to the key-value store of JAX's coordination service, and
reads whether a failure is known; in process 0, which runs the service, it also reads all heartbeats and judges them. A
call of the service may block for ever when process 0 is stopped, so the second thread checks the time.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple

import jax

from nngrad_command.launched import ANOTHER_FAILED
from nngrad_command.outcome import error_line, raised_at

from .. import exchange
from .leaving import HostError, LastWords, leave, say, show_where_it_is
from .store import KeyValueStore

RUNNING, DONE, LEAVING, GONE = "running", "done", "leaving", "gone"
"""States of a process: its script runs; its script has ended; it knows of a failure; it is exiting because of one."""
SILENT = 3.0
"""Once a failure is known, seconds without a heartbeat after which process 0 no longer waits for a process."""


class Beat(NamedTuple):
    """A heartbeat of a process, with its progress."""

    number: int
    """The number of heartbeats so far."""
    begun: int = 0
    """The number of collective computations, such as training steps, that it has begun."""
    ended: int = 0
    """The number of these that have finished on its devices."""
    state: str = RUNNING

    def text(self) -> str:
        return f"{self.number} {self.begun} {self.ended} {self.state}"

    @classmethod
    def of_text(cls, text: str) -> Beat:
        number, begun, ended, state = text.split()
        return cls(int(number), int(begun), int(ended), state)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a run cannot go on, and which process is at fault; -1 for all of them."""

    index: int
    reason: str


class Judge:
    """Detects failures from the heartbeats of all processes, timed by the clock of this process."""

    def __init__(self, count: int, heartbeat_timeout: float, step_timeout: float, now: float) -> None:
        self._count = count
        self._heartbeat_timeout = heartbeat_timeout
        self._step_timeout = step_timeout
        self._last = {index: Beat(-1) for index in range(count)}
        self._heard = dict.fromkeys(range(count), now)
        self._ended = -1
        self._ended_at = now

    def failure(self, beats: Mapping[int, Beat], now: float, sudden: float | None = None) -> Failure | None:
        """The failure that the latest heartbeats show at the time `now`, or None. After a lost connection, `sudden`
        seconds without a heartbeat mean that a process is dead."""
        for index, beat in beats.items():
            if beat.number != self._last[index].number:
                self._heard[index] = now
                self._last[index] = beat
        return self._dead(now, sudden) or self._gone() or self._hung(now)

    def all_done(self) -> bool:
        """Whether the scripts of all processes have ended."""
        return all(beat.state != RUNNING for beat in self._last.values())

    def all_gone(self, now: float) -> bool:
        """Whether all processes except process 0 have exited, or count as dead, after a failure."""
        return all(beat.state == GONE or now - self._heard[i] > SILENT for i, beat in self._last.items() if i != 0)

    def _dead(self, now: float, sudden: float | None) -> Failure | None:
        limit = self._heartbeat_timeout if sudden is None else min(sudden, self._heartbeat_timeout)
        silent = {i: now - self._heard[i] for i, beat in self._last.items() if beat.state not in (LEAVING, GONE)}
        index = max(silent, key=lambda i: silent[i], default=-1)
        if index < 0 or silent[index] <= limit:
            return None
        return Failure(index, f"has died, is stopped or cannot be reached: no sign of life for {silent[index]:.1f} s, "
                       f"{self._at(index)}")

    def _gone(self) -> Failure | None:
        """A failure if the script of a process has ended while another is in a computation that needs it."""
        front = max(beat.begun for beat in self._last.values())
        for index, beat in self._last.items():
            if beat.state == DONE and beat.begun < front:
                return Failure(index, f"ended its script {self._at(index)}, while others wait for it in "
                               f"computation {beat.begun + 1}: all processes must take part in equally many")
        return None

    def _hung(self, now: float) -> Failure | None:
        ended = sum(beat.ended for beat in self._last.values())
        waiting = any(beat.begun > beat.ended for beat in self._last.values())
        if ended != self._ended or not waiting:
            self._ended, self._ended_at = ended, now
            return None
        seconds = now - self._ended_at
        if seconds <= self._step_timeout:
            return None
        front = max(beat.begun for beat in self._last.values())
        index = min(self._last, key=lambda i: self._last[i].begun)
        begun = self._last[index].begun
        if begun == front:
            return Failure(-1, f"all processes are in computation {front}, which has not ended for {seconds:.1f} s")
        return Failure(index, f"hangs {self._at(index)}: others have waited for it in computation {begun + 1} for "
                       f"{seconds:.1f} s")

    def _at(self, index: int) -> str:
        beat = self._last[index]
        return f"{'after' if beat.begun == beat.ended else 'in'} computation {beat.begun} of all processes"


INTERVAL = 0.5
"""Seconds between heartbeats, for up to 500 processes; beyond, the interval grows to relieve process 0."""
SUDDEN = 3.0
"""Seconds without a heartbeat that mean death after a collective computation has failed."""
NOTICE = 3.0
"""Seconds that a program has to end by itself once a failure is known."""
LINGER = 8.0
"""Seconds that process 0 waits for the others to exit, since JAX aborts them when it is gone."""
TERMINATED = 128 + signal.SIGTERM
"""The exit code after SIGTERM."""
CONNECTIONS = ("gloo", "nccl", "connection", "peer", "unavailable", "aborted", "coordination")
"""Words in the errors that a process gets when it loses its connection to another."""


class HostWatch:
    """The watchdog in each process of a run; the `watch` of `graph/process.py`."""

    def __init__(self, index: int, count: int, heartbeat_timeout: float, step_timeout: float) -> None:
        self.step_timeout = step_timeout
        self.failure: HostError | None = None
        self._index, self._count = index, count
        self._heartbeat_timeout = heartbeat_timeout
        self._interval = max(INTERVAL, INTERVAL * count / 500)
        self._store = KeyValueStore()
        self._members: dict[int, str] = {}
        self._state = RUNNING
        self._number = self._begun = self._ended = self._depth = 0
        self._running: tuple[int, Any] | None = None  # the oldest result that may not be ready
        self._newest: tuple[int, Any] | None = None
        self._answered = time.monotonic()
        self._judge = Judge(count, heartbeat_timeout, step_timeout, self._answered)
        self._sudden: float | None = None
        self._own: Failure | None = None
        self._culprit = -1
        self._code = 1
        self._process = os.getpid()
        self._leaving = threading.Lock()
        self._wake, self._known, self._all_done, self._told, self._over = [threading.Event() for _ in range(5)]

    def start(self, address: str) -> None:
        """Watch from now until the process ends. Process 0 listens at `address`."""
        place = f"{os.uname().nodename}, pid {self._process}"
        self._store.write("members", self._index, place)
        first = f"process 0 ({self._store.wait_for('members', 0, self._heartbeat_timeout)})"
        who = f"process {self._index} of {self._count} ({place})"
        self._last_words = LastWords(who, first, address if self._index else "")
        self._threads = [
            threading.Thread(target=target, name=f"nngrad hosts: {target.__name__}", daemon=True)
            for target in (self._talk, self._look_at_the_clock)
        ]
        for thread in self._threads:
            thread.start()
        self._hook, sys.excepthook = sys.excepthook, self._on_error
        atexit.register(self._at_exit)

    # ------------------------------------------------------------ collective computations

    def begin(self) -> None:
        if self.failure is not None:
            raise self.failure
        self._begun += 1
        self._depth += 1

    def running(self, results: Any) -> None:
        arrays = [x for x in jax.tree.leaves(results) if isinstance(x, jax.Array)]
        if arrays:
            self._newest = self._begun, arrays[0]

    def end(self) -> None:
        self._depth -= 1
        if not self._depth and self._newest is None and self._running is None:
            self._ended = self._begun

    def lost(self, error: Exception) -> Exception | None:
        if isinstance(error, HostError):
            return error
        if self.failure is None and _speaks_of_connections(error):
            self._sudden = SUDDEN
            self._wake.set()
            self._known.wait(SUDDEN + 4 * self._interval)
        return self.failure

    def _advance(self) -> None:
        """Update the number of computations that have ended."""
        while self._running is not None or self._newest is not None:
            if self._running is None:
                self._running, self._newest = self._newest, None
            assert self._running is not None
            number, result = self._running
            with contextlib.suppress(Exception):  # deleted, or failed, which is reported elsewhere
                if not result.is_ready():
                    return
            self._ended, self._running = number, None

    # ------------------------------------------------------------ heartbeats

    def _talk(self) -> None:
        while not self._over.is_set():
            try:
                self._tell()
                self._listen()
                self._answered = time.monotonic()
            except Exception:  # the service does not answer
                if self._index != 0 and self._sudden is not None:
                    self._adopt(Failure(0, "has died or cannot be reached: JAX's coordinator, which it runs, does not "
                                        "answer"))
            self._wake.wait(self._interval)
            self._wake.clear()

    def _tell(self) -> None:
        self._advance()
        self._number += 1
        beat = Beat(self._number, self._begun, self._ended, self._state)
        self._store.write("beats", self._index, beat.text())
        if beat.state == GONE:
            self._told.set()
        if len(self._members) < self._count:
            self._members = self._store.read("members")

    def _listen(self) -> None:
        found = self._own
        if self._index == 0 or self._sudden is not None:
            beats = {index: Beat.of_text(text) for index, text in self._store.read("beats").items()}
            judged = self._judge.failure(beats, time.monotonic(), self._sudden)
            found = found or judged
            if self._index == 0 and self._judge.all_done():
                self._store.write("done", 0, "all")
        if found is not None and self.failure is None:
            self._store.write_first("failure", 0, f"{found.index} {found.reason}")
        for text in self._store.read("failure").values():  # the first failure that any process wrote
            index, _, reason = text.partition(" ")
            self._adopt(Failure(int(index), reason))
        if self.failure is None and not exchange.terminations and self._store.is_terminated():
            self._code = TERMINATED
            self._adopt(Failure(-1, "a process received SIGTERM"))
        if self._state == DONE and self._store.read("done"):
            self._all_done.set()

    def _look_at_the_clock(self) -> None:
        while not self._over.wait(self._interval):
            silent = time.monotonic() - self._answered
            if silent > self._heartbeat_timeout:
                self._adopt(Failure(0, "has died, is stopped or cannot be reached: JAX's coordinator, which it runs, "
                                    f"has not answered for {silent:.1f} s"))
            if self.failure is not None and not self._over.wait(NOTICE):
                if self._culprit in (self._index, -1) and self._own is None and self._code != TERMINATED:
                    show_where_it_is(self._index)
                self._leave()

    def _adopt(self, failure: Failure) -> None:
        """Report, once, that the run cannot go on, and give the program some time to end."""
        if self.failure is not None:
            return
        self._culprit = failure.index
        if failure.index != self._index and failure.index >= 0:
            self._code = ANOTHER_FAILED
        place = f" ({self._members[failure.index]})" if failure.index in self._members else ""
        name = f"process {failure.index}{place} " if failure.index >= 0 else ""
        self.failure = HostError(f"{name}{failure.reason}")
        self._state = LEAVING
        self._wake.set()  # tells the others at once that this process knows
        say(f"nngrad: process {self._index} of {self._count} ends: {self.failure}")
        self._known.set()

    # ------------------------------------------------------------ the end of the program

    def _on_error(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        """Report at once to the others that the program has failed in this process."""
        self._hook(kind, error, trace)
        if os.getpid() != self._process:
            return
        if self.failure is None and (not isinstance(error, Exception) or self.lost(error) is None):
            self._code = 130 if isinstance(error, KeyboardInterrupt) else 1
            self._own = Failure(self._index, f"has failed: {error_line(error)}{raised_at(error) if str(error) else ''}")
            self._wake.set()
            if not self._known.wait(SUDDEN):
                self._adopt(self._own)

    def _at_exit(self) -> None:
        """Wait for the other processes, since none may exit early; if one has failed, exit without JAX's handlers,
        which would wait for minutes. What is registered with `atexit` after `initialize` has run before this."""
        if os.getpid() != self._process:
            return
        if self.failure is None:
            self._state = DONE
            self._wake.set()
            try:
                while self.failure is None and not self._all_done.wait(self._interval):
                    pass
            except KeyboardInterrupt:
                self._code = 130
                self._adopt(Failure(self._index, "was interrupted"))
        if self.failure is not None:
            self._leave()
        self._last_words.are_said()
        self._over.set()
        self._wake.set()
        for thread in self._threads:
            thread.join(self._heartbeat_timeout)

    def _leave(self) -> None:
        """End this process; process 0 waits for the others first, since JAX aborts them when it is gone."""
        if not self._leaving.acquire(blocking=False):
            threading.Event().wait()  # another thread ends the process
        self._last_words.are_said()
        self._state = GONE
        self._wake.set()
        if self._index != 0:
            self._told.wait(2 * self._interval)
        deadline = time.monotonic() + LINGER
        while self._index == 0 and time.monotonic() < deadline and not self._judge.all_gone(time.monotonic()):
            time.sleep(self._interval / 4)
        leave(self._code)


def _speaks_of_connections(error: Exception) -> bool:
    # When a ring of gloo breaks, only neighbours get such an error; other processes learn of it from the store.
    text = str(error).lower()
    return isinstance(error, ValueError | RuntimeError) and any(word in text for word in CONNECTIONS)
