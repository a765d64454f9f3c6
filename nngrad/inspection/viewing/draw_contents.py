"""The contents of a drawing: labelled boxes, arrows between them, and drawings of bodies within boxes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from ...extend import ControlOp
from ..description import BodyEntry, Description, Kind
from .initial_view import initial_view
from .layers import rows_of
from .page_layout import page_layout
from .svg import Point


class Choices(NamedTuple):
    """The facts that labels show."""

    shapes: bool
    arguments: bool
    formulas: bool


@dataclass(slots=True, eq=False)
class Box:
    """A leaf, a function, or an input or output of a body, and its place in the picture."""

    kind: str
    """'leaf', 'constant', 'function', 'input' or 'output'."""
    title: str
    notes: list[str]
    """Smaller lines below the title."""
    full: str
    """The full description, in one or more lines, for tooltips."""
    order: int = 0
    row: int = 0
    """The rank of the function of order 0 that it comes from; some ranks may have no boxes."""
    scope: str = ""
    """The parameter scope, such as 'critic/conv1'; empty for none."""
    is_result: bool = False
    """True if it computes one of the outputs."""
    bodies: list[tuple[str, Picture]] = field(default_factory=list)
    """The bodies of a loop or a branch, from top to bottom, each with its title."""
    layer: int = 0
    """Counted from the top."""
    column: int = 0
    """Counted from the left."""
    x: float = 0.0
    """The centre."""
    y: float = 0.0
    width: float = 0.0
    height: float = 0.0


class Route(NamedTuple):
    """The route of an arrow."""

    kind: str
    """'curved': vertical at each point; 'straight': lines with rounded corners; 'below': a bow below a layer."""
    points: tuple[Point, ...]
    heading: Point
    """The direction of its end, as a unit vector."""


class Frame(NamedTuple):
    """The frame around boxes of a scope in consecutive layers."""

    spans: list[tuple[float, float, float, float]]
    """Rectangles (left, top, right, bottom), one below the other."""
    title: str
    order: int


@dataclass(slots=True, eq=False)
class Picture:
    """Boxes in topological order, and arrows between their numbers; everything else is set by `lay_out`."""

    boxes: list[Box]
    arrows: list[tuple[int, int]]
    by_order: bool
    """True if each order of differentiation has a column."""
    columns: list[tuple[int, float, float]] = field(default_factory=list)
    """The order of differentiation, left edge and right edge of each column."""
    top: list[float] = field(default_factory=list)
    """The upper edge of each layer."""
    bottom: list[float] = field(default_factory=list)
    points: dict[tuple[int, int], float] = field(default_factory=dict)
    """The position at which arrows from a box pass a layer."""
    tracks: dict[tuple[int, int], float] = field(default_factory=dict)
    """The position at which arrows from a box go up or down to the right of a column."""
    routes: list[Route] = field(default_factory=list)
    """The route of each arrow."""
    frames: list[Frame] = field(default_factory=list)
    width: float = 0.0
    height: float = 0.0


_NUMBERED = re.compile(r"(v|leaf)\d+")
"""Generated names."""


def contents_of(described: Description, choices: Choices, folded: bool) -> Picture:
    """The contents of a graph's drawing; with `folded`, each group that is initially collapsed is one box."""
    nodes = described.members[-1]
    rows = rows_of(described, nodes)
    first_order: dict[int, int] = {}
    """The lowest order among the readers of each node."""
    for i in nodes:
        for o, _ in described.operands[i]:
            first_order[o] = min(first_order.get(o, described.orders[i]), described.orders[i])
    results = {node for node, _ in described.outputs}
    boxes: list[Box] = []
    number: dict[int, int] = {}
    closed = _closed(described, nodes) if folded else {}
    for i in nodes:
        if i in number:
            continue
        if i in closed:
            title, members = closed[i]
            box = _folded_box(described, title, members, rows)
            box.is_result = not results.isdisjoint(members)
        else:
            members = [i]
            box = _box(described, i, choices, rows[i])
            box.is_result = i in results
            if described.kinds[i] is Kind.LOOP:
                box.bodies = _bodies(described, i, choices)
            if box.kind == "leaf":
                box.order = first_order.get(i, box.order)
        number.update(dict.fromkeys(members, len(boxes)))
        boxes.append(box)
    arrows = [(number[o], number[i]) for i in nodes for o, _ in described.operands[i] if number[o] != number[i]]
    return Picture(boxes, list(dict.fromkeys(arrows)), True)


def _closed(described: Description, nodes: Sequence[int]) -> dict[int, tuple[str, list[int]]]:
    """For each node in a collapsed group, the title of the group and its nodes."""
    laid = page_layout(described)
    groups, holders = initial_view(laid)
    members: dict[int, list[int]] = {}
    for i in nodes:
        members.setdefault(holders[laid.group[i]], []).append(i)
    return {i: (groups[g].name, inside) for g, inside in members.items() if g >= 0 for i in inside}


def _folded_box(described: Description, title: str, members: Sequence[int], rows: Mapping[int, int]) -> Box:
    functions = [i for i in members if described.ops[i] is not None]
    counted = functions or members
    note = f"{len(functions)} functions"
    ops = Counter([described.op_name(i) for i in functions])
    full = "\n".join([f"{title}: {note}", *[f"{name}: {count}" for name, count in sorted(ops.items())]])
    middle = sorted([rows[i] for i in counted])[len(counted) // 2]
    return Box("function", title, [note], full, min([described.orders[i] for i in counted]), middle)


def _box(described: Description, i: int, choices: Choices, row: int) -> Box:
    op, name, shape = described.ops[i], described.names[i], described.shape(i)
    users_name = "" if _NUMBERED.fullmatch(name) else name
    order, formula, location = described.orders[i], described.formula(i), described.locations[i]
    shown = (choices.arguments, _arguments(described, i)), (choices.shapes, shape), (choices.formulas, formula)
    if op is None:
        title = users_name.rpartition("/")[2] or "leaf"
        what = f"{name}: {shape}"
    else:
        title = f"{users_name} = {op.name}" if users_name else op.name
        what = f"{name} = {op.name}({described.arguments(i)}): {shape}"
    # Only the name of the file: pictures must neither depend on the folder of the program nor reveal it.
    line = str(location).replace(location.file, Path(location.file).name, 1) if location else ""
    scope = described.scopes[i]
    full = "\n".join(filter(None, [what, f"order {order}" * bool(order), formula, f"in {scope}" * bool(scope), line]))
    kind = {Kind.LEAF: "leaf", Kind.PARAMETER: "leaf", Kind.CONSTANT: "constant"}.get(described.kinds[i], "function")
    return Box(kind, title, [note for chosen, note in shown if chosen and note], full, order, row, scope)


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


def _bodies(described: Description, node: int, choices: Choices) -> list[tuple[str, Picture]]:
    """The bodies of a node, including nested ones; recursion is as deep as loops are nested."""
    entries = [(b, described.bodies[b]) for b in described.bodies_of.get(node, ())]
    return [(entry.role + (f", {entry.runs:,} times" if entry.runs != 1 else ""), _body(described, b, choices))
            for b, entry in entries]  # fmt: skip


def _body(described: Description, b: int, choices: Choices) -> Picture:
    """The inputs of a body, its functions, and its outputs, without functions that nobody reads."""
    members, ends = described.members.get(b, []), _ends(described, described.bodies[b])
    needed = {node for _, _, (node, _) in ends}
    for i in reversed(members):
        if i in needed:
            needed.update([o for o, _ in described.operands[i]])
    boxes: list[Box] = []
    arrows: list[tuple[int, int]] = []
    number: dict[tuple[int, int] | int, int] = {}

    def pill(kind: str, title: str, note: str, row: int = 0) -> int:
        notes = [note] if note and (kind == "output" or choices.shapes) else []
        boxes.append(Box(kind, title, notes, f"{title}: {note}", row=row))
        return len(boxes) - 1

    def at(value: tuple[int, int]) -> int:
        """The box of a value; one that comes from outside is an input that is the same at each step."""
        node, output = value
        if node in number:
            return number[node]
        if value not in number:
            name = described.results[node][output].rpartition("/")[2]
            number[value] = pill("input", name, repr(described.specs[node][output]))
        return number[value]

    for i in [i for i in members if i in needed]:
        if described.ops[i] is None:
            number[i] = pill("input", described.names[i], repr(described.specs[i][0]))
            continue
        operands = [at(value) for value in described.operands[i]]
        box = _box(described, i, choices, 1 + max([boxes[o].row for o in operands], default=0))
        box.scope, box.bodies = "", _bodies(described, i, choices)
        number[i] = len(boxes)
        boxes.append(box)
        arrows += [(o, number[i]) for o in operands]
    last = 1 + max([box.row for box in boxes], default=0)
    for title, how, value in ends:
        arrows.append((at(value), pill("output", title, how, last)))
    return Picture(boxes, list(dict.fromkeys(arrows)), False)


def _ends(described: Description, entry: BodyEntry) -> list[tuple[str, str, tuple[int, int]]]:
    """The outputs of a body: a title, how the op returns it, and the value."""
    within, ends = entry.within, []
    numbers = {name: n for n, name in enumerate(within.inputs)}
    for name, n in zip(within.outputs, within.body.outputs, strict=False):
        if name in numbers:
            ends.append((f"next {described.names[entry.values[numbers[name]][0]]}", "", entry.values[n]))
        elif not within.gives:
            ends.append((name, "", entry.values[n]))
    for result, (how, returned) in zip(described.results[entry.node], within.gives, strict=False):
        if result and returned is not None and how != "at the end":
            ends.append((result, how, entry.values[returned]))
    return ends
