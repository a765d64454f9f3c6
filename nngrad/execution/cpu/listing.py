"""The calls of a block in one order, and where each value is: what repetitions are looked for in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ...graph import Spec
from ...graph.block import has_opaque
from ...graph.parts import Keys
from ...graph.thresholds import LEAST
from ..program import Call


class Window(NamedTuple):
    """A part of an array, of which one place is left open."""

    source: Any
    """The number of the array; the shape of one that parts are put in."""
    axis: int
    """The axis that the place is on."""
    entry: int
    """Where it is in the key."""
    key: tuple[Any, ...]
    """The key, with the place as 0."""


class Coordinate(NamedTuple):
    """Where a value is, among those of its family: equal steps read values at equal distances of one family."""

    family: Any
    place: int


class Listing:
    """The calls of a block in an order in which they can run, and what is where.

    Parts of arrays that are taken at several places, one place open, are no calls of the listing: each is where it is
    read. So are parts that are put in an array to be added up.

    Args:
        calls: All calls.
        specs: Of their values.
        outputs: The values that are wanted.
    """

    def __init__(self, calls: Sequence[Call], specs: Mapping[int, Spec], outputs: Sequence[int]) -> None:
        self.specs, self.outputs = specs, outputs
        self.maker = {i: call for call in calls for i in call.outs}
        self.taken = _parts(
            [(call, call.outs, call.op.slice_keys, call.ins[0]) for call in calls if call.op.slice_keys is not None],
            specs,
        )
        """Parts that are taken, each by its window and its place."""
        added = _only_added(calls).difference(outputs)
        puts = [call for call in calls if call.op.update_keys is not None and len(call.ins) == 1]
        puts = [call for call in puts if call.outs[0] in added]
        self.put = _parts([(call, call.outs, call.op.update_keys, specs[call.outs[0]].shape) for call in puts], specs)
        """Parts that are put into zeros, to be added up."""
        self.joined = {call.outs[0]: _joined(call, specs) for call in calls if is_join(call, specs)}
        """For arrays that are put together of several: the window and the place of each."""
        self.calls = [c for c in calls if c.outs[0] not in self.taken and c.outs[0] not in self.put]
        self.position = {i: (n, k) for n, call in enumerate(self.calls) for k, i in enumerate(call.outs)}
        """The call that gives a value, and which of its outputs that is."""
        self._coordinates: dict[int, Coordinate] = {}

    def whole(self, i: int) -> int:
        """What a part is taken of, or made of; other values are themselves."""
        while i in self.taken or i in self.put:
            i = self.maker[i].ins[0]
        return i

    def coordinate(self, i: int) -> Coordinate:
        """Where a value is."""
        found = self._coordinates.get(i)
        if found is None:
            if i in self.taken:
                found = Coordinate(*self.taken[i])
            elif i in self.position:
                n, k = self.position[i]
                found = Coordinate(k, n)
            else:
                found = Coordinate((i,), 0)
            self._coordinates[i] = found
        return found

    def labels(self) -> list[int]:
        """Equal numbers for calls that do the same to arrays of the same shapes."""
        known: dict[Any, int] = {}
        labels = []
        for n, call in enumerate(self.calls):
            key = (call.op, call.arguments, tuple([self.specs[i] for i in call.ins]))
            if not call.op.is_own or has_opaque(call.arguments):
                key = (n,)  # type: ignore[assignment]  # like no other one
            labels.append(known.setdefault(key, len(known)))
        return labels

    def links(self, n: int, period: int) -> tuple[int | None, ...]:
        """How far what a call reads is from what the one a period later reads; None where there is no telling."""
        pairs = [
            (self.coordinate(a), self.coordinate(b))
            for a, b in zip(self.calls[n].ins, self.calls[n + period].ins, strict=True)
        ]
        return tuple([b.place - a.place if a.family == b.family else None for a, b in pairs])


def is_long_sum(call: Call) -> bool:
    """Whether a call adds up an array for each step of a recurrence, perhaps."""
    return call.op.linear == "together" and call.op.fold is not None and len(call.ins) >= LEAST


def is_join(call: Call, specs: Mapping[int, Spec]) -> bool:
    """Whether a call puts an array for each step of a recurrence together, perhaps."""
    (result, *_) = call.outs
    return (
        call.op.update_keys is not None and len(call.ins) >= LEAST
        and all([specs[i].dtype == specs[result].dtype for i in call.ins])
    )  # fmt: skip


def _only_added(calls: Sequence[Call]) -> set[int]:
    """What nothing but long sums read."""
    added = {i for call in calls if is_long_sum(call) for i in call.ins}
    return added.difference([i for call in calls if not is_long_sum(call) for i in call.ins])


def _ways(call: Call, keys: Keys | None, source: Any, specs: Mapping[int, Spec]) -> list[list[tuple[Window, int]]]:
    """For each part of a call, the ways to leave one of its places open."""
    assert keys is not None
    told = keys(tuple([specs[i].shape for i in call.ins]), call.op.named(call.arguments))
    return [[(Window(source, axis, i, new), place) for axis, i, new, place in opened(key)] for key in told]


def _joined(call: Call, specs: Mapping[int, Spec]) -> list[tuple[Window, int]]:
    """The window and the place of each array that a call puts together, the place on the axis along which it does."""
    ways = _ways(call, call.op.update_keys, specs[call.outs[0]].shape, specs)
    axis = next((k for k, (_, place) in enumerate(ways[-1]) if place), 0)
    return [each[axis] for each in ways]


def _parts(
    taking: Sequence[tuple[Call, tuple[int, ...], Keys | None, Any]], specs: Mapping[int, Spec]
) -> dict[int, tuple[Window, int]]:
    """Parts of arrays that are taken or put at more places than a step of a recurrence takes or puts them.

    Args:
        taking: Calls, with the numbers of the parts, what tells their keys, and the array that they are parts of.
        specs: Of all values.
    """
    ways: dict[int, list[tuple[Window, int]]] = {}
    places: dict[Window, set[int]] = {}
    alike = Counter([(call.op, call.arguments) for call, *_ in taking])
    for call, numbers, keys, source in taking:
        ways.update(zip(numbers, _ways(call, keys, source, specs), strict=True))
    for each in ways.values():
        for window, place in each:
            places.setdefault(window, set()).add(place)
    found: dict[int, tuple[Window, int]] = {}
    for call, numbers, _, _ in taking:
        least = max(LEAST, alike[call.op, call.arguments] + 1)
        chosen = {
            i: max(ways[i], key=lambda way: len(places[way[0]]), default=None) for i in numbers
        }
        if all([way is not None and len(places[way[0]]) >= least for way in chosen.values()]):
            found.update({i: way for i, way in chosen.items() if way is not None})
    return found


def opened(key: tuple[Any, ...]) -> Iterator[tuple[int, int, tuple[Any, ...], int]]:
    """The ways to leave one place of a key open: its axis, where in the key it is, the key with 0 there, the place."""
    axis = 0
    for i, entry in enumerate(key):
        if entry is None:
            continue
        if not isinstance(entry, int) and not entry[1]:
            return  # nothing is taken
        start, new = (entry, 0) if isinstance(entry, int) else (entry[0], (0, *entry[1:]))
        yield axis, i, (*key[:i], new, *key[i + 1 :]), start
        axis += 1
