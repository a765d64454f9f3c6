"""The table of first results: each figure from a process of its own, with an empty compilation cache and with a filled
one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from typing import Any

import numpy as np

from ..timing import Row, row, shown
from .cases import CASES

CACHE = {
    "JAX_ENABLE_COMPILATION_CACHE": "true",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}
"""JAX's settings as `nn.cache_compilations` makes them, but for the directory."""
EAGER_MARGIN = 0.5
"""Seconds that a first result may take longer than PyTorch's when what it needs is on the disk."""
TOLERANCE = 2e-3
"""How far norms of results may lie apart, relative to the largest: float32, and order 10 of a derivative."""


def measured(case: str, peer: str, smoke: bool, settings: dict[str, str]) -> dict[str, Any]:
    """What a fresh process measures; `settings` are added to its environment."""
    command = [sys.executable, "-m", "benchmarks.first_result.worker", case, peer, *["--tiny"] * smoke]
    done = subprocess.run(command, env={**os.environ, **settings}, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{case}, {peer}:\n{done.stderr}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def case_rows(name: str, smoke: bool, torch: bool) -> list[Row]:
    """The lines of a case."""
    case = CASES[name]
    with tempfile.TemporaryDirectory() as ours, tempfile.TemporaryDirectory() as theirs:
        figures = {"nngrad": measured(name, "nngrad", smoke, {}), "jitted JAX": measured(name, "jax", smoke, {})}
        for peer, title, folder in (("nngrad", "nngrad", ours), ("jax", "jitted JAX", theirs)):
            for _ in range(2):  # the second process finds what the first has compiled
                settings = {**CACHE, "JAX_COMPILATION_CACHE_DIR": folder}
                figures[f"{title}, again"] = measured(name, peer, smoke, settings)
    if torch and "torch" in case.starts:
        figures["PyTorch eager"] = measured(name, "torch", smoke, {})
    check(name, figures)

    first = {peer: found["first"] for peer, found in figures.items()}
    rows = [
        row(f"{case.title}: first result", first, "nngrad", "jitted JAX", 0.35),
        row(f"{case.title}: first result, known to the disk", first, "nngrad, again", "nngrad"),
        row(f"{case.title}: first result, known to the disk", first, "nngrad, again", "jitted JAX, again", 0.9),
    ]
    if "PyTorch eager" in figures:
        limit = first["PyTorch eager"] + EAGER_MARGIN
        peer = f"PyTorch eager: {shown(first['PyTorch eager'])}, and {shown(EAGER_MARGIN)}"
        rows += [
            row(f"{case.title}: first result", first, "nngrad", "PyTorch eager"),
            Row(
                f"{case.title}: first result, known to the disk", f"nngrad, again: {shown(first['nngrad, again'])}",
                peer, first["nngrad, again"] / limit, 1.0,
            ),
        ]
    second = {"second": figures["nngrad"]["second"], "later": figures["nngrad"]["steady"]}
    rows.append(row(f"{case.title}: the slowest of the three steps after the first", second, "second", "later"))
    steady = {peer: found["steady"] for peer, found in figures.items()}
    rows.append(row(f"{case.title}: later steps", steady, "nngrad", "jitted JAX", 1.02))
    if name == "resnet":
        count = figures["nngrad"]["compilations"]
        rows.append(Row(f"{case.title}: compilations", f"nngrad: {count}", "1", float(count), 1.0))
    return rows


def check(name: str, figures: dict[str, dict[str, Any]]) -> None:
    """Raise if the peers compute something else."""
    expected = np.array(figures["jitted JAX"]["norms"])
    for peer, found in figures.items():
        difference = np.max(np.abs(np.array(found["norms"]) - expected)) / np.max(np.abs(expected))
        if not difference <= TOLERANCE:
            raise ValueError(f"{name}: the results of {peer} and of JAX differ by {difference:.1e}")


def run(smoke: bool, torch: bool) -> list[Row]:
    """Lines of the table."""
    names = ["mlp critic", "resnet"] if smoke else list(CASES)
    return [line for name in names for line in case_rows(name, smoke, torch)]
