"""Find repeated blocks of a graph: layers of one kind, unrolled steps, and their gradients.

A block is a run of functions, and the next block does the same to values of the same shapes. Corresponding functions of
all blocks read the value at the same place in their own block or in the one before, or a value from outside.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..cpu.stretches import stretches_of
from ..extend import bodies_in
from .description import Description, Kind

LEAST = 3
"""The minimum number of repetitions of a block."""
_FEWEST = 6
"""The minimum number of functions that folding must save."""
_MOST_LEFT_OUT = 3
"""The maximum number of blocks of a stretch that are written out because they read other values than those after them,
or to make the inputs of these unambiguous."""


class Fold(NamedTuple):
    """A repeated block."""

    nodes: tuple[tuple[int, ...], ...]
    """The functions of each block, without those in bodies."""
    carried: tuple[tuple[tuple[int, int], tuple[int, int]], ...]
    """Pairs of a value that the first block reads from outside, and the result of the first block that the second reads
    in its place."""
    changing: tuple[tuple[tuple[int, int], ...], ...]
    """For each input from outside that differs between the blocks, its value in each block."""


def folds_of(described: Description) -> list[Fold]:
    """The repeated blocks, in order and without overlap, in linear time."""
    finder = _Finder(described)
    taken = bytearray(len(described.top))
    folds = []
    for stretch in stretches_of(finder.labels, LEAST):
        period = stretch.period
        for start, end in stretch.free_parts(taken, LEAST):
            left_out = 0
            while left_out < _MOST_LEFT_OUT and _pays((end - start) // period, period):
                fold = finder.fold(start, period, (end - start) // period)
                after = start + period * (1 if fold is None else len(fold.nodes))
                if fold is None:
                    left_out += 1
                else:
                    folds.append((start, fold))
                    taken[start:after] = b"\1" * (after - start)
                start = after
    return [fold for _, fold in sorted(folds, key=lambda entry: entry[0])]


def _pays(count: int, period: int) -> bool:
    return count >= LEAST and (count - 1) * period >= _FEWEST


def static_key(arguments: tuple[Any, ...]) -> Any:
    """A key of static arguments that tells apart values equal in Python, such as 0.0 and -0.0, or 1 and True."""
    return tuple([
        value if bodies_in((value,)) or value.__class__ in (int, str) else (value.__class__, value, repr(value))
        if value.__class__ in (float, bool, tuple, complex) else (value.__class__, value)
        for value in arguments
    ])  # fmt: skip


class _Finder:
    """Finds repetitions from the distances between functions, outside of bodies, and their operands."""

    def __init__(self, described: Description) -> None:
        self._described = described
        self._top = described.top
        self._position = {node: n for n, node in enumerate(self._top)}
        known: dict[Any, int] = {}
        self.labels = [known.setdefault(self._label(node), len(known)) for node in self._top]
        """Equal numbers for functions that apply the same op to arrays of the same shapes."""

    def _label(self, node: int) -> Any:
        d = self._described
        read = tuple([bool(name) for name in d.results[node]])
        constant = node if d.kinds[node] is Kind.CONSTANT else -1  # constants are shared, so no block has its own
        return d.ops[node], static_key(d.static[node]), d.given(node), d.orders[node], d.states[node], read, constant

    def _links(self, n: int, start: int) -> tuple[tuple[int, int], ...]:
        """The distance and output index of each operand of the function at position `n`; 0 and 0 for leaves and for
        operands before `start`."""
        links = []
        for node, output in self._described.operands[self._top[n]]:
            at = self._position.get(node, -1)
            links.append((n - at, output) if at >= start else (0, 0))
        return tuple(links)

    def fold(self, first: int, period: int, most: int) -> Fold | None:
        """The fold of as many blocks from a position on as read the same, at most `most`; None if they are too few, or
        if the inputs of later blocks are ambiguous, because the first one reads one value where the next reads two."""

        def links(t: int) -> list[tuple[tuple[int, int], ...]]:
            return [self._links(first + t * period + j, first) for j in range(period)]

        second = links(1)
        # What the second block reads of the first one, the first one reads from outside.
        begins = [tuple([link if link[0] <= j else (0, 0) for link in read]) for j, read in enumerate(second)]
        count = 1
        while count < most and links(count) == second:
            count += 1
        if links(0) != begins or not _pays(count, period):
            return None
        d, top = self._described, self._top
        nodes = tuple([tuple(top[first + t * period : first + (t + 1) * period]) for t in range(count)])
        known: dict[tuple[int, int], Any] = {}
        carried: list[tuple[tuple[int, int], tuple[int, int]]] = []
        changing: list[tuple[tuple[int, int], ...]] = []
        for j in range(period):
            read = [d.operands[block[j]] for block in nodes]
            for k, (back, output) in enumerate(second[j]):
                if back and back <= j:
                    continue
                outer = read[0][k]
                then = (nodes[0][j - back + period], output) if back else tuple([operands[k] for operands in read])
                if outer not in known:
                    known[outer] = then
                    if back:
                        carried.append((outer, then))  # type: ignore[arg-type]  # a value
                    elif then.count(outer) < count:
                        changing.append(then)  # type: ignore[arg-type]  # values
                elif known[outer] != then:
                    return None
        return Fold(nodes, tuple(carried), tuple(changing))
