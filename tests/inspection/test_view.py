"""view: what is written of a graph, and that no name in it can do anything. The page in a browser is tested in
tests/browser."""

from __future__ import annotations

import base64
import functools
import hashlib
import html.parser
import itertools
import json
import re
import sys
import types
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
from nngrad.inspection.description import describe
from nngrad.inspection.viewing.document import document
from nngrad.inspection.viewing.lifetimes import lifetimes_of
from nngrad.inspection.viewing.page_layout import HEIGHT
from nngrad.inspection.viewing.view import PLACE, embedded
from tests.work import calls_of

HOSTILE = (
    "</script><script>alert(1)</script>", '"\'`&<>', "]]>--><!--", "\u2028\u2029\x00\x1b[31m", "🙈 a/b\\n\"",
    "x" * 10_000, "${alert(1)}", "\ud800 alone",
)
TEMPLATE = f"<!doctype html><title>t</title>{PLACE}<p>after</p>"


@pytest.fixture(autouse=True)
def _template(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page without its scripts, so that these tests need no build."""
    module = sys.modules["nngrad.inspection.viewing.view"]
    monkeypatch.setattr(module, "_template", lambda: tuple(TEMPLATE.split(PLACE)))


def network() -> list[nn.Variable]:
    """A loss with a gradient penalty, and its gradients."""
    nn.clear_parameters()
    x = nn.Variable.from_numpy_array(np.linspace(-1, 1, 12).reshape(4, 3).astype("f"), need_grad=True)
    x.name = "x"
    with nn.parameter_scope("critic"):
        h = F.tanh(PF.affine(x, 5, name="first"))
        loss = F.mean(PF.affine(h, 1, name="second"))
    (slope,) = nn.grad([loss], [x])
    total = loss + F.sum(slope**2)
    found = [total, *nn.grad([total], list(nn.get_parameters().values()))]
    nn.clear_parameters()
    return found


def loop() -> nn.Variable:
    x = nn.Variable((3,), need_grad=True)
    (y,), _ = F.scan(lambda c, _: ((F.sin(c[0]) * x,), ()), (x,), (), length=4)
    return F.sum(y)


def nested_loops() -> list[nn.Variable]:
    """A loop in a loop beside another loop, with the gradient of both."""
    w, xs = nn.Variable((3,), need_grad=True), nn.Variable((4, 3))

    def step(c: nn.Variable, x: nn.Variable) -> Any:
        inner, _ = F.scan(lambda d, v: (F.sin(d * v) * w, None), c, F.broadcast(x, (2, 3)))
        return F.tanh(inner + x), None

    first, _ = F.scan(step, w, xs)
    second, _ = F.scan(lambda c, x: (c * x, None), w, xs)
    loss = F.sum(first * second)
    return [loss, *nn.grad([loss], [w])]


def shared() -> nn.Variable:
    """Forty functions of one leaf side by side."""
    x = nn.Variable((2,), need_grad=True, name="x")
    return F.sum(F.stack(*[F.sin(x * float(i)) for i in range(40)]))


def document_of(outputs: Any) -> dict[str, Any]:
    """The document of a graph, as the page reads it."""
    return json.loads(json.dumps(document(describe(outputs), "t"), allow_nan=False))


def unpacked(text: str) -> dict[str, Any]:
    """The document of a page."""
    (found,) = re.findall(r'<script type="application/json" id="graph">(.*?)</script>', text, re.DOTALL)
    read = json.loads(found)
    return json.loads(zlib.decompress(base64.b64decode(read["deflated"]))) if "deflated" in read else read


def column(read: dict[str, Any], name: str) -> list[Any]:
    """A column over all nodes, with the texts of numbers that stand for texts."""
    count, values = len(read["nodes"]["x"]), read["nodes"][name]
    listed = values if isinstance(values, list) else [values] * count
    texts = {"name", "op", "shape", "arguments", "scope", "place", "rule", "asked"}
    return [read["strings"][i] for i in listed] if name in texts else listed


# ---------------------------------------------------------------- the document


Box = Sequence[float]


def apart(a: Box, b: Box) -> bool:
    return a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]


def contains(a: Box, b: Box) -> bool:
    return a[0] <= b[0] and a[1] <= b[1] and b[2] <= a[2] and b[3] <= a[3]


@pytest.mark.parametrize("outputs", [network, loop, nested_loops, lambda: attention(3), shared,
                                     lambda: nn.grad([loop()], [loop().parent.inputs[0]]) and loop(),
                                     lambda: nn.Variable((2,)), lambda: F.constant(1.0, (2,))])  # fmt: skip
def test_the_columns_of_a_document_agree(outputs: Callable[[], Any]) -> None:
    listed = outputs()
    read = document_of(listed)
    count = len(describe(listed))
    nodes, operands = read["nodes"], read["operands"]
    for name, values in nodes.items():
        assert not isinstance(values, list) or len(values) == count, name
    assert len(operands["start"]) == count + 1
    assert operands["start"][-1] == len(operands["node"])
    outputs_read = operands["output"]
    assert not isinstance(outputs_read, list) or len(outputs_read) == len(operands["node"])
    for i in range(count):
        assert all([j < i for j in operands["node"][operands["start"][i] : operands["start"][i + 1]]])
    assert len(set(column(read, "name"))) == count
    assert all([0 <= g < len(read["groups"]) for g in column(read, "group")])
    places = list(zip(column(read, "x"), column(read, "y"), strict=True))
    boxes = [(x - w / 2, y - HEIGHT / 2, x + w / 2, y + HEIGHT / 2)
             for (x, y), w in zip(places, column(read, "width"), strict=True)]  # fmt: skip
    assert all([apart(a, b) for a, b in itertools.combinations(boxes, 2)])
    groups = read["groups"]
    for box, g in zip(boxes, column(read, "group"), strict=True):
        assert contains(groups[g]["box"], box)
    for a, b in itertools.combinations([group for group in groups if group["kind"] != "rest"], 2):
        assert apart(a["box"], b["box"]) or contains(a["box"], b["box"]), "each after the one that contains it"
    assert all([-1 <= i < count for name in ("origin", "base") for i in column(read, name)])
    assert len(set(read["strings"])) == len(read["strings"])
    for name in column(read, "rule"):
        assert name == "" or name in read["ops"]


def attention(blocks: int) -> nn.Variable:
    """A transformer: attention and two affine functions, with skips around both."""
    h = nn.Variable((2, 6, 8), name="tokens")
    for i in range(blocks):
        with nn.parameter_scope(f"block{i}"):
            x = PF.layer_normalization(h, batch_axis=(0, 1), name="before")
            q, k, v = (
                F.transpose(F.reshape(PF.affine(x, 8, base_axis=2, name=name), (2, 6, 2, 4)), (0, 2, 1, 3))
                for name in "qkv"
            )
            mixed = F.batch_matmul(F.softmax(F.batch_matmul(q, F.transpose(k, (0, 1, 3, 2))), axis=3), v)
            mixed = F.reshape(F.transpose(mixed, (0, 2, 1, 3)), (2, 6, 8))
            h = h + PF.affine(mixed, 8, base_axis=2, name="out")
            x = PF.layer_normalization(h, batch_axis=(0, 1), name="after")
            x = F.gelu(PF.affine(x, 16, base_axis=2, name="up"))
            h = h + PF.affine(x, 8, base_axis=2, name="down")
    return F.mean(h**2)


def boxes_at_first(read: dict[str, Any]) -> tuple[int, int]:
    """How many nodes and how many closed groups the page shows at first, as its script finds out."""
    groups = read["groups"]
    closed, nodes = set(), 0
    for at in column(read, "group"):
        holder = -1
        while at >= 0:
            holder, at = at if groups[at]["kind"] == "rest" else holder, groups[at]["parent"]
        closed.add(holder)
        nodes += holder < 0
    return nodes, len(closed - {-1})


def test_a_large_graph_shows_few_boxes_at_first() -> None:
    nn.clear_parameters()
    loss = attention(12)
    parameters = list(nn.get_parameters().values())
    nn.clear_parameters()  # their own names say where they are
    read = document_of([loss, *nn.grad([loss], parameters)])
    nodes, closed = boxes_at_first(read)
    assert len(column(read, "name")) > 300
    assert closed >= 2
    assert nodes + closed <= 40
    # A closed group takes the place of the one in it, which is still there when that is opened.
    named = {kind: {read["strings"][group["name"]] for group in read["groups"] if group["kind"] == kind}
             for kind in ("scope", "rest")}  # fmt: skip
    assert {f"block{i}" for i in range(12)} <= named["scope"]
    assert any(["block" in name or name.endswith(" more") for name in named["rest"]])


def test_a_document_says_what_the_graph_says() -> None:
    outputs = network()
    read = document_of(outputs)
    counted = nn.count(outputs)
    totals = read["totals"]
    assert (totals["functions"], totals["flops"], totals["bytes"]) == counted.total[0:1] + counted.total[3:]
    ops, orders = column(read, "op"), column(read, "order")
    assert {order: sum([o == order and op not in ("", "constant") for o, op in zip(orders, ops, strict=True)])
            for order in counted.by_order} == {order: t.functions for order, t in counted.by_order.items()}  # fmt: skip
    names, kinds = column(read, "name"), column(read, "kind")
    assert {n for n, k in zip(names, kinds, strict=True) if k == 1} >= {"x"}
    tanh = ops.index("tanh")
    assert column(read, "shape")[tanh] == "float32[4, 5]"
    origins = [i for i, origin in enumerate(column(read, "origin")) if origin == tanh]
    assert origins and all([column(read, "rule")[i] == "tanh" for i in origins])
    assert "1 - y^2" in read["ops"]["tanh"]["formula"]
    assert [c["label"] for c in read["columns"]] == ["forward", "gradient", "order 2"]


def network_of_attention() -> list[nn.Variable]:
    nn.clear_parameters()
    loss = attention(2)
    return [loss, *nn.grad([loss], list(nn.get_parameters().values()))]


@pytest.mark.parametrize("outputs", [network, network_of_attention])
def test_a_gradient_lies_beside_its_function(outputs: Callable[[], Any]) -> None:
    read = document_of(outputs())
    orders, bases, y, x = (column(read, name) for name in ("order", "base", "y", "x"))
    start, node = read["operands"]["start"], read["operands"]["node"]
    pairs = [(i, b) for i, b in enumerate(bases) if orders[i] and b >= 0 and start[i] < start[i + 1]]
    assert all([x[i] > x[b] for i, b in pairs])
    # Functions of order 1 beside one function lie above each other if one reads the other; a function of
    # unknown origin, such as a sum of gradients, is beside the function of an operand.
    arrows = [(i, o) for i in range(len(y)) for o in node[start[i] : start[i + 1]] if orders[i] == orders[o] == 1]
    stacked = {end for i, o in arrows for end in (i, o) if -1 in (bases[i], bases[o]) or y[bases[i]] == y[bases[o]]}
    beside = [(i, b) for i, b in pairs if orders[i] == 1 and i not in stacked]
    assert beside
    assert all([y[i] == y[b] for i, b in beside])
    assert {y[b] for i, b in pairs if orders[i] == 1} <= {at for order, at in zip(orders, y, strict=True) if order == 1}
    assert all([y[i] != y[o] for i, o in arrows if start[o] < start[o + 1]])


def test_functions_in_bodies_are_nodes_in_a_group_below_their_loop() -> None:
    read = document_of(loop())
    kinds = column(read, "kind")
    owner = kinds.index(4)
    inside = [i for i, kind in enumerate(kinds) if kind == 5]
    group = read["groups"][column(read, "group")[inside[0]]]
    assert (read["strings"][group["name"]], group["times"]) == (f"body of {column(read, 'op')[owner]}", 4)
    assert {column(read, "op")[i] for i in inside} >= {"sin", "mul2"}
    assert all([column(read, "y")[i] > column(read, "y")[owner] for i in inside])
    assert {column(read, "runs")[i] for i in inside} == {4}
    within = sum([column(read, "flops")[i] * 4 for i in inside])
    assert column(read, "flops")[owner] == within > 0


def test_work_is_linear_in_the_nodes() -> None:
    def chain(count: int) -> nn.Variable:
        x = nn.Variable((2,), need_grad=True)
        y = x
        for _ in range(count):
            y = F.sin(y)
        return F.sum(nn.grad([F.sum(y)], [x])[0] ** 2)

    calls = []
    for count in (200, 800):
        described = describe(chain(count))
        document(described, "t")  # what is learned of ops once
        calls.append(calls_of(functools.partial(lambda d: embedded(document(d, "t", lifetimes_of(d))), described)))
    assert calls[1] < 4.4 * calls[0]


def test_a_stored_value_lives_from_its_function_to_the_last_one_that_reads_it() -> None:
    described = describe(network())
    lives = lifetimes_of(described)
    stored = {i: first for i, first in enumerate(lives.first) if first >= 0}
    assert len(stored) > 5 and max(lives.live) == lives.live[lives.peak]
    for i, first in stored.items():
        assert lives.step[first] == i and first <= lives.last[i]
        assert all([stored[o] < first <= lives.last[o] for o, _ in described.operands[i] if o in stored])


# ---------------------------------------------------------------- files


def test_nothing_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = network()
    monkeypatch.setattr("nngrad.graph.variable.engine.evaluate", lambda *_: pytest.fail("it was run"))
    nn.view(outputs, tmp_path / "a.html")
    assert not outputs[0].is_computed


def test_a_page_holds_the_document(tmp_path: Path) -> None:
    file = nn.view(network(), tmp_path / "a.HTML", title="mine")
    text = file.read_text(encoding="utf-8")
    assert text.endswith("<p>after</p>")
    read = unpacked(text)
    assert (read["title"], read["version"]) == ("mine", 1)


def test_a_large_document_is_deflated() -> None:
    large = {"strings": [str(i) for i in range(40_000)]}
    text = embedded(large)
    assert set(json.loads(text)) == {"deflated"}
    assert unpacked(PLACE.replace("null", text)) == large
    assert len(text) < 200_000


class _Elements(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attributes: Any) -> None:
        self.found.append(tag)


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_names_are_text_everywhere(name: str, tmp_path: Path) -> None:
    x = nn.Variable((2,), name=name)
    y = F.sin(x)
    y.name = name
    file = nn.view(y, tmp_path / "a.html", title=name)
    parser = _Elements()
    parser.feed(file.read_text(encoding="utf-8"))
    assert parser.found == ["title", "script", "p"]
    read = unpacked(file.read_text(encoding="utf-8"))
    assert read["title"] == name
    assert all([len(text) <= 100 and text.isprintable() for text in column(read, "name")])


# ---------------------------------------------------------------- the built page

ROOT = Path(__file__).parents[2]
BUILT = ROOT / "nngrad" / "inspection" / "viewing" / "page"
SOURCES = ROOT / "viewer"
built = pytest.mark.skipif(not SOURCES.exists(), reason="the sources of the page are not in this checkout")


@built
def test_the_page_is_built_of_these_sources() -> None:
    digest = hashlib.sha256()
    left_out = {"node_modules", "dist"}
    files = {
        file.relative_to(SOURCES).as_posix(): file for file in SOURCES.rglob("*")
        if file.is_file() and not any([p in left_out or p[0] == "." for p in file.relative_to(SOURCES).parts])
    }  # fmt: skip
    for name in sorted(files):
        digest.update(name.encode() + b"\0" + files[name].read_bytes() + b"\0")
    recorded = (BUILT / "sources.sha256").read_text().strip()
    assert recorded == digest.hexdigest(), "the sources have changed: run `npm ci && npm run build` in viewer/"


@built
def test_the_built_page_has_one_place_for_a_document_and_loads_nothing() -> None:
    text = (BUILT / "template.html").read_text(encoding="utf-8")
    assert text.count(PLACE) == 1
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    rules = dict([(rule.split() or [""])[0], rule.split()[1:]] for rule in policy.split(";") if rule.strip())
    assert rules["default-src"] == ["'none'"]
    assert not {"'unsafe-inline'", "'unsafe-eval'", "*"} & set(rules["script-src"])
    sources = re.findall(r'(?:src|href)="([^"]*)"', text)
    assert all([source.startswith(("data:", "#")) for source in sources]), sources


# ---------------------------------------------------------------- arguments, and the command


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((1,), TypeError, "outputs"),
        (("y", "a.dot"), ValueError, r"path: must end in '\.html', got 'a\.dot'; the page itself exports DOT"),
        (("y", 3), TypeError, "path: expected the path of a file, got 3"),
        (("y", None, {"title": 3}), TypeError, "title: expected a str, got 3"),
        (("y", None, {"parameters": []}), TypeError, "parameters"),
    ],
)  # fmt: skip
def test_errors_name_the_argument(arguments: tuple[Any, ...], error: type[Exception], message: str) -> None:
    outputs, path, options = (*arguments, None, {})[:3] if len(arguments) < 3 else arguments
    outputs = F.sin(nn.Variable((2,))) if outputs == "y" else outputs
    with pytest.raises(error, match=message):
        nn.view(outputs, path, **(options or {}))


def test_without_a_path_the_page_is_opened(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    opened: list[str] = []
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url) or True)
    file = nn.view(F.sin(nn.Variable((2,))))
    try:
        assert opened == [file.as_uri()]
        assert capsys.readouterr().out == ""
        monkeypatch.setattr("webbrowser.open", lambda url: False)
        second = nn.view(F.sin(nn.Variable((2,))))
        assert str(second) in capsys.readouterr().out
        second.unlink()
    finally:
        file.unlink()


class _Frames(html.parser.HTMLParser):
    """The attributes of the frames in a text."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[dict[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag == "iframe"
        self.found.append(dict(attrs))


@pytest.mark.parametrize("has_kernel", [True, False], ids=["notebook", "terminal"])
def test_in_a_notebook_the_page_is_shown_below_the_cell(has_kernel: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    opened: list[str] = []
    ipython = types.ModuleType("IPython")
    shell = types.SimpleNamespace(kernel=object()) if has_kernel else types.SimpleNamespace()
    ipython.get_ipython = lambda: shell  # type: ignore[attr-defined]
    ipython.display = types.SimpleNamespace(display=shown.append, HTML=str)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setenv("BROWSER", "firefox")
    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url) or True)
    y = nn.Variable((2,), name=HOSTILE[0]) * 2
    file = nn.view(y)
    try:
        assert opened == ([] if has_kernel else [file.resolve().as_uri()])
        assert len(shown) == has_kernel
        for page in shown:
            frames = _Frames()
            frames.feed(page)
            (frame,) = frames.found
            assert frame["srcdoc"] == file.read_text(encoding="utf-8")
            assert set((frame["sandbox"] or "").split()) == {"allow-scripts", "allow-downloads"}  # no origin of its own
    finally:
        file.unlink()
    shown.clear()
    written = nn.view(y, file)
    written.unlink()
    assert not shown  # a file that was asked for is written, and that is all


def test_without_a_display_no_browser_is_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr("webbrowser.open", lambda url: pytest.fail("a browser in a terminal would take it over"))
    file = nn.view(F.sin(nn.Variable((2,))))
    assert str(file) in capsys.readouterr().out
    file.unlink()
