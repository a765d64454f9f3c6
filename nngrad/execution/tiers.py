"""The two tiers of a large program: what its first calls run is compiled quickly, what later ones run is optimised.

XLA's compiler for CPUs takes seconds for a large program. Told to optimise less it takes two fifths to a seventh of
that, by its version, and what it makes runs up to six times slower. A program that is called once is done soonest by
the quick tier, one that is called often by the optimised tier. How often it will be called nobody knows, so the
optimised executable is compiled, there and then, when the calls of the quick one have lost an estimated third of the
time that this takes. The estimate is made of the structure alone, without a clock, and calls are counted by structure:
so the call from which on a structure rounds in another way is the same in every run.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax

from ..graph.body_op import ControlOp
from ..graph.thresholds import (
    LARGE,
    SECONDS_OF_A_CALL,
    SECONDS_OF_A_KIND,
    SECONDS_OF_AN_ELEMENT,
    SHARE_LOST,
)
from .program import Program

PLATFORM = "cpu"
"""Where there are tiers. On other platforms the options mean something else, or nothing."""

_LEVEL = "xla_backend_optimization_level"

_OPTIONS: dict[str, str | bool] = {
    _LEVEL: "0",  # half the time, and less
    "xla_cpu_use_fusion_emitters": False,  # more than half of what is left; jaxlib 0.11.1 and newer have it no more
    "xla_cpu_parallel_codegen_split_count": "2",  # a fifth of what is left, since parts are not compiled over and over
}
"""XLA's options for the quick tier, the most important one first. What they serve, by version: docs/compilation.md."""


@functools.cache
def quick_options() -> dict[str, str | bool]:
    """Those of the options for the quick tier that this version of XLA knows."""
    trivial = jax.jit(lambda x: x).lower(jax.ShapeDtypeStruct((), "float32"))

    def known(options: dict[str, str | bool]) -> bool:
        try:
            trivial.compile(compiler_options=options)
        except jax.errors.JaxRuntimeError:
            return False
        return True

    return _OPTIONS if known(_OPTIONS) else {name: each for name, each in _OPTIONS.items() if known({name: each})}


def thorough_options() -> dict[str, str | bool]:
    """Options for a quick tier that runs as fast as the optimised one, where there is little to compile. Adam's update
    of six parameters compiles in 120 ms for 55, and 380 in the optimised tier; large ones run five times faster."""
    return {name: "1" if name == _LEVEL else each for name, each in quick_options().items()}


class QuickExecutable(NamedTuple):
    """What a call in the quick tier runs."""

    call: Callable[..., Any]
    seconds: float
    """How long it took to compile; 0 where it came from disk."""


# ---------------------------------------------------------------- how many calls run the quick tier


class Work(NamedTuple):
    """What a program has to do."""

    kinds: int
    """How many functions differ in op, static arguments, shapes or dtypes. Others are compiled as loops, or in little
    time."""
    elements: int
    """How many elements the functions read or write, each with the largest of its arrays."""

    def plus(self, other: Work) -> Work:
        """Both."""
        return Work(*[a + b for a, b in zip(self, other, strict=True)])

    @property
    def quick_calls(self) -> int:
        """How many calls run the quick tier."""
        lost = SECONDS_OF_A_CALL + self.elements * SECONDS_OF_AN_ELEMENT
        return int(SHARE_LOST * self.kinds * SECONDS_OF_A_KIND / lost)


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
    """Whether a program has two tiers. Code of the user's is not compiled twice.

    Several processes must run the same executables, which round in the same way; each counts calls of its own.
    """
    if program.mesh is not None and program.mesh.spans_processes:
        return False
    return len(program.block.steps) >= LARGE and not program.block.opaque


def quick_calls(program: Program) -> int:
    """How many calls of a program run the quick tier; 0 where it has but one tier."""
    return work_of(program).quick_calls if is_large(program) else 0


# ---------------------------------------------------------------- calls that were counted


class CallCount:
    """How often a structure was called in the quick tier. Thread-safe."""

    __slots__ = ("_number",)

    def __init__(self) -> None:
        self._number = 0

    def below(self, most: int) -> bool:
        """Whether there were fewer than `most`."""
        return self._number < most

    def count(self, most: int) -> bool:
        """Count a call, if it is one of the first `most`; returns whether it is."""
        with _lock:
            if self._number >= most:
                return False
            self._number += 1
            return True


_counts: dict[bytes, CallCount] = {}
_lock = threading.Lock()


def count_of(structure: bytes) -> CallCount:
    """The calls of a structure, known by its digest, in this run. They are forgotten by nothing: a structure that comes
    again, after its executables are gone, goes on where it was."""
    with _lock:
        return _counts.setdefault(structure, CallCount())


def counted() -> dict[str, int]:
    """How often each structure was called in the quick tier, for a checkpoint."""
    with _lock:
        return {structure.hex(): count._number for structure, count in sorted(_counts.items()) if count._number}


def count_on_from(numbers: Mapping[str, int]) -> None:
    """Go on counting from what `counted` returned: all other structures were never called."""
    known = {bytes.fromhex(structure): int(number) for structure, number in numbers.items()}
    with _lock:
        for structure in known.keys() | _counts.keys():
            _counts.setdefault(structure, CallCount())._number = known.get(structure, 0)
