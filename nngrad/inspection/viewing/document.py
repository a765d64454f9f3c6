"""The document behind a page: all facts about a graph's nodes, as columns of numbers and strings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

from ...extend import SourceLocation, Spec, contained, pause_collector
from ..description import Description, Kind
from ..naming import formula_of
from .initial_view import initial_view
from .lifetimes import Lifetimes
from .page_layout import HEIGHT, page_layout

VERSION = 1


@contained
def document(described: Description, title: str, lifetimes: Lifetimes | None = None) -> dict[str, Any]:
    """The document of a graph, as JSON values.

    Args:
        described: The graph.
        title: The title.
        lifetimes: The memory of its values.
    """
    pause_collector()
    laid = page_layout(described)
    groups = initial_view(laid).groups
    strings = {"": 0}

    def numbers(texts: Iterable[str]) -> list[int]:
        """The numbers of texts in the table of strings."""
        return [strings.setdefault(text, len(strings)) for text in texts]

    costs = described.costs
    sizes = {specs: sum([spec.nbytes for spec in specs]) for specs in set(described.specs)}
    nodes: dict[str, Any] = {
        "name": numbers(described.names),
        "op": numbers([described.op_name(i) for i in range(len(described))]),
        "kind": _column(map(int, described.kinds)),
        "order": _column(described.orders),
        "row": laid.line, "x": laid.x, "y": laid.y, "width": laid.width,
        "shape": numbers(_shapes(described)),
        "arguments": _column(numbers(_arguments(described))),
        "scope": _column(numbers(described.scopes)),
        "origin": _column(described.origins),
        "rule": _column(numbers(["" if op is None else op.name for op in described.rules])),
        "base": _column(described.bases),
        "place": _column(numbers(_texts_of(described.locations))),
        "asked": _column(numbers(_texts_of(described.asked))),
        "flops": _column([cost.flops for cost in costs]),
        "bytes": _column([cost.bytes for cost in costs]),
        "size": _column([sizes[specs] for specs in described.specs]),
        "runs": _column(described.runs),
        "state": _column(map(int, described.states)),
        "group": laid.group,
    }  # fmt: skip
    return {
        "version": VERSION,
        "title": title,
        "nodes": nodes,
        "operands": {
            "start": [0, *accumulate([len(read) for read in described.operands])],
            "node": [node for read in described.operands for node, _ in read],
            "output": [output for read in described.operands for _, output in read],
        },
        "groups": [
            {"name": name, "kind": g.kind, "parent": g.parent, "times": g.times, "box": list(g.box)}
            for name, g in zip(numbers([g.name for g in groups]), groups, strict=True)
        ],
        "ops": _ops(described),
        "outputs": [list(output) for output in described.outputs],
        "columns": [
            {"order": order, "label": label, "x0": box[0], "y0": box[1], "x1": box[2], "y1": box[3]}
            for order, label, box in laid.columns
        ],
        "height": HEIGHT,
        "memory": None if lifetimes is None else lifetimes._asdict(),
        "totals": _totals(described, lifetimes),
        "strings": list(strings),
    }  # fmt: skip


def _column(values: Iterable[Any]) -> Any:
    """The values, or the single value if all are equal."""
    listed = list(values)
    return listed[0] if listed and listed.count(listed[0]) == len(listed) else listed


def _shapes(described: Description) -> list[str]:
    """For each node, shapes and dtypes of the outputs that are read."""
    known: dict[tuple[tuple[Spec, ...], tuple[bool, ...]], str] = {}
    shapes = []
    for i, (specs, results) in enumerate(zip(described.specs, described.results, strict=True)):
        key = specs, tuple([name != "" for name in results])
        text = known.get(key)
        if text is None:
            text = known[key] = described.shape(i)
        shapes.append(text)
    return shapes


def _arguments(described: Description) -> list[str]:
    texts = ["" if not static else described.arguments(i) for i, static in enumerate(described.static)]
    for i, how in described.begins.items():
        texts[i] = f"{how} {described.operand(i, 0)}"
    return texts


def _texts_of(locations: Sequence[SourceLocation | None]) -> list[str]:
    """Source locations as text; each line of the user's program is looked up once."""
    known = {location: str(location) for location in set(locations) if location is not None}
    return ["" if location is None else known[location] for location in locations]


def _ops(described: Description) -> dict[str, dict[str, str]]:
    """For each op that occurs, or whose rule was called, the rule's formula and its docstring's first sentence."""
    known = {op.name: op for op in (*dict.fromkeys(described.ops), *dict.fromkeys(described.rules)) if op is not None}
    return {name: {"formula": formula_of(op), "summary": _first_sentence(op.__doc__)} for name, op in known.items()}


def _first_sentence(doc: str | None) -> str:
    text = " ".join((doc or "").strip().partition("\n\n")[0].split())
    return text.partition(". ")[0].rstrip(".") + "." if text else ""


def _totals(described: Description, lifetimes: Lifetimes | None) -> Mapping[str, int]:
    counted = [i for i, kind in enumerate(described.kinds) if kind in (Kind.FUNCTION, Kind.LOOP)]
    costs = described.costs
    return {
        "functions": len(counted),
        "flops": sum([costs[i].flops for i in counted]),
        "bytes": sum([costs[i].bytes for i in counted]),
        "peak": 0 if lifetimes is None or not lifetimes.live else lifetimes.live[lifetimes.peak],
    }  # fmt: skip
