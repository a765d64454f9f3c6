"""`explain`: how and why each order of a gradient was built as it was, and likely mistakes in the graph. `show_passes`:
the passes that prepare a graph for the compiler; `show_rewrites`: the rules that simplify gradients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import reduce
from operator import or_
from typing import Any, NamedTuple

from ..extend import (
    RULES,
    Function,
    LoopFound,
    Op,
    Spec,
    Stage,
    Variable,
    ancestry,
    device_of,
    functions_of,
    linearize,
    stages_of,
    variables,
)
from .cost import Tally, count
from .naming import parameter_names
from .shown import aligned, html_table


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


class EqualLeaves(NamedTuple):
    """Leaves that hold equal arrays, because one array was passed to many calls."""

    spec: Spec
    """Shape and dtype of the array."""
    leaves: int
    """The number of leaves."""


class SharedLayer(NamedTuple):
    """Consecutive layers that share their parameters."""

    parameters: tuple[str, ...]
    """Names of the parameters."""
    layers: int
    """The number of layers that share them."""


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
    equal_leaves: tuple[EqualLeaves, ...]
    """Separate leaves with equal arrays, which prevent a recurrence from being compiled as a loop."""
    shared_layers: tuple[SharedLayer, ...]
    """Consecutive layers with the same parameters: a recurrence, or layers without names of their own."""
    separate_partials: int
    """The most partial derivatives of one function that were differentiated again by calls of their own."""

    def __str__(self) -> str:
        return "\n".join([*aligned([_HEAD, *self._rows()], numbers=(2, 3)), *self._lines()])

    def _repr_html_(self) -> str:
        return html_table(self._rows(), _HEAD) + "".join([f"<div>{line}</div>" for line in self._lines()])

    def _rows(self) -> list[tuple[str, ...]]:
        rows = [(str(o.order), o.mode, str(o.functions), str(o.matrix_products), o.reason or "-") for o in self.orders]
        return [*rows, ("all", "", str(self.functions), str(self.matrix_products), "")]

    def _lines(self) -> list[str]:
        loops = [f"compiled as a loop: {loop.steps} steps of {loop.functions} functions" for loop in self.loops]
        return loops + [
            f"{each.leaves} leaves hold the same {each.spec}: each call that is given an array makes a new leaf of it. "
            "Make it a Variable once, before the calls, so that their recurrence can be compiled as a loop"
            for each in self.equal_leaves
        ] + [
            f"{each.layers} consecutive layers share {', '.join(each.parameters)}. Unless they are steps of a "
            "recurrence, give each its own: use name= for layers of one kind in one scope, or another Module"
            for each in self.shared_layers
        ] + [
            f"{self.separate_partials} partial derivatives of one function are differentiated again, each by itself. "
            "nn.derivatives computes such derivatives together and shares what they have in common"
        ] * (self.separate_partials > 1)


_FEWEST_EQUAL = 8
"""Equal leaves are told of from this many on."""
_HEAD = ("order", "mode", "functions", "products", "because")


def explain(gradients: Variable | Iterable[Variable]) -> Explanation:
    """Explain how gradients were built: each order's mode, the reason for it, and the functions that it added.

    The explanation also lists recurrences that are compiled as loops, and layers that share their parameters. Nothing
    is run. If a gradient of a gradient grows more than necessary, the explanation names the obstacle: active hooks, an
    `aggregate` that is not a sum, a rule that is not a derivative, several inputs, ...

    Args:
        gradients: Results of `nn.grad`, of any order.

    Returns:
        An `Explanation`.

    Raises:
        TypeError: Something is not a Variable.
        ValueError: A Variable is not a result of `nn.grad`.
    """
    given = variables(gradients, "gradients")
    for i, gx in enumerate(given):
        if gx.derived_by is None:
            raise ValueError(f"gradients[{i}] is not a result of nn.grad")
    results = ancestry([gx.derived_by for gx in given])
    behind = {step for each in results for step in ((each.order, each.mode), *each.before)}
    counted = count(given, each_step=False)
    nothing = Tally(0, 0, 0, 0, 0)
    orders = [
        OrderOfGradient(order, mode, reason, tally.functions, tally.matrix_products)
        for order, (mode, reason) in sorted(behind)
        for tally in [counted.by_order.get(order, nothing)]
    ]
    linear = linearize(given, device=device_of(given), effects=False)
    loops = [loop for stage in stages_of(linear.program) for loop in stage.loops]
    return Explanation(
        tuple(orders), counted.functions, counted.matrix_products, tuple(loops), _equal_leaves(linear.leaves),
        _shared_layers(functions_of(given)), _separate_partials(results),
    )  # fmt: skip


def _separate_partials(results: Iterable[Any]) -> int:
    """The most results of one call of `nn.grad`, or columns of one, that further calls differentiate."""
    partials: dict[object, set[Variable]] = {}
    for derivation in {each.derivation: None for each in results}:
        for y in () if derivation is None else derivation.outputs:
            gx = y
            while gx.derived_by is None and gx.parent is not None and len(gx.parent.inputs) == 1:
                (gx,) = gx.parent.inputs  # of which y is a column, or the sum
            known = gx.derived_by
            if known is not None and known.derivation is not None:
                inputs = known.derivation.inputs
                if len(inputs) > 1 or (inputs[0].ndim == 2 and inputs[0].shape[1] > 1 and y is not gx):
                    partials.setdefault(known.derivation, set()).add(y)
    return max(map(len, partials.values()), default=0)


def _equal_leaves(leaves: Iterable[Variable]) -> tuple[EqualLeaves, ...]:
    """Arrays, except single numbers, held by at least as many leaves as a loop needs steps."""
    arrays = [x for x in leaves if x.size > 1 and not x.need_grad and not x.name and not x.data.is_empty]
    of_spec = Counter([x.spec for x in arrays])
    counts = Counter([(x.spec, x.d.tobytes()) for x in arrays if of_spec[x.spec] >= _FEWEST_EQUAL])
    return tuple([EqualLeaves(spec, count) for (spec, _), count in counts.items() if count >= _FEWEST_EQUAL])


def _shared_layers(functions: Iterable[Function]) -> tuple[SharedLayer, ...]:
    """Consecutive layers that share parameters. Parallel layers, as in one network with two inputs, share them on
    purpose."""
    built = [f for f in functions if f.order == 0]
    named, readers = parameter_names(None), dict[tuple[str, Op, int], list[Function]]()
    for f in built:
        for position, x in enumerate(f.inputs):
            if x.parent is None and x.need_grad:
                name = named.get(id(x.cell), x.name)
                if "/" in name:  # a layer's parameter, not one made by hand
                    readers.setdefault((name, f.op, position), []).append(f)
    several = {key: fs for key, fs in readers.items() if len(fs) > 1}
    bits: dict[Function, int] = {}
    for n, fs in enumerate(several.values()):
        for f in fs:
            bits[f] = bits.get(f, 0) | 1 << n
    above: dict[Function, int] = {}
    """For each function a bit set of its ancestors."""
    for f in built if several else ():
        parents = [x.parent for x in f.inputs if x.parent is not None]
        above[f] = reduce(or_, [above.get(p, 0) | bits.get(p, 0) for p in parents], 0)
    layers: dict[str, tuple[int, dict[str, None]]] = {}
    for n, ((name, _, _), fs) in enumerate(several.items()):
        repeated = sum([above[f] >> n & 1 for f in fs])
        if repeated:
            count, names = layers.get(name.rpartition("/")[0], (0, {}))
            layers[name.rpartition("/")[0]] = max(count, repeated + 1), {**names, name: None}
    return tuple([SharedLayer(tuple(names), count) for count, names in layers.values()])


_MOST_NAMED = 4
"""The number of ops named among those that a pass removes or adds."""


def show_rewrites() -> None:
    """Print every rewriting rule: its name, its formula, and the ops that it applies to."""
    print("\n".join(aligned([(each.name, each.formula, each.ops) for each in RULES.values()])))


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
    for stage in stages_of(program, platform):
        rows.append((stage.name, str(len(stage.before.steps)), str(len(stage.after.steps)), _changes(stage)))
    print("\n".join(aligned(rows, numbers=(1, 2))))


def _changes(stage: Stage) -> str:
    """What a pass does: the ops that become fewer and those that become more, the new loops, and hoisted numbers."""
    if stage.partitions:
        return (f"{stage.partitions} partitions, {stage.compiled} of them compiled; their numbers become inputs, and "
                "no pass follows")
    if stage.left_out or stage.after is stage.before:
        return "left out" if stage.left_out else f"no {stage.what}"
    counts = [Counter([op.name for op, _, _ in block.steps]) for block in (stage.before, stage.after)]
    told = []
    for sign, difference in (("-", counts[0] - counts[1]), ("+", counts[1] - counts[0])):
        named = [f"{sign}{n} {name}" for name, n in difference.most_common(_MOST_NAMED)]
        if rest := sum(difference.values()) - sum([n for _, n in difference.most_common(_MOST_NAMED)]):
            named.append(f"{sign}{rest} others")
        told += named
    told += [f"a loop: {loop.steps} steps of {loop.functions} functions" for loop in stage.loops]
    if stage.hoisted:
        told.append(f"numbers made inputs: {stage.hoisted}")
    return ", ".join(told) or "other order, or changes in bodies"
