"""What is said of compilations: a hint at the cache, and a warning about programs that are compiled again and again."""

from __future__ import annotations

import itertools
import threading
import warnings
import weakref
from collections.abc import Callable

import jax

from .extend import Block, BoundedCache, CompilationEvent, Program, SourceLocation, bodies_in, warn_user

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


def block_difference(before: Block, now: Block) -> tuple[str, str] | None:
    """How a block differs from an earlier one, as a key of `_ADVICE` and a text; None if it is equal, or a different
    computation."""
    was, names = ([op.name for op, _, _ in block.steps] for block in (before, now))
    if was != names:
        if set(was) != set(names):
            return None
        return "the number of functions", f"there were {len(was)}, and are {len(names)} now"
    wiring = [([ins for _, _, ins in block.steps], block.outputs, len(block.inputs)) for block in (before, now)]
    if wiring[0] != wiring[1]:
        return None
    for old, spec in zip(before.inputs, now.inputs, strict=True):
        if old is not spec:
            what = "a shape" if old.shape != spec.shape else "a dtype"
            return what, f"an array was {old!r}, and is {spec!r} now"
    places = now.places or (None,) * len(names)
    for (op, arguments, _), (_, others, _), place in zip(now.steps, before.steps, places, strict=True):
        for name, argument, other in zip(op.argument_names, arguments, others, strict=True):
            if hash(argument) == hash(other):
                continue
            if bodies := bodies_in([argument]):
                pairs = zip(bodies_in([other]), bodies, strict=False)
                return next((within for pair in pairs if (within := block_difference(*pair)) is not None), None)
            if getattr(argument, "opaque", False):
                return "a function object", f"F.{op.name} gets a new one each time"
            where = "" if place is None else f", at {place}"
            return "a Python constant", f"{name} of F.{op.name} has changed to {argument!r:.60}{where}"
    return None


class _CompiledLine:
    """The compilations caused by one line of the user's program."""

    def __init__(self) -> None:
        self.last: Callable[[], Block | None] = lambda: None
        """The block that was compiled last, unless it held something of the user's that is gone."""
        self.count = 0
        self.seconds = 0.0
        self.has_warned = False
        self.lock = threading.Lock()

    def add(self, block: Block, seconds: float) -> tuple[str, str] | None:
        """Count a compilation; returns a difference if it is time to warn."""
        last = self.last()
        difference = None if last is None else block_difference(last, block)
        is_users = block.opaque or any([op.tables is not None for op in block.ops])
        self.last = weakref.ref(block) if is_users else lambda: block
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
    line: _CompiledLine = _lines.get((place.file, place.line), _CompiledLine)
    with line.lock:
        difference = line.add(program.block, seconds)
    if difference is not None:
        what, how = difference
        message = (f"this line has compiled {line.count} graphs that differ only in {what}, which took "
                   f"{line.seconds:.1f} s: {how}. To avoid this, {_ADVICE[what]}")
        warnings.warn_explicit(message, RecompilationWarning, place.file, place.line)
