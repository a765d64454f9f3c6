"""Replay: a request whose structure was answered before gets the same graph again, without walks and rules.

A loop that builds its graph anew at each step asks for the same gradients each time. When a structure comes for the
second time, what is emitted for it is recorded; from the third time on it is made from the recording. What may depend
on more than the structure is emitted each time: where hooks or debug mode watch, where something is to be computed
again, and wherever code of the user's has a part.
"""

from __future__ import annotations

from collections.abc import Hashable

from ..execution.compiled import BoundedCache, executables
from ..graph import Function, build_options
from ..graph.function import watched
from ..graph.options import pause_collector
from .recording import Recording, Results, Writer
from .request import Request
from .structure import Structure

FEWEST = 4
"""The gradient of fewer functions is emitted as quickly as it is looked for."""
MOST = 50_000
"""A graph of more functions is not recorded: it would take the place of all others."""

_recordings = executables.learned(BoundedCache(1024, most_bytes=64 << 20))
_BYTES_OF_A_FUNCTION = 400
"""About what a function takes, in a structure or in a recording: 300 measured, more with long arguments."""

_seen = executables.learned(BoundedCache(1 << 14))
"""Hashes of the functions that were differentiated before: a look that costs little where nothing comes again."""

_foreign = executables.learned(BoundedCache(1 << 14))
"""Hashes of the structures that are not recorded."""


def structure_of(request: Request, functions: list[Function], since: int, options: Hashable) -> Structure | None:
    """Returns the structure of a request, if something like it came before, and if that decides what is emitted, as far
    as it can be told so early; else None.

    Args:
        request: What is asked for.
        functions: What its outputs depend on, lowest rank first.
        since: Functions from this serial number on were made for the request itself.
        options: What else decides how it is answered.
    """
    in_force = build_options()
    if len(functions) > MOST or request.aggregate is not None or request.recompute not in (None, False):
        return None
    if in_force.builder is not None or in_force.no_grad or in_force.mark is not None or watched():
        return None
    alike = hash(tuple([(f.op, f.arguments) for f in functions]))
    if _seen.find(alike) is None:
        _seen.keep(alike, True)
        return None
    structure = Structure(request, functions, since, options)
    return None if structure.key is None else structure


def replayed(structure: Structure) -> Results | None:
    """Returns the answer that is on record, on top of this graph; None if there is none."""
    recording: Recording | None = _recordings.find(structure.key)
    if recording is None:
        return None
    pause_collector()
    return recording.made_for(structure)


def record(structure: Structure, results: Results, since: int) -> None:
    """Record an answer that was just emitted, from the serial number `since` on, if it can be made again."""
    number = hash(structure.key)
    if _foreign.find(number) is not None:
        return
    recording = Writer(structure, results, since).recording()
    count = 0 if recording is None else len(structure.functions) + len(recording.blueprints)
    if recording is None or count > MOST:
        _foreign.keep(number, True)
    else:
        _recordings.keep(structure.key, recording, count * _BYTES_OF_A_FUNCTION)
