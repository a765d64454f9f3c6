"""What a published comparison consists of, and the run that measures it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from .harness import Way, figures_of, installed, shown

ROUNDS = (10, 150)
"""Times are the least of so many rounds: calls are short beside what disturbs them."""


class Quantity(NamedTuple):
    """Something that is measured of a method; less of it is better."""

    title: str
    scale: float = 1.0
    """What values are multiplied by before they are shown."""
    unit: str = ""


QUANTITIES = {
    "time": Quantity("time", 1e3, "ms"),
    "temporaries": Quantity("memory of temporaries", 1e-6, "MB"),
    "first result": Quantity("time to the first result", 1.0, "s"),
}


class Point(NamedTuple):
    """A place of the grid, where all methods compute the same."""

    x: float | str
    """Where on the axis; a word where places have no order."""
    ways: Mapping[str, Way]
    """What makes the step of each method that is run here."""
    tolerance: float | None = 1e-3
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
    """A comparison that a paper has published, at a size that two cores hold. What is run, and what differs from the
    paper, stands on the page."""

    title: str
    ours: str
    """The name of nngrad's method, which the others are compared with."""
    tables: Callable[[bool], Iterable[Table]]
    """The grid; a tiny one where it is given True."""
    measured: Collection[str] = ("time", "temporaries")
    """Which quantities are shown, in this order."""
    quantities: Mapping[str, Quantity] = QUANTITIES
    derived: Callable[[list[Measured]], Iterable[Measured]] | None = None
    """What follows from the figures, such as slopes."""
    growing: bool = False
    """Whether it is drawn over logarithms in two columns, with the slopes of the last three points in the legends."""


def measured(experiment: Experiment, smoke: bool) -> list[Measured]:
    """Run an experiment: all methods of a point in turn, after their results have been compared."""
    found: list[Measured] = []
    for table in experiment.tables(smoke):
        for x, ways, tolerance in table.points:
            here = {name: way for name, way in ways.items() if installed(name)}
            figures = figures_of(here, tolerance, smoke, experiment.measured, min, ROUNDS)
            times = [f"{name} {shown(of_it['time'])}" for name, of_it in figures.items()]
            print(f"{table.title}, {table.axis} {x}: {', '.join(times)}", flush=True)
            found += [
                Measured(table.title, table.axis, x, name, quantity, of_it[quantity])
                for name, of_it in figures.items() for quantity in experiment.measured if quantity in of_it
            ]  # fmt: skip
    return found + list(experiment.derived(found) if experiment.derived is not None else ())
