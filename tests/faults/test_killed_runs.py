"""Runs that are killed come to the same bits as one that is not."""

from __future__ import annotations

import pytest

from .killed_runs import killed


@pytest.mark.slow
def test_a_run_that_is_killed_and_resumed_ends_as_an_undisturbed_one() -> None:
    report = killed([("save", 3), ("resume", 1), ("step", 3)], steps=20)
    assert report.killed == report.whole
    assert report.kills == {"save": 1, "resume": 1, "step": 1}
    assert report.began[0] == 0 and all([began in (8, 12) for began in report.began[1:]]), report.began
