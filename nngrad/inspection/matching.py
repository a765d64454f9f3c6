"""Match the functions of two graphs: equal ones compute the same from the same values, whatever their names."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..functions.control import input_passed_on
from .description import Description
from .folding import static_key
from .recomputation import State


def matching(a: Description, b: Description) -> dict[int, int]:
    """A one-to-one map from nodes of the first graph to equal or corresponding nodes of the second. Nodes of bodies are
    matched along with their owners.

    Leaves are equal if they are one Variable, or else have the same name, shape and dtype. Functions are equal if they
    apply the same op to equal values; `F.recomputed` and barriers only pass values on. Remaining functions correspond
    if they apply the same op to arrays of the same shapes, have the same order, and belong to the gradient of the same
    function: only their operands differ. The time is linear in the size of the graphs.
    """
    known: dict[Any, int] = {}
    leaves = _leaves(a, b)
    of_a = _identities(a, known, {})
    of_b = _identities(b, known, {j: of_a.nodes[i] for i, j in leaves.items()})
    there = dict(leaves)
    taken = set(leaves.values())
    for copies in (False, True):  # a rematerialising copy must not be matched with its original
        waiting: dict[int, deque[int]] = {}
        for j in b.top:
            if j not in taken and (b.states[j] is State.COPY) in (False, copies):
                waiting.setdefault(of_b.nodes[j], deque()).append(j)
        for i in a.top:
            if i not in there and (a.states[i] is State.COPY) in (False, copies) and waiting.get(of_a.nodes[i]):
                there[i] = waiting[of_a.nodes[i]].popleft()
                taken.add(there[i])
    places: dict[Any, list[int]] = {}
    for j in b.top:
        if j not in taken and b.states[j] is not State.COPY:
            places.setdefault(_place(b, j, of_b), []).append(j)
    unsure: list[tuple[int, Any]] = []
    keys = {i: _place(a, i, of_a) for i in a.top if i not in there and a.states[i] is not State.COPY}
    wanted = Counter(keys.values())
    for i, key in keys.items():
        alike = [_alike(a.operands[i], b.operands[j], there) for j in places.get(key, ())[:_MOST_TRIED]]
        best = max(alike, default=-1)
        if best == len(a.operands[i]) or (len(alike) == wanted[key] == 1):
            there[i] = places[key].pop(alike.index(best))
        elif alike:
            unsure.append((i, key))
    for i, key in unsure:
        alike = [_alike(a.operands[i], b.operands[j], there) for j in places[key][:_MOST_TRIED]]
        if alike:
            there[i] = places[key].pop(alike.index(max(alike)))
    there.update([pair for i, j in list(there.items()) for pair in _within(a, i, b, j)])
    return there


_MOST_TRIED = 8
"""The number of candidates from which the most similar function is chosen."""


def _alike(
    ours: Sequence[tuple[int, int]], theirs: Sequence[tuple[int, int]], there: Mapping[int, int]
) -> int:
    """The number of operands of two functions that correspond."""
    return sum([there.get(a) == b and k == n for (a, k), (b, n) in zip(ours, theirs, strict=True)])


def _leaves(a: Description, b: Description) -> dict[int, int]:
    """The leaves that both graphs share, as a map from the first to the second."""
    found: dict[int, int] = {}
    of_b = {id(x): j for j, ref in b.leaf_refs.items() if (x := ref()) is not None}
    for i, ref in a.leaf_refs.items():
        x = ref()
        if x is not None and id(x) in of_b:
            found[i] = of_b[id(x)]
    taken = set(found.values())
    names = {(b.names[j], b.kinds[j], b.specs[j]): j for j in b.leaf_refs if j not in taken}
    for i in a.leaf_refs:
        if i not in found and (key := (a.names[i], a.kinds[i], a.specs[i])) in names:
            found[i] = names.pop(key)
    return found


class _Identities(NamedTuple):
    """Value numbering: equal numbers for nodes that compute the same."""

    nodes: list[int]
    values: list[tuple[int, ...]]
    """The numbers of the outputs of each node."""


def _identities(d: Description, known: dict[Any, int], leaves: dict[int, int]) -> _Identities:
    nodes: list[int] = []
    values: list[tuple[int, ...]] = []
    for i, op in enumerate(d.ops):
        read = tuple([values[node][output] for node, output in d.operands[i]])
        if op is None:
            # Nodes in bodies are identified by their owner.
            number = leaves.get(i, -1)
            number = known.setdefault(object(), len(known)) if number < 0 else number
        else:
            number = known.setdefault((op, static_key(d.static[i]), read), len(known))
        nodes.append(number)
        passed_on = None if op is None else input_passed_on(op)
        if passed_on is not None:
            values.append((read[passed_on],))
        else:
            outputs = range(len(d.specs[i]))
            values.append(tuple([known.setdefault((number, k), len(known)) for k in outputs]))
    return _Identities(nodes, values)


def _place(d: Description, i: int, identities: _Identities) -> Any:
    """A key that is equal for functions that may correspond."""
    base, rule = d.bases[i], d.rules[i]
    gradient_of = None if base == i else identities.nodes[base] if base >= 0 else rule
    return d.ops[i], static_key(d.static[i]), d.given(i), d.orders[i], gradient_of


def _within(a: Description, i: int, b: Description, j: int) -> Iterator[tuple[int, int]]:
    """The correspondence within the bodies of two functions that correspond."""
    k = 1
    while (
        i + k < len(a) and j + k < len(b) and a.body_of[i + k] >= 0 and b.body_of[j + k] >= 0
        and a.ops[i + k] is b.ops[j + k]
    ):  # fmt: skip
        yield i + k, j + k
        k += 1
