"""The figure of a comparison: a panel for each table and quantity, as wide as a phone shows it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .experiment import Experiment, Measured

OURS: dict[str, Any] = {"color": "#2a6fbb", "marker": "o", "markersize": 6, "linewidth": 2.6, "zorder": 3}
_COLORS = ("#d9722e", "#4f8f4a", "#8a5fb0", "#b8324a", "#6b7178", "#1d8f96", "#a8842c", "#c46fae")
OTHERS: list[dict[str, Any]] = [
    {"color": color, "marker": marker, "markersize": 5, "linewidth": 1.5}
    for color, marker in zip(_COLORS, "^DsvPX<>", strict=True)
]
PANEL = (5.2, 2.7)
"""Inches: its words are legible where the figure is shrunk to 390 pixels."""
GAP = 0.1
"""Between marks that stand side by side, where words are 1 apart."""
SMALL = (3.5, 3.1)
"""One of two panels side by side."""
FITTING = 6
"""So many numbers fit below it."""
LETTERS = 44
"""About how many fit side by side below a panel."""


def panels_of(experiment: Experiment, rows: Sequence[Measured]) -> list[tuple[str, str, list[Measured]]]:
    """Table, quantity and figures of each panel."""
    found = []
    for table in dict.fromkeys([m.table for m in rows]):
        for quantity in experiment.measured:
            inside = [m for m in rows if m.table == table and m.quantity == quantity]
            if inside:
                found.append((table, quantity, inside))
    return found


def draw(experiment: Experiment, rows: Sequence[Measured], path: Path) -> None:
    """Write the figure as SVG, on a white ground of its own, so that it can be read on a dark page too."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    panels = panels_of(experiment, rows)
    methods = sorted(dict.fromkeys([m.method for m in rows]), key=lambda name: name != experiment.ours)
    styles = dict(zip(methods, [OURS, *OTHERS] if methods[0] == experiment.ours else OTHERS, strict=False))
    columns = 2 if experiment.growing else 1
    lines = -(-len(panels) // columns)
    width, height = (2 * SMALL[0], lines * SMALL[1]) if experiment.growing else (
        PANEL[0], lines * PANEL[1] + 0.22 * len(methods) + 0.3
    )  # fmt: skip
    with matplotlib.rc_context({"svg.hashsalt": "nngrad", "font.size": 11}):
        figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
        for axes, (table, quantity, inside) in zip(figure.subplots(lines, columns, squeeze=False).flat, panels):  # noqa: B905
            _draw_panel(axes, experiment, quantity, inside, styles)
            axes.set_title(table, fontsize=11, loc="left")
        if not experiment.growing:
            marks = [Line2D([], [], **styles[name]) for name in methods]
            figure.legend(marks, methods, loc="outside lower left", frameon=False, ncols=1)
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=100)


def _draw_panel(
    axes: Any, experiment: Experiment, quantity: str, inside: Sequence[Measured], styles: dict[str, dict[str, Any]]
) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter, NullLocator

    title, scale, unit = experiment.quantities[quantity]
    places = list(dict.fromkeys([m.x for m in inside]))
    apart = len(places) == 1 or isinstance(places[0], str)  # no curves: side by side, so that no mark hides another
    for i, name in sorted(enumerate(styles), key=lambda each: each[1] == experiment.ours):
        beside = GAP * (i - (len(styles) - 1) / 2)
        curve = [(places.index(m.x) + beside if apart else m.x, scale * m.value) for m in inside if m.method == name]
        if curve:
            label = f"{name}: {slope(curve):.2f}" if experiment.growing else name
            axes.plot(*zip(*curve, strict=True), label=label, **styles[name] | ({"linestyle": ""} if apart else {}))
    axes.set_yscale("log")
    values = [scale * m.value for m in inside if m.value > 0]
    if values and max(values) < 100 * min(values):  # a decade or two have few powers of ten
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.set_ylim(*_around(min(values), max(values)))
    if experiment.growing:
        axes.set_ylim(top=3 * max(values))  # room for the legend
        curves = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
        first = sorted(curves, key=lambda label: not label.startswith(f"{experiment.ours}:"))
        axes.legend([curves[label] for label in first], first, fontsize=10, frameon=False, handlelength=1.2,
                    labelspacing=0.2, borderaxespad=0)  # fmt: skip
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylabel(f"{title}, {unit}" if unit else title, fontsize=10)
    axes.set_xlabel(inside[0].axis)
    labels = [x if isinstance(x, str) else f"{x:,g}" for x in places]
    if apart:
        axes.set_xlim(-0.6, len(places) - 0.4)
        axes.set_xticks(range(len(places)), labels)
        if not _side_by_side(labels):
            for label in axes.get_xticklabels():
                label.set(rotation=40, ha="right", rotation_mode="anchor")
    else:
        if max(places) > 4 * max(min(places), 1e-9) and min(places) > 0:
            axes.set_xscale("log")
        every = -(-len(places) // FITTING)
        axes.set_xticks(places[::every], labels[::every], minor=False)
        axes.set_xticks([], minor=True)
    axes.grid(axis="y", color="#e4e6e8", linewidth=0.7)
    axes.spines[["top", "right"]].set_visible(False)


def slope(curve: Sequence[tuple[float, float]]) -> float:
    """The power by which a curve grows over its last three points, by least squares."""
    return float(np.polyfit(*np.log(np.transpose(curve[-3:])), 1)[0])


def _around(least: float, most: float) -> tuple[float, float]:
    """The numbers 1, 2 or 5 times a power of ten below and above both, so that a panel has two of them at its side."""
    decades = range(math.floor(math.log10(least)) - 1, math.ceil(math.log10(most)) + 2)
    ticks = [n * 10.0**k for k in decades for n in (1, 2, 5)]
    return max([tick for tick in ticks if tick < 0.95 * least]), min([tick for tick in ticks if tick > 1.05 * most])


def _side_by_side(words: Sequence[str]) -> bool:
    """Whether words at equal distances do not touch."""
    return all([len(a) + len(b) + 2 < 2 * LETTERS / len(words) for a, b in itertools.pairwise(words)])
