"""The quick tier of a program with many equal parts: each is compiled once and called wherever it occurs.

XLA compiles every kernel of a program, however many are equal: the inner steps of a meta-gradient, the tasks of a
batch, the steps of a recurrence that is too short for a loop. So the program is cut into parts that are compiled
separately, if that leaves much less to compile. The calls just before a place decide whether a part ends there, as in
content-defined chunking, which finds equal stretches of files: equal stretches of calls are cut equally, wherever they
begin.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import SingleDeviceSharding

from ..graph import Spec
from ..graph.block import Block
from ..graph.spec import spec_of
from ..graph.thresholds import (
    CALLS_OF_A_PART,
    FEWEST_IN_A_PART,
    LARGE,
    MOST_BYTES_IN_PARTS,
    MOST_IN_A_PART,
    WORTH_PARTS,
)
from .compiling import QuickExecutable
from .executable import Executable
from .partitions import Hoisted, Part, literals_replaced, part_of_calls, renumbered, taking_literals
from .passes import names_of_passes, prepared
from .program import (
    Call,
    Program,
    calls_of,
    default_device,
    functions_to_compile,
    in_one,
    late,
    without_identities,
)

_WINDOWS, _DIVISORS = (2, 4, 8), (8, 16, 32)
"""The number of calls that decide whether a part ends after them, and the divisor: one in so many stretches ends a
part. The pair that leaves least to compile is chosen."""


class Parts(NamedTuple):
    """A block cut into parts."""

    parts: list[Part]
    """In topological order."""
    outputs: tuple[int, ...]
    """The numbers of the results."""


def in_equal_parts(block: Block) -> Parts | None:
    """Cut a block into parts, many of them equal; None if it is better compiled in one piece."""
    if sum([spec.nbytes for spec in block.specs]) > MOST_BYTES_IN_PARTS:
        return None
    listed, specs = calls_of(block)
    calls, outputs = without_identities(block, listed)
    if any([i >= 0 for i in outputs]):
        return None  # a caller could get back the very array it passed in
    calls = late(calls, outputs)
    ends, _ = _best_ends(calls, specs)
    groups = [calls[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    last = {i: n for n, group in enumerate(groups) for call in group for i in call.ins}
    last |= dict.fromkeys(outputs, len(groups))
    parts = [part_of_calls(group, n, last, specs) for n, group in enumerate(groups)]
    each = {renumbered(part.block)[0] for part in parts}
    to_compile = sum([CALLS_OF_A_PART + functions_to_compile(part) for part in each])
    return Parts(parts, outputs) if to_compile <= WORTH_PARTS * functions_to_compile(block) else None


def may_have_equal_parts(block: Block) -> bool:
    """Whether it is worthwhile to prepare a block and look for equal parts. A quick guess."""
    if len(block.steps) < 2 * LARGE:
        return False
    calls, specs = calls_of(block)
    return _best_ends(late(calls, block.outputs), specs)[1] <= WORTH_PARTS * len(block.steps)


def _best_ends(calls: Sequence[Call], specs: dict[int, Spec]) -> tuple[list[int], int]:
    """The ends of parts that leave least to compile, and about how much that is, in calls. Parts of equal labels may
    still differ in the values they read."""
    labels = _labels(calls, specs)
    tried = [_ends(labels, window, divisor) for window in _WINDOWS for divisor in _DIVISORS]
    costs = [_cost(labels, ends) for ends in tried]
    least = min(costs)
    return tried[costs.index(least)], least


def _labels(calls: Sequence[Call], specs: dict[int, Spec]) -> list[int]:
    """Equal numbers for calls that do the same, apart from hoisted literals, to arrays of the same shapes."""
    known: dict[Any, int] = {}
    steps = literals_replaced([(call.op, call.arguments, call.ins) for call in calls], lambda place: None)
    return [known.setdefault((op, given, *[specs[i] for i in ins]), len(known)) for op, given, ins in steps]


def _ends(labels: Sequence[int], window: int, divisor: int) -> list[int]:
    """The ends of parts: a part may end where a hash of the last labels is divisible."""
    odd = np.uint64(0x9E3779B97F4A7C15)
    numbers = (np.array(labels, np.uint64) + np.uint64(1)) * odd
    hashed = np.zeros_like(numbers)
    for back in range(min(window, len(numbers))):
        hashed[back:] = (hashed[back:] ^ (hashed[back:] >> np.uint64(29))) * odd + numbers[: len(numbers) - back]
    hashed = (hashed ^ (hashed >> np.uint64(32))) * odd >> np.uint64(40)
    ends, start = [], 0
    for end in [*(np.flatnonzero(hashed % np.uint64(divisor) == 0) + 1).tolist(), len(labels)]:
        while end - start > MOST_IN_A_PART:
            start += MOST_IN_A_PART
            ends.append(start)
        if end - start >= FEWEST_IN_A_PART or start < end == len(labels):
            ends.append(end)
            start = end
    return ends


def _cost(labels: Sequence[int], ends: Sequence[int]) -> int:
    parts = {tuple(labels[start:end]) for start, end in zip([0, *ends], ends, strict=False)}
    return sum([CALLS_OF_A_PART + len(part) for part in parts])


class QuickParts:
    """Compiles a program in parts for the quick tier, if that is worthwhile.

    Args:
        given: The program, and its numbers. It runs on one device.
    """

    def __init__(self, given: Hoisted) -> None:
        self._given = given
        self._executables: dict[Block, Executable] = {}

    @functools.cached_property
    def _found(self) -> Parts | None:
        program = self._given.program
        return in_equal_parts(prepared(program).block) if may_have_equal_parts(program.block) else None

    @functools.cached_property
    def _sites(self) -> list[tuple[Executable, Part, tuple[int, ...]]]:
        """The parts, each with the executable that all parts equal to it share, and the places of its numbers."""
        return [] if self._found is None else [self._site(part) for part in self._found.parts]

    def _site(self, part: Part) -> tuple[Executable, Part, tuple[int, ...]]:
        block, places = renumbered(part.block)
        found = self._executables.get(block)
        if found is None:
            program = Program(block, without=names_of_passes())
            found = Executable(jax.jit(taking_literals(program) if places else in_one(program)))
            self._executables[block] = found
        return found, part, places

    def compiled(self, arrays: tuple[Any, ...]) -> QuickExecutable | None:
        """The program for arrays of this kind; None if it is better compiled in one piece, or a part cannot be
        compiled.
        """
        place = _place_of_arrays(arrays)
        if self._found is None or place is None:
            return None
        sharding = SingleDeviceSharding(place[0]) if place[1] else None
        ready: dict[Executable, Any] = {}
        for executable, part, places in self._sites:
            if executable not in ready:
                specs = [*([spec_of((len(places),), arrays[0].dtype)] if places else []), *part.block.inputs]
                like = tuple([jax.ShapeDtypeStruct(spec.shape, spec.dtype, sharding=sharding) for spec in specs])
                ready[executable] = executable.quick_for(like)
                if ready[executable] is None:
                    return None
        seconds = sum([executable.seconds for executable in ready])
        return QuickExecutable(self._runner(ready, self._found.outputs), seconds)

    def _runner(self, ready: dict[Executable, Any], outputs: tuple[int, ...]) -> Callable[..., tuple[Any, ...]]:
        sites = [(ready[executable], part, np.array(places, np.intp)) for executable, part, places in self._sites]
        has_numbers = self._given.numbers is not None

        def run(*arrays: Any) -> tuple[Any, ...]:
            values = dict(enumerate(arrays[1:] if has_numbers else arrays))
            for function, part, places in sites:
                given = [values[i] for i in part.takes]
                made = function(np.asarray(arrays[0])[places], *given) if len(places) else function(*given)
                values.update(zip(part.gives, made, strict=True))
                for i in part.done_with:
                    del values[i]
            return tuple([values[i] for i in outputs])

        return run


def _place_of_arrays(arrays: Sequence[Any]) -> tuple[jax.Device, bool] | None:
    """The device that a call with such arguments runs on, and whether its results are committed to it; None if JAX must
    decide."""
    device, committed = default_device(), False
    free = set()
    for array in arrays:
        devices, is_bound = _devices_of(array)
        if devices is None or len(devices) > 1 or (is_bound and committed and device not in devices):
            return None
        if not is_bound:
            free |= devices
        elif not committed:
            (device,), committed = devices, True
    return (device, committed) if free <= {device} else None


def _devices_of(array: Any) -> tuple[set[jax.Device] | None, bool]:
    """The devices that an argument lies on, and whether it is committed to them; None for the devices if JAX must
    decide."""
    if array.__class__ in (np.ndarray, float, int, bool) or isinstance(array, np.generic):
        return set(), False
    if isinstance(array, jax.ShapeDtypeStruct):
        return (set(), False) if array.sharding is None else (array.sharding.device_set, True)
    if isinstance(array, jax.Array) and not isinstance(array, jax.core.Tracer):
        return array.devices(), array.committed
    return None, False
