"""The `nngrad` command."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import nngrad as nn
import nngrad.functions as F
import nngrad_command
from docs_site.names import functions_of_family
from nngrad import __version__
from nngrad.command.demo import example_file, example_of
from nngrad.extend import Composite, Op
from nngrad_command import entry
from nngrad_command.doctor import known_of
from nngrad_command.installation import Requirement, parsed, release_of


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main(["--version"]) == 0
    assert "nngrad " in capsys.readouterr().out


def test_help_names_each_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        entry.main(["--help"])
    assert stopped.value.code == 0
    text = capsys.readouterr().out
    commands = "demo", "doctor"
    assert all(f"\n    {command} " in text for command in commands)


@pytest.mark.slow
def test_modules_are_commands() -> None:
    """As `python -m` runs them, one after another."""
    code = """
import runpy, sys
sys.argv = ["", "--version"]
for module in ("nngrad", "nngrad_command"):
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        print(end.code)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"nngrad {__version__}\n0\n" * 2


def test_the_version_is_that_of_the_package() -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    project = tomllib.loads(text)
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "nngrad_command.__version__"}
    assert nngrad_command.__version__ == __version__
    notes = (Path(__file__).parents[2] / "CHANGELOG.md").read_text()
    assert f"\n## {__version__}" in notes
    citation = (Path(__file__).parents[2] / "CITATION.cff").read_text()
    assert re.search(r'^version: "(.*)"$', citation, re.MULTILINE)[1] == __version__  # type: ignore[index]


def test_extras_are_on_one_page() -> None:
    root = Path(__file__).parents[2]
    extras = set(tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    rows = re.findall(r"^\| (`.*?) \|", (root / "docs" / "installing.md").read_text(), re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == extras


def test_families_cover_every_function() -> None:
    functions = [f for f in vars(F).values() if isinstance(f, Op | Composite)]
    shown = {name for family in F.FAMILIES for name in functions_of_family(family)}
    assert {f.name for f in functions} | set(F.plain_names()) == shown


# ---------------------------------------------------------------- doctor


@pytest.mark.parametrize(
    ("version", "threads"),
    [
        ("0.8.0", [["49176"]]),
        ("0.10.1", [["49176"]]),
        ("0.10.2", [["49176"], ["39103", "39257", "40412"]]),
        ("0.11.0", [["49176"]]),
        ("0.11.1", [["49176"], ["40101"], ["40416"]]),
        ("0.11.2", [["49176"], ["40416"]]),
        ("0.12.0.1", [["49176"], ["40416"]]),
        ("0.13", []),
        (None, []),
    ],
)
def test_doctor_knows_versions_that_are_slow_or_wrong(version: str | None, threads: list[list[str]]) -> None:
    lines = known_of(version)
    assert [re.findall(r"#(\d+)", line) for line in lines] == threads
    for line in lines:
        what, advice = line.splitlines()
        assert what.startswith(f"Known of jaxlib {version} on CPUs: ") and advice.strip()


def test_requirements_are_read() -> None:
    assert parsed("rich>=13")[:3] == ("rich", ">=13", "")
    assert parsed('scikit-learn>=1.4; extra == "demo"')[:3] == ("scikit-learn", ">=1.4", "demo")
    assert parsed("nngrad[demo]; extra == 'test'")[:3] == ("nngrad", "", "test")
    assert parsed("jaxlib <=0.10.2,>=0.10.1").wanted == "jaxlib<=0.10.2,>=0.10.1"
    assert release_of("0.10.2") > release_of("0.8") == release_of("0.8.0") > release_of("0.7.9")


# ---------------------------------------------------------------- demo


def test_demo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sklearn")
    pytest.importorskip("matplotlib")
    folder = tmp_path / "made" / "here"
    assert entry.main(["demo", "--steps", "20", "--output", str(folder), "--device", "cpu"]) == 0
    text = capsys.readouterr().out
    for name in ("digits.png", "curves.png"):
        assert str(folder / name) in text
        assert (folder / name).read_bytes().startswith(b"\x89PNG")
    assert "mean gradient norm" in text


def test_demo_is_reproducible() -> None:
    pytest.importorskip("sklearn")
    pytest.importorskip("matplotlib")
    digits = example_of(example_file())
    first, second = (digits.Gan(12, seed=3).train(nn.training_log(steps=12)) for _ in range(2))
    assert [line["step"] for line in first] == [1, 10, 12]
    assert [{**line, "seconds": 0} for line in first] == [{**line, "seconds": 0} for line in second]


def test_the_example_of_the_demo_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sklearn")
    pytest.importorskip("matplotlib")
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "examples"))
    digits = example_of(example_file())
    monkeypatch.setattr(digits, "MEASURED_EVERY", 2)
    take = digits.Gan.step

    def interrupted(gan: Any, number: int) -> None:
        take(gan, number)
        if number == 3:
            raise KeyboardInterrupt

    results = []
    for folder, step in ((tmp_path / "one", take), (tmp_path / "two", interrupted), (tmp_path / "two", take)):
        monkeypatch.setattr(digits.Gan, "step", step)
        with contextlib.suppress(KeyboardInterrupt):
            results.append(digits.solve(6, folder))
    assert results[0] == results[1] and 0 < results[0].error <= 1
    assert (tmp_path / "one" / "digits.png").read_bytes() == (tmp_path / "two" / "digits.png").read_bytes()


def test_demo_without_its_extra(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    lacking = Requirement("scikit-learn", ">=1.4", "demo", None)
    monkeypatch.setattr("nngrad.command.demo.missing", lambda extra: [lacking])
    assert entry.main(["demo"]) == 1
    said = capsys.readouterr().err
    assert "scikit-learn>=1.4" in said
    assert "-m pip install" in said
