"""What compiling costs: seconds and counts of this process, a line on the terminal while it takes long, and a warning
where a program of the user's compiles again and again, for structures that differ only slightly.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from ..graph.source_location import SourceLocation, users_location
from ..graph.spec import Spec
from .program import Program

PATIENCE = 2.0
"""Seconds before the line is shown."""


class Spent(NamedTuple):
    """Seconds and counts since the start of the process, or since they were forgotten."""

    trace: float = 0.0
    """Seconds in which JAX traced programs."""
    lower: float = 0.0
    """Seconds in which it lowered them."""
    compile: float = 0.0
    """Seconds in which XLA compiled them."""
    quick: int = 0
    """How many executables of the quick tier were compiled."""
    optimised: int = 0
    """How often the optimised tier has taken over from the quick one."""

    @property
    def waited(self) -> float:
        """Seconds in which somebody waited."""
        return self.trace + self.lower + self.compile


class Account:
    """What has been spent. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.total = Spent()

    def add(self, **spent: float) -> None:
        """Add seconds and counts, by the names that `Spent` has for them."""
        with self._lock:
            total = self.total
            self.total = total._replace(**{name: getattr(total, name) + more for name, more in spent.items()})

    def forget(self) -> None:
        """Begin at zero again."""
        with self._lock:
            self.total = Spent()


spent = Account()
"""What this process has spent."""


@contextmanager
def progress_shown(what: str) -> Iterator[None]:
    """Show that `what` is compiled, and since when, if that takes long and the standard error is a terminal."""
    stream = sys.stderr
    if stream is None or not stream.isatty() or threading.current_thread() is not threading.main_thread():
        yield
        return
    line = _ProgressLine(what)
    timer = threading.Timer(PATIENCE, line.start)
    timer.daemon = True
    with suppress(RuntimeError):  # where the interpreter ends, and there are no more threads
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
        line.stop()


class _ProgressLine:
    """The line. It may be stopped before it was started, and is not shown then."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._lock = threading.Lock()
        self._progress: Any = None
        self._is_over = False

    def start(self) -> None:
        """Show it."""
        from rich.console import Console
        from rich.errors import LiveError
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = SpinnerColumn(), TextColumn("nngrad compiles {task.description}"), TimeElapsedColumn()
        with self._lock, suppress(LiveError):  # the program draws something of its own
            if self._is_over:
                return
            progress = Progress(*columns, console=Console(stderr=True), transient=True)
            task = progress.add_task(self._what, total=None)
            progress.tasks[task].start_time = progress.get_time() - PATIENCE
            progress.start()
            self._progress = progress

    def stop(self) -> None:
        """Take it away."""
        with self._lock:
            self._is_over = True
            if self._progress is not None:
                self._progress.stop()


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
