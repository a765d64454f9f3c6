"""What is done to a program for the sake of the compiler that is about to get it, by platform.

A graph says what is computed; what a backend makes of it, and how to help it, is known here alone. A pass is a function
from programs to programs that give the same results, but for the order in which the terms of a sum are added up.
"""

from __future__ import annotations

from collections.abc import Callable

import jax

from .inlining import with_bodies_inline
from .layouts import with_channels_last
from .loops import with_loops_together
from .program import Program
from .recurrences import with_sums_once
from .rolling import LoopFound, rolled, with_recurrences_rolled

Pass = Callable[[Program], Program]

PASSES: dict[str, tuple[Pass, ...]] = {"cpu": (with_channels_last, with_recurrences_rolled, with_sums_once)}
"""By the name that JAX has for a platform; they come after those that are for every platform."""


def prepared(program: Program) -> Program:
    """The program as the compiler of the platform that it is run on is to get it."""
    for each in (with_bodies_inline, with_loops_together, *PASSES.get(_platform_of(program), ())):
        program = each(program)
    return program


def shortened(program: Program) -> Program:
    """The program as it is before it is asked whether the compiler can be given it as a whole."""
    return with_recurrences_rolled(program) if _rolls(program) else program


def loops_found(program: Program) -> tuple[LoopFound, ...]:
    """The recurrences that become loops when the program is compiled."""
    return rolled(program).loops if _rolls(program) else ()


def _rolls(program: Program) -> bool:
    return with_recurrences_rolled in PASSES.get(_platform_of(program), ())


def _platform_of(program: Program) -> str:
    return jax.default_backend() if program.device is None else program.device.platform
