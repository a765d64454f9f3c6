"""Find repeated blocks of a graph: layers of one kind, unrolled steps, and their gradients.

A block is a run of functions, and the next block does the same to values of the same shapes. Corresponding functions of
all blocks read the value at the same place in their own block or in the one before, or a value from outside.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ..cpu.stretches import Stretch, stretches_of
from ..extend import bodies_in
from .description import Description, Kind

LEAST = 3
"""The minimum number of repetitions of a block."""
_FEWEST = 6
"""The minimum number of functions that folding must save."""
_MOST_LEFT_OUT = 3
"""The maximum number of initial blocks that are written out to make the inputs of the others unambiguous."""


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
        for start, end in stretch.free_parts(taken, LEAST):
            for first, count in finder.runs(Stretch(start, end, stretch.period)):
                fold, left_out = None, 0
                while fold is None and left_out < _MOST_LEFT_OUT and _pays(count - left_out, stretch.period):
                    fold = finder.fold(first + left_out * stretch.period, stretch.period, count - left_out)
                    left_out += fold is None
                if fold is not None:
                    begin, last = first + left_out * stretch.period, first + count * stretch.period
                    folds.append((begin, fold))
                    taken[begin:last] = b"\1" * (last - begin)
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

    def runs(self, stretch: Stretch) -> Iterator[tuple[int, int]]:
        """The starts of runs of blocks with equal links in a stretch, and the number of blocks in each."""
        period = stretch.period
        start = self._best_start(stretch)
        count = (stretch.end - start) // period
        first, begun = start, 0
        before: list[tuple[tuple[int, int], ...]] | None = None
        for t in range(count):
            block = start + t * period
            links = [self._links(block + j, first) for j in range(period)]
            if begun == 0 or (before is None and self._begins(first, links)) or links == before:
                before = links if begun else None
                begun += 1
                continue
            yield first, begun
            first, begun, before = block, 1, None
        if begun:
            yield first, begun

    def _begins(self, first: int, second: list[tuple[tuple[int, int], ...]]) -> bool:
        """Whether the block at `first` can precede a block with the links `second`."""
        period = len(second)
        for j, links in enumerate(second):
            own = self._links(first + j, first)
            for (back, output), (other, same) in zip(own, links, strict=True):
                if other > j + period:
                    return False
                if (other and other <= j) != bool(back) or (back and (back, output) != (other, same)):
                    return False
        return True

    def _best_start(self, stretch: Stretch) -> int:
        """The start of blocks that passes few values between them, and leaves few functions over."""
        start, end, period = stretch
        middle = start + (end - start) // (2 * period) * period
        reach: dict[tuple[int, int], int] = {}
        for n in range(middle, min(middle + period, end)):
            for back, output in self._links(n, start):
                if back:
                    key = ((n - back - start) % period, output)
                    reach[key] = max(reach.get(key, 0), back)
        changes = [0] * (period + 1)
        for (residue, _), distance in reach.items():
            low, high = residue + 1, residue + 1 + min(distance, period)
            for a, b in ((low, high), (low - period, high - period)):
                a, b = max(a, 0), min(b, period)
                if a < b:
                    changes[a] += 1
                    changes[b] -= 1
        best, least, carried = start, None, 0
        for phase in range(period):
            carried += changes[phase]
            scopes = self._scope(start + phase) == self._scope(start + phase - 1)
            cost = (carried, (end - start - phase) % period, scopes, phase)
            if least is None or cost < least:
                best, least = start + phase, cost
        return best

    def _scope(self, n: int) -> str:
        return self._described.scopes[self._top[n]] if 0 <= n < len(self._top) else ""

    def fold(self, first: int, period: int, count: int) -> Fold | None:
        """The fold of `count` blocks from a position on; None if the inputs of later blocks are ambiguous, because the
        first block reads one value where the next reads two different ones."""
        d, top = self._described, self._top
        nodes = tuple([tuple(top[first + t * period : first + (t + 1) * period]) for t in range(count)])
        known: dict[tuple[int, int], Any] = {}
        carried: list[tuple[tuple[int, int], tuple[int, int]]] = []
        changing: list[tuple[tuple[int, int], ...]] = []
        for j in range(period):
            read = [d.operands[block[j]] for block in nodes]
            for k, (back, output) in enumerate(self._links(first + period + j, first)):
                if back and back <= j:
                    continue
                outer = read[0][k]
                then = (nodes[0][j - back + period], output) if back else tuple([each[k] for each in read])
                if outer not in known:
                    known[outer] = then
                    if back:
                        carried.append((outer, then))  # type: ignore[arg-type]  # a value
                    elif then.count(outer) < count:
                        changing.append(then)  # type: ignore[arg-type]  # values
                elif known[outer] != then:
                    return None
        return Fold(nodes, tuple(carried), tuple(changing))
