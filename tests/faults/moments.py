"""Interrupts at chosen moments: at each at which Python might let a signal in."""

from __future__ import annotations

import dis
import functools
import itertools
import sys
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
        elif event == "opcode" and frame.f_lasti in moments_of(frame.f_code):
            self.count += 1
            if self.count == self.moment:
                sys.settrace(None)
                self.where = frame.f_code.co_qualname
                raise KeyboardInterrupt
        return self._trace

    def __enter__(self) -> Interrupts:
        self._before = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)


def instructions_of(action: Callable[[], Any]) -> int:
    with Interrupts(-1) as counting:
        action()
    return counting.count
