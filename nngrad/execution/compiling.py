"""Compilation: the two tiers of a large program, statistics, and the warning about programs that are compiled again and
again.

The first calls of a large program run an executable that compiles quickly, later ones an optimised one. XLA's compiler
for CPUs takes seconds for such a program. With fewer optimisations it takes two fifths to a seventh of that, depending
on its version, and the result runs up to six times slower. A program that is called once is done soonest in the quick
tier, one that is called often in the optimised tier. Nobody knows how often it will be called, so the optimised
executable is compiled, synchronously, once the calls of the quick one have lost an estimated third of its compile time.
The estimate is based on the structure alone, without a clock, and calls are counted by structure: so the call at which
a structure's rounding changes is the same in every run.
"""

from __future__ import annotations

import functools
import sys
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import jax

from ..graph import Op
from ..graph.block import Block, bodies_in
from ..graph.body_op import ControlOp
from ..graph.messages import SourceLocation, users_location
from ..graph.spec import Spec
from ..graph.thresholds import LARGE, SECONDS_OF_A_CALL, SECONDS_OF_A_KIND, SECONDS_OF_AN_ELEMENT, SHARE_LOST
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


def thorough_options() -> dict[str, str | bool]:
    """Options for a quick tier that runs as fast as the optimised one, if there is little to compile. Adam's update of
    six parameters compiles in 120 ms for 55, and 380 in the optimised tier; large ones run five times faster."""
    return {name: "1" if name == _LEVEL else each for name, each in quick_options().items()}


class QuickExecutable(NamedTuple):
    """An executable of the quick tier."""

    call: Callable[..., Any]
    seconds: float
    """Its compile time; 0 if its first call compiles it."""


# ---------------------------------------------------------------- how many calls run the quick tier


class Work(NamedTuple):
    """An estimate of a program's work."""

    kinds: int
    """How many functions differ in op, static arguments, shapes or dtypes. Repeated ones are compiled as loops, or
    quickly.
    """
    elements: int
    """How many elements the functions read or write, counting the largest array of each."""

    def plus(self, other: Work) -> Work:
        """The sum of two estimates."""
        return Work(*[a + b for a, b in zip(self, other, strict=True)])

    @property
    def quick_calls(self) -> int:
        """How many calls run the quick tier."""
        lost = SECONDS_OF_A_CALL + self.elements * SECONDS_OF_AN_ELEMENT
        return int(SHARE_LOST * self.kinds * SECONDS_OF_A_KIND / lost)


def work_of(program: Program) -> Work:
    """An estimate of a program's work. Loops of unknown length count as one step."""
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
    """Whether a program has two tiers. User code is not compiled twice.

    Processes that compute together must run the same executables, with the same rounding, but each counts its own
    calls.
    """
    if program.mesh is not None and program.mesh.spans_processes:
        return False
    return len(program.block.steps) >= LARGE and not program.block.opaque


def quick_calls(program: Program) -> int:
    """How many calls of a program run the quick tier; 0 if it has only one tier."""
    return work_of(program).quick_calls if is_large(program) else 0


# ---------------------------------------------------------------- counting calls


class CallCount:
    """The number of calls of a structure in the quick tier. Thread-safe."""

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


def count_of(structure: bytes) -> CallCount:
    """The count of calls of a structure, by its digest, in this run. Counts are never dropped: if a structure returns
    after its executables are gone, its count continues."""
    with _lock:
        return _counts.setdefault(structure, CallCount())


def counted() -> dict[str, int]:
    """The counts of all structures in the quick tier, for a checkpoint."""
    with _lock:
        return {structure.hex(): count._number for structure, count in sorted(_counts.items()) if count._number}


def count_on_from(numbers: Mapping[str, int]) -> None:
    """Restore the counts that `counted` returned; all other structures start at 0."""
    known = {bytes.fromhex(structure): int(number) for structure, number in numbers.items()}
    with _lock:
        for structure in known.keys() | _counts.keys():
            _counts.setdefault(structure, CallCount())._number = known.get(structure, 0)


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
    """The number of executables compiled in the quick tier."""
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
    "the number of functions": "build loops of few different lengths, such as multiples of 16",
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
