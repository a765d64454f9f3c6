"""The site of the documentation: its contents, its links, its reference.

What needs mkdocs is seen when the site is built, strictly, by `.ci/run`.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import nngrad as nn
import nngrad.functions as F
import nngrad.initializer as I
import nngrad.jax as nj
import nngrad.nnabla.communicators as C
import nngrad.parametric_functions as PF
import nngrad.solvers as S
from benchmarks import report
from docs_site import links, names, reference

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
OTHER_PAGES = {
    "all_measurements.md", "benchmarks.md", "changes.md", "contributing.md", "how_it_is_measured.md",
}
"""Pages of the site that are not in docs/, without those of the reference."""


def contents() -> Iterator[str]:
    """Every page that mkdocs.yml lists."""
    waiting: list[Any] = [yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]]
    while waiting:
        part = waiting.pop()
        if isinstance(part, str):
            yield part
        else:
            waiting.extend(part.values() if isinstance(part, dict) else part)


def test_the_contents_have_each_page_once() -> None:
    assert max(Counter(contents()).values()) == 1
    docs = ROOT / "docs"
    assert set(contents()) == {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")} | OTHER_PAGES


# ---------------------------------------------------------------- benchmarks


def test_pages_of_results_show_the_kept_figures() -> None:
    assert report.PAGE.read_text() == report.page(), "run `python -m benchmarks --pages`"
    assert report.README.read_text() == report.with_table(report.README.read_text())


def test_headlines_are_few_and_their_rows_are_kept() -> None:
    lines = [line for section in report.SECTIONS.values() for line in section]
    assert len(lines) <= 25 and sum([line.in_readme for line in lines]) <= 8
    with pytest.raises(ValueError, match="has no row"):
        report.rows_of(lines[0]._replace(peers=("nobody",)))


# ---------------------------------------------------------------- links


def anchors(markdown: str) -> set[str]:
    """The anchors of the headings of a page, but for those of headings that are there twice."""
    headings = re.findall(r"^#{1,6} +(.+?) *$", links.FENCED.sub("", markdown), re.MULTILINE)
    plain = [re.sub(r"\[([^]]*)\]\([^)]*\)|[`*]", r"\1", heading).lower() for heading in headings]
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip()) for heading in plain}


def test_no_link_of_a_page_is_dead() -> None:
    for page in PAGES:
        for target in links.targets(page.read_text(encoding="utf-8")):
            path, _, anchor = target.partition("#")
            there = (page.parent / path).resolve() if path else page
            if not links.is_external(target):
                assert there.exists() and there.is_relative_to(ROOT), f"{page}: {target}"
                assert not anchor or anchor in anchors(there.read_text(encoding="utf-8")), f"{page}: {target}"


def test_the_home_page_leads_to_what_people_come_for() -> None:
    found = set(links.targets((ROOT / "docs" / "index.md").read_text(encoding="utf-8")))
    assert {"gradient_penalties.md", "pinns.md", "hessians.md", "loops.md#gradients-through-training"} <= found
    assert "jax_users.md" in found and found & {"add_an_op.md", "extending.md"}


def test_links_out_of_the_docs_lead_to_pages_of_the_site() -> None:
    text = "[x](../examples) [a](../examples/pinn.py) [b](../examples/burgers.py) [hosts.md](hosts.md#a) [c](#d)"
    assert links.rewritten(text, "docs/loops.md", "loops.md") == (
        "[x](examples.md) [a](source/examples/pinn.py.md) [b](source/examples/burgers.py.md) "
        f"[{links.title_of('docs/hosts.md')}](hosts.md#a) [c](#d)"
    )
    assert links.rewritten("[x](docs/loops.md)\n```\n[x](docs/loops.md)\n```\n", "CHANGELOG.md", "changes.md") == (
        "[x](loops.md)\n```\n[x](docs/loops.md)\n```\n"
    )


def test_names_in_backquotes_become_links() -> None:
    text = "`F.tanh` or `F.tanh(x)`, `F.no_such`, [`F.tanh`](x.md), ``F.tanh``\n# `F.tanh`\n```\n`F.tanh`\n```\n"
    expected = text.replace("`F.tanh` or `F.tanh(x)`", "[`F.tanh`][F.tanh] or [`F.tanh(x)`][F.tanh]")
    assert links.linked(text, ["F.tanh"]) == expected


def test_lists_tables_and_blocks_stand_alone() -> None:
    text = "Text:\n- one\n  more\n- two\n\nText\n| a |\n| - |\n```\n- no list\n| no table |\n```\nend\n"
    assert links.spaced(text) == (
        "Text:\n\n- one\n  more\n- two\n\nText\n\n| a |\n| - |\n\n```\n- no list\n| no table |\n```\n\nend\n"
    )


def test_docstrings_are_text() -> None:
    text = "W (*n_outmaps), `*n`; 2 * 3.\n\n    code * here\n\nArgs:\n    x: Of shape (*b).\n        Args: none."
    assert links.of_docstring(text) == (
        "W (\\*n_outmaps), `*n`; 2 \\* 3.\n\n    code * here\n\n"
        "Args: Arguments:\n    x: Of shape (\\*b).\n        Args: none."
    )


# ---------------------------------------------------------------- the reference


def public(prefix: str, module: Any) -> set[str]:
    """What a module has for its users, known by other means: what its package defines and its classes and functions."""
    listed = getattr(module, "__all__", None) or [
        name for name, value in vars(module).items()
        if not name.startswith("_") and (inspect.isfunction(value) or inspect.isclass(value))
        and inspect.unwrap(value).__module__.startswith(module.__name__)
    ]
    return {f"{prefix}.{name}" for name in listed if not inspect.ismodule(getattr(module, name))}


def test_every_public_name_is_on_one_page() -> None:
    expected = {f"F.{name}" for name in (*F.names(), *F.plain_names())} | {"PF.parametric_function_api"}
    for prefix, module in (("nn", nn), ("PF", PF), ("S", S), ("I", I), ("C", C), ("nj", nj)):
        expected |= public(prefix, module)
    shown_by_themselves = "functions", "initializer", "parametric_functions", "solvers"
    for name in nn.__all__:
        if inspect.ismodule(getattr(nn, name)) and name not in shown_by_themselves:
            expected |= public(f"nn.{name}", getattr(nn, name))
    counts = Counter(name.shown for page in names.pages() for name in page.names)
    assert max(counts.values()) == 1
    assert set(counts) == expected


def test_each_name_is_defined_where_the_reference_says() -> None:
    for page in names.pages():
        for name in page.names:
            module, _, within = name.path.rpartition(".")
            found = getattr(sys.modules[module], within)
            is_its_class = inspect.isclass(found) and isinstance(name.value, found)
            assert inspect.unwrap(found) is inspect.unwrap(name.value) or is_its_class, name.shown


def test_each_name_says_what_it_is() -> None:
    silent = [name.shown for page in names.pages() for name in page.names if not name.summary]
    assert silent == []


def test_what_has_two_names_is_described_once() -> None:
    text = "".join(reference.reference().values())
    described = [line.removeprefix("::: ") for line in text.splitlines() if line.startswith("::: ")]
    assert max(Counter(described).values()) == 1
    assert "## nn.DynamicLossScale { #nn.DynamicLossScale }\n\nThe same as [`S.DynamicLossScale`]" in text


def test_pages_of_the_reference_are_in_the_contents() -> None:
    waiting: list[Any] = [reference.contents()]
    listed = []
    while waiting:
        part = waiting.pop()
        if isinstance(part, str):
            listed.append(part)
        else:
            waiting.extend(part.values() if isinstance(part, dict) else part)
    assert sorted(listed) == sorted(reference.reference())


def test_signatures_are_those_of_callers() -> None:
    griffe = pytest.importorskip("griffe", reason="griffe comes with nngrad[docs]")
    from docs_site.signatures import Signatures

    extensions = griffe.load_extensions(Signatures)
    read = griffe.load("nngrad", search_paths=[str(ROOT)], extensions=extensions)
    for path, expected in (
        ("nngrad.functions.activation.tanh", "x"),
        (f"{F.concatenate.module}.concatenate", "*x, axis: int = -1"),
        ("nngrad.parametric_functions.affine.embed", None),
        ("nngrad.parametric_functions.quantized.pruned_affine", None),
    ):
        module, _, name = path.rpartition(".")
        function, value = read[path.removeprefix("nngrad.")], getattr(sys.modules[module], name)
        assert [p.name for p in function.parameters] == list(inspect.signature(value).parameters)
        assert str(function.returns) == "Variable"
        assert function.docstring.value.count("\n    ") >= len(function.parameters), "an entry for each"
        if expected is not None:
            assert f"({expected}) -> Variable" in function.signature()
    for solver in (S.Sgd, S.AdamW, S.AMSBound):  # whose fields are their arguments
        parameters = read[f"{solver.__module__.removeprefix('nngrad.')}.{solver.__name__}"].parameters
        assert [p.name for p in parameters] == list(inspect.signature(solver.__init__).parameters)


def test_pages_lead_to_every_example() -> None:
    found = {target.rpartition("/")[2] for page in PAGES for target in links.targets(page.read_text(encoding="utf-8"))}
    shared = {"pinn.py", "script.py", "jax_script.py"}
    assert {path.name for path in (ROOT / "examples").glob("*.py")} - shared <= found
