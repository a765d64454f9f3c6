"""Compilation: the two tiers of a large program, statistics, and the warning about programs that are compiled again and
again.

The first call of a large program in a process runs an executable that compiles quickly, every later one an optimised
one. XLA's compiler for CPUs takes seconds for such a program. With fewer optimisations it takes two fifths to a seventh
of that, depending on its version, and the result runs several times slower. So what is called once is done soonest in
the quick tier. What is called a second time will probably be called often: then the optimised executable is compiled.
Training steps, `compile` and updates have one tier, so that what they compute does not depend on where a process began.
"""

from __future__ import annotations

import functools
import itertools
import sys
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import jax

from ..graph import Op
from ..graph.block import Block, bodies_in
from ..graph.bounded_cache import BoundedCache
from ..graph.messages import SourceLocation, users_location, warn_user
from ..graph.spec import Spec
from ..graph.thresholds import LARGE
from .program import Program

_lock = threading.Lock()
"""Held while a counter of this process changes."""

PLATFORM = "cpu"
"""The platform that has tiers. On others the options mean something else, or nothing."""

_LEVEL = "xla_backend_optimization_level"

_OPTIONS: dict[str, str | bool] = {
    _LEVEL: "0",  # half the time, and less
    "xla_cpu_use_fusion_emitters": False,  # more than half of the rest; gone since jaxlib 0.11.1
    "xla_cpu_parallel_codegen_split_count": "2",  # a fifth of the rest, as parts are compiled only once
}
"""XLA's options for the quick tier, most important first. docs/compilation.md says what they gain, by version."""


@functools.cache
def quick_options() -> dict[str, str | bool]:
    """The options for the quick tier that this version of XLA accepts."""
    trivial = jax.jit(lambda x: x).lower(jax.ShapeDtypeStruct((), "float32"))

    def known(options: dict[str, str | bool]) -> bool:
        try:
            trivial.compile(compiler_options=options)
        except jax.errors.JaxRuntimeError:
            return False
        return True

    return _OPTIONS if known(_OPTIONS) else {name: each for name, each in _OPTIONS.items() if known({name: each})}


# ---------------------------------------------------------------- the tier of a call


def has_two_tiers(program: Program) -> bool:
    """Whether the first call of a program runs the quick tier. User code is not compiled twice.

    Processes that compute together must run the same executables, with the same rounding, but each remembers its own
    calls.
    """
    if program.mesh is not None and program.mesh.spans_processes:
        return False
    return len(program.block.steps) >= LARGE and not program.block.opaque


_called = BoundedCache(sys.maxsize)
"""The programs that were called in this process. They are never dropped: one that returns after its executable is gone
runs the optimised tier, so results do not depend on what the cache holds. Those with ops of a user's class go with it.
"""


def _called_for(program: Program) -> BoundedCache:
    return _called.part([op for op, _, _ in program.block.steps])


def was_called(program: Program) -> bool:
    """Whether a program of two tiers was called in this process."""
    return _called_for(program).find(program) is not None


def note_call(program: Program) -> bool:
    """Note a call of a program of two tiers; returns whether it is the first in this process."""
    call = object()
    return _called_for(program).keep(program, call) is call


# ---------------------------------------------------------------- time spent, and a progress line

PATIENCE = 2.0
"""Seconds before the progress line is shown."""


class Spent(NamedTuple):
    """Seconds and counts since the start of the process, or since they were reset."""

    trace: float = 0.0
    """Seconds that JAX spent tracing programs."""
    lower: float = 0.0
    """Seconds that JAX spent lowering them."""
    compile: float = 0.0
    """Seconds that XLA spent compiling them."""
    quick: int = 0
    """The number of programs that have run in the quick tier."""
    optimised: int = 0
    """How often the optimised tier has taken over from the quick one."""


class Account:
    """The running total of time spent. Thread-safe."""

    def __init__(self) -> None:
        self.total = Spent()

    def add(self, **spent: float) -> None:
        """Add seconds and counts, by their names in `Spent`."""
        with _lock:
            total = self.total
            self.total = total._replace(**{name: getattr(total, name) + more for name, more in spent.items()})

    def forget(self) -> None:
        """Reset everything to zero."""
        self.total = Spent()


spent = Account()
"""The time that this process has spent."""


@contextmanager
def progress_shown(what: str) -> Iterator[None]:
    """Show that `what` is being compiled, and for how long, if that is slow and standard error is a terminal."""
    stream = sys.stderr
    if stream is None or not stream.isatty() or threading.current_thread() is not threading.main_thread():
        yield
        return
    line = _ProgressLine(what)
    timer = threading.Timer(PATIENCE, line.start)
    timer.daemon = True
    with suppress(RuntimeError):  # at exit the interpreter starts no more threads
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
        line.stop()


class _ProgressLine:
    """The progress line. If it is stopped before it was started, it is never shown."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._lock = threading.Lock()
        self._progress: Any = None
        self._is_over = False

    def start(self) -> None:
        """Show the line."""
        from rich.console import Console
        from rich.errors import LiveError
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = SpinnerColumn(), TextColumn("nngrad compiles {task.description}"), TimeElapsedColumn()
        with self._lock, suppress(LiveError):  # the program has a live display of its own
            if self._is_over:
                return
            progress = Progress(*columns, console=Console(stderr=True), transient=True)
            task = progress.add_task(self._what, total=None)
            progress.tasks[task].start_time = progress.get_time() - PATIENCE
            progress.start()
            self._progress = progress

    def stop(self) -> None:
        """Remove the line."""
        with self._lock:
            self._is_over = True
            if self._progress is not None:
                self._progress.stop()


LONG = 5.0
"""Seconds of one compilation from which on the cache is worth a hint."""


def hint_at_cache(seconds: float) -> None:
    """Tell, once in a process, of the cache on disk, if there is none and a compilation took so long."""
    kept = jax.config.values["jax_compilation_cache_dir"] or not jax.config.values["jax_enable_compilation_cache"]
    if seconds > LONG and not kept and next(_hints) == 0:
        warn_user(f"compiling this took {seconds:.0f} s, and will take as long in each process that runs it; after "
                  "nn.cache_compilations() the next one finds what this one has compiled")


_hints = itertools.count()
"""Numbers the occasions for the hint."""


# ---------------------------------------------------------------- repeated compilation

HANDFUL = 5
"""This many compilations of similar structures from one line cause no warning."""

LEAST_SECONDS = 2.0
"""Nor do compilations that took less than this in total."""

_MOST_LINES = 256
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

    def __init__(self, structure: ProgramStructure, seconds: float) -> None:
        self.last = structure
        self.count = 1
        self.seconds = seconds
        self.has_warned = False

    def add(self, program: Program, structure: ProgramStructure, seconds: float) -> tuple[str, str] | None:
        """Count a compilation; returns a difference if it is time to warn."""
        found = program_difference(self.last, program, structure)
        self.last = structure
        if found is None:
            self.count, self.seconds = 1, seconds
            return None
        self.count += 1
        self.seconds += seconds
        if self.has_warned or self.count <= HANDFUL or self.seconds < LEAST_SECONDS:
            return None
        self.has_warned = True
        return found


_lines: OrderedDict[tuple[str, int], _CompiledLine] = OrderedDict()


def forget_compilations() -> None:
    """Forget all compilations."""
    with _lock:
        _lines.clear()


def watched_compilation(program: Program) -> Callable[[float], None]:
    """A function to call with the compile time of `program` in seconds. It may warn in the name of the line of the
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
            what, how = found
            message = (f"this line has compiled {line.count} graphs that differ only in {what}, which took "
                       f"{line.seconds:.1f} s: {how}. To avoid this, {_ADVICE[what]}")
            warnings.warn_explicit(message, RecompilationWarning, place.file, place.line)

    return compiled
