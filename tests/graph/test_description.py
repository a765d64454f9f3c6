"""What is known of each node of a graph: names, orders, origins, scopes, source locations, recomputation."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
from backward_registry import registry
from nngrad.graph import functions_of
from nngrad.inspection import Description, Kind, State, describe
from nngrad.inspection.naming import formula_of
from tests.work import calls_of


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


def columns(described: Description) -> dict[str, list[Any]]:
    """All that has an entry for each node."""
    found = {name: value for name, value in vars(described).items() if isinstance(value, list)}
    del found["bodies"], found["outputs"]
    return {**found, "runs": described.runs, "costs": described.costs}


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


def test_every_column_has_an_entry_for_each_node() -> None:
    described = describe(slopes())
    assert {name: len(column) for name, column in columns(described).items()} == dict.fromkeys(
        columns(described), len(described)
    )
    assert set(described.kinds) == {Kind.FUNCTION, Kind.LEAF, Kind.CONSTANT, Kind.LOOP, Kind.IN_BODY}


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


def test_operands_come_before_what_reads_them_and_have_names() -> None:
    described = describe(slopes())
    given = [name for results in described.results for name in results if name]
    assert len(set(given)) == len(given)
    assert len(set(described.names)) == len(described)
    for i, operands in enumerate(described.operands):
        for k, (node, _) in enumerate(operands):
            assert node < i
            assert described.operand(i, k) in given


def test_names_are_those_of_variables_and_parameters() -> None:
    with nn.parameter_scope("names_of_parameters"):
        h = PF.affine(leaf(np.ones((2, 3)), "images"), 4, name="first")
    h.name = "hidden"
    other = leaf(1.0, "images")
    described = describe(h * other)
    assert {"images", "images0", "hidden"} < set(described.names)
    (w,) = [i for i, name in enumerate(described.names) if name == "names_of_parameters/first/affine/W"]
    assert described.kinds[w] is Kind.PARAMETER
    own = describe(h, {"mine": w_of(h)})
    assert "mine" in own.names and own.kinds[own.names.index("mine")] is Kind.PARAMETER


def w_of(h: nn.Variable) -> nn.Variable:
    """The weight of an affine layer."""
    (w,) = {x for f in functions_of([h]) for x in f.inputs if x.shape == (3, 4)}
    return w


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(max_size=80), min_size=1, max_size=5))
def test_names_of_any_text_are_printable_short_and_different(texts: list[str]) -> None:
    xs = [leaf(1.0, text) for text in texts]
    described = describe(xs)
    assert all([name.isprintable() and 0 < len(name) <= 70 for name in described.names])
    assert len(set(described.names)) == len(xs)
    for text, name in zip(texts, described.names, strict=True):
        if text and text.isprintable() and len(text) <= 50 and texts.count(text) == 1 and not text[-1].isdigit():
            assert name == text


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


def test_of_a_base_that_the_graph_lacks_its_rank_is_known() -> None:
    x = leaf(np.ones(3), "x")
    y = F.sin(F.sin(x))  # its gradient needs the inner sine alone
    (g,) = nn.grad(y, x)
    described = describe(g)
    (outer,) = [i for i in range(len(described)) if described.op_name(i) == "cos" and described.operand(i, 0) != "x"]
    assert (described.origins[outer], described.bases[outer], described.base_ranks[outer]) == (-1, -1, 2)
    assert described.rules[outer] is F.sin


def test_every_rule_has_a_formula_or_says_of_what_kind_it_is() -> None:
    silent = {op.name for op, _ in registry.ops() if op.is_own and not formula_of(op)}
    assert silent <= {"factored_solve", "iterative_solve", "solve_by_body", "root_of_body"}


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


def test_remembering_ends_with_its_block_and_refuses_what_is_no_bool() -> None:
    x = leaf(0.3)
    with nn.source_locations(), nn.source_locations(False):
        assert describe(F.sin(x)).locations == [None, None]
    assert describe(F.sin(x)).locations == [None, None]
    with pytest.raises(TypeError, match="on: expected True or False"):
        nn.source_locations(1)  # type: ignore[arg-type]


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


def test_scopes_of_gradients_are_those_of_what_they_come_from() -> None:
    y = network()
    x = next(x for f in functions_of([y]) for x in f.inputs if x.parent is None)
    (g,) = nn.grad(y, x)
    described = describe([y, g])
    for i, f in enumerate(described.functions):
        if f is not None and f.order and described.bases[i] >= 0:
            assert described.scopes[i] == described.scopes[described.bases[i]]
    assert {described.scopes[i] for i, f in enumerate(described.functions) if f is not None and f.order} > {""}


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


def test_costs_are_those_that_count_has() -> None:
    outputs = slopes()
    described, counted = describe(outputs), nn.count(outputs)
    outside = [cost for cost, b in zip(described.costs, described.body_of, strict=True) if b < 0]
    assert sum([cost.flops for cost in outside]) == counted.flops
    assert sum([cost.matrix_products for cost in outside]) == counted.matrix_products
    assert sum([cost.bytes for cost in outside]) == counted.bytes


def test_what_is_kept_and_computed_again_is_known() -> None:
    h = x = leaf(np.linspace(0.0, 1.0, 6).reshape(2, 3), "x")
    for _ in range(9):
        h = F.tanh(h @ leaf(np.eye(3)))
    y = F.sum(h * h)
    (plain,) = nn.grad(y, x)
    described = describe([y, plain])
    states = {described.states[i] for i in range(len(described))}
    assert states == {State.PLAIN, State.KEPT}
    (again,) = nn.grad(y, x, recompute="sqrt")
    described = describe([y, again])
    copies = [i for i, state in enumerate(described.states) if state is State.COPY]
    originals = [i for i, state in enumerate(described.states) if state is State.AGAIN]
    assert copies and originals
    assert sum([state is State.COPY for state in described.states]) < sum([not order for order in described.orders])
    for i in copies:
        assert described.orders[i] == 0 and described.bases[i] != i
        if described.op_name(i) not in ("optimization_barrier", "recomputed"):
            assert described.op_name(described.bases[i]) == described.op_name(i)
            assert described.locations[i] == described.locations[described.bases[i]]
    report = nn.memory_report([y, again], compile=False)
    assert {described.op_name(i) for i in originals} == {held.op for held in report.recomputed}
    kept = {described.op_name(i) for i, state in enumerate(described.states) if state is State.KEPT}
    assert kept <= {held.op for held in report.kept}


@pytest.mark.slow
def test_work_is_linear_for_graphs_of_20_000_functions() -> None:
    def chain(length: int) -> nn.Variable:
        h = x = leaf(0.1)
        for _ in range(length // 4):
            h = F.sin(h * x)
        (g,) = nn.grad(h, x)
        return g

    small, large = chain(5_000), chain(20_000)
    few, many = describe(small), describe(large)
    assert len(many) > 20_000
    calls = calls_of(lambda: describe(small)) / len(few), calls_of(lambda: describe(large)) / len(many)
    assert calls[1] < 1.05 * calls[0]
    assert calls[1] < 120


def test_what_is_not_a_variable_is_refused() -> None:
    with pytest.raises(TypeError, match="outputs"):
        describe([1])  # type: ignore[list-item]
    for wrong in ([leaf(1.0)], {"w": 1}, {1: leaf(1.0)}):
        with pytest.raises(TypeError, match="parameters: expected a dict of Variables by name"):
            describe(leaf(1.0), wrong)  # type: ignore[arg-type]
