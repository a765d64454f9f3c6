"""The page of a graph in a real browser: what is clicked, typed and drawn."""

from __future__ import annotations

import base64
import json
import re
import struct
import zlib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
from tests.browser.watching import watched_page

HOSTILE = '</script><script>window.hurt = 1</script><img src=x onerror="window.hurt = 1">'


def write(file: Path) -> None:
    """A page of a critic with a penalty, and a name that would do harm."""
    nn.clear_parameters()
    with nn.source_locations():
        x = nn.Variable((8, 4), need_grad=True, name="x")
        x.d = np.random.default_rng(0).normal(size=(8, 4))
        with nn.parameter_scope("critic"):
            h = F.tanh(PF.affine(x, 6, name="first"))
            loss = F.mean(PF.affine(F.log(h), 1, name="second"))
        (slope,) = nn.grad([loss], [x])
        total = loss + F.mean(slope**2)
        total.name = HOSTILE
        gradients = nn.grad([total], list(nn.get_parameters().values()))
    parameters = dict(nn.get_parameters())
    nn.clear_parameters()
    nn.view([total, *gradients], file, title=HOSTILE, parameters=parameters)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pages") / "critic.html"
    write(path)
    return path


@pytest.fixture(scope="module")
def document(file: Path) -> dict[str, Any]:
    """What stands in the page."""
    text = re.search(r'<script type="application/json" id="graph">(.*?)</script>', file.read_text(), re.DOTALL)
    assert text is not None
    written = json.loads(text[1])
    return json.loads(zlib.decompress(base64.b64decode(written["deflated"]))) if "deflated" in written else written


@pytest.fixture
def page(browser: Any, file: Path) -> Iterator[Any]:
    with watched_page(browser, file.as_uri()) as opened:
        opened.wait_for_function("window.nngradView?.state.firstPaint > 0")
        yield opened
        assert opened.evaluate("window.hurt") is None


def state(page: Any, name: str) -> Any:
    return page.evaluate(f"nngradView.state.{name}")


@pytest.mark.slow
def test_hostile_names_are_text(page: Any) -> None:
    assert page.inner_text("#title") == HOSTILE
    assert page.title() == HOSTILE
    assert page.locator("img").count() == 0


@pytest.mark.slow
def test_a_click_selects_what_is_there_and_the_panel_tells_of_it(page: Any) -> None:
    page.evaluate("nngradView.search('op:tanh')")
    assert state(page, "hits") == 1
    page.keyboard.press("n")
    name = state(page, "selected")
    page.keyboard.press("Escape")
    assert state(page, "selected") is None
    x, y = page.evaluate("nngradView.at", name)
    box = page.locator("#graph-canvas").bounding_box()
    page.mouse.click(box["x"] + x, box["y"] + y)
    assert state(page, "selected") == name
    panel = page.inner_text("#panel")
    for text in ("tanh", "dy/dx = 1 - y^2", "h = F.tanh(", "critic", "float32[8, 6]"):
        assert text in panel
    operands, users = sides(page)
    assert operands.count() == 1 and users.count() > 1
    operands.first.locator(".row").click()
    assert state(page, "selected") != name
    sides(page)[1].filter(has_text="tanh").locator(".row").click()
    assert state(page, "selected") == name


def sides(page: Any) -> list[Any]:
    """The operands and the users of the selection, as items of the tree."""
    tree = page.get_by_role("tree", name="Operands and users")
    return [
        tree.get_by_role("treeitem", name=side, exact=False).first.locator("> ul > li[role=treeitem]")
        for side in ("Operands (", "Users (")
    ]


def focused(page: Any) -> str:
    return page.evaluate("document.activeElement.getAttribute('aria-label')")


@pytest.mark.slow
def test_the_tree_of_operands_and_users_is_walked_by_arrows(page: Any) -> None:
    page.evaluate("nngradView.search('op:tanh')")
    page.keyboard.press("n")
    selected = state(page, "selected")
    page.locator("[role=treeitem][tabindex='0']").focus()
    assert focused(page) == "Operands (1)"
    page.keyboard.press("ArrowRight")
    operand = focused(page)
    assert operand.startswith("add2 ") and operand.endswith("float32[8, 6]")
    page.keyboard.press("ArrowRight")  # opens it
    page.keyboard.press("ArrowRight")
    assert focused(page).startswith("batch_matmul ")
    page.keyboard.press("ArrowLeft")
    assert focused(page) == operand
    page.keyboard.press("ArrowLeft")  # closes it
    page.keyboard.press("ArrowDown")
    assert focused(page).startswith("Users (")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert state(page, "selected") == operand.split()[1].rstrip(",") != selected


@pytest.mark.slow
def test_what_a_node_costs_is_what_a_walk_over_the_written_graph_adds_up(page: Any, document: dict[str, Any]) -> None:
    nodes, start, read = document["nodes"], document["operands"]["start"], document["operands"]["node"]
    names = [document["strings"][k] for k in nodes["name"]]
    given = {node for node, _ in document["outputs"]}
    operands = [read[a:b] for a, b in pairwise(start)]
    chosen = document["outputs"][1][0]

    def reached(without: int | None) -> set[int]:
        """What the outputs, or the chosen node, need, if one node is not there."""
        found: set[int] = set()
        work = [chosen] if without is None else [g for g in given if g != without]
        while work:
            node = work.pop()
            if node not in found and node != without:
                found.add(node)
                work.extend(operands[node])
        return found

    behind = reached(None)
    only = behind - reached(chosen)
    page.evaluate("nngradView.search", f"behind:{names[chosen]}")
    assert state(page, "hits") == len(behind)
    page.evaluate("nngradView.search", f"only:#{chosen}")
    assert state(page, "hits") == len(only) < len(behind)
    page.evaluate("nngradView.select", names[chosen])
    table = page.get_by_role("table", name="Cost")
    functions = [[i for i in group if nodes["kind"][i] in (0, 4)] for group in ({chosen}, only, behind)]
    assert table.locator("tr", has_text="functions").locator("td").all_inner_texts() == [str(len(f)) for f in functions]
    page.get_by_role("button", name="all behind it").click()
    assert page.input_value("#search") == f"behind:#{chosen}"


@pytest.mark.slow
def test_the_rule_that_emitted_a_function_is_told(page: Any, document: dict[str, Any]) -> None:
    nodes, strings = document["nodes"], document["strings"]
    node = next(i for i, k in enumerate(nodes["rule"]) if strings[k] == "tanh")
    page.evaluate("nngradView.select", strings[nodes["name"][node]])
    panel = page.inner_text("#panel")
    assert "emitted by the backward rule of tanh" in panel and "dy/dx = 1 - y^2" in panel
    assert "nn.grad([" in panel  # where it was asked for


@pytest.mark.slow
def test_search_by_keyboard(page: Any) -> None:
    page.keyboard.press("/")
    page.keyboard.type("op:batch_matmul order:0")
    assert state(page, "hits") == 2
    assert page.inner_text("#hits") == "2"
    page.keyboard.press("Enter")
    first = state(page, "selected")
    page.keyboard.press("Enter")
    assert first != state(page, "selected") is not None
    page.fill("#search", "kind:parameter scope:second")
    assert state(page, "hits") == 2


@pytest.mark.slow
def test_the_path_from_a_parameter_to_the_loss(page: Any) -> None:
    page.evaluate("nngradView.select('critic/first/affine/W')")
    page.keyboard.press("p")
    path = state(page, "path")
    assert path["shortest"][0] == "critic/first/affine/W"
    assert path["count"] >= len(path["shortest"]) > 4
    page.keyboard.press("Escape")
    assert state(page, "path") is None


@pytest.mark.slow
def test_exports(page: Any) -> None:
    explorer = json.loads(page.evaluate("nngradView.exportModelExplorer()"))
    dot = page.evaluate("nngradView.exportDOT()")
    nodes = explorer["graphs"][0]["nodes"]
    edges = sum([len(node["incomingEdges"]) for node in nodes])
    assert dot.count(" -> ") <= edges and len(nodes) > 30
    parsed = "new DOMParser().parseFromString(nngradView.exportSVG(), 'image/svg+xml').documentElement.tagName"
    assert page.evaluate(parsed) == "svg"
    with page.expect_download() as download:
        page.click("#export summary")
        page.get_by_role("button", name="Graphviz DOT").click()
    assert Path(download.value.path()).read_text() == dot
    with page.expect_download() as download:
        page.click("#export summary")
        page.get_by_role("button", name="PNG").click()
    picture = Path(download.value.path()).read_bytes()
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    size = page.evaluate("(({width, height}) => [width, height])(document.getElementById('graph-canvas'))")
    assert list(struct.unpack(">II", picture[16:24])) == size
