"""What pages say of the kept figures, and the check of them."""

from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import check, drawing, growth, harness, report
from benchmarks.harness import Case, installed, lower_bound


def test_each_line_above_one_is_told_once_and_no_reason_is_left_over() -> None:
    lines = report.all_slower()
    assert len({line.what for line in lines}) == len(lines)
    assert all([line.ratio > 1 and report.OF_PEERS.match(line.peer) for line in lines])
    files = {"PyTorch eager", *[path.stem for path in report.KEPT.glob("*.json")]}
    unused = {r for r in report.REASONS if r not in files and not any([line.what.startswith(r) for line in lines])}
    assert not unused, "these lines are not slower any more: take their reasons out"
    assert report.PAGE.read_text() == report.page(), "python -m benchmarks --pages"


def test_the_bound_of_a_ratio_is_above_a_median_of_one_once_in_twenty_times(monkeypatch: pytest.MonkeyPatch) -> None:
    ratios = np.random.default_rng(0).lognormal(0, 0.3, (4000, 25))
    above = np.mean([lower_bound(each.tolist()) > 1 for each in ratios])
    assert 0.01 < above < 0.06  # 25 tosses: less than 8 heads in 2.2%
    assert lower_bound([3.0, 5.0, 4.0, 2.0, 6.0]) == 2 and lower_bound([2.0] * 4) is None
    times = {"nngrad": [2.0, 1, 4, 8, 2], "jax": [1.0, 2, 2, 4, 1]}
    figures = {w: {"time": 2.0, **{f"round {i}": t for i, t in enumerate(ts)}} for w, ts in times.items()}
    line = harness.row("step", "time", figures, "nngrad", "jax")
    assert (line.ratio, line.low) == (2, 0.5)
    rows = [line._asdict()]
    rows += [harness.row("apart", "time", figures, "nngrad", "jax", paired=False)._asdict()]
    rows += [line._replace(what="memory: temporaries", low=None)._asdict()]
    monkeypatch.setattr(report, "_kept", lambda: {"part": {"rows": rows}})
    assert [line.what for line in report.all_slower()] == ["memory: temporaries"]


def test_a_check_finds_its_cases_and_what_is_kept_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for part, ratios in check.chosen().items():
        cases = list(check.module_of(part).cases(False))
        shown = {title for case in cases for title in (case.what, *[f"{case.what}: {m}" for m in case.measures])}
        assert ratios and shown.issuperset([what for what, *_ in ratios])
        names = {name for _, *pair in ratios for name in pair if installed(name)}
        assert names <= {name for case in cases for name in case.ways}
    row = check.Row("step", "nngrad: 1.00 ms", "jax, by hand: 2.00 ms", 0.5)
    assert check.key_of(row._asdict()) == ("step", "nngrad", "jax, by hand")
    assert not check.Line(row, 0.46).worse and check.Line(row, 0.45).worse

    runs: list[list[str]] = []

    def disturbed(part: str, i: int, case: Case, smoke: bool) -> list[check.Row]:
        """The first time twice as slow."""
        runs.append(list(case.ways))
        return [row._replace(what=case.what, ratio=1.0 if len(runs) == 1 else 0.5)]

    steps = Case("step", dict.fromkeys(["nngrad", "jax, by hand", "another"], lambda: lambda: 0))
    monkeypatch.setattr(check, "chosen", lambda: {"part": {("step", "nngrad", "jax, by hand"): 0.5}})
    monkeypatch.setattr(check, "module_of", lambda part: SimpleNamespace(cases=lambda smoke: [steps]))
    monkeypatch.setattr(check, "measured_case", disturbed)
    (line,) = check.again()
    assert not line.worse and runs == 2 * [["nngrad", "jax, by hand"]]


def test_the_picture_of_growth_has_each_panel_beside_a_peer() -> None:
    panels: dict[str, set[str]] = {}
    for each in growth.kept():
        panels.setdefault(each.table, set()).add(each.method)
    assert {*panels} == {*growth.growing(False), "step on an equation over devices"}
    assert all([methods > {growth.OURS} for methods in panels.values()])
    assert drawing.slope([(1, 7.0), (2, 3.0), (4, 12.0), (8, 48.0)]) == pytest.approx(2)


def test_counts_are_compared_with_those_that_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    step = harness.Step(lambda: 0, lambda: {"temporaries": 2.1e6, "arithmetic": 3.9e6})
    cases = [Case("step", {"nngrad": lambda: step, "jax": lambda: step}, measures=("time", *harness.COUNTED))]
    rows = [
        {"what": "step", "ours": "nngrad: 1.00 ms"}, {"what": "step: temporaries", "ours": "nngrad: 1.900 MB"},
        {"what": "step: arithmetic", "ours": "nngrad: 3.0 Mflop"},
    ]  # fmt: skip
    monkeypatch.setattr(check, "load", lambda part: {"rows": rows})
    monkeypatch.setattr(check, "module_of", lambda part: SimpleNamespace(cases=lambda smoke: cases))
    found = list(check.counted_again(["memory"]))
    assert [(c.what, c.way, c.kept, c.now, c.worse) for c in found] == [
        ("step: temporaries", "nngrad", 1.9e6, 2.1e6, True), ("step: arithmetic", "nngrad", 3e6, 3.9e6, True),
    ]  # fmt: skip
    assert not check.Count("step", "nngrad", 2.0, 2.2).worse
