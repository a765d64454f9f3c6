"""The loops that XLA on a CPU makes of a graph: what it fuses, and what each loop finds in memory and leaves there.

XLA computes a function within the loop of a reader where it can. What it cannot fuse has memory of its own, and so has

- what a reader must find in memory, such as an operand of a product of matrices, and what is a result;
- something costly that several loops read: cheap functions are computed anew in each of them;
- a function of several arrays that cannot be fused along *all* paths that lead from it to a reader: computed anew
  there, it would keep all of these arrays alive.

Convolutions read their operands in an order of axes of their own, which takes copies.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from enum import Enum, auto
from typing import Any, NamedTuple

from ..graph import Function, Variable
from .costs import reads, tokens
from .fusion import (
    combines_arrays,
    combines_at_once,
    computes_operands,
    copied_operands,
    has_part,
    is_fused,
    is_in_library,
    is_kept,
    is_known_to_library,
    keeps_places,
)

Value = Hashable
"""What gets memory: (function, number of its output), or a tuple that stands for a copy or a constant."""


MOST_READ = 512
"""A function that would have a loop read more than this has memory of its own."""

_MOST_CANDIDATES = 8192
"""Of how many functions of several arrays it is asked whether they are fused along all paths: the first ones."""


class Loop(NamedTuple):
    """What XLA runs as one."""

    function: Function | None
    """The function whose result it leaves in memory; None for what XLA adds."""
    made: list[tuple[Value, int]]
    """What it makes, each with its bytes."""
    read: dict[Value, bool]
    """What it finds in memory, and whether it may write over that: where it reads each element only to make the one at
    the same place."""


class Way(Enum):
    """How a function comes by what another has computed."""

    FUSED = auto()
    """It can compute that itself."""
    AWAITED = auto()
    """It can, and takes one element of it."""
    COPIED = auto()
    """From a copy with turned axes, which can compute it."""
    IN_MEMORY = auto()
    """It must be in memory."""


class Link(NamedTuple):
    """What a function reads of another."""

    way: Way
    source: Function | None
    """None for leaves."""
    variable: Variable
    operand: int
    """Which of the reader's inputs it is."""


def loops(outputs: Sequence[Variable], functions: list[Function]) -> tuple[list[Loop], dict[Value, None]]:
    """The loops for `functions`, in an order in which they can run; and which values are results.

    Args:
        outputs: The results.
        functions: What they depend on, inputs before readers.
    """
    fusing = _Fusing(outputs, functions)
    return fusing.loops, fusing.results


class _Fusing:
    def __init__(self, outputs: Sequence[Variable], functions: list[Function]) -> None:
        self._functions = [f for f in functions if not f.op.passes]
        ends = [_stored(y) for y in outputs]
        self.results: dict[Value, None] = dict.fromkeys([(y.parent, y.index) for y in ends if y.parent is not None])
        self._ends = {y.parent for y in ends if y.parent is not None}
        self._readers = self._count_readers()
        self._absorbed = self._computed_in_reductions()
        self._links = {f: list(self._links_of(f)) for f in self._functions}
        self._lasting = self._not_repeated()
        self._in_memory = self._with_memory()
        self._through: dict[tuple[Function, int], dict[Value, bool]] = {}
        """What a reader that fuses with a function reads in its place."""
        self._copies: set[Value] = set()
        self.loops: list[Loop] = []
        for f in self._functions:
            self._add(f)

    # ---------------------------------------------------------------- who reads what

    def _count_readers(self) -> dict[Function, int]:
        readers: dict[Function, int] = {}
        for f in self._functions:
            for p in {_passed(x).parent for x in (*reads(f), *tokens(f))}:
                if p is not None:
                    readers[p] = readers.get(p, 0) + 1
        return readers

    def _computed_in_reductions(self) -> set[Function]:
        """What a library computes on its way to a sum over it, from operands in memory."""
        found: set[Function] = set()
        for f in reversed(self._functions):
            if f in found or is_in_library(f):
                for x in reads(f):
                    p = _passed(x).parent
                    if p is not None and is_known_to_library(p) and self._readers[p] == 1 and p not in self._ends:
                        found.add(p)
        return found

    def _links_of(self, f: Function) -> Iterator[Link]:
        copied = copied_operands(f)
        takes = (computes_operands(f) and f not in self._absorbed) or f.op.view
        for k, given in enumerate(reads(f)):
            x = _passed(given)
            p = x.parent
            if k in copied:
                yield Link(Way.COPIED, p, x, k)
            else:
                yield Link(Way.FUSED if takes or p in self._absorbed else Way.IN_MEMORY, p, x, k)
        for k, given in enumerate(tokens(f)):
            x = _passed(given)
            yield Link(Way.AWAITED, x.parent, x, k + 1)

    # ---------------------------------------------------------------- what has memory

    def _is_repeated(self, f: Function) -> bool:
        """Whether XLA computes `f` in each of several readers, as far as that depends on `f` alone."""
        return is_fused(f.op) and not (is_kept(f) and self._readers.get(f, 0) > 1)

    def _not_repeated(self) -> set[Function]:
        """Functions of several arrays that cannot be fused along all paths to some reader.

        Each candidate is a bit of a number: of `near`, where paths on which all is fused lead from it to a function,
        and of `far`, where other paths do.
        """
        found: set[Function] = set()
        candidates: list[Function] = []
        bits: dict[Function, int] = {}
        near: dict[Function, int] = {}
        far: dict[Function, int] = {}
        for f in self._functions:
            fused = apart = read = 0
            for way, p, _, k in self._links[f]:
                if p is None:
                    continue
                bit = bits.get(p, 0)
                apart |= far[p]
                if way in (Way.FUSED, Way.AWAITED) and p not in found and (p.op.view or self._is_repeated(p)):
                    fused |= near[p] | bit
                else:
                    apart |= near[p] | bit
                if way is Way.IN_MEMORY or (way is Way.FUSED and combines_at_once(f, k)):
                    read |= bit
            broken = read & apart
            while broken:
                lowest = broken & -broken
                found.add(candidates[lowest.bit_length() - 1])
                broken ^= lowest
            near[f], far[f] = fused, apart
            read_often = f in self._ends or self._readers.get(f, 0) > 1
            if read_often and len(candidates) < _MOST_CANDIDATES and is_fused(f.op) and combines_arrays(f):
                bits[f] = 1 << len(candidates)
                candidates.append(f)
        return found.union(self._ends.intersection(candidates))

    def _with_memory(self) -> set[Function]:
        """The functions whose results have memory of their own."""
        found: set[Function] = set(self._lasting)
        found |= self._ends
        hosts: dict[Function, set[Any]] = {}
        """The loops that would compute a function: two stand for more."""
        for f in reversed(self._functions):
            within = hosts.pop(f, set())
            if f.op.view:
                pass
            elif not is_fused(f.op) or (is_kept(f) and len(within) > 1):
                found.add(f)
            if f in found and not f.op.view:
                within = {f} | within if self._is_computed_anew(f) else {f}
            for way, p, x, k in self._links[f]:
                if p is None:
                    continue
                if way is Way.IN_MEMORY or (f.op.view and f in found):
                    found.add(p)
                    continue
                of = hosts.setdefault(p, set())
                if len(of) < 2:
                    of.update([(x, f.op, k)] if way is Way.COPIED else within)
        return found

    def _is_computed_anew(self, f: Function) -> bool:
        """Whether loops compute `f`, which is in memory, all the same."""
        return is_fused(f.op) and not is_kept(f) and f not in self._lasting

    # ---------------------------------------------------------------- loops

    def _add(self, f: Function) -> None:
        read: dict[Value, bool] = {}
        places = keeps_places(f.op)
        for link in self._links[f]:
            if link.way is Way.COPIED:
                read[self._copy(link, f)] = False
            elif link.source is None:
                pass
            elif link.way is Way.IN_MEMORY:
                stored = _stored(link.variable)
                if stored.parent is not None:
                    read[stored.parent, stored.index] = False
            else:
                for value, same in self._through[link.source, link.variable.index].items():
                    read[value] = read.get(value, True) and same and places and link.way is Way.FUSED
        if has_part(f.op):
            part = ("part", f)
            self.loops.append(Loop(None, [(part, f.specs[0].nbytes)], read))
            read = {part: True}
        if len(read) > MOST_READ and not f.op.view:
            self._in_memory.add(f)
            self._lasting.add(f)
        if f in self._in_memory and not f.op.view:
            self.loops.append(Loop(f, [((f, i), s.nbytes) for i, s in enumerate(f.specs)], read))
        for i in range(len(f.specs)):
            if f.op.view or f not in self._in_memory or self._is_computed_anew(f):
                self._through[f, i] = read
            else:
                self._through[f, i] = {(f, i): True}

    def _copy(self, link: Link, f: Function) -> Value:
        x = link.variable
        copy = ("copy", x if x.parent is None else (x.parent, x.index), f.op, link.operand)
        if copy not in self._copies:
            self._copies.add(copy)
            read = {} if x.parent is None else dict.fromkeys(self._through[x.parent, x.index], False)
            self.loops.append(Loop(None, [(copy, x.spec.nbytes)], read))
        return copy


def _passed(x: Variable) -> Variable:
    """`x`, or what a function that only passes it on was given."""
    while x.parent is not None and x.parent.op.passes:
        x = x.parent.inputs[x.index]
    return x


def _stored(x: Variable) -> Variable:
    """`x`, or what it is a view of."""
    while x.parent is not None and x.parent.op.view:
        x = x.parent.inputs[x.index]
    return x
