"""What a published comparison consists of, and the run that measures it."""

from __future__ import annotations

import importlib.util
import statistics
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

import jax

from ..memory import steps as memory
from ..memory.in_torch import peak
from ..timing import Contender, forget, medians, shown, wait_for

SECONDS = 2.0
"""About how long the methods of a point are timed for, within `ROUNDS`."""
ROUNDS, LEAST_ROUNDS = (3, 15), (10, 150)
WITHOUT_YNNPACK: dict[str, str | bool] = {"xla_cpu_experimental_ynn_fusion_type": ""}


class Step(NamedTuple):
    """What a method runs."""

    run: Contender
    temporaries: Callable[[], int] | None = None
    """What counts their bytes, once times are taken."""


Make = Callable[[], Step]


class Quantity(NamedTuple):
    """Something that is measured of a method; less of it is better."""

    title: str
    scale: float = 1.0
    """What values are multiplied by before they are shown."""
    unit: str = ""


QUANTITIES = {
    "time": Quantity("time", 1e3, "ms"),
    "temporaries": Quantity("memory of temporaries", 1e-6, "MB"),
    "first": Quantity("time to the first result", 1.0, "s"),
}


class Point(NamedTuple):
    """A place of the grid, where all methods compute the same."""

    x: float | str
    """Where on the axis; a word where places have no order."""
    makers: Mapping[str, Make]
    """What makes the step of each method that is run here."""
    tolerance: float | None
    """How far the first results may differ, by the norm; None where they are not compared."""


class Table(NamedTuple):
    """Points along one axis."""

    title: str
    axis: str
    points: Iterable[Point]


class Measured(NamedTuple):
    """One figure."""

    table: str
    axis: str
    x: float | str
    method: str
    quantity: str
    value: float


class Experiment(NamedTuple):
    """A comparison that a paper has published, at a size that two cores hold."""

    title: str
    paper: str
    """Authors, title, year."""
    url: str
    ran: str
    """What is run here. Like `differs` it is Markdown."""
    differs: str
    """What differs from the paper, and why."""
    ours: str
    """The name of nngrad's method, which the others are compared with."""
    tables: Callable[[bool], Iterable[Table]]
    """The grid; a tiny one where it is given True."""
    needs: Mapping[str, str] = {}
    """Methods that need a package, with the name of its module."""
    measured: Collection[str] = ("time", "temporaries")
    """Which quantities are shown, in this order."""
    quantities: Mapping[str, Quantity] = {}
    """Quantities besides `QUANTITIES`."""
    derived: Callable[[list[Measured]], Iterable[Measured]] | None = None
    """What follows from the figures, such as slopes."""
    further: Callable[[bool, Collection[str]], Iterable[Measured]] | None = None
    """What measures more than steps: it is given whether the run is a tiny one, and the methods that were run."""

    least: bool = False
    """Whether a time is the least of all rounds, not their median: where calls are short beside what disturbs them."""

    def quantity(self, name: str) -> Quantity:
        """One that is shown."""
        return {**QUANTITIES, **self.quantities}[name]

    def absent(self) -> dict[str, str]:
        """Methods that cannot be run, with the module that each needs."""
        return {method: module for method, module in self.needs.items() if importlib.util.find_spec(module) is None}


def in_jax(function: Callable[..., Any], *arrays: Any) -> Step:
    """The step that computes `function(*arrays)` by one executable; memory is the compiler's account.

    XLA may hand any part of a program to YNNPACK, and does not count what that allots: the account is of an executable
    that makes no use of it.
    """
    lowered = jax.jit(function).lower(*arrays)
    compiled = lowered.compile()

    def temporaries() -> int:
        counts = "__ynn_fusion" not in (compiled.as_text() or "")
        return memory.temporaries_of(compiled if counts else lowered.compile(compiler_options=WITHOUT_YNNPACK))

    return Step(lambda: compiled(*arrays), temporaries)


def in_torch(run: Callable[[], Any]) -> Step:
    """The step that calls `run`; memory is the highest sum of PyTorch's allocations, less that of the results."""

    def detached() -> list[Any]:
        return [tensor.detach() for tensor in jax.tree.leaves(run())]

    return Step(detached, lambda: peak(detached))


def measured(experiment: Experiment, smoke: bool) -> list[Measured]:
    """Run an experiment: all methods of a point in turn, after their results have been compared."""
    absent = experiment.absent()
    found: list[Measured] = []
    for table in experiment.tables(smoke):
        for point in table.points:
            makers = {name: make for name, make in point.makers.items() if name not in absent}
            figures = _of_point(makers, point, experiment.least, smoke)
            here = [Measured(table.title, table.axis, point.x, *figure) for figure in figures]
            times = [f"{m.method} {shown(m.value)}" for m in here if m.quantity == "time"]
            print(f"{table.title}, {table.axis} {point.x}: {', '.join(times)}", flush=True)
            found += here
    if experiment.further is not None:
        found += experiment.further(smoke, {m.method for m in found})
    if experiment.derived is not None:
        found += experiment.derived(found)
    return [m for m in found if m.quantity in experiment.measured]


def _of_point(makers: Mapping[str, Make], point: Point, least: bool, smoke: bool) -> Iterable[tuple[str, str, float]]:
    steps, results = {}, {}
    for name, make in makers.items():
        forget()
        start = time.perf_counter()
        steps[name] = make()
        results[name] = steps[name].run()
        wait_for(results[name])
        yield name, "first", time.perf_counter() - start
    if point.tolerance is not None:
        first, *others = [(name, memory.Step(lambda result=result: result, 0)) for name, result in results.items()]
        memory.same_results(first[1], dict(others), point.tolerance)
    start = time.perf_counter()
    for step in steps.values():
        wait_for(step.run())
    fewest, most = LEAST_ROUNDS if least else ROUNDS
    rounds = 1 if smoke else round(min(max(SECONDS / (time.perf_counter() - start), fewest), most))
    runs, of_rounds = {name: step.run for name, step in steps.items()}, min if least else statistics.median
    for name, seconds in medians(runs, rounds, 1, of_rounds).items():
        yield name, "time", seconds
    for name, step in steps.items():
        if step.temporaries is not None:
            yield name, "temporaries", float(step.temporaries())
