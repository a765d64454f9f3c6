"""The pictures of RESULTS.md: how derivatives grow with the order, and training steps with the number of devices.

`python -m benchmarks derivatives scaling --write` measures and draws both; `python -m benchmarks.pictures` draws them
again from the kept figures.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

KEPT = Path(__file__).parent / "results"
IMAGES = Path(__file__).parents[1] / "docs" / "images"
Figure = dict[str, Any]
Curves = dict[str, tuple[Sequence[float], Sequence[float], dict[str, Any]]]
"""By label: where, how much, and in what style."""

STYLES: dict[str, dict[str, Any]] = {
    "nested jax.grad": {"color": "#9aa0a6", "marker": "s", "markersize": 5},
    "nested jax.jvp": {"color": "#d9722e", "marker": "^", "markersize": 5},
    "jet": {"color": "#4f8f4a", "marker": "D", "markersize": 4},
    "nested nn.grad": {"color": "#2a6fbb", "marker": "o", "markersize": 6, "linewidth": 2.4},
    "nn.nth_derivative": {"color": "#9cc9f5", "marker": ".", "markersize": 5, "linestyle": ":"},
}
"""How contenders are drawn, the last on top."""
COLORS = {"critic": "#2a6fbb", "transformer": "#d9722e", "PINN": "#4f8f4a"}


def save_growth(figures: Sequence[Figure]) -> None:
    """Keep the figures of derivatives, and draw them."""
    keep("growth", figures)
    draw_growth()


def save_scaling(figures: Sequence[Figure]) -> None:
    """Keep the figures of numbers of devices, and draw them."""
    keep("devices", figures)
    draw_scaling()


def keep(name: str, figures: Sequence[Figure]) -> None:
    """Write figures into a file, one line each."""
    (KEPT / f"{name}.json").write_text("[\n" + ",\n".join([json.dumps(f) for f in figures]) + "\n]\n")


def load(name: str) -> list[Figure]:
    """The figures of a file."""
    found: list[Figure] = json.loads((KEPT / f"{name}.json").read_text())
    return found


def draw_growth() -> None:
    """Over the order of the derivative, on logarithmic scales."""
    figures, panels = load("growth"), {}
    highest = max([f["order"] for f in figures])
    shown = {
        "functions or equations in the graph": ("nodes", 1), "seconds to the first result": ("first", 1),
        "milliseconds to run": ("run", 1000),
    }  # fmt: skip
    for title, (field, scale) in shown.items():
        curves: Curves = {}
        for name, style in STYLES.items():
            mine = sorted((f["order"], scale * f[field]) for f in figures if f["name"] == name)
            orders, values = zip(*mine, strict=True)
            label = name if orders[-1] == highest else f"{name} (not run beyond {orders[-1]})"
            curves[label] = orders, values, style
        panels[title] = curves
    draw(panels, "order of the derivative", IMAGES / "growth.png", log=True)


def draw_scaling() -> None:
    """Over the number of devices: what one computes and accesses, over its part, and what it sends, over gradients."""
    figures = load("devices")
    sent: dict[tuple[str, str], dict[int, float]] = {}
    for f in figures:
        if f["devices"] > 1:
            sent.setdefault((f["model"], f["way"]), {})[f["devices"]] = f["sent"] / f["gradients"]
    shown = {
        "FLOPs of a device, over its part": relative(figures, "flops"),
        "bytes accessed by it, over its part": relative(figures, "accessed"),
        "bytes of collectives, over gradients": sent,
    }
    panels: dict[str, Curves] = {}
    for title, by_model in shown.items():
        panels[title] = {
            f"{model}, {way}": (list(curve), list(curve.values()), {
                "color": COLORS[model], "linestyle": "-" if way == "weak" else ":", "marker": "o", "markersize": 3,
            }) for (model, way), curve in by_model.items()
        }  # fmt: skip
    draw(panels, "virtual devices", IMAGES / "scaling.png", log=False)


def relative(figures: Iterable[Figure], field: str) -> dict[tuple[str, str], dict[int, float]]:
    """For each model and way, by number of devices, a figure of one device over its part of what one alone has."""
    placed = {(f["model"], f["way"], f["devices"]): f[field] for f in figures}
    result: dict[tuple[str, str], dict[int, float]] = {}
    for (model, way, devices), value in placed.items():
        whole = placed[model, way, 1]
        result.setdefault((model, way), {})[devices] = value / (whole if way == "weak" else whole / devices)
    return result


def draw(panels: Mapping[str, Curves], below: str, path: Path, log: bool) -> None:
    """Panels side by side: with logarithmic values over all places, or from zero over powers of two."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4), layout="constrained", dpi=110)
    columns = figure.subplots(1, len(panels))
    for axes, (title, curves) in zip(columns, panels.items(), strict=True):
        for label, (places, values, style) in curves.items():
            axes.plot(places, values, label=label, **style)
        if log:
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter("{x:,g}")
            axes.set_xticks(sorted({x for places, _, _ in curves.values() for x in places}))
        else:
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_formatter("{x:g}")
            axes.set_ylim(bottom=0)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel(below)
        axes.grid(axis="y", color="#e4e6e8", linewidth=0.7)
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(*columns[0].get_legend_handles_labels(), loc="outside lower center", ncols=6, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    FigureCanvasAgg(figure).print_png(path)


if __name__ == "__main__":
    draw_growth()
    draw_scaling()
