"""Trials: what the compiler says of the memory that a program takes."""

from __future__ import annotations

from contextlib import nullcontext
from typing import NamedTuple

import jax
from jax.sharding import SingleDeviceSharding

from ..graph.process import Process
from ..graph.spec import x64_if
from ..graph.thresholds import BYTES_OF_A_STEP
from .compiled import BoundedCache, executable_in_one, general_of, keep_executable
from .executable import Executable
from .free_numbers import General
from .lower import lowered_where_it_runs
from .program import Program

temporaries = BoundedCache(4096, most_bytes=64 << 20)
"""Bytes of temporaries by program, where a compiler has told them: a loop that builds its graph anew at every step asks
once."""


class Trial(NamedTuple):
    """What came of compiling a program."""

    given: General
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
        return Trial(General(program, None), None, None)
    given = general_of(program)
    table = temporaries.part([op for op, _, _ in program.block.steps])
    known = table.find(given.program)
    if known is not None:
        return Trial(given, known, None)
    lowered = lowered_where_it_runs(program)
    if lowered.pieces is not None:
        return Trial(given, None, None)
    executable = executable_in_one(given, lowered.program)
    nbytes = _allotted(executable, given)
    if nbytes is None:
        return Trial(given, None, None)
    return Trial(given, table.keep(given.program, nbytes, BYTES_OF_A_STEP * len(program.block.steps)), executable)


def _allotted(executable: Executable, of: General) -> int | None:
    program = of.program
    # As its arrays will be when it runs, since a jitted function is compiled anew for those on another device.
    if program.mesh is not None:
        places = [*[()] * (len(of.takes) - len(program.block.inputs)), *program.places]
        given = tuple([s.abstract(program.mesh.sharding(axes)) for s, axes in zip(of.takes, places, strict=True)])
    else:
        sharding = None if program.device is None else SingleDeviceSharding(program.device)
        given = tuple([s.abstract(sharding) for s in of.takes])
    try:
        with x64_if(program.block.needs_x64), jax.default_device(program.device) if program.device else nullcontext():
            analysis = executable.compile_for(given).memory_analysis()
    except (jax.errors.JaxRuntimeError, NotImplementedError):
        return None  # what it cannot compile, and whether it can say, is found out again where that matters
    return None if analysis is None else int(analysis.temp_size_in_bytes)
