"""The site of the documentation: its contents, its links, its reference, and the command that builds it.

What needs mkdocs is seen when the site is built, strictly, by `.ci/run`.
"""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import urllib.request
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
from docs_site import dialect, examples, kept, links, names, reference
from docs_site.execution import Runner
from nngrad_command import __version__, commands, in_clone
from nngrad_command.entry import main
from nngrad_command.installation import Requirement

ROOT = Path(__file__).parents[2]
documentation = in_clone.command_in_clone("docs", commands.ALONE["docs"][0])
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
OTHER_PAGES = {
    "all_measurements.md", "benchmarks.md", "changes.md", "contributing.md", "gallery.md", "how_it_is_measured.md",
}
"""Pages of the site that are not in docs/, without those of the reference and of the examples."""


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


def test_no_link_of_a_page_is_dead() -> None:
    assert links.dead_links(PAGES, ROOT) == []


def test_dead_links_are_found(tmp_path: Path) -> None:
    (tmp_path / "there.md").write_text("# A `head` & [more](x.md)\n\n## Twice\n\n## Twice\n\n```\n# no heading\n```\n")
    (tmp_path / "here.md").write_text(
        "[a](there.md#a-head-more) [b](there.md#twice_1) [c](gone.md) [d](there.md#thrice) [e](#nowhere)\n"
        "[f](../up.md) [g](there.md#no-heading) `[code](gone.md)` [h](https://example.com/gone.md)\n\n```\n[code](gone.md)\n```\n"
    )
    told = links.dead_links([tmp_path / "here.md"], tmp_path)
    expected = ["gone.md", "there.md#thrice", "#nowhere", "../up.md", "there.md#no-heading"]
    assert [line.split()[1] for line in told] == expected


def test_links_out_of_the_docs_lead_to_pages_of_the_site() -> None:
    text = "[x](../examples) [a](../examples/pinn.py) [b](../examples/burgers.py) [hosts.md](hosts.md#a) [c](#d)"
    assert links.rewritten(text, "docs/loops.md", "loops.md") == (
        "[x](gallery.md) [a](source/examples/pinn.py.md) [b](examples/burgers.md) "
        f"[{links.title_of('docs/hosts.md')}](hosts.md#a) [c](#d)"
    )
    assert links.rewritten("[x](docs/loops.md)\n```\n[x](docs/loops.md)\n```\n", "CHANGELOG.md", "changes.md") == (
        "[x](loops.md)\n```\n[x](docs/loops.md)\n```\n"
    )


def test_names_in_backquotes_become_links() -> None:
    text = "`F.tanh` or `F.tanh(x)`, `F.no_such`, [`F.tanh`](x.md), ``F.tanh``\n# `F.tanh`\n```\n`F.tanh`\n```\n"
    expected = text.replace("`F.tanh` or `F.tanh(x)`", "[`F.tanh`][F.tanh] or [`F.tanh(x)`][F.tanh]")
    assert links.linked(text, ["F.tanh"]) == expected


def test_faults_of_a_built_site_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<h1 id="top">A</h1><a href="b.html#there">1</a><a href="b.html#gone">2</a><a href="c.html">3</a>'
        '<a href="https://example.com/">4</a><script src="https://example.com/x.js"></script><a href="#top">5</a>'
    )
    (tmp_path / "b.html").write_text('<a name="there"></a><style>@import "//example.com/x.css";</style>')
    (tmp_path / "s.css").write_text("a { background: url(https://example.com/x.png) } b { background: url(own.png) }")
    wrong, elsewhere = links.faults(tmp_path)
    assert sorted(line.partition(":")[0] for line in wrong) == ["a.html", "a.html", "a.html", "b.html", "s.css"]
    assert elsewhere == ["https://example.com/", "https://example.com/x.js"]
    assert links.faults(tmp_path / "nothing") == ([], [])


# ---------------------------------------------------------------- what Python-Markdown reads


def test_lists_tables_and_blocks_stand_alone() -> None:
    text = "Text:\n- one\n  more\n  - within\n- two\nafter\n| a |\n| - |\n```\n- no list\n| no table |\n```\nend\n"
    assert dialect.spaced(text) == (
        "Text:\n\n- one\n    more\n    - within\n- two\n\nafter\n\n| a |\n| - |\n\n"
        "```\n- no list\n| no table |\n```\n\nend\n"
    )
    assert dialect.spaced(dialect.spaced("# A\ntext\n```text\nx\n```\n")) == "# A\n\ntext\n\n```text\nx\n```\n"


def test_docstrings_are_text() -> None:
    text = "W (*n_outmaps), `*n`; 2 * 3.\n\n    code * here\n\nArgs:\n    x: Of shape (*b).\n        Args: none."
    assert dialect.of_docstring(text) == (
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


# ---------------------------------------------------------------- what is run


@pytest.mark.slow
def test_pages_that_say_something_else_are_told(tmp_path: Path) -> None:
    page, folder = tmp_path / "page.md", tmp_path / "folder"
    folder.mkdir()
    with Runner() as runner:
        page.write_text("```python\nopen('drawn.png', 'w').close()\nprint(1)\n```\n```text\n1\n```\n")
        assert runner.run(page, folder) == ""
        assert [path.name for path in folder.iterdir()] == ["drawn.png"]
        page.write_text("text\n\n```python\nprint(1)\n```\n```text\n2\n```\n")
        assert runner.run(page, folder) == "page.md:4: printed\n1\nin place of\n2\n\n"
        page.write_text("```python\n1 / 0\n```\n")
        assert 'File "page.md", line 2' in runner.run(page, folder)


def test_what_has_not_changed_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "FOLDER", tmp_path)
    made = []

    def make(folder: Path) -> str:
        made.append(folder)
        (folder / "left").write_text(str(len(made)))
        return "wrong" if len(made) == 3 else ""

    assert kept.kept("it", "a", make) == (tmp_path / "it", "")
    assert kept.kept("it", "a", make) == (tmp_path / "it", "") and len(made) == 1
    assert kept.kept("it", "b", make)[1] == "" and len(made) == 2
    assert kept.kept("it", "c", make)[1] == "wrong" and kept.kept("it", "c", make)[1] == ""
    assert (tmp_path / "it" / "left").read_text() == "4"


def test_every_example_has_a_page_and_a_title() -> None:
    pages = examples.gallery({"burgers": "graphs/burgers.html"})
    scripts = {path.stem for path in (ROOT / "examples").glob("*.py")} - links.SHARED
    assert set(pages) == {"gallery.md", *[f"examples/{name}.md" for name in scripts]}
    assert set(examples.TITLES) == scripts
    assert "(../graphs/burgers.html)" in pages["examples/burgers.md"]
    assert "(graphs/burgers.html)" in pages["gallery.md"]
    assert "(../images/burgers.png)" in pages["examples/burgers.md"]
    draws = "script.save(", "    save(picture", "pinn.solve("
    drawing = {e.name for e in examples.examples() if any([call in e.source for call in draws])}
    assert {e.name for e in examples.examples() if e.picture} == drawing


@pytest.mark.slow
def test_an_example_leaves_its_graph(tmp_path: Path) -> None:
    example = next(e for e in examples.examples() if e.name == "nth_derivative_of_sin")
    assert examples.run(example, tmp_path, full=False) == ""
    (graph,) = tmp_path.glob("graph.*")
    assert "sin" in graph.read_text()
    broken = example._replace(name="no_such")
    assert "examples/no_such.py ended with 1" in examples.run(broken, tmp_path, full=False)


# ---------------------------------------------------------------- the command


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], dict[str, str]]]:
    """What the command starts, with its environment, in place of starting it; nothing is missing."""
    given: list[tuple[list[str], dict[str, str]]] = []

    def run(command: list[str], cwd: Path, env: dict[str, str] | None = None) -> Any:
        given.append((command[2:], env or {}))
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(documentation.subprocess, "run", run)
    monkeypatch.setattr(documentation, "missing", lambda extra: [])
    return given


@pytest.mark.parametrize("options, how", [([], "short"), (["--fast"], "fast"), (["--full"], "full")])
def test_docs_builds_and_checks(options: list[str], how: str, started: Any, tmp_path: Path) -> None:
    assert main(["docs", "--build-only", str(tmp_path), *options]) == 0
    (build, environment), (check, _) = started
    assert build == ["mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    assert environment["NNGRAD_DOCS"] == how
    assert check == ["docs_site.links", str(tmp_path)]


def test_docs_without_its_packages(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    lacking = [Requirement("mkdocs", ">=1.6", "docs", None)]
    monkeypatch.setattr(documentation, "missing", lambda extra: lacking if extra == "docs" else [])
    assert main(["docs"]) == 1
    assert "install 'mkdocs>=1.6'" in capsys.readouterr().err


def test_docs_without_sources(
    started: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(in_clone, "SOURCES", tmp_path)
    for options in [], ["--fast"]:
        assert main(["docs", *options]) == 1
        assert "Clone the repository" in capsys.readouterr().err and not started


def test_docs_removes_nothing_but_a_site(started: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").touch()
    assert main(["docs", "--build-only", str(tmp_path)]) == 1
    assert main(["docs", "--build-only", str(tmp_path / "mine")]) == 1
    said = capsys.readouterr().err
    assert "would be removed" in said and "is no folder" in said and not started
    (tmp_path / "objects.inv").touch()
    assert main(["docs", "--build-only", str(tmp_path)]) == 0


def test_docs_for_versions_side_by_side(started: Any, tmp_path: Path) -> None:
    for name in ("99.9", "99.10.1", "dev", None):
        site = tmp_path / (name or __version__)
        site.mkdir()
        (site / "objects.inv").touch()  # as the site has it that is not built here
        assert main(["docs", "--build-only", str(tmp_path), "--version", *([name] if name else [])]) == 0
        (build, environment), (check, _) = started[-2:]
        assert build[-1] == check[-1] == str(site)
        assert environment["NNGRAD_DOCS_VERSION"] == (name or __version__)
    listed = [v["version"] for v in json.loads((tmp_path / "versions.json").read_text())]
    assert listed == ["99.10.1", "99.9", __version__, "dev"]
    assert "url=99.10.1/index.html" in (tmp_path / "index.html").read_text()


def test_docs_for_a_version_replace_no_other_page(
    started: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "index.html").write_text("mine")
    assert main(["docs", "--build-only", str(tmp_path), "--version", "1.0"]) == 1
    assert "would be replaced" in capsys.readouterr().err and not started
    assert (tmp_path / "index.html").read_text() == "mine"


@pytest.mark.parametrize(
    "wrong", [["--port", "x"], ["--port", "65536"], ["--fast", "--full"], ["--version", "../1.0"]]
)
def test_docs_with_wrong_arguments(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["docs", *wrong])
    assert stopped.value.code == 2
    assert "usage: nngrad docs" in capsys.readouterr().err


def test_the_site_is_served_on_loopback(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(json.dumps("here"))
    code = f"from docs_site.command import *; serve(Path({str(tmp_path)!r}), 0)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().split()[0]
            assert address.startswith("http://127.0.0.1:")
            with urllib.request.urlopen(address, timeout=30) as answer:
                assert json.loads(answer.read()) == "here"
        finally:
            process.kill()


def test_a_port_that_is_taken_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind((documentation.LOOPBACK, 0))
        taken.listen()
        assert documentation.serve(tmp_path, taken.getsockname()[1]) == 1
    assert "--port 0" in capsys.readouterr().err
