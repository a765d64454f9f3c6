"""The history of kept figures, read from commits."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from benchmarks import history


def test_each_commit_of_a_file_is_a_point_of_its_rows(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True)

    def row(what: str, ratio: float) -> dict[str, Any]:
        return {"what": what, "ours": "nngrad: 1 ms", "peer": "JAX: 2 ms", "ratio": ratio, "goal": None}

    git("init", "-q")
    for day, rows in (("2026-01-02", [row("step", 0.5)]), ("2026-01-03", [row("step", 0.4), row("new", 1.5)])):
        told = {"machine": "m", "date": day, "rows": rows}
        (tmp_path / "loops.json").write_text(json.dumps(told))
        git("add", ".")
        git("commit", "-qm", day)
    found = history.of_benchmark("loops", tmp_path)
    assert {title: [p.ratio for p in points] for title, points in found.items()} == {
        "step\nnngrad / JAX": [0.5, 0.4], "new\nnngrad / JAX": [1.5]
    }  # fmt: skip
    history.draw(["loops", "absent"], tmp_path / "pictures", tmp_path)
    assert [path.name for path in (tmp_path / "pictures").iterdir()] == ["loops.png"]
