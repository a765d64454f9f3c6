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


@functools.cache
def moments_of(code: CodeType) -> frozenset[int]:
    """The offsets of instructions before which an interrupt may come, where the handler is that of the one before."""
    listing = dis.Bytecode(code)

    def handler(offset: int) -> list[int]:
        return [entry.target for entry in listing.exception_entries if entry.start <= offset < entry.end]

    instructions = list(listing)
    return frozenset([
        after.offset
        for before, after in itertools.pairwise(instructions)
        if before.opname in INTERRUPTIBLE and handler(before.offset) == handler(after.offset)
    ])


MONITORING: Any = getattr(sys, "monitoring", None)
"""From Python 3.12 on; there a function that was not traced before tells a tracer nothing of its instructions."""
TOOL = 4
if MONITORING is not None:
    MONITORING.use_tool_id(TOOL, "interrupts")


class Interrupts:
    """Raises KeyboardInterrupt at the moment of a given number at which Python might within, and counts them."""

    def __init__(self, moment: int) -> None:
        self.moment = moment
        self.count = 0
        self.where = ""

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "call":
            frame.f_trace_opcodes = True
            frame.f_trace_lines = False
        elif event == "opcode":
            self._at(frame.f_code, frame.f_lasti)
        return self._trace

    def _at(self, code: CodeType, offset: int) -> Any:
        if offset not in moments_of(code):
            return MONITORING and MONITORING.DISABLE
        if threading.get_ident() == self._thread:
            self.count += 1
            if self.count == self.moment:
                self._follow(False)
                self.where = code.co_qualname
                raise KeyboardInterrupt
        return None

    def _follow(self, on: bool) -> None:
        if MONITORING is None:
            sys.settrace(self._trace if on else self._before)
        else:
            MONITORING.set_events(TOOL, MONITORING.events.INSTRUCTION if on else 0)

    def __enter__(self) -> Interrupts:
        self._before, self._thread = sys.gettrace(), threading.get_ident()
        if MONITORING is not None:
            MONITORING.register_callback(TOOL, MONITORING.events.INSTRUCTION, self._at)
        self._follow(True)
        return self

    def __exit__(self, *_: object) -> None:
        self._follow(False)


def instructions_of(action: Callable[[], Any]) -> int:
    with Interrupts(-1) as counting:
        action()
    return counting.count
