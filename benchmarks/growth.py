"""How the nth derivative grows with n: the figures of `derivatives` as a file and a plot.

`python -m benchmarks derivatives --write` measures and writes both; `python -m benchmarks.growth` draws the
plot again from the file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .derivatives import AT_ONCE, GRAD, HIGHEST, JET, JVP, LAST, NESTED, Figures

FILE = Path(__file__).parent / "results" / "growth.json"
PICTURE = Path(__file__).parents[1] / "docs" / "images" / "growth.png"


STYLES: dict[str, dict[str, Any]] = {
    GRAD: {"color": "#9aa0a6", "marker": "s", "markersize": 5},
    JVP: {"color": "#d9722e", "marker": "^", "markersize": 5},
    JET: {"color": "#4f8f4a", "marker": "D", "markersize": 4},
    NESTED: {"color": "#2a6fbb", "marker": "o", "markersize": 6, "linewidth": 2.4},
    AT_ONCE: {"color": "#9cc9f5", "marker": ".", "markersize": 5, "linestyle": ":"},
}
"""How contenders are drawn, the last on top."""
PANELS = {
    "nodes": ("functions or equations in the graph", 1),
    "first": ("seconds to the first result", 1),
    "run": ("milliseconds to run", 1000),
}
"""The figures that are drawn, with the title and the unit of each."""


def save(figures: Iterable[Figures]) -> None:
    """Write the figures into the file, one line each."""
    lines = [json.dumps(f._asdict()) for f in figures]
    FILE.write_text("[\n" + ",\n".join(lines) + "\n]\n")


def load() -> list[Figures]:
    """The figures in the file."""
    return [Figures(**entry) for entry in json.loads(FILE.read_text())]


def draw(figures: Iterable[Figures], path: Path) -> None:
    """Three panels over the order of the derivative, on logarithmic scales."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figures = list(figures)
    figure = Figure(figsize=(11, 4.2), layout="constrained", dpi=110)
    panels = figure.subplots(1, len(PANELS))
    for axes, (field, (title, scale)) in zip(panels, PANELS.items(), strict=True):
        for name, style in STYLES.items():
            curve = sorted((f.order, scale * getattr(f, field)) for f in figures if f.name == name)
            if curve:
                axes.plot(*zip(*curve, strict=True), label=labelled(name), **style)
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:,g}")
        axes.set_title(title, fontsize=11)
        axes.set_xlabel("order of the derivative")
        axes.set_xticks(range(1, HIGHEST + 1))
        axes.grid(axis="y", color="#e4e6e8", linewidth=0.7)
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    FigureCanvasAgg(figure).print_png(path)


def labelled(name: str) -> str:
    """The name of a contender, with the order that it is run up to."""
    return name if LAST[name] == HIGHEST else f"{name} (not run beyond {LAST[name]})"


if __name__ == "__main__":
    draw(load(), PICTURE)
