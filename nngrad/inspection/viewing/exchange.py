"""Graphs for other viewers: Graphviz's DOT and Model Explorer's JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from ...graph import Spec
from ..description import Description, Kind
from ..naming import common_path, formula_of

_SHAPES = {Kind.LEAF: "ellipse", Kind.PARAMETER: "ellipse", Kind.CONSTANT: "plain", Kind.LOOP: "box3d"}
_COLOURS = ("#dbe7f6", "#fbe3c8", "#d9efd8", "#eadcf4", "#f6d9de")
"""The colours of the orders of differentiation; higher orders share the last one."""


def dot_of(described: Description, title: str) -> str:
    """A graph in Graphviz's DOT: parameter scopes and bodies of loops are clusters.

    Args:
        described: The graph.
        title: The title.
    """
    lines = [
        f"digraph {_quoted(title)} {{",
        '  graph [fontname="Helvetica"]',
        '  node [shape=box style="rounded,filled" fontname="Helvetica" fontsize=10]',
        "  edge [color=\"#777777\" arrowsize=0.6]",
    ]
    lines += _clusters(described)
    for i, read in enumerate(described.operands):
        for node, output in read:
            several = len(described.specs[node]) > 1
            label = f" [taillabel={_quoted(str(output))} fontsize=8]" * several
            lines.append(f"  n{node} -> n{i}{label}")
    return "\n".join([*lines, "}", ""])


def _clusters(described: Description) -> Iterator[str]:
    """The lines of the nodes, each within its clusters."""
    paths = [_path(described, i) for i in range(len(described))]
    opened: tuple[str, ...] = ()
    for i in sorted(range(len(described)), key=lambda i: (paths[i], i)):
        same = len(common_path([opened, paths[i]]))
        for depth in range(len(opened), same, -1):
            yield "  " * depth + "}"
        for depth in range(same, len(paths[i])):
            yield "  " * (depth + 1) + f"subgraph {_quoted('cluster ' + '/'.join(paths[i][: depth + 1]))} {{"
            yield "  " * (depth + 2) + f"label={_quoted(paths[i][depth])}"
        opened = paths[i]
        order, kind = described.orders[i], described.kinds[i]
        colour = _COLOURS[min(order, len(_COLOURS) - 1)]
        shape = f" shape={_SHAPES[kind]}" if kind in _SHAPES else ""
        text = "\n".join([described.names[i], *filter(None, [described.op_name(i)]), described.shape(i)])
        yield "  " * (len(opened) + 1) + f"n{i} [label={_quoted(text)} fillcolor=\"{colour}\"{shape}]"
    for depth in range(len(opened), 0, -1):
        yield "  " * depth + "}"


def _path(described: Description, i: int) -> tuple[str, ...]:
    """The clusters of a node, the outermost first."""
    path = [part for part in described.scopes[i].split("/") if part]
    bodies = []
    body = described.body_of[i]
    while body >= 0:
        entry = described.bodies[body]
        bodies.append(f"{described.names[entry.node]}: {entry.role}" + f", {entry.runs} times" * (entry.runs != 1))
        body = described.body_of[entry.node]
    return (*path, *reversed(bodies))


def _quoted(text: str) -> str:
    """A string as a DOT literal; backslashes are escaped, and line breaks are kept."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


# ---------------------------------------------------------------- Model Explorer


def model_explorer_of(described: Description, title: str) -> str:
    """A graph in the JSON of Google's Model Explorer: layers are orders of differentiation, parameter scopes and bodies
    of loops.

    Args:
        described: The graph.
        title: The title.
    """
    several = len(set(described.orders)) > 1
    nodes = [
        {
            "id": str(i),
            "label": described.op_name(i) or name,
            "namespace": "/".join([*([_layer(described, i)] if several else []),
                                   *[part.replace("/", "_") for part in _path(described, i)]]),
            "attrs": _attributes(described, i),
            "incomingEdges": [
                {"sourceNodeId": str(node), "sourceNodeOutputId": str(output), "targetNodeInputId": str(k)}
                for k, (node, output) in enumerate(described.operands[i])
            ],
            "outputsMetadata": _results(described.results[i], described.specs[i]),
        }
        for i, name in enumerate(described.names)
    ]  # fmt: skip
    return json.dumps({"label": title, "graphs": [{"id": title, "nodes": nodes}]}, separators=(",", ":"))


def _layer(described: Description, i: int) -> str:
    node = i
    while described.body_of[node] >= 0:  # a body belongs to the layer of its owner
        node = described.bodies[described.body_of[node]].node
    return {0: "forward", 1: "gradient"}.get(described.orders[node], f"order {described.orders[node]}")


def _attributes(described: Description, i: int) -> list[dict[str, str]]:
    cost, rule, location = described.costs[i], described.rules[i], described.locations[i]
    found: dict[str, Any] = {
        "name": described.names[i],
        "arguments": described.arguments(i),
        "order": described.orders[i],
        "scope": described.scopes[i],
        "from": "" if described.origins[i] < 0 else described.names[described.origins[i]],
        "rule": "" if rule is None else f"{rule.name}: {formula_of(rule)}",
        "location": "" if location is None else str(location),
        "operations": cost.flops,
        "bytes": cost.bytes,
        "runs": described.runs[i],
        "recomputation": described.states[i].name.lower() if described.states[i] else "",
    }
    return [{"key": key, "value": str(value)} for key, value in found.items() if value not in ("", None)]


def _results(names: Sequence[str], specs: Sequence[Spec]) -> list[dict[str, Any]]:
    return [
        {"id": str(k), "attrs": [{"key": "__tensor_tag", "value": name or "not read"},
                                 {"key": "shape", "value": repr(spec)}]}
        for k, (name, spec) in enumerate(zip(names, specs, strict=True))
    ]  # fmt: skip
