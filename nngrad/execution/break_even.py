"""After how many calls the best executable of a large program takes the place of the one that was compiled cheaply.

A program that is called once is done soonest by the cheap one, a program that is called often by the best one. How
often it will be called nobody knows; so the best one is compiled when the calls of the cheap one have lost, by an
estimate, a third of the time that this takes. The estimate is made of the structure alone, without a clock: so the
call from which on a structure rounds in another way is the same in every run.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable
from typing import NamedTuple

from ..graph.body_op import ControlOp
from .program import Program

LARGE = 50
"""Programs of so many functions have two executables. The best one of a gradient of 50 functions takes half a second to
compile, if there are convolutions in it some seconds; the cheap one about a fifth of that."""

_SHARE = 1 / 3
"""Of what compiling the best executable takes, the calls of the cheap one may lose so much. One that is called no more
from then on has lost the rest."""

_OF_A_KIND = 15e-3
"""Seconds in which XLA compiles what functions of one kind do, at its best. By this, and by the two that follow,
programs of 25 to 140 kinds and of 1e5 to 2e7 elements were estimated to 0.5 to 1.5 of what was measured: residual
networks, a transformer block, an LSTM of 50 steps, derivatives of order 6 and 10."""

_OF_AN_ELEMENT = 1e-9
"""Seconds that the cheap executable takes longer for each element that a function reads or writes."""

_OF_A_CALL = 5e-5
"""Seconds that a call of it takes longer: it goes through Python."""

_OF_A_COPY = 1e-5
"""Seconds for each array that the cheap executable is given a copy of, where the best one takes it over."""


class Work(NamedTuple):
    """What a program has to do."""

    kinds: int
    """How many functions differ in op, static arguments, shapes or dtypes. Others are compiled as loops, or in little
    time."""
    elements: int
    """How many elements the functions read or write, each with the largest of its arrays."""
    copies: int = 0
    """How many arrays it takes over."""

    def plus(self, other: Work) -> Work:
        """Both."""
        return Work(*[a + b for a, b in zip(self, other, strict=True)])

    @property
    def cheap_calls(self) -> int:
        """After how many calls the best executable is worth it."""
        lost = _OF_A_CALL + self.copies * _OF_A_COPY + self.elements * _OF_AN_ELEMENT
        return int(_SHARE * self.kinds * _OF_A_KIND / lost)


def work_of(program: Program) -> Work:
    """What a program has to do. A loop whose length is not known is taken to run once."""
    kinds, elements = set(), 0
    waiting = [(program.block, 1)]
    while waiting:
        block, runs = waiting.pop()
        for (op, arguments, ins), made in zip(block.steps, block.results, strict=True):
            given = tuple([block.spec(i) for i in ins])
            if not isinstance(op, ControlOp):
                kinds.add((op, arguments, given))
                elements += runs * max([spec.size for spec in (*given, *made)], default=0)
                continue
            waiting += [(each.body, runs * each.runs) for each in op.within(arguments, len(given))]
    return Work(len(kinds), elements)


def is_large(program: Program) -> bool:
    """Whether it is worth it to compile a program cheaply first, and code of the user's is not compiled twice.

    Several processes must run the same executables, which round in the same way; each counts calls of its own.
    """
    if program.mesh is not None and program.mesh.spans_processes:
        return False
    return len(program.block.steps) >= LARGE and not program.block.opaque


def cheap_calls(program: Program) -> int:
    """After how many calls the best executable of a program runs; 0 for one that has no other."""
    return work_of(program).cheap_calls if is_large(program) else 0


class Count:
    """How often something was called."""

    __slots__ = ("calls",)

    def __init__(self) -> None:
        self.calls = 0


_counts: dict[Hashable, Count] = {}
_lock = threading.Lock()


def count_of(structure: Hashable) -> Count:
    """The calls of a structure in this process. They are forgotten by nothing: a structure that comes again, after its
    executables are gone, goes on where it was."""
    with _lock:
        return _counts.setdefault(structure, Count())
