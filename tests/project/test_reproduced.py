"""Comparisons that papers have published: each runs, and their page says what the kept figures say."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import pytest

from benchmarks.reproducing import __main__ as reproducing
from benchmarks.reproducing import pages
from benchmarks.reproducing.drawing import draw
from benchmarks.reproducing.experiment import Experiment, Measured, measured
from nngrad_command import commands, in_clone
from nngrad_command.entry import main

NAMES = reproducing.names()
reproduction = in_clone.command_in_clone("reproduce", commands.ALONE["reproduce"][0])


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_runs_at_a_tiny_size(name: str, tmp_path: Path) -> None:
    experiment = reproducing.experiment_of(name)
    rows = measured(experiment, smoke=True)
    assert {m.quantity for m in rows} <= {*experiment.measured}
    assert any([m.method == experiment.ours for m in rows]), "nngrad is not among the methods"
    assert all([math.isfinite(m.value) and m.value >= 0 for m in rows])
    draw(experiment, rows, tmp_path / "figure.svg")
    assert (tmp_path / "figure.svg").read_text(encoding="utf-8").count("<g id=\"axes_") >= 1


def test_the_page_says_what_is_kept() -> None:
    told = "run `python -m benchmarks.reproducing --pages`"
    assert reproducing.PAGE.read_text(encoding="utf-8") == reproducing.page(), told
    for name in NAMES:
        assert (reproducing.PAGES / f"{name}.svg").stat().st_size < 200_000


def test_ratios_on_a_page() -> None:
    experiment = Experiment("small", "nngrad", lambda smoke: [], measured=("time",))
    rows = [
        Measured("small", "order", x, method, "time", value)
        for x, method, value in ((1, "nngrad", 0.2), (1, "other", 0.1), (2, "nngrad", 0.1), (2, "other", 0.4))
    ]
    text = pages.made("name", experiment, {"machine": "two cores", "date": "2026-01-01"}, rows)
    assert text.endswith("nngrad takes more here:\n\n- small, time: 2 (other)\n")
    page = "# P\n<!-- name: made by nngrad reproduce -->\n\nold\n\n<!-- end of name -->\nprose\n"
    assert pages.with_figures(page, {"name": "new\n"}) == page.replace("old\n", "new\n")
    with pytest.raises(ValueError, match="the page has no"):
        pages.with_figures(page, {"another": "new"})


def test_the_command_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
                                        tmp_path: Path) -> None:
    assert main(["reproduce", "unheard_of"]) == 1
    assert f"there is no comparison 'unheard_of': {NAMES[0]}" in capsys.readouterr().err
    assert main(["reproduce"]) == 1
    (tmp_path / "file").touch()
    assert main(["reproduce", NAMES[0], "--out", str(tmp_path / "file")]) == 1
    assert "is no folder" in capsys.readouterr().err
    monkeypatch.setattr(in_clone, "SOURCES", tmp_path)
    assert main(["reproduce", "--list"]) == 1
    assert "Clone the repository" in capsys.readouterr().err


def test_the_command_runs_what_it_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ran: list[list[str]] = []

    def run(command: list[str], cwd: Path) -> argparse.Namespace:
        ran.append(command[1:])
        return argparse.Namespace(returncode=3)

    monkeypatch.setattr(reproduction.subprocess, "run", run)
    monkeypatch.setattr(reproduction, "missing", lambda extra: [])
    assert main(["reproduce", NAMES[0], "--smoke", "--out", str(tmp_path)]) == 3
    assert main(["reproduce", "--list"]) == 3
    module = ["-m", "benchmarks.reproducing"]
    assert ran == [[*module, NAMES[0], "--smoke", "--out", str(tmp_path)], [*module, "--list"]]
