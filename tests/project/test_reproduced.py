"""Comparisons that papers have published: each runs, and their page says what the kept figures say."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from benchmarks import reproducing
from benchmarks.drawing import draw
from benchmarks.experiment import Experiment, Measured, measured

NAMES = reproducing.names()


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
    text = reproducing.made("name", experiment, {"machine": "two cores", "date": "2026-01-01"}, rows)
    assert text.endswith("nngrad takes more here:\n\n- small, time: 2 (other)\n")
    page = "# P\n<!-- name: made by benchmarks.reproducing -->\n\nold\n\n<!-- end of name -->\nprose\n"
    assert reproducing.with_figures(page, {"name": "new\n"}) == page.replace("old\n", "new\n")
    with pytest.raises(ValueError, match="the page has no"):
        reproducing.with_figures(page, {"another": "new"})
