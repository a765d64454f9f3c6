"""Programs that are compiled on trial, to find out how much memory they take."""

from __future__ import annotations

from typing import NamedTuple

from jax.sharding import SingleDeviceSharding

from ..extend import (
    BYTES_OF_A_STEP,
    BoundedCache,
    Executable,
    Hoisted,
    Process,
    Program,
    executable_in_one,
    hoisted_of,
    keep_executable,
    lowered_where_it_runs,
)

temporaries = BoundedCache(4096, most_bytes=64 << 20)
"""Bytes of temporaries by program, if a compiler has reported them: a loop that rebuilds its graph at every step asks
once."""


class Trial(NamedTuple):
    """The result of compiling a program on trial."""

    given: Hoisted
    nbytes: int | None
    """Bytes of temporaries as reported by the compiler; None if it reports none, or does not get the program as a
    whole.
    """
    executable: Executable | None
    """The executable, which need not be compiled again; None if it was not compiled now."""

    def keep(self) -> None:
        """Cache the executable for the program."""
        if self.executable is not None:
            keep_executable(self.given.program, self.executable, [len(self.given.program.block.steps)])


def trial_of(program: Program) -> Trial:
    """Compile a program, unless that was done before, to find out how much memory it takes. Nothing is run."""
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
    nbytes = _temporary_bytes(executable, given)
    if nbytes is None:
        return Trial(given, None, None)
    return Trial(given, table.keep(given.program, nbytes, BYTES_OF_A_STEP * len(program.block.steps)), executable)


def _temporary_bytes(executable: Executable, of: Hoisted) -> int | None:
    """Bytes of temporaries for arrays placed as at run time: a jitted function is recompiled for other placements.
    """
    program = of.program
    if program.mesh is None:
        sharding = None if program.device is None else SingleDeviceSharding(program.device)
        like = tuple([spec.abstract(sharding) for spec in of.takes])
    else:
        places = [*[()] * (len(of.takes) - len(program.block.inputs)), *program.places]
        shardings = [program.mesh.sharding(axes) for axes in places]
        like = tuple([s.abstract(each) for s, each in zip(of.takes, shardings, strict=True)])
    nbytes: int | None = executable.temporaries(like)
    return nbytes
