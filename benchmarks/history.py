"""`python -m benchmarks --history DIR`: how the kept figures moved from commit to commit.

Times are looked at and never asserted: what is asserted is counted (`python -m tests.counted`).
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import NamedTuple

from .report import KEPT

WIDE = 3
"""Charts beside one another."""


class Point(NamedTuple):
    """What a row said when it was measured."""

    day: date
    ratio: float
    machine: str


def of_benchmark(name: str, kept: Path = KEPT) -> dict[str, list[Point]]:
    """The points of each row of a benchmark, the oldest first: one for each commit that changed its file."""
    listed = _git(kept, "log", "--reverse", "--format=%H", "--", f"{name}.json").split()
    points: dict[str, list[Point]] = {}
    for commit in listed:
        try:
            told = json.loads(_git(kept, "show", f"{commit}:./{name}.json"))
        except subprocess.CalledProcessError:  # the commit that removed it
            continue
        for row in told.get("rows", ()):
            title = f"{row['what']}\n{row['ours'].partition(':')[0]} / {row['peer'].partition(':')[0]}"
            point = Point(date.fromisoformat(told["date"]), row["ratio"], told["machine"])
            points.setdefault(title, []).append(point)
    return points


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


def draw(names: Sequence[str], folder: Path, kept: Path = KEPT) -> None:
    """Write a picture for each benchmark that has rows, with a chart of ratios for each row.

    Machines have colours of their own, since ratios of one say little of those of another.
    """
    from matplotlib.dates import AutoDateLocator
    from matplotlib.figure import Figure

    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        rows = of_benchmark(name, kept)
        if not rows:
            continue
        high = -(-len(rows) // WIDE)
        figure = Figure(figsize=(5 * WIDE, 2.4 * high), layout="constrained")
        for i, (title, points) in enumerate(rows.items(), 1):
            axes = figure.add_subplot(high, WIDE, i)
            for machine in dict.fromkeys([p.machine for p in points]):
                own = [p for p in points if p.machine == machine]
                axes.plot([p.day for p in own], [p.ratio for p in own], "o-", label=machine)
            axes.axhline(1, color="0.8", zorder=0)
            axes.set_title(title, fontsize=7)
            axes.tick_params(labelsize=6)
            axes.xaxis.set_major_locator(AutoDateLocator(minticks=1, maxticks=4))
        figure.savefig(folder / f"{name}.png", dpi=80)
        print(folder / f"{name}.png")
