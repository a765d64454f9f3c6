"""Signals that end a run, noted until the step is finished."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

import jax
from jax.experimental import multihost_utils

from ...graph import processes


class NotedSignals:
    """Notes signals while it is entered, in place of what they would do.

    With several processes JAX notes SIGTERM, and lets all of them agree on the step after which they end.

    Args:
        signals: Which ones.

    Raises:
        ValueError: There are none, or with several processes others than SIGTERM.
    """

    def __init__(self, signals: tuple[int, ...]) -> None:
        self._signals = tuple(map(signal.Signals, signals))
        if not self._signals:
            raise ValueError("signals: give at least one, such as signal.SIGTERM")
        self._before: dict[signal.Signals, Any] = {}
        self._noted: signal.Signals | None = None
        self._are_several = jax.process_count() > 1
        if self._are_several and self._signals != (signal.SIGTERM,):
            raise ValueError("signals: with several processes only SIGTERM reaches all of them, got "
                             + ", ".join([s.name for s in self._signals]))

    def enter(self) -> None:
        """Note signals from now on.

        Raises:
            RuntimeError: This is not the main thread, to which Python gives signals; or there are several processes,
                and JAX's preemption service is off.
        """
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("saving_on_signals: Python gives signals to the main thread; enter it there")
        if self._are_several:
            multihost_utils.reached_preemption_sync_point(0)  # raises where the service is off
            processes.terminations += 1
            return
        for number in self._signals:
            self._before[number] = signal.signal(number, self._note)

    def leave(self) -> None:
        """Let signals do what they did before."""
        if self._are_several:
            processes.terminations -= 1
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._before.clear()

    def _note(self, number: int, _: FrameType | None) -> None:
        if number == signal.SIGINT and self._noted is signal.SIGINT:
            raise KeyboardInterrupt  # who presses Ctrl-C again does not want to wait
        self._noted = signal.Signals(number)

    def noted_at(self, step: int) -> signal.Signals | None:
        """The signal after which the run is to end with this step."""
        if self._are_several:
            return signal.SIGTERM if multihost_utils.reached_preemption_sync_point(step) else None
        return self._noted
