"""Graphs in files: all functions, what belongs to a graph besides, and files that are damaged or hostile."""

from __future__ import annotations

import contextlib
import json
import zipfile
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import ml_dtypes
import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
from nngrad.extend import Array, functions_of, linearize, op
from tests.samples import all_samples

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def no_parameters() -> None:
    nn.clear_parameters()
    nn.seed(0)


def leaf(array: Any, name: str = "", need_grad: bool = True) -> nn.Variable:
    array = np.asarray(array)
    return nn.Variable.from_numpy_array(array, need_grad=need_grad, dtype=array.dtype).apply(name=name)


def again(tmp_path: Path, outputs: Any, inputs: Any = ()) -> Any:
    path = tmp_path / "graph"
    nn.save_graph(path, outputs, inputs)
    return nn.load_graph(path)


def same_structure(ys: list[nn.Variable], zs: list[nn.Variable]) -> None:
    """Both are one program, with the same arrays in its leaves."""
    first, second = linearize(ys), linearize(zs)
    assert first.program == second.program
    for x, y in zip(first.leaves, second.leaves, strict=True):
        assert (x.name, x.need_grad, x.persistent, x.spec) == (y.name, y.need_grad, y.persistent, y.spec)
        assert (x.key_source is None) == (y.key_source is None)
        assert x.data.view.tobytes() == y.data.view.tobytes()
    for f, g in zip(first.functions, second.functions, strict=True):
        assert (f.order, f.rank, len(f.effects)) == (g.order, g.rank, len(g.effects))
        assert (f.origin is None) == (g.origin is None) or f.origin not in first.functions


# ---------------------------------------------------------------- every function


def orders_of(sample: Any) -> list[nn.Variable]:
    """What a sample computes, and its first and second derivatives."""
    rng = np.random.default_rng(7)
    xs = [leaf(draw(rng), need_grad=False) for draw in sample.inputs]
    y = getattr(F, sample.name)(*xs, **sample.arguments)
    found = [y for y in (y if isinstance(y, list | tuple) else [y]) if isinstance(y, nn.Variable)]
    latest, inputs = [y for y in found if y.spec.differentiable], [x for x in xs if x.spec.differentiable]
    for _ in range(0 if sample.surrogate else min(2, sample.orders)):
        if latest and inputs:
            latest = list(nn.grad(latest, inputs))
            found += latest
    return found


@pytest.mark.parametrize("samples", [
    pytest.param({s.name: s for s in all_samples()}.values(), id="one of each op"),
    pytest.param(all_samples(), id="all", marks=pytest.mark.slow),
])
def test_every_function_is_kept_with_its_derivatives(tmp_path: Path, samples: Any) -> None:
    """One file has the graphs of all samples, so that it is written and read once."""
    ys = {f"{i} {sample.id} {k}": y for i, sample in enumerate(samples) for k, y in enumerate(orders_of(sample))}
    kept = again(tmp_path, ys).outputs
    assert list(kept) == list(ys) and [y.spec for y in ys.values()] == [z.spec for z in kept.values()]
    same_structure(list(ys.values()), list(kept.values()))


# ---------------------------------------------------------------- what belongs to a graph


def test_a_loaded_graph_is_computed_and_differentiated_on(tmp_path: Path) -> None:
    x, w = leaf(RNG.standard_normal((4, 3)), "x", False), leaf(RNG.standard_normal((3, 3)), "w")
    y = F.sum(F.tanh(x @ w) ** 2)
    (slope,) = nn.grad(y, x)
    graph = again(tmp_path, {"y": y, "slope": slope}, [x, w])
    x2, w2 = graph.inputs
    # Loaded outputs are read together, by one executable, which may round otherwise.
    np.testing.assert_allclose(graph.outputs["slope"].d, slope.d, rtol=1e-13, atol=1e-15)
    before, after = slope, graph.outputs["slope"]
    for _ in range(2):  # to the third order
        before, after = nn.grad(F.sum(before**2), w)[0], nn.grad(F.sum(after**2), w2)[0]
        np.testing.assert_array_equal(after.d, before.d)
    same_structure([before], [after])
    x2.d = x.d = RNG.standard_normal((4, 3))
    for each in (y, graph.outputs["y"]):
        each.forward()
        each.backward()
    np.testing.assert_array_equal(w2.g, w.g)


def test_nested_derivatives_go_the_same_way_after_loading(tmp_path: Path) -> None:
    """What a gradient knows of itself decides how its own is built: forwards, at Taylor cost."""
    x = leaf(np.linspace(-1, 1, 5)[:, None], "x")
    w = leaf(RNG.standard_normal((1, 4)), "w")
    g = F.sum(F.tanh(x @ w) @ F.transpose(w, (1, 0)), axis=1)
    for _ in range(3):
        (g,) = nn.grad(g, x)
    kept = again(tmp_path, g, x)
    for _ in range(2):
        (g,), (kept_g,) = nn.grad(g, x), nn.grad(kept.outputs, kept.inputs)
        same_structure([g], [kept_g])
        kept = kept._replace(outputs=kept_g)
    np.testing.assert_array_equal(kept.outputs.d, g.d)


def test_bits_of_all_dtypes_and_shared_data(tmp_path: Path) -> None:
    odd = np.array([-0.0, np.nan, np.inf, -np.inf, 5e-324, 1.0])
    odd.view(np.uint64)[1] |= 0x1234  # a NaN with something in it
    small = np.arange(4).astype(ml_dtypes.bfloat16)
    arrays = [odd, odd.astype(np.float32), small, small.astype(np.float16), np.array([True, False])]
    arrays += [np.array([1, 0, 3], t) for t in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")]
    xs = {f"{i}": leaf(a, need_grad=False) for i, a in enumerate(arrays)}
    twin = xs["0"].get_unlinked_variable(need_grad=True)
    zeros = nn.Variable((10**6, 10**6), need_grad=True, name="zeros")  # which take no memory
    kept = again(tmp_path, {"y": F.sum(twin), "-0.0": F.constant(-0.0, (1,)), "zeros": zeros}, {**xs, "twin": twin})
    for name, x in xs.items():
        assert kept.inputs[name].spec is x.spec
        assert kept.inputs[name].data.view.tobytes() == x.data.view.tobytes()
    assert kept.inputs["twin"].data is kept.inputs["0"].data
    assert np.signbit(kept.outputs["-0.0"].d).all()
    assert kept.outputs["zeros"].cell.is_zero and (tmp_path / "graph").stat().st_size < 10**5
    assert kept.parameters == {"zeros": kept.outputs["zeros"]}


def test_parameters_statistics_seeds_and_attributes(tmp_path: Path) -> None:
    x = leaf(RNG.standard_normal((6, 3)).astype(np.float32), "x", False)
    h = PF.batch_normalization(PF.affine(x, 3, name="first"), name="norm")
    h.name, h.persistent = "hidden", True
    h.parent.tags = {"note": "kept", "numbers": (1, 2.5)}
    stopped = F.tanh(h)
    stopped.need_grad = False
    late = F.exp(h)
    y = F.sum(F.dropout(h, seed=3) + F.dropout(late) + stopped)
    y.forward()
    assert np.isfinite(y.d)
    kept = again(tmp_path, y, x)
    params = nn.get_parameters(grad_only=False)
    assert list(kept.parameters) == list(params)
    assert [p.need_grad for p in kept.parameters.values()] == [p.need_grad for p in params.values()]
    same_structure([y], [kept.outputs])
    both = zip(functions_of([y]), functions_of([kept.outputs]), strict=True)
    for f, g in both:
        assert f.tags == g.tags
        assert [(a.name, a.persistent, a._need_grad) for a in f.outputs] == [
            (a.name, a.persistent, a._need_grad) for a in g.outputs]
    for _ in range(2):
        nn.seed(5)
        y.forward()
        first = y.d.copy()
        nn.seed(5)
        kept.outputs.forward()
        np.testing.assert_array_equal(kept.outputs.d, first)
    for name, p in params.items():
        np.testing.assert_array_equal(kept.parameters[name].d, p.d)
    assert not np.array_equal(kept.parameters["norm/bn/mean"].d, np.zeros_like(kept.parameters["norm/bn/mean"].d))


def test_bodies_are_kept_once(tmp_path: Path) -> None:
    w = leaf(np.eye(2) * 0.5, "w")
    x = leaf(np.array([0.3, -0.2]), "x")

    def step(carry: Any, _: Any) -> Any:
        h = nn.checkpoint(lambda h: F.tanh(h @ w))(carry)
        return F.cond(F.sum(h) > 0, lambda h: F.sin(h), lambda h: F.exp(h), h), h

    last, stack = F.scan(step, x, length=3)
    again_last, _ = F.scan(step, last, length=3)
    y = F.sum(again_last) + F.sum(stack)
    (gx,) = nn.grad(y, x)
    kept = again(tmp_path, [y, gx], x)
    same_structure([y, gx], kept.outputs)
    np.testing.assert_allclose(kept.outputs[1].d, gx.d, rtol=1e-13, atol=1e-15)
    (second,), (kept_second,) = nn.grad(F.sum(gx), x), nn.grad(F.sum(kept.outputs[1]), kept.inputs)
    np.testing.assert_array_equal(kept_second.d, second.d)
    tables = tables_of(tmp_path / "graph")
    rows = [json.dumps(row) for row in tables["definitions"]]
    assert len(set(rows)) == len(rows)


def test_long_graphs_need_no_recursion(tmp_path: Path) -> None:
    y = x = leaf(np.ones(2), "x")
    for _ in range(3000):
        y = F.sin(y)
    assert len(functions_of([again(tmp_path, y, x).outputs])) == 3000


# ---------------------------------------------------------------- what cannot be kept


@op
def own_function(x: Array, /, factor: float = 2.0) -> Any:
    """A function of a user's."""
    return x * factor


def test_what_cannot_be_kept_is_named(tmp_path: Path) -> None:
    x = leaf(np.ones(2), "x")
    path = tmp_path / "graph"
    for y, what in (
        (F.jax_function(lambda x: x * 2)(x), "jax_"), (own_function(x), "own_function"),
        (nn.from_jax(lambda x: x + 1)(x), None),
    ):
        if what is None:
            nn.save_graph(path, y)
        else:
            with pytest.raises(ValueError, match=what):
                nn.save_graph(path, y)
            assert not path.exists()
    with pytest.raises(TypeError, match=r"outputs\[0\]"):
        nn.save_graph(path, [1])
    with pytest.raises(TypeError, match="inputs"):
        nn.save_graph(path, x, 3)
    with pytest.raises(TypeError, match="parameters"):
        nn.save_graph(path, x, x, {"a": 1})


# ---------------------------------------------------------------- files that are not as they should be


def tables_of(path: Path) -> Any:
    with zipfile.ZipFile(path) as archive:
        return json.loads(archive.read("graph.json"))


def written_with(path: Path, tables: Any, **members: bytes) -> None:
    """A file with other tables, and the arrays of `path`."""
    with zipfile.ZipFile(path) as archive:
        arrays = archive.read("arrays.safetensors")
    text = tables if isinstance(tables, bytes) else json.dumps(tables).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in {"graph.json": text, "arrays.safetensors": arrays, **members}.items():
            archive.writestr(name, content)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A file with something of everything."""
    path = tmp_path / "small"
    x, w = leaf(np.ones((2, 3)), "x"), leaf(np.ones((3, 3)), "w")
    nn.set_parameter("w", w)
    last, _ = F.scan(lambda h, _: (F.tanh(h @ w), None), x, length=2)
    y = F.sum(F.dropout(last, seed=2) ** 2)
    y = y + F.sum(F.assign(leaf(np.zeros((3, 3)), "copy"), w))
    (gx,) = nn.grad(y, x)
    nn.save_graph(path, {"y": y, "gx": gx}, {"x": x})
    return path


def change(tables: Any, where: list[Any], new: Any) -> None:
    for key in where[:-1]:
        tables = tables[key]
    tables[where[-1]] = new


@pytest.mark.parametrize(("where", "new", "message"), [
    (["format"], "other", "format"), (["format_version"], 99, "version 99"), (["nngrad"], 3, "expected a str"),
    (["ops", 0, "name"], "no_such_function", "'no_such_function', which is not registered"),
    (["ops", 0, "arguments"], ["invented"], "invented"), (["specs", 0, 1], [-1], "expected integers from 0 to"),
    (["specs", 0, 1], [2**40, 2**40], "damaged"), (["specs", 0, 0], "complex64", "damaged"),
    (["inputs_of_functions", 0], [-1], "damaged"), (["inputs_of_functions", 0], [10**9], "damaged"),
    (["inputs_of_functions", 0], [], "damaged"), (["inputs_of_functions", 0], [True], "damaged"),
    (["specs_of_functions", 0], [], "other shapes or dtypes"), (["kinds_of_functions", 0], -1, "damaged"),
    (["orders_of_functions"], [0], "damaged"), (["leaves", 0, 0], 99, "damaged"), (["outputs", "y"], 99, "damaged"),
    (["cells"], [], "damaged"), (["parameters", 0, 1], -1, "damaged"),
    (["definitions", 0, "op"], 99, "damaged"), (["definitions"], [{"steps": 3}], "damaged"),
    (["outputs"], {"y": "1"}, "damaged"), (["calls_of_functions"], [], "damaged"),
])  # fmt: skip
def test_each_field_is_checked(small: Path, where: list[Any], new: Any, message: str) -> None:
    tables = tables_of(small)
    change(tables, where, new)
    written_with(small, tables)
    with pytest.raises(ValueError, match=message) as caught:
        nn.load_graph(small)
    assert str(small) in str(caught.value)


def test_hostile_files(small: Path) -> None:
    tables = tables_of(small)
    for content in (
        b"[" * 10**5, b'{"a":' * 10**5, b"1" * 10**4, b"null", b"[]", b"\xff", b"", b"{}",
        b'{"format": 1, "format": 1}',
    ):  # fmt: skip
        written_with(small, content)
        with pytest.raises(ValueError, match="damaged"):
            nn.load_graph(small)
    written_with(small, tables)
    nn.load_graph(small)
    written_with(small, tables, **{"../../outside": b"1"})
    with pytest.raises(ValueError, match="outside"):
        nn.load_graph(small)


def test_cut_and_flipped_bytes(small: Path) -> None:
    content = small.read_bytes()
    rng = np.random.default_rng(1)
    for n in rng.integers(0, len(content), 40):
        small.write_bytes(content[:n])
        with pytest.raises(ValueError):
            nn.load_graph(small)
    for n in rng.integers(0, len(content), 60):
        small.write_bytes(content[:n] + bytes([content[n] ^ (1 << int(n) % 8)]) + content[n + 1 :])
        with contextlib.suppress(ValueError):  # a time or a flag of the archive may be anything
            nn.load_graph(small)


def places_in(value: Any) -> list[list[Any]]:
    """The way to each value in what was read of JSON."""
    found, waiting = [], [([], value)]
    while waiting:
        way, each = waiting.pop()
        items = each.items() if isinstance(each, dict) else enumerate(each) if isinstance(each, list) else ()
        for key, inner in items:
            found.append([*way, key])
            waiting.append(([*way, key], inner))
    return found


ODD: list[Any] = [None, True, -1, 0, 1, 7, 2**31, 2**63, -(2**70), 0.5, "", "tanh", [], [[]], {},
                  {"body": 0}, {"op": 1}, {"float": "nan"}, {"fraction": [1, 0]}, {"dtype": "float16"}, [0, 1],
                  [-1]]  # fmt: skip


@hypothesis.settings(
    max_examples=25, deadline=None, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture]
)
@hypothesis.given(data=st.data())
def test_other_values_in_any_place(small: Path, data: st.DataObject) -> None:
    content = small.read_bytes()
    tables = tables_of(small)
    for _ in range(data.draw(st.integers(1, 3))):
        change(tables, data.draw(st.sampled_from(places_in(tables))), data.draw(st.sampled_from(ODD)))
    written_with(small, tables)
    try:
        nn.load_graph(small)
    except ValueError as error:
        assert str(small) in str(error)
    finally:
        small.write_bytes(content)
