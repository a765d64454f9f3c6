"""What is known of each node of a graph: names, orders, origins, scopes, source locations, recomputation."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
from nngrad.extend import functions_of
from nngrad.inspection import Description, Kind, describe
from nngrad.inspection.naming import formula_of


def leaf(value: Any, name: str = "") -> nn.Variable:
    x = nn.Variable.from_numpy_array(np.asarray(value, np.float64), need_grad=True)
    x.name = name
    return x


@pytest.fixture(autouse=True)
def cleared() -> Iterator[None]:
    """Leave no parameters behind."""
    yield
    for scope in ("names_of_parameters", "scopes_of_nodes"):
        with nn.parameter_scope(scope):
            nn.clear_parameters()


def slopes() -> list[nn.Variable]:
    """A graph with a loop, a branch, constants, several outputs and gradients of two orders."""
    x, w = leaf(np.ones((3, 3)), "x"), leaf(np.eye(3))
    last, ys = F.scan(lambda h, s: (F.tanh(h @ w + s), F.sin(h)), F.sum(x, axis=0), x)
    z = F.cond(1, F.sin, F.cos, last)
    first, _, third = F.split(ys)
    y = F.sum(z) + F.sum(first * third) + F.sum(F.constant(2.0, (3,), dtype=np.float64) * x)
    (g,) = nn.grad(y, x)
    (g2,) = nn.grad(F.sum(g * g), w)
    return [y, g, g2]


def test_nodes_are_the_functions_and_leaves_with_their_operands() -> None:
    outputs = slopes()
    described = describe(outputs)
    functions = [f for f in described.functions if f is not None]
    assert functions == sorted(functions_of(outputs), key=lambda f: f.serial)
    at = {f: i for i, f in enumerate(described.functions) if f is not None}
    for f, i in at.items():
        assert (described.ops[i], described.static[i], described.specs[i]) == (f.op, f.arguments, f.specs)
        assert described.orders[i] == f.order
        for x, (node, output) in zip(f.inputs, described.operands[i], strict=True):
            assert described.leaves.get(node) is x if x.parent is None else (at[x.parent], x.index) == (node, output)
    for y, (node, output) in zip(outputs, described.outputs, strict=True):
        assert described.functions[node] is y.parent and output == y.index


# ---------------------------------------------------------------- where functions come from


def test_gradients_know_what_they_come_from() -> None:
    x = leaf(0.3, "x")
    y = F.tanh(F.sin(x))
    (g,) = nn.grad(y, x)
    (g2,) = nn.grad(g, x)
    described = describe([y, g, g2])
    forward = {described.op_name(i): i for i, order in enumerate(described.orders) if not order}
    for i, f in enumerate(described.functions):
        if f is None or not f.order:
            assert described.bases[i] == (i if f else -1) and described.rules[i] is None
            continue
        assert described.origins[i] == described.functions.index(f.origin)
        assert described.bases[i] in (forward["tanh"], forward["sin"])
        assert described.rules[i] is f.origin.op
        assert described.base_ranks[i] == described.ranks[described.bases[i]]
    (slope,) = [i for i in range(len(described)) if described.op_name(i) == "tanh_slope"]
    assert described.formula(slope) == formula_of(F.tanh) == "dy/dx = 1 - y^2"


# ---------------------------------------------------------------- source locations and scopes


def test_places_are_remembered_where_that_is_asked_for() -> None:
    x = leaf(0.3, "x")
    with nn.source_locations():
        line = inspect.currentframe().f_lineno + 1  # type: ignore[union-attr]
        y = F.tanh(F.sin(x))
        (g,) = nn.grad(y, x)
    described = describe([F.exp(g)])
    for i, f in enumerate(described.functions):
        location, asked = described.locations[i], described.asked[i]
        if f is None or f.op is F.exp:
            assert location is None and asked is None
        else:
            assert location is not None and (location.file, location.line) == (__file__, line)
            assert (asked is None) == (f.order == 0)
            assert asked is None or (asked.file, asked.line) == (__file__, line + 1)


def network() -> nn.Variable:
    with nn.parameter_scope("scopes_of_nodes"):
        h = leaf(np.ones((2, 3)))
        for block in ("one", "two"):
            with nn.parameter_scope(block):
                h = F.relu(PF.affine(h, 4, name="first"))
                h = PF.affine(h, 3, name="second")
        return F.mean(F.exp(h))


def scopes_by_op(described: Description) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for i, scope in enumerate(described.scopes):
        name = "/".join(part for part in scope.split("/") if part != "scopes_of_nodes")
        found.setdefault(described.op_name(i), set()).add(name)
    return found


def test_scopes_follow_from_parameters() -> None:
    described = describe(network())
    scopes = scopes_by_op(described)
    layers = {f"{block}/{layer}/affine" for block in ("one", "two") for layer in ("first", "second")}
    assert scopes["batch_matmul"] == scopes["add2"] == layers
    assert scopes["relu"] == {"one", "two"}
    assert scopes["exp"] == scopes["mean"] == {""}


def test_scopes_that_were_remembered_come_first() -> None:
    with nn.source_locations():
        y = network()
    scopes = scopes_by_op(describe(y))
    assert scopes["relu"] == {"one", "two"}
    (ends,) = {s for i, s in enumerate(describe(y).scopes) if describe(y).op_name(i) in ("exp", "mean")}
    assert ends == "scopes_of_nodes"


# ---------------------------------------------------------------- bodies, costs, recomputation


def test_nodes_of_bodies_follow_their_loop_and_run_at_each_step() -> None:
    described = describe(slopes())
    for number, entry in enumerate(described.bodies):
        nodes = [i for i, b in enumerate(described.body_of) if b == number]
        assert min(nodes, default=entry.node + 1) > entry.node
        for i in nodes:
            assert described.kinds[i] is Kind.IN_BODY
            assert described.runs[i] == entry.runs * described.runs[entry.node]
        body = entry.within.body
        assert set(entry.values) == {*range(len(body.inputs)), *[~k for k in range(len(body.specs))]}
        for value, (node, output) in entry.values.items():
            spec = body.spec(value)
            assert described.specs[node][output].dtype == spec.dtype
    assert {described.begins[i] for i in described.begins} == {"begins as", "is a slice of"}
