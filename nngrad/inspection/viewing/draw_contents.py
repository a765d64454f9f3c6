"""The contents of a drawing: labelled boxes, arrows between them, and drawings of bodies within boxes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ...extend import ControlOp
from ..description import BodyEntry, Description, Kind
from .initial_view import initial_view
from .layers import rows_of
from .page_layout import page_layout


class Choices(NamedTuple):
    """The facts that labels show."""

    shapes: bool
    arguments: bool
    formulas: bool
    bodies: bool


class Box(NamedTuple):
    """A leaf, a function, or an input or output of a body."""

    kind: str
    """'leaf', 'constant', 'function', 'input' or 'output'."""
    title: str
    notes: tuple[str, ...]
    """Smaller lines below the title."""
    order: int
    row: int
    """The rank of the function of order 0 that it comes from; some ranks may have no boxes."""
    scope: str
    """The parameter scope, such as 'critic/conv1'; empty for none."""
    full: str
    """The full description, in one or more lines, for tooltips."""
    is_result: bool
    """Whether it computes one of the outputs."""
    bodies: tuple[tuple[str, DrawingContents], ...]
    """The bodies of a loop or a branch, each with its title."""


class DrawingContents(NamedTuple):
    """Boxes in topological order, and arrows between their numbers."""

    boxes: tuple[Box, ...]
    arrows: tuple[tuple[int, int], ...]
    by_order: bool
    """Whether each order of differentiation has a column of its own."""


_NUMBERED = re.compile(r"(v|leaf)\d+")
"""Generated names."""


def contents_of(described: Description, choices: Choices, folded: bool) -> DrawingContents:
    """The contents of a graph's drawing; with `folded`, each group that is initially collapsed is one box."""
    nodes = described.members[-1]
    rows = rows_of(described, nodes)
    readers: dict[int, list[int]] = {}
    for i in nodes:
        for o, _ in described.operands[i]:
            readers.setdefault(o, []).append(i)
    results = {node for node, _ in described.outputs}
    bodies = _Bodies(described, choices)
    boxes: list[Box] = []
    number: dict[int, int] = {}
    closed = _closed(described, nodes) if folded else {}
    for i in nodes:
        if i in closed:
            title, members = closed[i]
            if members[0] == i:
                boxes.append(_folded_box(described, title, members, rows, not results.isdisjoint(members)))
                number.update(dict.fromkeys(members, len(boxes) - 1))
            continue
        box = _box(described, i, choices, rows[i], i in results)
        if described.kinds[i] is Kind.LOOP and choices.bodies:
            box = box._replace(bodies=bodies.of(i))
        if i in readers and box.kind == "leaf":
            box = box._replace(order=min([described.orders[r] for r in readers[i]]))
        number[i] = len(boxes)
        boxes.append(box)
    arrows = [(number[o], number[i]) for i in nodes for o, _ in described.operands[i] if number[o] != number[i]]
    return DrawingContents(tuple(boxes), tuple(dict.fromkeys(arrows)), True)


def _closed(described: Description, nodes: Sequence[int]) -> dict[int, tuple[str, list[int]]]:
    """For each node in a collapsed group, the title of the group and its nodes."""
    laid = page_layout(described)
    groups, holders = initial_view(laid)
    members: dict[int, list[int]] = {}
    for i in nodes:
        members.setdefault(holders[laid.group[i]], []).append(i)
    return {i: (groups[g].name, inside) for g, inside in members.items() if g >= 0 for i in inside}


def _folded_box(
    described: Description, title: str, members: Sequence[int], rows: Mapping[int, int], is_result: bool
) -> Box:
    functions = [i for i in members if described.ops[i] is not None]
    order = min([described.orders[i] for i in functions or members])
    middle = sorted([rows[i] for i in functions or members])[len(functions or members) // 2]
    note = f"{len(functions)} functions"
    ops = Counter([described.op_name(i) for i in functions])
    full = "\n".join([f"{title}: {note}", *[f"{name}: {count}" for name, count in sorted(ops.items())]])
    return Box("function", title, (note,), order, middle, "", full, is_result, ())


def _box(described: Description, i: int, choices: Choices, row: int, is_result: bool) -> Box:
    op, name, shape = described.ops[i], described.names[i], described.shape(i)
    given = "" if _NUMBERED.fullmatch(name) else name
    scope, order, formula = described.scopes[i], described.orders[i], described.formula(i)
    arguments = _arguments(described, i)
    notes = [arguments] if choices.arguments and arguments else []
    if choices.shapes:
        notes.append(shape)
    if choices.formulas and formula:
        notes.append(formula)
    if op is None:
        title = given.rpartition("/")[2] or "leaf"
        said = f"{name}: {shape}"
    else:
        title = f"{given} = {op.name}" if given else op.name
        said = f"{name} = {op.name}({described.arguments(i)}): {shape}"
    location = described.locations[i]
    # Only the name of the file: pictures must neither depend on the folder of the program nor reveal it.
    line = str(location).replace(location.file, Path(location.file).name, 1) if location else ""
    lines = [said, f"order {order}" * bool(order), formula, f"in {scope}" * bool(scope), line]
    full = "\n".join(filter(None, lines))
    kind = {Kind.LEAF: "leaf", Kind.PARAMETER: "leaf", Kind.CONSTANT: "constant"}.get(described.kinds[i], "function")
    return Box(kind, title, tuple(notes), order, row, scope, full, is_result, ())


def _arguments(described: Description, i: int) -> str:
    """Static arguments, except those that the shape shows."""
    op, specs = described.ops[i], described.specs[i]
    if op is None or isinstance(op, ControlOp):
        return ""
    return ", ".join([
        f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value!r}"
        for name, value in op.named(described.static[i]).items()
        if value is not None and value is not False
        and not any([type(value) is type(known) and value == known for known in (specs[0].shape, specs[0].dtype)])
    ])  # fmt: skip


# ---------------------------------------------------------------- bodies


class _Bodies:
    """Makes drawings of bodies."""

    def __init__(self, described: Description, choices: Choices) -> None:
        self._described, self._choices = described, choices

    def of(self, node: int) -> tuple[tuple[str, DrawingContents], ...]:
        """The bodies of a node, including nested ones; recursion is as deep as loops are nested."""
        found = []
        for b in self._described.bodies_of.get(node, ()):
            entry = self._described.bodies[b]
            times = f", {entry.runs:,} times" if entry.runs != 1 else ""
            found.append((entry.role + times, self._body(b, entry)))
        return tuple(found)

    def _body(self, b: int, entry: BodyEntry) -> DrawingContents:
        """The inputs of a body, its functions, and its outputs, without functions that nobody reads."""
        described, members = self._described, self._described.members.get(b, [])
        ends = self._ends(entry)
        needed = _needed(described, set(members), [node for _, _, (node, _) in ends])
        boxes: list[Box] = []
        arrows: dict[tuple[int, int], None] = {}
        number: dict[tuple[int, int] | int, int] = {}
        rank: dict[int, int] = {}

        def from_outside(value: tuple[int, int]) -> int:
            """The box of an input that is the same at each step."""
            if value not in number:
                node, output = value
                name = described.results[node][output]
                number[value] = self._pill("input", name.rpartition("/")[2], repr(described.specs[node][output]), boxes)
            return number[value]

        def at(value: tuple[int, int]) -> int:
            return number[value[0]] if value[0] in number else from_outside(value)

        for i in [i for i in members if i in needed]:
            if described.ops[i] is None:
                number[i] = self._pill("input", described.names[i], repr(described.specs[i][0]), boxes)
                continue
            operands = [at(value) for value in described.operands[i]]
            rank[len(boxes)] = row = 1 + max([rank.get(o, 0) for o in operands], default=0)
            box = _box(described, i, self._choices, row, False)._replace(scope="", bodies=self.of(i))
            number[i] = len(boxes)
            boxes.append(box)
            arrows.update(dict.fromkeys([(o, number[i]) for o in operands]))
        last = 1 + max(rank.values(), default=0)
        for title, how, value in ends:
            source = at(value)
            end = self._pill("output", title, how, boxes, last)
            arrows[source, end] = None
        return DrawingContents(tuple(boxes), tuple(arrows), False)

    def _pill(self, kind: str, title: str, note: str, boxes: list[Box], row: int = 0) -> int:
        notes = (note,) if note and (kind == "output" or self._choices.shapes) else ()
        boxes.append(Box(kind, title, notes, 0, row, "", f"{title}: {note}", False, ()))
        return len(boxes) - 1

    def _ends(self, entry: BodyEntry) -> list[tuple[str, str, tuple[int, int]]]:
        """The outputs of a body: a title, how the op returns it, and the value."""
        described, within = self._described, entry.within
        names = dict(zip(within.inputs, range(len(within.inputs)), strict=True))
        ends = []
        for name, n in zip(within.outputs, within.body.outputs, strict=False):
            if name in names:
                begun = described.names[entry.values[names[name]][0]]
                ends.append((f"next {begun}", "", entry.values[n]))
            elif not within.gives:
                ends.append((name, "", entry.values[n]))
        for result, (how, given) in zip(described.results[entry.node], within.gives, strict=False):
            if result and given is not None and how != "at the end":
                ends.append((result, how, entry.values[given]))
        return ends


def _needed(described: Description, members: set[int], ends: Sequence[int]) -> set[int]:
    """The members that `ends` depend on, including `ends`."""
    found = {i for i in ends if i in members}
    stack = list(found)
    while stack:
        for o, _ in described.operands[stack.pop()]:
            if o in members and o not in found:
                found.add(o)
                stack.append(o)
    return found
