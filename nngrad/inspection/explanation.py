"""`explain`: how and why each order of a gradient was built as it was. `show_passes`: the passes that prepare a graph
for the compiler; `show_rewrites`: the rules that simplify gradients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from ..extend import RULES, PassEvent, Program, Variable, device_of, linearize, prepared, variables, watch
from .cost import Tally, count
from .shown import aligned, as_html


class OrderOfGradient(NamedTuple):
    """The call of `nn.grad` that built an order of a gradient, and the cost of that order."""

    order: int
    """Order of differentiation: 1 for the gradient of your graph, 2 for the gradient of that, and so on."""
    mode: str
    """'reverse' for the reverse pass, which is always available but may grow with every order; 'forward' and
    'symmetric' for the modes in which each order adds the same number of functions."""
    reason: str
    """For 'reverse', the first reason against another mode; else empty."""
    functions: int
    """The number of functions of this order in the graph of the gradients, without constants; functions in the body of
    a loop count once."""
    matrix_products: int
    """Matrix products among them."""


class LoopFound(NamedTuple):
    """An unrolled recurrence that was rolled into a loop."""

    steps: int
    """The number of steps."""
    functions: int
    """The number of functions per step."""


class Explanation(NamedTuple):
    """How gradients were built; `str()` of it is a table."""

    orders: tuple[OrderOfGradient, ...]
    """From the first order up; an order built by several calls has several entries."""
    functions: int
    """The number of functions in the graph of the gradients, including your own, without constants."""
    matrix_products: int
    """The number of matrix products in it."""
    loops: tuple[LoopFound, ...]
    """Unrolled recurrences in it that are compiled as loops: the number of steps of each, and of functions per step."""
    def __str__(self) -> str:
        loops = [f"compiled as a loop: {loop.steps} steps of {loop.functions} functions" for loop in self.loops]
        return "\n".join([*aligned([_HEAD, *self._rows()], numbers=(2, 3)), *loops])

    def _repr_html_(self) -> str:
        return as_html(str(self))

    def _rows(self) -> list[tuple[str, ...]]:
        rows = [(str(o.order), o.mode, str(o.functions), str(o.matrix_products), o.reason or "-") for o in self.orders]
        return [*rows, ("all", "", str(self.functions), str(self.matrix_products), "")]


_HEAD = ("order", "mode", "functions", "products", "because")


def explain(gradients: Variable | Iterable[Variable]) -> Explanation:
    """Explain how gradients were built: each order's mode, the reason for it, and the functions that it added.

    The explanation also lists recurrences that are compiled as loops. Nothing is run. If a gradient of a gradient grows
    more than necessary, the explanation names the obstacle: active hooks, a rule that is not a derivative, several
    inputs, ...

    Args:
        gradients: Results of `nn.grad`, of any order.

    Returns:
        An `Explanation`.

    Raises:
        TypeError: Something is not a Variable.
        ValueError: A Variable is not a result of `nn.grad`.
    """
    results = variables(gradients, "gradients")
    for i, gx in enumerate(results):
        if gx.derived_by is None:
            raise ValueError(f"gradients[{i}] is not a result of nn.grad")
    behind = frozenset().union(*[gx.derived_by.history for gx in results])
    counted = count(results, each_step=False)
    orders = [
        OrderOfGradient(order, mode, reason, tally.functions, tally.matrix_products)
        for order, (mode, reason) in sorted(behind)
        for tally in [counted.by_order.get(order, Tally())]
    ]
    linear = linearize(results, device=device_of(results), effects=False)
    loops = [loop for event in _passes(linear.program) for loop in _loops(event)]
    return Explanation(tuple(orders), counted.functions, counted.matrix_products, tuple(loops))


def _passes(program: Program, platform: str | None = None) -> list[PassEvent]:
    """How a program is prepared for the compiler of a platform, pass by pass."""
    events: list[PassEvent] = []
    with watch(events.append, "passed"):
        prepared(program, platform, as_a_whole=False)
    return events


def _loops(event: PassEvent) -> list[LoopFound]:
    """The recurrences that a pass turns into loops."""
    new = event.after.rolled_loops[len(event.before.rolled_loops) :]
    return [LoopFound(loop.length, loop.functions) for loop in new]


_MOST_NAMED = 4
"""The number of ops named among those that a pass removes or adds."""


def show_rewrites() -> None:
    """Print every rewriting rule: its name, its formula, and the ops that it applies to."""
    print("\n".join(aligned([(rule.name, rule.formula, rule.ops) for rule in RULES.values()])))


def show_passes(outputs: Variable | Iterable[Variable], platform: str | None = None) -> None:
    """Print each pass that prepares a graph for the compiler: the number of functions before and after it, and the
    functions that it removed and added.

    Nothing is compiled or run. `nn.passes(without=[...])` omits passes, here and when programs are compiled.

    Args:
        outputs: A Variable or Variables; pass a loss together with its gradients.
        platform: The compiler's platform, by JAX's name; by default the one that would run the graph.

    Raises:
        TypeError: Something is not a Variable.
        ValueError: nngrad has no passes for the platform, and JAX does not know it.
    """
    listed = variables(outputs, "outputs")
    program = linearize(listed, device=device_of(listed)).program
    if platform not in (None, "cpu", "gpu", "cuda", "rocm", "tpu"):
        raise ValueError(f"platform: must be 'cpu', 'gpu' or 'tpu', got {platform!r}")
    rows = [("pass", "before", "after", "")]
    for event in _passes(program, platform):
        rows.append((event.name, str(len(event.before.steps)), str(len(event.after.steps)), _changes(event)))
    print("\n".join(aligned(rows, numbers=(1, 2))))


def _changes(event: PassEvent) -> str:
    """What a pass does: the ops that become fewer and those that become more, the new loops, and hoisted numbers."""
    if event.partitions:
        return (f"{len(event.partitions)} partitions, {len({*event.partitions})} of them compiled; their numbers "
                "become inputs, and no pass follows")
    if event.left_out or event.after is event.before:
        return "left out" if event.left_out else f"no {event.what}"
    counts = [Counter([op.name for op, _, _ in block.steps]) for block in (event.before, event.after)]
    told = []
    for sign, difference in (("-", counts[0] - counts[1]), ("+", counts[1] - counts[0])):
        named = [f"{sign}{n} {name}" for name, n in difference.most_common(_MOST_NAMED)]
        if rest := sum(difference.values()) - sum([n for _, n in difference.most_common(_MOST_NAMED)]):
            named.append(f"{sign}{rest} others")
        told += named
    told += [f"a loop: {loop.steps} steps of {loop.functions} functions" for loop in _loops(event)]
    if event.hoisted:
        told.append(f"numbers made inputs: {event.hoisted}")
    return ", ".join(told) or "other order, or changes in bodies"
