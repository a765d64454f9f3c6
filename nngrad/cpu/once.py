"""Barriers that keep XLA's CPU compiler from recomputing values in every loop that reads them: sines, and sums along
recurrences.

**Sines, cosines and tangents.** XLA recomputes an operation that it considers cheap in each loop that reads it, and for
each element of a larger array that it is broadcast to. It considers these as cheap as a product (`TAKEN_FOR_LIGHT`),
but they take as long as dozens. Other slow functions, such as `exp` and `tanh`, it stores by itself if several loops
read them.

**Sums along recurrences.** XLA fuses an elementwise function into all its readers, unless one of them also depends on
it through something that must be in memory. A sum of gradients in a long recurrence, such as that of an LSTM's cell,
escapes that rule: it reaches the sum of the step before through a product with a gate, and the program computes each
step's sum from those of *all* later steps. Arithmetic and compile time then grow with the square of the length. So one
reader of such a sum gets a barrier, with the same value bit for bit, that waits for something heavy computed from the
sum: then the rule applies, and the sum is computed once.

A weight used at every step has a gradient that is a sum over all of them, and large. Its terms would all wait in memory
for the last. They are added up on the way, and the recurrence is made to wait for that.
"""

from __future__ import annotations

import bisect
import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..extend import (
    Block,
    Call,
    Op,
    Spec,
    block_of,
    calls_of,
    late,
    op,
    with_forward,
    without_identities,
)
from ..functions.barriers import computed_once, known_after
from .facts import TAKEN_FOR_LIGHT
from .substitutes import with_ops
from .thresholds import FAR, MANY_SOURCES, MOST_SOURCES, PARTS_ADDED_UP, WORTH_A_CALL

_NONE: frozenset[int] = frozenset()


def with_sines_once(block: Block) -> Block:
    """The block with barriers after sines and the like that would be computed several times, also in bodies; unchanged
    if there are none."""
    if TAKEN_FOR_LIGHT.isdisjoint(block.ops):
        return block
    calls, specs = calls_of(block)
    loops = _Loops(specs, block.outputs)
    first: dict[Any, int] = {}
    same = {  # equal calls are computed once
        out: first.setdefault((op, arguments, ins), out)
        for op, arguments, ins, (out, *_) in calls if op in TAKEN_FOR_LIGHT
    }
    held: set[int] = set()
    for call in reversed(calls):
        out = call.outs[0]
        one, own = same.get(out), loops.of(call)
        if one is not None and one != out:
            loops.add(one, own)
        elif one is not None and len(own) > 1 and specs[out].nbytes >= WORTH_A_CALL:
            held.add(out)
            loops.keep(call.ins)
        else:
            loops.read(call, own)
    ops = [_computed_once(call.op) if same.get(call.outs[0]) in held else call.op for call in calls]
    return with_ops(block, ops, with_sines_once)


class _Loops:
    """The loops in which values are computed, as far as the calls that read them have been seen."""

    def __init__(self, specs: Mapping[int, Spec], outputs: Iterable[int]) -> None:
        self._specs = specs
        self._found: dict[int, frozenset[int]] = {}
        """For each value, the results of its loops; at most two of them."""
        self._in_memory: set[int] = set()
        self.keep(outputs)

    def of(self, call: Call) -> frozenset[int]:
        """The results of the loops in which a call is computed."""
        return _NONE.union(*[self._found.get(i, _NONE) for i in call.outs])

    def add(self, i: int, loops: frozenset[int]) -> None:
        """Record that value `i` is computed in these loops as well."""
        self._found[i] = frozenset(sorted(self._found.get(i, _NONE) | loops)[:2])

    def keep(self, values: Iterable[int]) -> None:
        """Record that values must be in memory, and so have loops of their own."""
        for i in values:
            self._in_memory.add(i)
            self.add(i, frozenset([i]))

    def read(self, call: Call, own: frozenset[int]) -> None:
        """Record that the inputs of a call are computed in the call's loops, `own`, or must be in memory."""
        op, _, ins, (out, *_) = call
        sizes = {i: self._specs[i].size for i in (*ins, out)}
        if op.reduction and op.stands_for is None:
            own = frozenset([out])
        elif not (op.fuses or op.view):
            self.keep(ins)
            return
        elif out in self._in_memory and sum([sizes[i] == sizes[out] for i in {*ins}]) > 1:
            own = frozenset([out])  # XLA recomputes a stored value only if it is made from one array
        for i in ins:
            self.add(i, frozenset([i, out]) if sizes[out] > sizes[i] else own)  # for each element of a larger array


@functools.cache
def _computed_once(op: Op) -> Op:
    """An op that computes the same, and is not fused with anything."""

    def once(*x: Any) -> Any:
        return computed_once(op.forward, *x)

    found = with_forward(op, once, f"{op.name}_on_cpu")
    found.fuses = ""
    return found


@op(reads=1, fuses="in place")
def barrier(*x: Any) -> Any:
    """The first of `x`, computed after all others."""
    return known_after(*x)


def with_sums_once(block: Block) -> Block:
    """The block with barriers so that XLA computes sums along recurrences once; unchanged if there are none."""
    if sum([op.is_sum for op, _, _ in block.steps]) <= MOST_SOURCES:
        return block
    return _Recurrences(block).with_barriers() or block


class _Recurrences:
    """The calls of a block, each as late as its readers allow, identified by their index in that order."""

    def __init__(self, block: Block) -> None:
        listed, self._specs = calls_of(block)
        calls, self._outputs = without_identities(block, listed)
        self._inputs = block.inputs
        self._calls = late(calls, self._outputs)
        self._maker = _makers(self._calls)
        self._count_readers()
        self._calls.sort(key=self._early_parts())
        self._maker = _makers(self._calls)
        self._count_readers()
        self._waiting: dict[int, list[tuple[int, int]]] = {}
        """For a reader: the values that it must read later, each with what it must wait for."""
        self._partial: dict[int, list[tuple[int, list[int]]]] = {}
        """For such a reader: the sums, each with the terms that are added up before it."""

    def with_barriers(self) -> Block | None:
        """The block with barriers; None if it needs none."""
        if self._most_read(self._is_computed_once) <= MANY_SOURCES:
            return None
        self._most_read(self._is_made_once)
        if not self._waiting:
            return None
        self._divide_sums()
        return self._rewritten()

    def _count_readers(self) -> None:
        self._readers: list[list[int]] = [[] for _ in self._calls]
        for n, call in enumerate(self._calls):
            for m in {self._maker[i] for i in call.ins if i in self._maker}:
                self._readers[m].append(n)

    # ---------------------------------------------------------------- which sums

    def _most_read(self, is_computed_once: Callable[[int], bool]) -> int:
        """The most arrays that any loop reads, if such calls are computed once."""
        most = 0
        sources: dict[int, frozenset[int]] = {}
        """The arrays that the loop computing a value reads."""
        for n, call in enumerate(self._calls):
            if not (call.op.fuses or call.op.view):
                continue
            read = frozenset().union(*[sources.get(i) or frozenset([i]) for i in call.ins])
            if len(read) > MOST_SOURCES and (is_computed_once(n) or len(read) > 8 * MOST_SOURCES):
                read = frozenset(call.outs)  # computed once; or beyond help, and followed no further
            most = max(most, len(read))
            sources.update(dict.fromkeys(call.outs, read))
        return most

    def _is_computed_once(self, n: int) -> bool:
        """Whether XLA computes a call only once without help."""
        return self._looked_at(n)[0]

    def _is_made_once(self, n: int) -> bool:
        """Whether XLA computes a call once, possibly because a reader now waits for something heavy made from it."""
        once, reader, token = self._looked_at(n)
        if token is not None:
            self._waiting.setdefault(reader, []).append((self._calls[n].outs[0], token))
        return once or token is not None

    def _looked_at(self, n: int) -> tuple[bool, int, int | None]:
        """Whether a call is computed once; else the last reader that would recompute it, and what that can wait for."""
        call = self._calls[n]
        if not call.op.is_sum or len(self._readers[n]) < 2:
            return False, n, None
        computing = [m for m in self._readers[n] if self._calls[m].op.fuses]
        if not computing:
            return True, n, None
        (value,) = call.outs
        last = computing[-1]
        token: int | None = None
        near: set[int] = {value}
        far: set[int] = set()
        for m in range(n + 1, min(last + 1, n + FAR)):
            g = self._calls[m]
            through = not far.isdisjoint(g.ins)
            if through and any([i == value and _combines_at_once(g, k) for k, i in enumerate(g.ins)]):
                return True, last, None
            if not through and near.isdisjoint(g.ins):
                continue
            (far if through or g.op.heavy else near).update(g.outs)
            if g.op.heavy and token is None and m != last and self._specs[g.outs[0]].size:
                token = g.outs[0]
        return False, last, token

    # ---------------------------------------------------------------- sums over the steps

    def _is_large(self, i: int) -> bool:
        """Whether a value must be in memory until it is added to something."""
        n = self._maker.get(i)
        return n is not None and self._calls[n].op.heavy and len(self._readers[n]) == 1

    def _is_divisible(self, call: Call) -> bool:
        """Whether the call is a sum that can be split into any parts."""
        return call.op.is_sum and call.op.fold is not None and not call.op.weights

    def _early_parts(self) -> Callable[[Call], tuple[int, int]]:
        """A sort key for the calls that moves the terms of large sums to just after their inputs."""
        parts = {
            self._maker[i] for c in self._calls if self._is_divisible(c) for i in c.ins if self._is_large(i)
        }
        for n in range(len(self._calls) - 1, -1, -1):
            if n in parts:
                makers = [self._maker[i] for i in self._calls[n].ins if i in self._maker]
                parts.update([m for m in makers if len(self._readers[m]) == 1])
        early: dict[int, int] = {}
        for n, call in enumerate(self._calls):
            if n in parts:
                makers = [self._maker[i] for i in call.ins if i in self._maker]
                early[n] = max([early.get(m, m) for m in makers], default=0)
        keys = {c.outs: (early[n], 1) if n in early else (n, 0) for n, c in enumerate(self._calls)}
        return lambda call: keys[call.outs]

    def _divide_sums(self) -> None:
        """Find terms of sums over the steps that can be added up on the way."""
        readers = sorted(self._waiting)
        for n, call in enumerate(self._calls):
            if not self._is_divisible(call) or not all(map(self._is_large, call.ins)):
                continue
            parts = sorted(call.ins, key=self._maker.__getitem__)
            places = [self._maker[i] for i in parts]
            start = 0
            for reader in readers:
                end = bisect.bisect_left(places, reader)
                if end - start >= PARTS_ADDED_UP and reader < n:
                    self._partial.setdefault(reader, []).append((n, parts[start:end]))
                    start = end

    # ---------------------------------------------------------------- the block

    def _rewritten(self) -> Block:
        calls: list[Call] = []
        instead: dict[int, int] = {}
        """The replacements of values."""
        added: dict[int, tuple[int, set[int]]] = {}
        """For each sum: the partial sum so far, and its terms."""
        free = min(self._specs)

        def apply(op: Op, arguments: tuple[Any, ...], ins: Iterable[int]) -> int:
            nonlocal free
            free -= 1
            calls.append(Call(op, arguments, tuple(ins), (free,)))
            return free

        for n, call in enumerate(self._calls):
            ins = [instead.get(i, i) for i in call.ins]
            tokens = []
            for m, parts in self._partial.get(n, ()):
                total, before = added.get(m, (None, set()))
                terms = [*([] if total is None else [total]), *[instead.get(i, i) for i in parts]]
                added[m] = apply(self._calls[m].op, self._calls[m].arguments, terms), before.union(parts)
                tokens.append(added[m][0])
            for value, token in self._waiting.get(n, ()):
                known = apply(barrier, (), (instead.get(value, value), instead.get(token, token), *tokens))
                ins = [known if i == value else new for i, new in zip(call.ins, ins, strict=True)]
            if n in added:
                total, parts_added = added[n]
                ins = [total, *[new for i, new in zip(call.ins, ins, strict=True) if i not in parts_added]]
                if len(ins) == 1:
                    instead[call.outs[0]] = total
                    continue
            calls.append(call._replace(ins=tuple(ins)))
        return block_of(self._inputs, calls, [instead.get(i, i) for i in self._outputs])


def _makers(calls: Iterable[Call]) -> dict[int, int]:
    """The indices of the calls that make values, by value."""
    return {i: n for n, call in enumerate(calls) for i in call.outs}


def _combines_at_once(call: Call, operand: int) -> bool:
    """Whether a call combines this input with others directly, without multiplying it by a number first."""
    op = call.op
    return not op.weights or abs(op.named(call.arguments)[op.weights][operand]) == 1
