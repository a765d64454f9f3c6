"""Says where a program of the user's compiles again and again, for structures that differ only slightly, and why."""

from __future__ import annotations

import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from ..graph.source_location import SourceLocation, users_location
from ..graph.spec import Spec
from .program import Program

HANDFUL = 5
"""So many compilations of similar structures from one line are nothing to speak of."""

LEAST_SECONDS = 2.0
"""Nor are those that took less than this together."""

_MOST_LINES = 256
_MOST_STEPS = 20_000
"""Longer programs are not compared."""

_ADVICE = {
    "a shape": "give arrays of few shapes: pad them, or leave out the last batch where it is shorter",
    "a dtype": "give arrays of one dtype",
    "a Python constant": "a Variable in its place is no part of the structure; else compute with few values of it",
    "a function object": "define the function once, outside of the loop",
    "the number of functions": "build loops of few lengths, such as a multiple of 16",
}


class RecompilationWarning(UserWarning):
    """Similar structures are compiled again and again from one line."""


class ProgramStructure(NamedTuple):
    """What is compared of a program. It holds nothing of the user's."""

    leaves: tuple[Spec, ...]
    ops: tuple[str, ...]
    arguments: tuple[tuple[int, ...], ...]
    """Hashes of each function's static arguments."""
    wiring: int
    """A hash of how the functions are connected, and of what is computed."""


class ProgramDifference(NamedTuple):
    """How a program differs from the one before."""

    what: str
    """A key of the table of advice."""
    how: str


def compared_structure(program: Program) -> ProgramStructure:
    """What is compared of a program."""
    return ProgramStructure(
        program.block.inputs,
        tuple([op.name for op, _, _ in program.block.steps]),
        tuple([tuple(map(hash, arguments)) for _, arguments, _ in program.block.steps]),
        hash((tuple([ins for _, _, ins in program.block.steps]), program.block.outputs)),
    )


def program_difference(before: ProgramStructure, program: Program, now: ProgramStructure) -> ProgramDifference | None:
    """How `program`, of structure `now`, differs from another; None if it is another computation."""
    if before.ops != now.ops:
        if set(before.ops) != set(now.ops):
            return None
        return ProgramDifference("the number of functions", f"there are {len(now.ops)} now, and were {len(before.ops)}")
    if len(before.leaves) != len(now.leaves) or before.wiring != now.wiring:
        return None
    for was, spec in zip(before.leaves, now.leaves, strict=True):
        if was is not spec:
            what = "a shape" if was.shape != spec.shape else "a dtype"
            return ProgramDifference(what, f"an array is {spec!r} now, and was {was!r}")
    for (op, arguments, _), old, new in zip(program.block.steps, before.arguments, now.arguments, strict=True):
        changed = [i for i, (one, other) in enumerate(zip(old, new, strict=True)) if one != other]
        if changed:
            name, argument = op.argument_names[changed[0]], arguments[changed[0]]
            if getattr(argument, "opaque", False):
                return ProgramDifference("a function object", f"F.{op.name} gets a new one each time")
            what = f"{name} of F.{op.name} is {argument!r:.60} now, and was another"
            return ProgramDifference("a Python constant", what)
    return None


class _CompiledLine:
    """What was compiled from a line of the user's program."""

    def __init__(self, structure: ProgramStructure, seconds: float) -> None:
        self.last = structure
        self.count = 1
        self.seconds = seconds
        self.is_told = False

    def add(self, program: Program, structure: ProgramStructure, seconds: float) -> ProgramDifference | None:
        """Count a compilation; returns a difference where that is to be told now."""
        found = program_difference(self.last, program, structure)
        self.last = structure
        if found is None:
            self.count, self.seconds = 1, seconds
            return None
        self.count += 1
        self.seconds += seconds
        if self.is_told or self.count <= HANDFUL or self.seconds < LEAST_SECONDS:
            return None
        self.is_told = True
        return found


_lines: OrderedDict[tuple[str, int], _CompiledLine] = OrderedDict()
_lock = threading.Lock()


def forget_compilations() -> None:
    """Forget what was compiled."""
    with _lock:
        _lines.clear()


def watched_compilation(program: Program) -> Callable[[float], None]:
    """What is to be told the seconds that the compilation of `program` took. It warns in the name of the line of the
    user's program that runs now."""
    place = users_location()

    def compiled(seconds: float) -> None:
        if place is None or len(program.block.steps) > _MOST_STEPS:
            return
        structure, key = compared_structure(program), (place.file, place.line)
        with _lock:
            line = _lines.pop(key, None)
            found = None if line is None else line.add(program, structure, seconds)
            line = _lines[key] = line or _CompiledLine(structure, seconds)
            if len(_lines) > _MOST_LINES:
                _lines.popitem(last=False)
        if found is not None:
            _warn(place, line, found)

    return compiled


def _warn(place: SourceLocation, line: _CompiledLine, found: ProgramDifference) -> None:
    message = (
        f"{line.count} structures that differ in {found.what} were compiled from this line, which took "
        f"{line.seconds:.1f} s: {found.how}. What helps: {_ADVICE[found.what]}"
    )
    warnings.warn_explicit(message, RecompilationWarning, place.file, place.line)
