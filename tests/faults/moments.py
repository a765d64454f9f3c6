"""Interrupts at chosen moments: at each at which Python might let a signal in."""

from __future__ import annotations

import dis
import functools
import itertools
import sys
import threading
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

INTERRUPTIBLE = {"RESUME", "JUMP_BACKWARD", "CALL", "CALL_KW", "CALL_FUNCTION_EX"}
"""The instructions after which CPython runs the handlers of signals."""

INTERRUPTED = (KeyboardInterrupt, Exception)
"""What an interrupt becomes: JAX makes an error of its own of some, which then says something else."""
MONITORING: Any = getattr(sys, "monitoring", None)
"""Since Python 3.12."""
TOOL = 3
if MONITORING is not None:
    MONITORING.use_tool_id(TOOL, "moments")


@functools.cache
def moments_of(code: CodeType) -> frozenset[int]:
    """The offsets of instructions before which an interrupt may come, where the handler is that of the one before."""
    listing = dis.Bytecode(code)

    def handler(offset: int) -> list[int]:
        return [entry.target for entry in listing.exception_entries if entry.start <= offset < entry.end]

    moments = [
        (before.offset, before.argval if before.opname == "JUMP_BACKWARD" else after.offset)
        for before, after in itertools.pairwise(listing)
        if before.opname in INTERRUPTIBLE
    ]
    return frozenset([after for before, after in moments if handler(before) == handler(after)])


class Interrupts:
    """Raises KeyboardInterrupt, or another error, at the moment of a given number at which Python might let a signal
    in, and counts them."""

    def __init__(self, moment: int, error: type[BaseException] = KeyboardInterrupt) -> None:
        self.moment = moment
        self.error = error
        self.count = 0
        self.where = ""

    def _reach(self, code: CodeType, offset: int) -> None:
        """Note an instruction of this thread that is about to run."""
        if offset in moments_of(code) and code is not Interrupts.__exit__.__code__:
            self.count += 1
            if self.count == self.moment:
                self._end()
                self.where = code.co_qualname
                raise self.error

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "call":
            frame.f_trace_opcodes = True
            frame.f_trace_lines = False
        elif event == "opcode":
            self._reach(frame.f_code, frame.f_lasti)
        return self._trace

    def _instruction(self, code: CodeType, offset: int) -> None:
        if threading.get_ident() == self._thread:
            self._reach(code, offset)

    def __enter__(self) -> Interrupts:
        self._thread = threading.get_ident()
        if MONITORING is None:
            self._before = sys.gettrace()
            sys.settrace(self._trace)
        else:  # `settrace` leaves instructions out there, of functions that it meets first
            MONITORING.register_callback(TOOL, MONITORING.events.INSTRUCTION, self._instruction)
            MONITORING.set_events(TOOL, MONITORING.events.INSTRUCTION)
        return self

    def _end(self) -> None:
        if MONITORING is None:
            sys.settrace(None)
        else:
            MONITORING.set_events(TOOL, 0)

    def __exit__(self, *_: object) -> None:
        self._end()
        if MONITORING is None:
            sys.settrace(self._before)
        else:
            MONITORING.register_callback(TOOL, MONITORING.events.INSTRUCTION, None)


def instructions_of(action: Callable[[], Any]) -> int:
    with Interrupts(-1) as counting:
        action()
    return counting.count
