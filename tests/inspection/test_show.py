"""Graphs as text: widths, colours, columns, and blocks that repeat."""

from __future__ import annotations

import io
import re
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

import nngrad as nn
import nngrad.functions as F
from nngrad.extend import functions_of
from nngrad.inspection import Description, Listing, describe
from nngrad.inspection.folding import Fold, folds_of
from tests.work import calls_of

HOSTILE = [
    "</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>", "\"'&amp;", "a\nb\x1b[31mred\u202e", "🦄",
    "n" * 10_000,
]  # fmt: skip


def leaf(value: Any, name: str = "") -> nn.Variable:
    x = nn.Variable.from_numpy_array(np.asarray(value, np.float64), need_grad=True)
    x.name = name
    return x


def chain(length: int, weights: list[nn.Variable] | None = None) -> tuple[nn.Variable, nn.Variable]:
    """Layers one after another, each with a weight of its own, and what they are applied to."""
    weights = [leaf(np.eye(2), f"w{i}") for i in range(length)] if weights is None else weights
    h = x = leaf(np.ones((16, 2)), "x")
    for w in weights:
        h = F.tanh(h @ w)
    return F.sum(h), x


def function_lines(listing: Listing) -> list[str]:
    """The lines of functions, without shapes."""
    return [line.text for line in listing.lines if line.node >= 0 and listing.described.ops[line.node] is not None]


# ---------------------------------------------------------------- lines


def test_the_program_can_be_read() -> None:
    x = leaf(np.ones(3), "x")
    (g,) = nn.grad(F.sum(F.tanh(x)), x)
    assert str(nn.show(g)) == """\
x = leaf, needs a gradient  float64[3]
v0 = tanh(x)                float64[3]
v1 = tanh_slope(v0, x)      float64[3]  order 1 of v0
results: v1"""


def test_each_function_has_a_line_with_its_operands_by_name() -> None:
    loss, x = chain(2)
    (g,) = nn.grad(loss, x)
    listing = nn.show([loss, g], fold=False)
    described = listing.described
    lines = function_lines(listing)
    assert len(lines) == len(functions_of([loss, g]))
    named: set[str] = set(described.names[: len(described) - len(lines)])
    for line in lines:
        match = re.fullmatch(r"(\w+) = \w+\((.*)\)", line)
        assert match is not None
        operands = {each for each in match[2].split(", ") if "=" not in each}
        assert operands <= named
        assert match[1] not in named
        named.add(match[1])


def test_columns_say_what_the_graph_knows() -> None:
    x = leaf(0.5, "x")
    plain = str(nn.show(nn.grad(F.tanh(F.sin(x)), x)))
    assert "test_show" not in plain and "kept" not in plain and "order 1 of v" in plain
    with nn.source_locations():
        y = F.tanh(F.sin(x))
    (g,) = nn.grad(y, x)
    text = str(nn.show(g))
    assert re.search(r"v0 = sin\(x\) .*test_show\.py:\d+: y = F\.tanh\(F\.sin\(x\)\)\n", text)
    assert re.search(r"v1 = tanh\(v0\) .*test_show\.py:\d+$", text, re.M)  # the line is not said twice
    states = str(nn.show(nn.grad(*chain(9), recompute="sqrt"), fold=False))
    assert "kept" in states and "computed again" in states and "a copy" in states


@pytest.mark.parametrize(("arguments", "error", "message"), [
    ({"outputs": []}, ValueError, "outputs: expected at least one Variable, got none"),
    ({"outputs": {"x": 1}}, TypeError, "outputs[0]: expected a Variable, got int"),
    ({"fold": 2}, TypeError, "fold must be True or False, got 2"),
    ({"parameters": 1}, TypeError, "parameters: expected a dict"),
])
def test_wrong_arguments_are_named(arguments: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        nn.show(**{"outputs": leaf(1.0), **arguments})


def test_long_lists_and_arguments_are_shortened() -> None:
    terms = [F.sin(leaf(float(i))) for i in range(50)]
    line = next(text for text in function_lines(nn.show(F.add_n(*terms))) if "add_n" in text)
    assert line.count(",") == 12 and "… 38 more" in line
    pattern = F.constant(0.1234567890123456, tuple([1] * 30), dtype=np.float64)
    (line,) = function_lines(nn.show(pattern))
    assert len(line) < 160 and "…" in line


# ---------------------------------------------------------------- names of any kind


@pytest.mark.parametrize("name", HOSTILE, ids=["script", "image", "quotes", "control", "emoji", "long"])
def test_hostile_names_are_text(name: str) -> None:
    x = leaf(np.ones(2), name)
    (g,) = nn.grad(F.sum(F.tanh(x)), x)
    listing = nn.show(g)
    for line in str(listing).splitlines():
        assert line.isprintable() and len(line) < 250
    assert len(str(listing).splitlines()) == 4
    page = listing._repr_html_()
    assert set(re.findall(r"</?\s*(\w+)", page)) <= {"pre", "span"}
    assert len(page) < 10_000


# ---------------------------------------------------------------- colours


def printed(what: Any, **options: Any) -> str:
    out = io.StringIO()
    Console(file=out, **{"width": 100, **options}).print(what)
    return out.getvalue()


def test_orders_have_colours_on_terminals_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    x = leaf(0.5, "x")
    (g,) = nn.grad(F.tanh(x), x)
    (g2,) = nn.grad(g, x)
    listing = nn.show([g, g2])
    coloured = printed(listing, force_terminal=True, color_system="256")
    names = re.findall(r"\x1b\[38;5;(\d+)m(v\d+)\x1b", coloured)
    colours = {name: colour for colour, name in names}
    described = listing.described
    orders = {colours[name]: described.orders[described.names.index(name)] for name in colours}
    assert sorted(orders.values()) == [1, 2] and len(orders) == 2
    assert printed(listing).rstrip() == str(listing)
    assert max(map(len, printed(nn.show(chain(2)[0], fold=False), width=30).splitlines())) == 30
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[38" not in printed(listing, force_terminal=True, color_system="256")


# ---------------------------------------------------------------- blocks that repeat


def read(fold: Fold, operand: tuple[int, int], t: int) -> tuple[int, int]:
    """What block `t` of a fold reads where the first one reads `operand`."""
    first = {node: j for j, node in enumerate(fold.nodes[0])}
    carried, changing = dict(fold.carried), {values[0]: values for values in fold.changing}
    assert not carried.keys() & changing.keys()
    node, output = operand
    if node in first:
        return fold.nodes[t][first[node]], output
    if operand in carried and t:
        inner, output = carried[operand]
        return fold.nodes[t - 1][first[inner]], output
    return changing[operand][t] if operand in changing else operand


def unfolded(described: Description) -> Counter[Any]:
    """The functions that folds stand for, with what they read, by what the listing says of them."""
    found: Counter[Any] = Counter()
    folds = folds_of(described)
    inside = {node for fold in folds for block in fold.nodes for node in block}
    for i, op in enumerate(described.ops):
        if op is not None and described.body_of[i] < 0 and i not in inside:
            found[op, described.operands[i]] += 1
    for fold in folds:
        for t in range(len(fold.nodes)):
            found.update([
                (described.ops[node], tuple([read(fold, operand, t) for operand in described.operands[node]]))
                for node in fold.nodes[0]
            ])  # fmt: skip
    return found


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_what_is_folded_can_be_told_from_what_is_written(data: st.DataObject) -> None:
    """A random block, several times, with functions in between: each function comes back, with its operands."""
    ops = [F.sin, F.exp, F.tanh, F.mul2, F.add2]
    x, y = leaf(0.1, "x"), leaf(0.2, "y")
    step = st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 4))
    block = data.draw(st.lists(step, min_size=1, max_size=5))
    values = [x, y]
    for repeated in data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=3)):
        for _ in range(repeated):
            weight = leaf(0.3)
            for kind, a, b in block:
                known = [*values, weight]
                given = [known[-1 - a % len(known)], values[-1 - b % len(values)]]
                values.append(ops[kind](*given[: 1 if kind < 3 else 2]))
        values.append(F.sinh(values[-1]))
    described = describe(values[-3:])
    expected = Counter([
        (op, operands) for op, operands in zip(described.ops, described.operands, strict=True) if op is not None
    ])
    assert unfolded(described) == expected


def test_blocks_with_other_arguments_are_not_folded() -> None:
    h = leaf(0.1, "x")
    for value in (0.0, -0.0, 0.0, -0.0, 0.0, -0.0, 0.0, -0.0):
        h = F.maximum_scalar(F.sin(F.sin(F.sin(F.sin(h)))), val=value)
    shown = str(nn.show(h))
    assert "val=0.0" in shown and "val=-0.0" in shown


@pytest.mark.slow
def test_work_is_linear_for_graphs_of_20_000_functions() -> None:
    small, large = nn.grad(*chain(1100)), nn.grad(*chain(4400))
    assert len(functions_of(large)) > 20_000
    work = [calls_of(lambda ys=ys: str(nn.show(ys))) / len(functions_of(ys)) for ys in (small, large)]
    assert work[1] < 1.1 * work[0]


def test_a_listing_does_not_keep_the_graph() -> None:
    loss, _ = chain(3)
    listing = nn.show(loss)
    assert not any(listing.described.functions) and not listing.described.leaves
