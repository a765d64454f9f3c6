"""What is counted of the cases has not grown; and what the check says of one that has."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.counted.measuring import EVERYWHERE, grown, versions

ROOT = Path(__file__).parents[2]


def test_no_count_has_grown() -> None:
    """In a process of its own, where nothing is known yet."""
    done = subprocess.run([sys.executable, "-W", "ignore", "-m", "tests.counted", "--check"], cwd=ROOT, text=True,
                          capture_output=True, check=False, timeout=600)
    assert done.returncode == 0, f"`python -m tests.counted` accepts this:\n{done.stdout}{done.stderr}"
    recorded = json.loads((ROOT / "tests" / "data" / "counted.json").read_text())["cases"]
    assert f"none of the counts of {len(recorded)} cases has grown" in done.stdout and len(recorded) >= 40


def test_what_has_grown_is_named() -> None:
    before = dict.fromkeys(("functions", "products", "bytes", "instructions", "calls", "compilations"), 100)
    found = {"a": {**before, "products": 101, "calls": 105, "compilations": 101, "functions": 90}, "b": before}
    same = {"versions": versions(), "cases": {"a": before, "b": before}}
    assert grown(same, found) == ["a: compilations 100 -> 101", "a: products 100 -> 101"]
    assert grown({**same, "versions": {}}, found) == ["a: products 100 -> 101"]
    assert "products" in EVERYWHERE
    assert grown(same, {"a": before, "c": before}) == ["b: is gone", "c: is not recorded"]
    assert grown(same, {"a": {**before, "calls": 106}, "b": before}) == ["a: calls 100 -> 106"]
