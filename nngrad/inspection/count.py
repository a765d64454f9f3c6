"""count: functions, products, operations and bytes of a graph, by op and by order of differentiation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeVar

from ..autodiff.request import variables
from ..graph import Variable, functions_of
from ..graph.tables import aligned, html_table
from .cost import Application, Cost, applications_of

Key = TypeVar("Key")


class Tally(NamedTuple):
    """What a number of functions cost together."""

    functions: int
    matrix_products: int
    convolutions: int
    flops: int
    bytes: int


class Count(NamedTuple):
    """What a graph costs; `str()` of it is a table.

    Constants of the graph, which are functions without inputs, are counted apart: there is nothing to compute.
    """

    functions: int
    """Functions that compute something from inputs, those that only move elements included."""
    matrix_products: int
    """Matrix products; an einsum of n operands is n - 1, but for those that sum over nothing."""
    convolutions: int
    """Convolutions, and their gradients with respect to data and filters."""
    flops: int
    """Operations on elements: 2 m n k for a matrix product, one for each element of an elementwise result, ..."""
    bytes: int
    """Bytes that are read and written when each function runs by itself; XLA fuses many of them, and moves less."""
    constants: int
    """Functions without inputs: arrays filled with a number, and the like."""
    by_op: dict[str, Tally]
    """The same by name of the op, most operations first."""
    by_order: dict[int, Tally]
    """The same by order of differentiation: 0 is what the user built, 1 its gradient, and so on. What a gradient shares
    with the forward graph counts there, and once."""

    @property
    def total(self) -> Tally:
        """The first five fields."""
        return Tally(*self[:5])

    def __str__(self) -> str:
        ops, orders, total = self._sections()
        rows = [_HEAD, *ops, *orders, total]
        lines = aligned(rows, range(1, len(_HEAD)), (1, 1 + len(ops), len(rows) - 1))
        return "\n".join([*lines, *self._rest()])

    def _repr_html_(self) -> str:
        ops, orders, total = self._sections()
        rest = [f"<div>{line}</div>" for line in self._rest()]
        return "".join([html_table([*ops, *orders, total], _HEAD, numbers=True), *rest])

    def _sections(self) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]], tuple[str, ...]]:
        """Rows by op, rows by order, and that of the total."""
        orders = [(f"order {order}", *_shown(tally)) for order, tally in self.by_order.items()]
        ops = [(name, *_shown(tally)) for name, tally in self.by_op.items()]
        return ops, orders, ("total", *_shown(self.total))

    def _rest(self) -> list[str]:
        """What is said below the table."""
        return [f"and {self.constants} constant{'s' * (self.constants > 1)}"] if self.constants else []


def count(outputs: Variable | Iterable[Variable], each_step: bool = True) -> Count:
    """Functions, matrix products, operations and bytes of the graph that computes `outputs`, each function once.

    Nothing is run. Leaves are no functions; constants of the graph are counted apart. Functions in the body of a loop
    count as often as they run, or once if not `each_step`; a loop of which the number of rounds is not known counts one
    round, a condition its dearest branch, and a call out of JAX nothing. The loop itself is a function that costs
    nothing.

    Args:
        outputs: A Variable or Variables.
        each_step: Whether what is in a loop counts at each step: what has to be computed. If not, it counts once: what
            the graph is made of, and what is compiled.

    Returns:
        A `Count`.

    Raises:
        TypeError: Something is not a Variable, or `each_step` no bool.
    """
    if not isinstance(each_step, bool):
        raise TypeError(f"count: each_step must be True or False, got {each_step!r}")
    applied = [
        each if each_step else each._replace(runs=1)
        for f in functions_of(variables(outputs, "outputs"))
        for each in applications_of(f.op, f.arguments, tuple([x.spec for x in f.inputs]), f.order)
    ]
    computing = [(each, each.cost) for each in applied if each.cost is not None]
    by_op = _tallies([(each.op.name, each.runs, cost) for each, cost in computing])
    by_order = _tallies([(each.order, each.runs, cost) for each, cost in computing])
    ops = dict(sorted(by_op.items(), key=lambda entry: (-entry[1].flops, -entry[1].functions, entry[0])))
    return Count(*tally_of(applied), len(applied) - len(computing), ops, dict(sorted(by_order.items())))


def tally_of(applied: Iterable[Application]) -> Tally:
    """What applications of ops cost together, constants left out."""
    costs = [(None, each.runs, each.cost) for each in applied if each.cost is not None]
    return _tallies(costs).get(None, Tally(0, 0, 0, 0, 0))


def _tallies(costs: list[tuple[Key, int, Cost]]) -> dict[Key, Tally]:
    """The sums of costs that have the same key, each so many times."""
    sums: dict[Key, tuple[int, Cost]] = {}
    for key, runs, cost in costs:
        number, before = sums.get(key, (0, Cost()))
        sums[key] = number + runs, before.plus(cost.times(runs))
    return {key: Tally(number, *cost) for key, (number, cost) in sums.items()}


_HEAD = ("", "functions", "products", "convolutions", "FLOPs", "bytes")
_UNITS = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"))


def _shown(tally: Tally) -> tuple[str, ...]:
    return tuple([short_number(number) for number in tally])


def short_number(number: int) -> str:
    """A number in full up to a million, and then in four digits and a unit."""
    for size, unit in _UNITS:
        if number >= size:
            return f"{number / size:.3f}"[:5].rstrip(".") + f" {unit}"
    return f"{number:,}" if number else "-"
