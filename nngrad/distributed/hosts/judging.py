"""Who has died or hangs, by what all processes have last told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

RUNNING, DONE, LEAVING, GONE = "running", "done", "leaving", "gone"
"""States of a process: its script runs; its script has ended; it knows of a failure; it ends because of it, now."""
SILENT = 3.0
"""Seconds without a sign of life after which nobody waits for a process any more when a failure is known."""


class Beat(NamedTuple):
    """What a process tells again and again."""

    number: int
    """How often it has told."""
    begun: int = 0
    """How many computations it has begun that all processes take part in: steps of training, say."""
    ended: int = 0
    """How many of them have ended, on its devices."""
    state: str = RUNNING

    def text(self) -> str:
        return f"{self.number} {self.begun} {self.ended} {self.state}"

    @classmethod
    def of_text(cls, text: str) -> Beat:
        number, begun, ended, state = text.split()
        return cls(int(number), int(begun), int(ended), state)


@dataclass(frozen=True, slots=True)
class Failure:
    """That a run cannot go on, and which process is at fault; -1 for all of them."""

    index: int
    reason: str


class Judge:
    """Compares the beats of all processes with those before, by the clock of this process."""

    def __init__(self, count: int, heartbeat_timeout: float, step_timeout: float, now: float) -> None:
        self._count = count
        self._heartbeat_timeout = heartbeat_timeout
        self._step_timeout = step_timeout
        self._last = {index: Beat(-1) for index in range(count)}
        self._heard = dict.fromkeys(range(count), now)
        self._ended = -1
        self._ended_at = now
        self._waiting_since: float | None = None

    def failure(self, beats: Mapping[int, Beat], now: float, sudden: float | None = None) -> Failure | None:
        """What is wrong at the time `now`, if anything is.

        Args:
            beats: What each process has last told.
            now: Seconds, by a clock that only goes forward.
            sudden: Seconds without a sign of life that mean death, where something has failed already.
        """
        for index, beat in beats.items():
            if beat.number != self._last[index].number:
                self._heard[index] = now
                self._last[index] = beat
        return self._dead(now, sudden) or self._gone() or self._hung(now)

    def all_done(self) -> bool:
        """Whether the scripts of all processes have ended."""
        return all(beat.state != RUNNING for beat in self._last.values())

    def all_gone(self, now: float) -> bool:
        """Whether all processes have ended because of a failure, except process 0, which judges."""
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
        """A process whose script has ended, while another has begun a step that needs it."""
        front = max(beat.begun for beat in self._last.values())
        for index, beat in self._last.items():
            if beat.state == DONE and beat.begun < front:
                return Failure(index, f"has ended its script {self._at(index)}, while others wait for it in "
                               f"computation {beat.begun + 1}: all have to take part in as many")
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
