"""What is said of compilations: a hint at the cache, and a warning about programs that are compiled again and again."""

from __future__ import annotations

import itertools
import threading
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax

from .extend import Block, BoundedCache, CompilationEvent, Op, Program, SourceLocation, Spec, bodies_in, warn_user

LONG = 5.0
"""Seconds of one compilation from which on the cache is worth a hint."""


def hear(event: CompilationEvent) -> None:
    """Hear of a compilation, which may call for a hint or a warning."""
    if event.program is not None and event.place is not None:
        warn_of_repetition(event.program, event.seconds, event.place)
    hint_at_cache(event.seconds)


def hint_at_cache(seconds: float) -> None:
    """Tell, once in a process, of the cache on disk, if there is none and a compilation took so long."""
    cached = jax.config.values["jax_compilation_cache_dir"] or not jax.config.values["jax_enable_compilation_cache"]
    if seconds > LONG and not cached and next(_hints) == 0:
        warn_user(f"compiling this took {seconds:.0f} s, and will take as long in each process that runs it; after "
                  "nn.cache_compilations() the next one finds what this one has compiled")


_hints = itertools.count()
"""Numbers the occasions for the hint."""


# ---------------------------------------------------------------- repeated compilation

HANDFUL = 5
"""This many compilations of similar structures from one line cause no warning."""

LEAST_SECONDS = 2.0
"""Nor do compilations that took less than this in total."""

_MOST_STEPS = 20_000
"""Programs with more steps are not compared."""

_ADVICE = {
    "a shape": "use few different shapes: pad arrays, or drop the last batch if it is shorter",
    "a dtype": "use arrays of one dtype",
    "a Python constant": "make it a Variable, which is no part of the structure, or use few different values",
    "a function object": "define the function once, outside the loop",
    "the number of functions": "build loops of few different lengths, such as multiples of 16; to read many states of "
    "one graph, call nn.forward_all of them first",
}


class RecompilationWarning(UserWarning):
    """Similar structures are compiled again and again from one line of the program."""


class ProgramStructure(NamedTuple):
    """The parts of a program that are compared. It holds nothing of the user's."""

    leaves: tuple[Spec, ...]
    ops: tuple[str, ...]
    arguments: tuple[tuple[int, ...], ...]
    """Hashes of each function's static arguments."""
    wiring: int
    """A hash of how the functions are connected, and of what is computed."""


def _steps_within(block: Block) -> Iterator[tuple[Op, tuple[Any, ...], SourceLocation | None]]:
    """The functions of a block, with where they were written if that is known, each after those of its bodies."""
    for (op, arguments, _), place in zip(block.steps, block.places or (None,) * len(block.steps), strict=True):
        for body in bodies_in(arguments):
            yield from _steps_within(body)
        yield op, arguments, place


def compared_structure(program: Program) -> ProgramStructure:
    """The parts of a program that are compared."""
    steps = [*_steps_within(program.block)]
    return ProgramStructure(
        program.block.inputs,
        tuple([op.name for op, _, _ in steps]),
        tuple([tuple(map(hash, arguments)) for _, arguments, _ in steps]),
        hash((tuple([ins for _, _, ins in program.block.steps]), program.block.outputs)),
    )


def program_difference(before: ProgramStructure, program: Program, now: ProgramStructure) -> tuple[str, str] | None:
    """How `program`, of structure `now`, differs from an earlier one, as a key of `_ADVICE` and a text; None if it is a
    different computation."""
    if before.ops != now.ops:
        if set(before.ops) != set(now.ops):
            return None
        return "the number of functions", f"there were {len(before.ops)}, and are {len(now.ops)} now"
    if len(before.leaves) != len(now.leaves) or before.wiring != now.wiring:
        return None
    for was, spec in zip(before.leaves, now.leaves, strict=True):
        if was is not spec:
            what = "a shape" if was.shape != spec.shape else "a dtype"
            return what, f"an array was {was!r}, and is {spec!r} now"
    steps = _steps_within(program.block)
    for (op, arguments, place), old, new in zip(steps, before.arguments, now.arguments, strict=True):
        changed = [i for i, (one, other) in enumerate(zip(old, new, strict=True)) if one != other]
        if changed:
            name, argument = op.argument_names[changed[0]], arguments[changed[0]]
            if getattr(argument, "opaque", False):
                return "a function object", f"F.{op.name} gets a new one each time"
            where = "" if place is None else f", at {place}"
            return "a Python constant", f"{name} of F.{op.name} has changed to {argument!r:.60}{where}"
    return None


class _CompiledLine:
    """The compilations caused by one line of the user's program."""

    def __init__(self) -> None:
        self.last: ProgramStructure | None = None
        self.count = 0
        self.seconds = 0.0
        self.has_warned = False
        self.lock = threading.Lock()

    def add(self, program: Program, structure: ProgramStructure, seconds: float) -> tuple[str, str] | None:
        """Count a compilation; returns a difference if it is time to warn."""
        difference = None if self.last is None else program_difference(self.last, program, structure)
        self.last = structure
        if difference is None:
            self.count, self.seconds = 1, seconds
            return None
        self.count += 1
        self.seconds += seconds
        if self.has_warned or self.count <= HANDFUL or self.seconds < LEAST_SECONDS:
            return None
        self.has_warned = True
        return difference


_lines = BoundedCache.about_structures(256)


def warn_of_repetition(program: Program, seconds: float, place: SourceLocation) -> None:
    """Warn in the name of a line of the user's program that has compiled a program in so many seconds, if it has
    compiled similar ones again and again."""
    if len(program.block.steps) > _MOST_STEPS:
        return
    structure = compared_structure(program)
    line: _CompiledLine = _lines.get((place.file, place.line), _CompiledLine)
    with line.lock:
        difference = line.add(program, structure, seconds)
    if difference is not None:
        what, how = difference
        message = (f"this line has compiled {line.count} graphs that differ only in {what}, which took "
                   f"{line.seconds:.1f} s: {how}. To avoid this, {_ADVICE[what]}")
        warnings.warn_explicit(message, RecompilationWarning, place.file, place.line)
