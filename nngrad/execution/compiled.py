"""The cache of executables: each structure is compiled once, and kept while it is in use."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.sharding import SingleDeviceSharding

from ..graph.bounded_cache import BoundedCache, CacheInfo, caches_about_structures
from ..graph.placement import Placement, several_processes
from ..graph.process import Process, check_process
from ..graph.thresholds import BYTES_OF_A_FUNCTION, BYTES_OF_AN_EXECUTABLE
from ..graph.value import on_device
from .executable import Executable, Settings, has_two_tiers, spent
from .lower import in_partitions, lower, lowered_where_it_runs, lowered_whole
from .partitions import Hoisted, hoisted, taking_literals
from .passes import is_too_long
from .program import Program


class Executables(BoundedCache):
    """The cache of executables by structure, with compilation statistics."""

    def info(self) -> CacheInfo:
        """Hits, misses, numbers of entries and bytes, the limits of both, and compilations by tier."""
        total = spent.total
        return super().info()._replace(
            seconds=total.trace + total.lower + total.compile, quick=total.quick, optimised=total.optimised
        )

    def clear(self) -> None:
        """Remove all executables, and all that is known about structures."""
        super().clear()
        for cache in caches_about_structures:
            cache.clear()
        spent.forget()

    def of(self, program: Program, at_its_best: bool = False) -> Callable[..., tuple[Any, ...]]:
        """The executable of a program, from arrays of the leaves to arrays of the results. With `at_its_best` its first
        call runs the optimised tier too."""
        check_process()
        shared = hoisted_of(program)
        table = self.part([op for op, _, _ in program.block.steps])
        executable: Executable | None = table.find(shared.program)
        if executable is None:
            made, counts = _made(shared)
            executable = table.keep(shared.program, made, bytes_of(*counts))
        if at_its_best:
            executable.optimised()
        if shared.numbers is None:
            return executable
        # An executable takes an array of JAX's in less time than one of NumPy's, which JAX moves at each call.
        everywhere = program.device is program.mesh is None and not several_processes()
        return functools.partial(executable, on_device(shared.numbers) if everywhere else shared.numbers)

    def temporary_bytes(self, program: Program) -> int | None:
        """The bytes of temporaries that a program takes while it runs, as its compiler reports them; None if it reports
        none, or does not get the program as a whole.

        The program is compiled for that, unless it was already, and its executable is kept for when it runs. Nothing is
        run.
        """
        if Process.cannot_compute or program.group is not None:
            return None
        runs, takes = self.of(program), hoisted_of(program).takes
        executable, _ = taken_apart(runs)
        shardings: Sequence[Any]  # as at run time: a jitted function is compiled again for other placements
        if program.mesh is None:
            shardings = [None if program.device is None else SingleDeviceSharding(program.device)] * len(takes)
        else:
            places = [*[()] * (len(takes) - len(program.block.inputs)), *program.places]
            shardings = [program.mesh.sharding(axes) for axes in places]
        like = tuple([spec.abstract(sharding) for spec, sharding in zip(takes, shardings, strict=True)])
        nbytes: int | None = executable.temporaries(like)
        return nbytes

    def jitted(self, program: Program) -> Callable[..., Any]:
        """A program as a jitted function, which programs share that differ only in numbers."""
        program, numbers = shared = hoisted_of(program)

        def make() -> Callable[..., Any]:
            return jax.jit(lower(program) if numbers is None else lowered_whole(program, taking_literals, shared.takes))

        steps = program.block.steps
        jitted: Callable[..., Any] = _jitted.part([op for op, _, _ in steps]).get(program, make, bytes_of(len(steps)))
        return jitted if numbers is None else functools.partial(jitted, numbers)


executables = Executables(512, most_bytes=512 << 20)
"""Executables by structure. Users may call `executables.info()` and `.clear()` too.

Sizes are estimated from the number of functions, since XLA does not report the size of an executable.
"""


def bytes_of(*counts: int) -> int:
    """The approximate size of executables in bytes, from their numbers of functions."""
    return sum([BYTES_OF_AN_EXECUTABLE + count * BYTES_OF_A_FUNCTION for count in counts])


def taken_apart(executable: Callable[..., Any]) -> tuple[Executable, tuple[Any, ...]]:
    """What `executables.of` returns as an Executable and the numbers that it takes first."""
    known: Any = executable
    return (known.func, known.args) if isinstance(executable, functools.partial) else (known, ())


def while_cached(executable: Callable[..., Any]) -> Callable[[], Callable[..., Any] | None]:
    """A function that returns the executable of a program for as long as it is cached."""
    shared, numbers = taken_apart(executable)  # nothing else keeps the program's own numbers
    reference = weakref.ref(shared)
    if not numbers:
        return reference

    def found() -> Callable[..., Any] | None:
        taking = reference()
        return None if taking is None else functools.partial(taking, *numbers)

    return found


def _made(shared: Hoisted) -> tuple[Executable, list[int]]:
    """The executable of a program, and the number of functions in each part of that."""
    program = shared.program
    if shared.numbers is not None:
        return executable_in_one(shared), [len(program.block.steps)]
    lowered = lowered_where_it_runs(program)
    shorter, partitions = lowered.program, lowered.partitions
    settings = Settings(program.device, program.block.needs_x64, program.mesh)
    count = len(shorter.block.steps)
    if program.group is not None:  # never cut: its partitions would exchange separately
        joint = Placement.across(lowered_whole(shorter), program.group, program.device)
        return Executable(joint, settings), [count]
    if partitions is None:
        return executable_in_one(shared, shorter), [count]
    counts = [len(block.steps) for block in {partition.block for partition in partitions}]
    return Executable(in_partitions(shorter, partitions), settings, opaque=program.block.opaque), counts


def executable_in_one(shared: Hoisted, shorter: Program | None = None) -> Executable:
    """The executable of a program that XLA compiles as a whole.

    Args:
        shared: The program, and its hoisted numbers.
        shorter: The program to compile in its place, if it differs.
    """
    program, numbers = shared
    if numbers is None:
        function = lowered_whole(program if shorter is None else shorter)
    else:
        function = lowered_whole(program, taking_literals, shared.takes)
    is_tiered = has_two_tiers(program)
    return Executable(
        jax.jit(function), Settings(program.device, program.block.needs_x64, program.mesh),
        opaque=program.block.opaque, divided=program.mesh, tiered=program if is_tiered else None,
        program=program,
    )  # fmt: skip


_hoisted_of = BoundedCache.about_structures(512)
"""For each program, the form it shares with programs that differ only in numbers."""


def hoisted_of(program: Program) -> Hoisted:
    """The form of a program that determines its executable, with the numbers to pass. If the program is cut into
    partitions, these take the numbers; a program that exchanges with other processes has its own executable."""

    def make() -> Hoisted:
        as_it_is = "hoist" in program.without or is_too_long(program) or program.group is not None
        return Hoisted(program, None) if as_it_is else hoisted(program)

    shared: Hoisted = _hoisted_of.part([op for op, _, _ in program.block.steps]).get(program, make)
    return shared


_jitted = BoundedCache.about_structures(512, most_bytes=512 << 20)
"""Jitted functions of programs, for callers that follow JAX's own settings, devices and placement."""
