"""nn.draw: what is in a picture, that boxes and arrows keep apart, and that it is valid and harmless SVG."""

from __future__ import annotations

import itertools
import random
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
from nngrad.extend import functions_of
from nngrad.inspection.description import describe
from nngrad.inspection.viewing.draw import STYLES
from nngrad.inspection.viewing.draw_contents import Choices, Picture, Route, contents_of
from nngrad.inspection.viewing.draw_layout import lay_out

SVG = "{http://www.w3.org/2000/svg}"
ALL = Choices(shapes=True, arguments=True, formulas=True)


@pytest.fixture(autouse=True)
def own_parameters() -> Iterator[None]:
    with nn.parameter_scope("", scope={}):
        yield


def leaf(*shape: int, name: str = "") -> nn.Variable:
    return nn.Variable(shape, need_grad=True, name=name)


def layout_of(*outputs: nn.Variable, folded: bool = False) -> Picture:
    picture = contents_of(describe(outputs), ALL, folded)
    lay_out(picture, headers=True)
    return picture


def texts(drawing: nn.viewing.Drawing) -> list[str]:
    return [e.text or "" for e in ElementTree.fromstring(drawing.svg).iter(f"{SVG}text")]


def penalty() -> nn.Variable:
    """A gradient penalty: order 0, its gradient, and order 0 on top of that."""
    x = leaf(4, 3, name="x")
    with nn.parameter_scope("critic"):
        y = PF.affine(F.tanh(PF.affine(x, 5, name="first")), 1, name="second")
    (g,) = nn.grad([F.sum(y)], [x])
    return F.mean((F.sum(g**2, axis=1) - 1) ** 2)


def loop() -> nn.Variable:
    """A loop, whose body has a loop."""
    w = leaf(3, name="w")

    def outer(c: nn.Variable, x: nn.Variable) -> Any:
        inner, _ = F.scan(lambda d, v: (F.sin(d * v), None), F.sum(c * w), x)
        return F.tanh(c + inner), c

    last, each = F.scan(outer, leaf(3, name="begin"), leaf(5, 2, name="xs"))
    return F.sum(last) + F.sum(each)


# ---------------------------------------------------------------- geometry


def rectangles(layout: Picture) -> list[tuple[float, float, float, float]]:
    return [(b.x - b.width / 2, b.y - b.height / 2, b.x + b.width / 2, b.y + b.height / 2) for b in layout.boxes]


def points_of(route: Route) -> Iterator[tuple[float, float]]:
    """Points of an arrow, as it is drawn, close to each other."""
    for (x0, y0), (x1, y1) in itertools.pairwise(route.points):
        for t in np.linspace(0, 1, 40):
            if route.kind == "curved" and abs(x0 - x1) >= 0.05:
                across = 3 * t**2 - 2 * t**3
                down = 1.5 * t * (1 - t) + t**3  # Bezier's, with both of the inner points half way
                yield x0 + (x1 - x0) * across, y0 + (y1 - y0) * down
            elif route.kind == "below" and y0 == y1:
                yield x0 + (x1 - x0) * (3 * t**2 - 2 * t**3), y0 + 16 * 3 * t * (1 - t)
            else:
                yield x0 + (x1 - x0) * t, y0 + (y1 - y0) * t


def check(layout: Picture) -> None:
    """Boxes do not overlap, lie within the picture and their column; arrows join what they should and pass no box."""
    found = rectangles(layout)
    for a, b in itertools.combinations(found, 2):
        assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]
    for x0, y0, x1, y1 in found:
        assert x0 >= 0 and y0 >= 0 and x1 <= layout.width and y1 <= layout.height
    for (source, target), route in zip(layout.arrows, layout.routes, strict=True):
        for box, (x, y) in ((source, route.points[0]), (target, route.points[-1])):
            x0, y0, x1, y1 = found[box]
            assert x0 - 0.01 <= x <= x1 + 0.01 and y0 - 0.01 <= y <= y1 + 0.01
            assert min(abs(x - x0), abs(x - x1), abs(y - y0), abs(y - y1)) < 0.01, "at the edge"
        others = [rectangle for i, rectangle in enumerate(found) if i not in (source, target)]
        for x, y in points_of(route):
            assert not any([x0 < x < x1 and y0 < y < y1 for x0, y0, x1, y1 in others])
            assert 0 <= x <= layout.width and 0 <= y <= layout.height
    for box, (x0, y0, x1, y1) in zip(layout.boxes, found, strict=True):
        for _, inner in box.bodies:
            check(inner)
            assert inner.width <= x1 - x0 and inner.height <= y1 - y0


def random_graph(seed: int, size: int) -> nn.Variable:
    draws = random.Random(seed)
    values = [leaf(2, name="a"), leaf(2), leaf(1)]
    for _ in range(size):
        x, y = draws.choice(values[-6:]), draws.choice(values)
        values.append(draws.choice([F.tanh, F.sin, lambda v: v * 2.0, lambda v, y=y: v * y, lambda v, y=y: v + y])(x))
    return F.sum(values[-1])


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10**6), size=st.integers(1, 14), order=st.integers(0, 2))
def test_boxes_and_arrows_keep_apart(seed: int, size: int, order: int) -> None:
    y = random_graph(seed, size)
    outputs = [y]
    x = next((x for f in functions_of([y]) for x in f.inputs if x.parent is None), None)
    assert x is not None
    for _ in range(order):
        outputs += nn.grad([F.sum(outputs[-1] ** 2)], [x])
    check(layout_of(*outputs))


def test_penalties_and_loops_keep_apart() -> None:
    y = penalty()
    check(layout_of(y, *nn.grad([y], list(nn.get_parameters().values()))))
    z = loop()
    check(layout_of(z))
    w = next(x for f in functions_of([z]) for x in f.inputs if x.name == "w")
    check(layout_of(*nn.grad([z], [w])))


# ---------------------------------------------------------------- contents


def test_what_is_drawn_of_a_gradient() -> None:
    x = leaf(3, name="x")
    y = F.tanh(x)
    (g,) = nn.grad([F.sum(y)], [x])
    drawn = texts(nn.draw([y, g], title="A gradient", formulas=True))
    assert drawn[:3] == ["A gradient", "forward", "gradient"]
    assert {"x", "tanh", "tanh_slope", "float32[3]", "dy/dx = 1 - y^2"} <= set(drawn)
    plain = texts(nn.draw([y, g], shapes=False, arguments=False))
    assert sorted(plain) == sorted(["forward", "gradient", "x", "tanh", "tanh_slope"])


def test_frames_of_scopes() -> None:
    y = penalty()
    assert {"first/affine", "second/affine"} <= set(texts(nn.draw(y, parameters=nn.get_parameters())))


def test_bodies() -> None:
    y = loop()
    drawn = texts(nn.draw(y))
    assert "body, 5 times" in drawn and "body, 2 times" in drawn
    assert "w" in drawn and drawn.count("sin") == 1 and any([t.startswith("next carry") for t in drawn])


# ---------------------------------------------------------------- SVG


@pytest.mark.parametrize("style", STYLES)
def test_it_is_the_same_each_time(style: str) -> None:
    def drawing() -> str:
        nn.clear_parameters()
        return nn.draw(penalty(), style=style).svg

    first = drawing()
    assert first == drawing()
    assert ElementTree.fromstring(first).get("viewBox")


HOSTILE = ["</title><script>alert(1)</script>", "a & b <c> \"d\" 'e'", "x" * 10000, "\x00\x1b[31m\ufffe\ud800",
           "\u202egnp.exe", "日本語 🚀 e\u0301", "]]>", "&lt;", "line\nbreak", " "]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_text(name: str) -> None:
    x = leaf(2, name=name)
    with nn.parameter_scope("".join([c for c in name if c != "/"])[:200] or "scope"):
        y = PF.affine(F.reshape(x, (1, 2)), 1)
    y.name = name
    drawing = nn.draw(y, title=name)
    root = ElementTree.fromstring(drawing.svg.encode())
    assert {e.tag.removeprefix(SVG) for e in root.iter()} <= {"svg", "title", "rect", "g", "path", "text"}
    assert not any([key.startswith("on") or "href" in key for e in root.iter() for key in e.attrib])
    assert len(drawing.svg) < 60_000
    assert not re.search("[\x00-\x08\x0b-\x1f\u202a-\u202e\ud800-\udfff]", drawing.svg)


# ---------------------------------------------------------------- files and errors


def test_files_and_notebooks(tmp_path: Path) -> None:
    y = F.tanh(leaf(2))
    drawing = nn.draw(y, tmp_path / "graph.svg")
    assert (tmp_path / "graph.svg").read_text() == drawing.svg == drawing._repr_svg_()
    nn.draw(y, str(tmp_path / "GRAPH.SVG"))
    assert repr(drawing).startswith("<Drawing of ")
    root = ElementTree.fromstring(drawing.svg)
    assert (float(root.attrib["width"]), float(root.attrib["height"])) == (drawing.width, drawing.height)


def test_errors(tmp_path: Path) -> None:
    x = leaf(2)
    with pytest.raises(TypeError, match="outputs"):
        nn.draw([3])  # type: ignore[list-item]
    with pytest.raises(ValueError, match=r"style: must be one of .*, got 'ligth'; did you mean 'light'"):
        nn.draw(x, style="ligth")
    with pytest.raises(ValueError, match=r"path: must end in '.svg', got .*graph.png"):
        nn.draw(x, tmp_path / "graph.png")
    for wrong, message in (
        ({"style": None}, "style: must be one of light.*, got None"),
        ({"outputs": []}, "outputs: expected at least one Variable, got none"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            nn.draw(**{"outputs": x, **wrong})
    for wrong in ({"path": 3}, {"title": 3}, {"shapes": "no"}, {"fold": 2}, {"outputs": 3}):
        with pytest.raises(TypeError, match=f"{next(iter(wrong))}(: expected| must be True or False)"):
            nn.draw(**{"outputs": x, **wrong})
    with pytest.raises(OSError, match="nowhere"):
        nn.draw(x, tmp_path / "nowhere" / "graph.svg")
    y = x
    for _ in range(401):
        y = F.tanh(y)
    with pytest.raises(ValueError, match="outputs: the graph has 401 functions, but a picture shows at most 400"):
        nn.draw(y, fold=False)


def test_the_pictures_of_the_documentation_can_be_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path(__file__).parents[2]
    monkeypatch.syspath_prepend(root / "examples")
    for name, drawing in runpy.run_path(str(root / "examples" / "pictures.py"))["drawn"]().items():
        assert (root / "docs" / "images" / name).exists() and ElementTree.fromstring(drawing.svg) is not None


def test_a_large_graph_is_drawn_folded() -> None:
    nn.clear_parameters()
    h = nn.Variable((2, 4), name="x")
    for i in range(12):
        with nn.parameter_scope(f"layer{i}"):
            h = h + PF.affine(F.tanh(PF.affine(PF.layer_normalization(h), 4, name="up")), 4, name="down")
    loss = F.mean(h)
    graph = [loss, *nn.grad([loss], list(nn.get_parameters().values()))]
    nn.clear_parameters()
    folded = layout_of(*graph, folded=True)
    boxes = folded.boxes
    assert len(describe(graph)) > 400
    assert len(boxes) < 80
    counted = sum([int(box.notes[0].split()[0]) for box in boxes if box.notes and box.notes[0].endswith(" functions")])
    alone = [box for box in boxes if not (box.notes and box.notes[0].endswith(" functions"))]
    functions = [op for op in describe(graph).ops if op is not None]
    assert counted + len([box for box in alone if box.kind != "leaf"]) == len(functions)
    assert any(["layer" in box.title for box in boxes])
    assert any([box.is_result for box in boxes])
    check(folded)
    drawing = nn.draw(graph)
    assert drawing.svg == nn.draw(graph).svg
    assert drawing.height < 4000
