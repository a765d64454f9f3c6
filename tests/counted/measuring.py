"""What is counted of a case."""

from __future__ import annotations

import gc
import platform
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import jax

import backward_registry
import nngrad as nn
from tests.costs import compilations

from .cases import Build, cases

Counts = dict[str, int]
EVERYWHERE = ("functions", "products", "bytes")
"""What does not depend on the versions of JAX and Python."""
SLACK = {"calls": 1.05}
"""By how much a count may grow: calls of Python move a little with each mended line."""
OWN = tuple([str(Path(str(package.__file__)).parent) for package in (nn, backward_registry)])


def measured() -> dict[str, Counts]:
    """The counts of all cases, by name."""
    return {name: counted(build) for name, build in cases()}


def counted(build: Build) -> Counts:
    """The counts of a case. It is built once before, since what is met for the first time is looked up then."""
    _built(build)
    with _calls() as calls:
        outputs = _built(build)
    found = nn.count(outputs)
    inputs = list(nn.get_parameters().values())
    lowered = jax.jit(nn.to_jax(outputs, inputs)).lower(*[p.d for p in inputs]).as_text()
    with compilations() as seconds, nn.deterministic():
        for output in outputs:
            output.d.tobytes()  # which waits for it
    return {
        "functions": found.functions, "products": found.matrix_products + found.convolutions,
        "bytes": nn.memory_report(outputs, compile=False).peak, "instructions": lowered.count(" = "),
        "calls": calls[0], "compilations": len(seconds),
    }  # fmt: skip


def _built(build: Build) -> list[nn.Variable]:
    nn.clear_parameters()
    nn.seed(0)
    return build()


@contextmanager
def _calls() -> Iterator[list[int]]:
    """How many functions of nngrad's are called within, those of other libraries and of C left out. No garbage is
    collected there, which calls functions where it likes."""
    count = [0]

    def profile(frame: FrameType, event: str, _: Any) -> None:
        count[0] += event == "call" and frame.f_code.co_filename.startswith(OWN)

    outer: Callable[..., Any] | None = sys.getprofile()
    gc.collect()
    gc.disable()
    sys.setprofile(profile)
    try:
        yield count
    finally:
        sys.setprofile(outer)
        gc.enable()


def versions() -> dict[str, str]:
    """Of what instructions, calls and compilations depend on."""
    return {"jax": jax.__version__, "python": ".".join(platform.python_version_tuple()[:2])}


def grown(recorded: dict[str, Any], found: dict[str, Counts]) -> list[str]:
    """A line for each count that has grown, and for each case that one of them lacks."""
    before: dict[str, Counts] = recorded["cases"]
    same = recorded["versions"] == versions()
    lines = [f"{name}: is {'not recorded' if name in found else 'gone'}" for name in before.keys() ^ found.keys()]
    for name in before.keys() & found.keys():
        for what, now in found[name].items():
            most = before[name][what] * SLACK.get(what, 1)
            if now > most and (same or what in EVERYWHERE):
                lines.append(f"{name}: {what} {before[name][what]:,} -> {now:,}")
    return sorted(lines)
