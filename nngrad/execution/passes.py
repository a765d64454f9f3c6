"""What is done to a program for the sake of the compiler that is about to get it, by platform.

A graph says what is computed; what a backend makes of it, and how to help it, is known here alone. A pass is a function
from programs to programs that give the same results, but for the order in which the terms of a sum are added up.
"""

from __future__ import annotations

from collections.abc import Callable

from .inlining import with_bodies_inline
from .layouts import with_channels_last
from .loops import with_loops_together
from .platforms import default_device, has_ways_on
from .program import Program
from .recurrences import with_sums_once
from .rolling import LoopFound, rolled, with_recurrences_rolled

Pass = Callable[[Program], Program]

PASSES: dict[str, tuple[Pass, ...]] = {"cpu": (with_channels_last, with_recurrences_rolled, with_sums_once)}
"""By the name that JAX has for a platform; they come after those that are for every platform."""


for _name in PASSES:
    has_ways_on(_name)


def prepared(program: Program) -> Program:
    """The program as the compiler of the platform that it is run on is to get it."""
    return prepared_for(program, platform_of(program))


def prepared_for(program: Program, platform: str | None) -> Program:
    """The program as the compiler of a platform is to get it; None is one that has no passes of its own."""
    return passed(common(program), platform)


def common(program: Program) -> Program:
    """The program after the passes for every platform."""
    return with_loops_together(with_bodies_inline(program))


def passed(program: Program, platform: str | None) -> Program:
    """The program after the passes for one platform alone."""
    for each in _passes(platform):
        program = each(program)
    return program


def shortened(program: Program, platform: str | None) -> Program:
    """The program as it is before it is asked whether the compiler can be given it as a whole."""
    return with_recurrences_rolled(program) if with_recurrences_rolled in _passes(platform) else program


def loops_found(program: Program) -> tuple[LoopFound, ...]:
    """The recurrences that become loops when the program is compiled."""
    return rolled(program).loops if with_recurrences_rolled in _passes(platform_of(program)) else ()


def platform_of(program: Program) -> str:
    """Where a program runs that is not lowered for another platform."""
    if program.mesh is not None:
        return program.mesh.platform
    device = default_device() if program.device is None else program.device
    platform: str = device.platform
    return platform


def _passes(platform: str | None) -> tuple[Pass, ...]:
    return () if platform is None else PASSES.get(platform, ())
