"""Trials: what the compiler says of the memory that a program takes."""

from __future__ import annotations

from typing import NamedTuple

from jax.sharding import SingleDeviceSharding

from ..graph.process import Process
from ..graph.thresholds import BYTES_OF_A_STEP
from .compiled import BoundedCache, executable_in_one, hoisted_of, keep_executable
from .executable import Executable
from .hoisting import Hoisted
from .lower import lowered_where_it_runs
from .program import Program

temporaries = BoundedCache(4096, most_bytes=64 << 20)
"""Bytes of temporaries by program, where a compiler has told them: a loop that builds its graph anew at every step asks
once."""


class Trial(NamedTuple):
    """What came of compiling a program."""

    given: Hoisted
    nbytes: int | None
    """Bytes of temporaries by the compiler's own account; None where it gives none, or does not get the program as a
    whole."""
    executable: Executable | None
    """Its executable, which need not be compiled again; None where it was not compiled now."""

    def keep(self) -> None:
        """Let the executable be that of the program, from now on."""
        if self.executable is not None:
            keep_executable(self.given.program, self.executable, [len(self.given.program.block.steps)])


def trial_of(program: Program) -> Trial:
    """Compile a program, unless that was done before, and ask for the memory that it takes. Nothing is run."""
    if Process.cannot_compute or program.group is not None:
        return Trial(Hoisted(program, None), None, None)
    given = hoisted_of(program)
    table = temporaries.part([op for op, _, _ in program.block.steps])
    known = table.find(given.program)
    if known is not None:
        return Trial(given, known, None)
    lowered = lowered_where_it_runs(program)
    if lowered.partitions is not None:
        return Trial(given, None, None)
    executable = executable_in_one(given, lowered.program)
    nbytes = _allotted(executable, given)
    if nbytes is None:
        return Trial(given, None, None)
    return Trial(given, table.keep(given.program, nbytes, BYTES_OF_A_STEP * len(program.block.steps)), executable)


def _allotted(executable: Executable, of: Hoisted) -> int | None:
    """The bytes for arrays as they will be when it runs: a jitted function is compiled anew for those elsewhere."""
    program = of.program
    if program.mesh is None:
        sharding = None if program.device is None else SingleDeviceSharding(program.device)
        return executable.temporaries(tuple([spec.abstract(sharding) for spec in of.takes]))
    places = [*[()] * (len(of.takes) - len(program.block.inputs)), *program.places]
    shardings = [program.mesh.sharding(axes) for axes in places]
    return executable.temporaries(tuple([s.abstract(each) for s, each in zip(of.takes, shardings, strict=True)]))
