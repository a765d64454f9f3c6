"""What is done to a block for the sake of the compiler that is about to get it: a list of passes.

A graph says what is computed; what a backend makes of it, and how to help it, is known here alone. A pass is a function
from blocks to blocks that give the same results, but for the order in which the terms of a sum are added up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from ..graph.block import Block
from ..graph.options import Switched, switched
from ..graph.spelling import left_out
from .cpu.layouts import with_channels_last
from .cpu.recurrences import with_sums_once
from .cpu.rolling import LoopFound, rolled, with_recurrences_rolled
from .inlining import with_bodies_inline
from .loops import with_loops_together
from .platforms import default_device, has_ways_on
from .program import Program


class Pass(NamedTuple):
    """A pass, which does nothing where it does not find what it looks for."""

    name: str
    what: str
    """What it looks for."""
    run: Callable[[Block], Block]
    platform: str | None = None
    """The platform that it is for, by the name that JAX has for it; None for every one."""


PASSES = (
    Pass("inline", "functions that are just a body, whose steps can stand in their place", with_bodies_inline),
    Pass("join_loops", "loops that have steps in common, and can be one", with_loops_together),
    Pass("channels_last", "convolutions, around which channels can come last", with_channels_last, "cpu"),
    Pass("roll", "recurrences that were unrolled, and can be loops", with_recurrences_rolled, "cpu"),
    Pass("sum_once", "sums along recurrences that would be computed several times", with_sums_once, "cpu"),
)
"""In the order in which they are run: first those that are for every platform."""

PLATFORMS = tuple(dict.fromkeys([each.platform for each in PASSES if each.platform is not None]))
"""Those that have passes of their own."""

for _name in PLATFORMS:
    has_ways_on(_name)


def passes(*, without: Iterable[str] = ()) -> Switched:
    """What is compiled within is compiled without some passes, to find the one that makes a difference.

    Results differ by rounding. The innermost context counts alone.

    Args:
        without: Names of the passes that are left out; `nn.show_passes(y)` lists them, with what each does to a graph.

    Raises:
        TypeError: `without` is a string.
        ValueError: There is no pass of a name in `without`.
    """
    names = left_out(without, [each.name for each in PASSES], "pass", "passes", "nn.show_passes(y)")
    return switched(without_passes=names)


def unrolled(unrolled_: bool = True) -> Switched:
    """What is compiled within is compiled as it was built: a recurrence of many steps that are functions of their own
    does not become a loop.

    Otherwise it does where that pays, on CPUs. Results differ by rounding. It is `nn.passes(without=["roll"])`.
    """
    return passes(without=["roll"] if unrolled_ else [])


def prepared(program: Program) -> Program:
    """The program as the compiler of the platform that it is run on is to get it."""
    return prepared_for(program, platform_of(program))


def prepared_for(program: Program, platform: str | None) -> Program:
    """The program as the compiler of a platform is to get it; None is one that has no passes of its own."""
    return passed(common(program), platform)


def common(program: Program) -> Program:
    """The program after the passes for every platform."""
    return _after(program, _in_force(program, None))


def passed(program: Program, platform: str | None) -> Program:
    """The program after the passes for one platform alone."""
    return program if platform is None else _after(program, _in_force(program, platform))


def shortened(program: Program, platform: str | None) -> Program:
    """The program as it is before it is asked whether the compiler can be given it as a whole."""
    return _after(program, [each for each in _in_force(program, platform) if each.name == "roll"])


def loops_found(program: Program) -> tuple[LoopFound, ...]:
    """The recurrences that become loops when the program is compiled."""
    names = [each.name for each in _in_force(program, platform_of(program))]
    return rolled(program.block).loops if "roll" in names else ()


def platform_of(program: Program) -> str:
    """Where a program runs that is not lowered for another platform."""
    if program.mesh is not None:
        return program.mesh.platform
    device = default_device() if program.device is None else program.device
    platform: str = device.platform
    return platform


def _in_force(program: Program, platform: str | None) -> list[Pass]:
    return [each for each in PASSES if each.platform == platform and each.name not in program.without]


def _after(program: Program, passes: Iterable[Pass]) -> Program:
    block = program.block
    for each in passes:
        block = each.run(block)
    return program if block is program.block else program._replace(block=block)
