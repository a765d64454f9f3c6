"""Where the nodes of a graph lie: properties of the layout of any graph."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nngrad.inspection.viewing.groups import Labels
from nngrad.inspection.viewing.layout import HEIGHT, WIDTH, Layout, layout
from nngrad.inspection.viewing.rows import Structure, Wiring, rows_and_lanes
from tests.work import calls_of

SCOPES = ["", "a", "a/b", "a/c", "a/c/d", "e"]


class Node(NamedTuple):
    order: int
    base: int
    rank: int
    reads: list[int]
    body: int
    scope: int
    label: int


class Nodes:
    """Nodes that are listed as a description lists them."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.owners: list[int] = []

    def structure(self) -> Structure:
        reads = [node.reads for node in self.nodes]
        starts = np.array([0, *np.cumsum([len(each) for each in reads])], np.int64)
        flat = np.array([i for each in reads for i in each], np.int64)
        columns = [np.array([node[k] for node in self.nodes], np.int64) for k in (0, 1, 2, 4)]
        order, base, rank, body = columns
        return Structure(order, base, rank, np.diff(starts) == 0, body, self.owners, Wiring(starts, flat))

    def labels(self, told: bool = True) -> Labels:
        count = max([node.label for node in self.nodes], default=0) + 1
        return Labels(
            np.array([node.scope for node in self.nodes], np.int64), SCOPES,
            np.array([node.label for node in self.nodes], np.int64), [f"op{i}" for i in range(count)],
            [(f"body {i}", i + 1) for i in range(len(self.owners))], told,
        )  # fmt: skip

    def add(
        self, order: int, base: int | None, reads: list[int], body: int = -1, scope: int = 0, label: int = 0
    ) -> int:  # fmt: skip
        i = len(self.nodes)
        before = max([self.nodes[j].rank for j in reads if self.nodes[j].reads], default=-1)
        if body >= 0 or not reads:
            rank, base = (0, i) if order == 0 else (-1, -1)
        elif order == 0:
            rank, base = before + 1, i
        else:
            rank, base = (-1, -1) if base is None else (self.nodes[base].rank, base)
        self.nodes.append(Node(order, base, rank, reads, body, scope, label))
        return i


@st.composite
def graphs(draw: st.DrawFn, most: int = 30) -> Nodes:
    made = Nodes()
    for _ in range(draw(st.integers(1, 5))):
        made.add(0, None, [], scope=draw(st.integers(0, 5)))
    outside = list(range(len(made.nodes)))

    def body(owner: int, given_: list[int], order: int, outer: int, deep: int) -> None:
        for _ in range(draw(st.integers(1, 2))):
            made.owners.append(owner)
            number, inside = len(made.owners) - 1, list[int]()
            for _ in range(draw(st.integers(1, 3))):
                reads = draw(st.lists(st.sampled_from([*given_, *inside]), min_size=1, max_size=2))
                node = made.add(order, None, reads, number, made.nodes[owner].scope, draw(st.integers(0, 3)))
                inside.append(node)
                if deep < 2 and draw(st.integers(0, 4)) == 0:
                    body(node, reads, order, number, deep + 1)

    for _ in range(draw(st.integers(0, most))):
        order = draw(st.sampled_from([0, 0, 1, 2]))
        functions = [i for i in outside if made.nodes[i].reads and made.nodes[i].order == 0]
        base = draw(st.sampled_from(functions)) if functions and draw(st.booleans()) else None
        reads = draw(st.lists(st.sampled_from(outside), min_size=1, max_size=3))
        node = made.add(order, base, reads, scope=draw(st.integers(0, 5)), label=draw(st.integers(0, 3)))
        outside.append(node)
        if draw(st.integers(0, 5)) == 0:
            body(node, reads, order, -1, 0)
    return made


def boxes_of(laid: Layout) -> np.ndarray:
    halves = WIDTH // 2, HEIGHT // 2
    return np.stack([laid.x - halves[0], laid.y - halves[1], laid.x + halves[0], laid.y + halves[1]], axis=1)


def apart(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Whether boxes have nothing in common, for each pair of them."""
    a, b = np.asarray(a)[:, None], np.asarray(b)[None]
    return (a[..., 2] <= b[..., 0]) | (b[..., 2] <= a[..., 0]) | (a[..., 3] <= b[..., 1]) | (b[..., 3] <= a[..., 1])


def within(inner: np.ndarray, outer: np.ndarray) -> bool:
    return bool(outer[0] < inner[0] and outer[1] < inner[1] and inner[2] < outer[2] and inner[3] < outer[3])


@settings(max_examples=120, deadline=None)
@given(graphs(), st.booleans())
def test_boxes_are_apart_or_one_within_the_other(made: Nodes, told: bool) -> None:
    laid = layout(made.structure(), made.labels(told))
    boxes = boxes_of(laid)
    assert (apart(boxes, boxes) | np.eye(len(boxes), dtype=bool)).all()
    ancestors: list[set[int]] = []
    for k, group in enumerate(laid.groups):
        assert group.parent < k
        ancestors.append(set() if group.parent < 0 else ancestors[group.parent] | {group.parent})
        if group.parent >= 0:
            assert within(np.array(group.box), np.array(laid.groups[group.parent].box))
    around = np.array([group.box for group in laid.groups])
    clear = apart(around, around)
    for k in range(len(around)):
        for m in range(k):
            assert clear[k, m] or m in ancestors[k]
    for i, g in enumerate(laid.group.tolist()):
        assert within(boxes[i], around[g])
        others = [k for k in range(len(around)) if k != g and k not in ancestors[g]]
        assert apart(boxes[i : i + 1], around[others]).all()


@settings(max_examples=40, deadline=None)
@given(graphs())
def test_rows_follow_the_forward_graph(made: Nodes) -> None:
    s = made.structure()
    row = rows_and_lanes(s).row
    first: dict[int, int] = {}
    for i, node in enumerate(made.nodes):
        for j in node.reads:
            first.setdefault(j, i)
    assert set(row.tolist()) == set(range(row.max() + 1))
    for i, node in enumerate(made.nodes):
        if node.body >= 0:
            owner = made.owners[node.body]
            assert row[i] > row[owner]
            assert all([row[j] < row[i] for j in node.reads if made.nodes[j].body == node.body])
        elif not node.reads:
            assert row[i] == row[first.get(i, i)]
        elif node.order == 0:
            readable = [j for j in node.reads if made.nodes[j].reads and made.nodes[j].order == 0]
            assert all([row[j] < row[i] for j in readable])
        elif node.base >= 0:
            assert row[i] == row[node.base]


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_lanes_go_from_left_to_right_by_order(made: Nodes) -> None:
    laid = layout(made.structure(), made.labels())
    for a, b in zip(laid.lanes, laid.lanes[1:], strict=False):
        assert a.order < b.order
        assert a.box[2] < b.box[0]
    for i, box in enumerate(boxes_of(laid).tolist()):
        assert any([within(np.add(box, (1, 1, -1, -1)), np.array(lane.box)) for lane in laid.lanes]), i


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_bodies_are_groups(made: Nodes) -> None:
    laid = layout(made.structure(), made.labels())
    for i, node in enumerate(made.nodes):
        if node.body >= 0:
            group = laid.groups[laid.group[i]]
            while group.kind != "body":
                group = laid.groups[group.parent]
            assert (group.name, group.times) == (f"body {node.body}", node.body + 1)


def chain(count: int, orders: int = 3, width: int = 2) -> Nodes:
    """Layers of functions that read those of the layer before, and gradients of them."""
    made = Nodes()
    made.add(0, None, [])
    layers = [[0] * width]
    for k in range(count):
        scope = 1 + k % 5
        weight = made.add(0, None, [], scope=scope)
        layers.append([made.add(0, None, [layers[-1][m], weight], scope=scope, label=m) for m in range(width)])
    last = layers[-1][0]
    for order in range(1, orders):
        for layer in layers[:0:-1]:
            for base in layer:
                last = made.add(order, base, [last, base], scope=made.nodes[base].scope, label=width)
    return made


def test_work_is_linear() -> None:
    def work(made: Nodes) -> int:
        return calls_of(lambda: layout(made.structure(), made.labels()))

    large = chain(1600)
    calls = [work(chain(400)), work(large)]
    assert calls[1] < 4.6 * calls[0]
    assert calls[1] < 60 * len(large.nodes)


def test_a_wide_cell_goes_over_several_lines() -> None:
    made = Nodes()
    x = made.add(0, None, [])
    for _ in range(1000):
        made.add(0, None, [x])
    laid = layout(made.structure(), made.labels())
    width, height = (int(values.max() - values.min()) for values in (laid.x, laid.y))
    assert 0.5 < width / height < 4


def crossings(made: Nodes, laid: Layout) -> int:
    edges = [(laid.x[j], laid.x[i]) for i, node in enumerate(made.nodes) for j in node.reads if made.nodes[j].reads]
    return sum([(a - c) * (b - d) < 0 for k, (a, b) in enumerate(edges) for c, d in edges[:k]])


def test_strands_do_not_cross() -> None:
    made = Nodes()
    strands = [made.add(0, None, [made.add(0, None, [])]) for _ in range(4)]
    strands = [made.add(0, None, [strand]) for strand in reversed(strands)]  # listed the other way round
    assert crossings(made, layout(made.structure(), made.labels())) == 0


def test_what_is_computed_of_leaves_alone_lies_above_its_reader() -> None:
    made = Nodes()
    x, weight = made.add(0, None, []), made.add(0, None, [])
    scaled = made.add(0, None, [weight])
    for _ in range(6):
        x = made.add(0, None, [x])
    y = made.add(0, None, [x, scaled])
    row = rows_and_lanes(made.structure()).row
    assert row[scaled] == row[x] == row[y] - 1
    assert row[weight] == row[scaled]


@pytest.mark.parametrize("scoped", [False, True])
def test_a_repeated_block_is_a_group_with_its_repetitions(scoped: bool) -> None:
    made = Nodes()
    x = made.add(0, None, [])
    for k in range(5):
        for label in (3, 1, 2):
            scope = 2 + k % 2 if scoped else 0
            x = made.add(0, None, [x, *([made.add(0, None, [], scope=scope)] if label == 3 else [])], -1, scope, label)
    made.add(0, None, [x], label=0)
    laid = layout(made.structure(), made.labels())
    (block,) = [k for k, group in enumerate(laid.groups) if group.kind == "block"]
    assert (laid.groups[block].times, laid.groups[block].name) == (5, "op3, op1, op2")
    children = [group for group in laid.groups if group.parent == block]
    assert {group.kind for group in children} == {"scope" if scoped else "repetition"}
    assert len(children) == 5
    if scoped:
        assert laid.groups[laid.groups[block].parent].name == "a"


def test_scopes_are_nested_groups_and_gradients_have_their_own() -> None:
    made = Nodes()
    x = made.add(0, None, [])
    functions = []
    for scope in (2, 2, 3, 4, 3, 5):
        x = made.add(0, None, [x], scope=scope, label=scope)
        functions.append(x)
    for base in reversed(functions):
        x = made.add(1, base, [x], scope=made.nodes[base].scope, label=base)
    laid = layout(made.structure(), made.labels())

    def path(i: int) -> list[str]:
        names, group = [], int(laid.group[i])
        while group >= 0:
            names.append(laid.groups[group].name)
            group = laid.groups[group].parent
        return names[::-1]

    assert [path(i) for i in functions] == [
        ["forward", "a", "b"], ["forward", "a", "b"], ["forward", "a", "c"], ["forward", "a", "c", "d"],
        ["forward", "a", "c"], ["forward", "e"],
    ]  # fmt: skip
    assert path(x) == ["gradient", "a", "b"]


def test_what_lies_between_functions_of_a_scope_is_taken_to_be_in_it_where_scopes_are_not_told() -> None:
    made = Nodes()
    x = made.add(0, None, [])
    for label, scope in enumerate((2, 0, 2, 0, 5)):
        x = made.add(0, None, [x], scope=scope, label=label)
    told, made_out = ([g.name for g in layout(made.structure(), made.labels(t)).groups] for t in (True, False))
    assert told == ["forward", "a/b", "a/b", "e"]
    assert made_out == ["forward", "a/b", "e"]


def test_nothing_is_laid_out_of_nothing_but_a_leaf() -> None:
    made = Nodes()
    made.add(0, None, [])
    laid = layout(made.structure(), made.labels())
    assert laid.x.tolist() == [WIDTH // 2]
    assert len(laid.lanes) == 1
