"""The accounts of all numbers of devices: measured, as lines, as a table, as a plot.

`python -m benchmarks scaling --write` compiles and writes all of them, and the figures beside this file;
`python -m benchmarks.scaling.table` draws the plot again from these.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import nngrad as nn

from ..critic import nngrad_mlp, nngrad_step
from ..peers import dense_parameters
from ..timing import Row, medians, row

COUNTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
MOST_SECONDS = 900
"""So long one number of devices may take."""
GOAL = 1.05
"""How far the arithmetic of each device may be above its part of that of one."""
FILE = Path(__file__).parents[1] / "results" / "devices.json"
ROOT = Path(__file__).parents[2]
PICTURE = ROOT / "docs" / "images" / "scaling.png"
COLORS = {"critic": "#2a6fbb", "transformer": "#d9722e", "PINN": "#4f8f4a"}


class Figures(NamedTuple):
    """What one device computes, keeps and sends in one step of a model."""

    model: str
    way: str
    """"weak", where each device has as many examples, or "strong", where all together have."""
    devices: int
    batch: int
    flops: float
    accessed: float
    """Bytes that are read and written."""
    temporaries: int
    """Bytes."""
    arguments: int
    """Bytes of parameters, state and its part of the batch."""
    sent: int
    """Bytes of what collectives leave on it."""
    gradients: int
    """Bytes of the parameters."""
    collectives: dict[str, int]
    """How many of each kind."""


def measured(counts: Iterable[int], tiny: bool) -> list[Figures]:
    """The figures, each number of devices in a process of its own."""
    found = []
    for count in counts:
        command = [sys.executable, "-m", "benchmarks.scaling.worker", str(count), *["--tiny"][: int(tiny)]]
        process = subprocess.Popen(
            command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
        try:
            out, errors = process.communicate(timeout=MOST_SECONDS)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        if process.returncode:
            raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}:\n{errors[-4000:]}")
        found += [Figures(**entry) for entry in json.loads(out.splitlines()[-1])]
    return found


def relative(figures: Iterable[Figures], field: str) -> dict[tuple[str, str], dict[int, float]]:
    """For each model and way, by number of devices, a figure of one device over its part of what one alone has."""
    placed = {(f.model, f.way, f.devices): f for f in figures}
    result: dict[tuple[str, str], dict[int, float]] = {}
    for (model, way, devices), f in placed.items():
        whole = getattr(placed[model, way, 1], field)
        part = whole if way == "weak" else whole / devices
        result.setdefault((model, way), {})[devices] = getattr(f, field) / part
    return result


def lines(figures: list[Figures]) -> list[Row]:
    """The worst of all numbers of devices, for each model and way."""
    rows = []
    for (model, way), ratios in relative(figures, "flops").items():
        devices = max((n for n in ratios if n > 1), key=lambda n: ratios[n])
        several = [f for f in figures if (f.model, f.way) == (model, way) and f.devices > 1]
        rows.append(Row(
            f"{model}, {way} scaling: FLOPs of a device, worst of up to {max(ratios)}", f"{devices} devices",
            "its part of those of one", ratios[devices], GOAL,
        ))  # fmt: skip
        worst = max(several, key=lambda f: f.sent / f.gradients)
        kinds = ", ".join(f"{n} {kind}" for kind, n in worst.collectives.items())
        rows.append(Row(
            f"{model}, {way} scaling: bytes of collectives, worst of up to {max(ratios)}",
            f"{worst.sent:,} ({kinds})", f"gradients once: {worst.gradients:,}", worst.sent / worst.gradients, 1.01,
        ))  # fmt: skip
    return rows


def save(figures: Iterable[Figures]) -> None:
    """Write the figures into the file, one line each."""
    FILE.write_text("[\n" + ",\n".join([json.dumps(f._asdict()) for f in figures]) + "\n]\n")


def load() -> list[Figures]:
    """The figures in the file."""
    return [Figures(**entry) for entry in json.loads(FILE.read_text())]


def draw(figures: list[Figures], path: Path) -> None:
    """FLOPs, bytes accessed and bytes sent of a device, over the number of devices."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 3.8), layout="constrained", dpi=110)
    panels = figure.subplots(1, 3)
    sent: dict[tuple[str, str], dict[int, float]] = {}
    for f in figures:
        if f.devices > 1:
            sent.setdefault((f.model, f.way), {})[f.devices] = f.sent / f.gradients
    shown = {
        "FLOPs of a device, over its part": relative(figures, "flops"),
        "bytes accessed by it, over its part": relative(figures, "accessed"),
        "bytes of collectives, over gradients": sent,
    }
    for axes, (title, curves) in zip(panels, shown.items(), strict=True):
        for (model, way), curve in curves.items():
            style = "-" if way == "weak" else ":"
            axes.plot([*curve], [*curve.values()], style, color=COLORS[model], marker="o", markersize=3,
                      label=f"{model}, {way}")  # fmt: skip
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_ylim(bottom=0)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("virtual devices")
        axes.grid(axis="y", color="#e4e6e8", linewidth=0.7)
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=6, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    FigureCanvasAgg(figure).print_png(path)


def of_one_device(smoke: bool) -> list[Row]:
    """What a mesh of one device costs: a critic's step that was made and is called within it, and one without it."""
    rng = np.random.default_rng(0)
    batch = [rng.normal(size=(64, 64)).astype("f"), rng.normal(size=(64, 64)).astype("f"), rng.random((64, 1), "f")]
    parameters = dense_parameters(rng, 64, 256, 256, 1)
    plain = nngrad_step(nngrad_mlp, parameters, batch)
    with nn.mesh(devices=jax.devices()[:1], data=1):
        step = nngrad_step(nngrad_mlp, parameters, batch)

    def within() -> Any:
        with nn.mesh(devices=jax.devices()[:1], data=1):
            return step()

    times = medians({"none": plain, "mesh": step, "block": within}, 2 if smoke else 300, 2 if smoke else 4)
    what = "critic step, MLP 64-256-256-1, batch 64: made in nn.mesh(data=1)"
    return [
        row(what, {"in a mesh of 1": times["mesh"], "without": times["none"]}, "in a mesh of 1", "without", 1.02),
        row(f"{what}, whose block each call enters", {"in a mesh of 1": times["block"], "without": times["none"]},
            "in a mesh of 1", "without"),
    ]  # fmt: skip


def run(smoke: bool, torch: bool) -> list[Row]:
    """Lines of the table. What is measured on all numbers of devices is kept beside this file."""
    figures = measured((1, 2) if smoke else COUNTS, smoke)
    if not smoke:
        save(figures)
    return [*of_one_device(smoke), *lines(figures)]


if __name__ == "__main__":
    draw(load(), PICTURE)
