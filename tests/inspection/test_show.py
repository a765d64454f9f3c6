"""Graphs as text: widths, columns, and large graphs."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
from nngrad.extend import functions_of
from nngrad.inspection import Listing
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
    listing = nn.show([loss, g])
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
    states = str(nn.show(nn.grad(*chain(9), recompute="sqrt")))
    assert "kept" in states and "computed again" in states and "a copy" in states


@pytest.mark.parametrize(("arguments", "error", "message"), [
    ({"outputs": []}, ValueError, "outputs: expected at least one Variable, got none"),
    ({"outputs": {"x": 1}}, TypeError, "outputs[0]: expected a Variable, got int"),
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
    assert set(re.findall(r"</?\s*(\w+)", page)) <= {"pre"}
    assert len(page) < 10_000


# ---------------------------------------------------------------- large graphs


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
