"""The calls of a block in one order, with positions of values: the search space for repetitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..extend import Call, Spec
from .thresholds import LEAST


class Window(NamedTuple):
    """A part of an array with the index along one axis left open."""

    source: Any
    """The number of the array; or the shape of the array that parts are put into."""
    axis: int
    """The axis of the open index."""
    entry: int
    """Its position in the key."""
    key: tuple[Any, ...]
    """The key, with 0 for the open index."""


class Coordinate(NamedTuple):
    """The position of a value in its family: equal steps read values at equal distances in one family."""

    family: Any
    place: int


class Listing:
    """The calls of a block in topological order, and the positions of values.

    Taking parts of an array at several indices is not listed as calls: such a part has a coordinate in its array.
    Likewise for parts that are put into an array to be added up.

    Args:
        calls: All calls.
        specs: Shapes and dtypes of all values.
        outputs: The values that are wanted.
    """

    def __init__(self, calls: Sequence[Call], specs: Mapping[int, Spec], outputs: Sequence[int]) -> None:
        self.specs, self.outputs = specs, outputs
        self.maker = {i: call for call in calls for i in call.outs}
        self.taken = _parts(
            [(call, call.outs, call.op.slice_keys, call.ins[0]) for call in calls if call.op.slice_keys is not None],
            specs,
        )
        """Parts taken of arrays, each with its window and index."""
        added = _only_added(calls).difference(outputs)
        puts = [call for call in calls if call.op.update_keys is not None and len(call.ins) == 1]
        puts = [call for call in puts if call.outs[0] in added]
        self.put = _parts([(call, call.outs, call.op.update_keys, specs[call.outs[0]].shape) for call in puts], specs)
        """Parts put into zeros, to be added up."""
        self.calls = [c for c in calls if c.outs[0] not in self.taken and c.outs[0] not in self.put]
        self.position = {i: (n, k) for n, call in enumerate(self.calls) for k, i in enumerate(call.outs)}
        """The index of the call that computes each value, and of the output."""
        self._coordinates: dict[int, Coordinate] = {}

    def whole(self, i: int) -> int:
        """The array that a part is taken from, or the value that is put into one; other values are returned as they
        are.
        """
        while i in self.taken or i in self.put:
            i = self.maker[i].ins[0]
        return i

    def coordinate(self, i: int) -> Coordinate:
        """The position of a value."""
        if i not in self._coordinates:
            if i in self.taken:
                self._coordinates[i] = Coordinate(*self.taken[i])
            elif i in self.position:
                n, k = self.position[i]
                self._coordinates[i] = Coordinate(k, n)
            else:
                self._coordinates[i] = Coordinate((i,), 0)
        return self._coordinates[i]

    def labels(self) -> list[int]:
        """Equal numbers for calls that do the same to arrays of the same shapes."""
        known: dict[Any, int] = {}
        labels = []
        for n, call in enumerate(self.calls):
            key = (call.op, call.arguments, tuple([self.specs[i] for i in call.ins]))
            if not call.op.is_own or call.opaque:
                key = (n,)  # type: ignore[assignment]  # equal to no other
            labels.append(known.setdefault(key, len(known)))
        return labels

    def links(self, n: int, period: int) -> tuple[int | None, ...]:
        """The distances from the values a call reads to those read one period later; None if there are none."""
        pairs = [
            (self.coordinate(a), self.coordinate(b))
            for a, b in zip(self.calls[n].ins, self.calls[n + period].ins, strict=True)
        ]
        return tuple([b.place - a.place if a.family == b.family else None for a, b in pairs])


def is_long_sum(call: Call) -> bool:
    """True for a call that may add up one array per step of a recurrence."""
    return call.op.linear == "together" and call.op.fold is not None and len(call.ins) >= LEAST


def _only_added(calls: Sequence[Call]) -> set[int]:
    """The values that only long sums read."""
    added = {i for call in calls if is_long_sum(call) for i in call.ins}
    return added.difference([i for call in calls if not is_long_sum(call) for i in call.ins])


def _ways(
    call: Call, keys: Callable[..., Any] | None, source: Any, specs: Mapping[int, Spec]
) -> list[list[tuple[Window, int]]]:
    """For each part of a call, all choices of one index to leave open."""
    assert keys is not None
    told = keys(tuple([specs[i].shape for i in call.ins]), call.op.named(call.arguments))
    return [[(Window(source, axis, i, new), place) for axis, i, new, place in opened(key)] for key in told]


def _parts(
    taking: Sequence[tuple[Call, tuple[int, ...], Callable[..., Any] | None, Any]], specs: Mapping[int, Spec]
) -> dict[int, tuple[Window, int]]:
    """Parts of arrays that are taken or put at more indices than a single step of a recurrence uses.

    Args:
        taking: Calls, with the numbers of the parts, the function for their keys, and the array that they belong to.
        specs: Shapes and dtypes of all values.
    """
    ways: dict[int, list[tuple[Window, int]]] = {}
    places: dict[Window, set[int]] = {}
    alike = Counter([(call.op, call.arguments) for call, *_ in taking])
    for call, numbers, keys, source in taking:
        ways.update(zip(numbers, _ways(call, keys, source, specs), strict=True))
    for choices in ways.values():
        for window, place in choices:
            places.setdefault(window, set()).add(place)
    parts: dict[int, tuple[Window, int]] = {}
    for call, numbers, _, _ in taking:
        least = max(LEAST, alike[call.op, call.arguments] + 1)
        chosen = {
            i: max(ways[i], key=lambda way: len(places[way[0]]), default=None) for i in numbers
        }
        if all([way is not None and len(places[way[0]]) >= least for way in chosen.values()]):
            parts.update({i: way for i, way in chosen.items() if way is not None})
    return parts


def opened(key: tuple[Any, ...]) -> Iterator[tuple[int, int, tuple[Any, ...], int]]:
    """All choices of one index of a key to leave open: its axis, its position, the key with 0 for it, and the index."""
    axis = 0
    for i, entry in enumerate(key):
        if entry is None:
            continue
        if not isinstance(entry, int) and not entry[1]:
            return  # nothing is taken
        start, new = (entry, 0) if isinstance(entry, int) else (entry[0], (0, *entry[1:]))
        yield axis, i, (*key[:i], new, *key[i + 1 :]), start
        axis += 1
