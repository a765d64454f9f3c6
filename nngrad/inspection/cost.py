"""`nn.count`: the cost of a graph by op and by order, in functions, matrix products, operations and bytes.

The forward of an op is traced to JAX's primitives, and the operations of each are counted by formula. So the cost is
that of the code that runs: no op needs a formula of its own, and users' functions are counted too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from ..extend import Block, BoundedCache, ControlOp, Op, Spec, Variable, functions_of, variables
from ..functions.traced import name_of, parameters_of
from .shown import aligned, as_html


class Tally(NamedTuple):
    """The cost of a function, or the total of several."""

    functions: int = 0
    matrix_products: int = 0
    """Matrix products that sum over at least one axis."""
    convolutions: int = 0
    flops: int = 0
    """Operations on elements, whatever their dtype; see `docs/inspection.md` for the formulas."""
    bytes: int = 0
    """Bytes that are read and written if each function runs by itself."""

    def plus(self, other: Tally) -> Tally:
        """The sum of two costs."""
        return Tally(*[a + b for a, b in zip(self, other, strict=True)])

    def times(self, count: int) -> Tally:
        """The cost of `count` repetitions."""
        return Tally(*[a * count for a in self])


_traced = BoundedCache.about_structures(4096)
"""Costs by op, arguments and specs of the inputs."""


def cost_of(op: Op, arguments: tuple[Any, ...], specs: tuple[Spec, ...]) -> Tally:
    """The cost of an op alone on inputs of these shapes and dtypes: each input is read and each output written once."""

    def cost() -> Tally:
        nbytes = sum([s.nbytes for s in (*specs, *op.result_specs(specs, arguments))])
        return _cost_of_jaxpr(op.jaxpr(arguments, specs))._replace(functions=1, bytes=nbytes)

    known: Tally = _traced.part((op,)).get((op, arguments, specs), cost)
    return known


class Application(NamedTuple):
    """An application of an op in a graph or in a body within it."""

    op: Op
    order: int
    cost: Tally | None
    """The cost of one run; None for a constant, which has no inputs."""
    runs: int
    """The number of runs."""


def applications_in(block: Block) -> list[Application]:
    """The applications of ops in a block and in nested bodies."""
    return [
        application for (op, arguments, ins), order in zip(block.steps, block.orders, strict=True)
        for application in applications_of(op, arguments, tuple([block.spec(i) for i in ins]), order)
    ]  # fmt: skip


def applications_of(op: Op, arguments: tuple[Any, ...], specs: tuple[Spec, ...], order: int) -> list[Application]:
    """The application of an op, and those in its bodies. A loop costs only its body; among branches the most expensive
    one counts.

    Args:
        op: The op.
        arguments: Its static arguments.
        given: Shape and dtype of each input.
        order: Its order of differentiation.
    """
    if not isinstance(op, ControlOp):
        return [Application(op, order, cost_of(op, arguments, specs) if specs else None, 1)]
    alternatives: list[list[Application]] = []
    applications = [Application(op, order, Tally(functions=1), 1)]
    for within in op.within(arguments, len(specs)):
        inner = applications_in(within.body)  # recursion is as deep as loops are nested
        if within.alternative:
            alternatives.append(inner)
        else:
            applications += [application._replace(runs=application.runs * within.runs) for application in inner]
    return applications + max(alternatives, key=_operations, default=[])


def _operations(applications: Sequence[Application]) -> int:
    return sum([one.cost.flops * one.runs for one in applications if one.cost is not None])


def _cost_of_jaxpr(jaxpr: Any) -> Tally:
    """The cost of a jaxpr and everything within it. The worklist is a stack of (jaxpr, number of runs)."""
    total, stack = Tally(), [(jaxpr, 1)]
    while stack:
        body, runs = stack.pop()
        for equation in body.eqns:
            name, params = name_of(equation), parameters_of(equation)
            if name == "cond":
                branches = [_cost_of_jaxpr(b.jaxpr) for b in _branches(params)]
                total = total.plus(max(branches, key=lambda c: c.flops).times(runs))
                continue
            # Equations with a formula are not descended into: a reduction's parameters hold its combining function.
            inner = [] if name in _FORMULAS else list(_inner(params))
            if inner:
                stack += [(jaxpr_within, runs * params.get("length", 1)) for jaxpr_within in inner]
            else:
                total = total.plus(_cost_of_equation(equation).times(runs))
    return total


def _branches(params: dict[str, Any]) -> Sequence[Any]:
    """The jaxprs of the branches; if they differ by platform, only the default one, which has no workarounds."""
    branches: Sequence[Any] = params["branches"]
    return branches[-1:] if params.get("branches_platforms") is not None else branches


def _inner(params: dict[str, Any]) -> Iterator[Any]:
    """The jaxprs in an equation's parameters: bodies of calls and loops."""
    for name, value in params.items():
        if name == "cond_jaxpr" or "jvp" in name or name.startswith(("fwd", "bwd")):
            continue
        if name == "jaxprs":  # a linear solve; only this one of its four functions runs
            value = value.solve
        body = getattr(value, "jaxpr", value)
        if hasattr(body, "eqns"):
            yield body


def _cost_of_equation(equation: Any) -> Tally:
    name, params = equation.primitive.name, equation.params
    ins, outs = [v.aval for v in equation.invars], [v.aval for v in equation.outvars]
    if name == "dot_general":
        (contracted, _), _ = params["dimension_numbers"]
        k = math.prod([ins[0].shape[a] for a in contracted])
        return Tally(matrix_products=1 if contracted else 0, flops=(2 * k if contracted else 1) * outs[0].size)
    if name == "conv_general_dilated":
        return Tally(convolutions=1, flops=_convolution_flops(ins[0].shape, ins[1].shape, outs[0].shape, params))
    formula = _FORMULAS.get(name)
    return Tally(flops=formula(ins, outs, params) if formula is not None else max([o.size for o in outs], default=0))


# ---------------------------------------------------------------- formulas of primitives
# Each takes the shapes of inputs and outputs and the parameters. Primitives without a formula are elementwise and
# count one operation for each element of the result, also if they are transcendental.

Formula = Callable[[list[Any], list[Any], dict[str, Any]], int]


def _multiplications(n: int) -> int:
    """Multiplications in the n-th power by repeated squaring, and a division if n is negative."""
    m = abs(n)
    return (m.bit_length() - 1 + m.bit_count() - 1 if m else 0) + (1 if n < 0 else 0)


def _convolution_flops(x: Any, w: Any, y: Any, params: dict[str, Any]) -> int:
    """2 for each product of an element of `x` with one of `w`, except for zeros of padding and dilation. So the
    gradients of a convolution count as much as the convolution."""
    numbers = params["dimension_numbers"]
    pairs = 1
    for i, (below, _) in enumerate(params["padding"]):
        n, k, out = x[numbers.lhs_spec[2 + i]], w[numbers.rhs_spec[2 + i]], y[numbers.out_spec[2 + i]]
        hole = params["lhs_dilation"][i]
        starts = np.arange(out) * params["window_strides"][i] - below
        places = starts[:, None] + np.arange(k) * params["rhs_dilation"][i]
        pairs *= int(((places >= 0) & (places <= (n - 1) * hole) & (places % hole == 0)).sum())
    batch, channels = x[numbers.lhs_spec[0]] // params["batch_group_count"], w[numbers.rhs_spec[1]]
    return int(2 * pairs * batch * channels * y[numbers.out_spec[1]])


def _nothing(ins: list[Any], outs: list[Any], params: dict[str, Any]) -> int:
    return 0


def _reduction(ins: list[Any], outs: list[Any], params: dict[str, Any]) -> int:
    """n - 1 to reduce n elements to one."""
    size, groups = int(ins[0].size), int(outs[0].size)
    return size - groups if size > groups else 0


def _scan(ins: list[Any], outs: list[Any], params: dict[str, Any]) -> int:
    """One for each element except the first."""
    n = ins[0].shape[params["axis"]]
    return int(ins[0].size) // n * (n - 1) if n else 0


def _windows(ins: list[Any], outs: list[Any], params: dict[str, Any]) -> int:
    """n - 1 for each window of n elements."""
    return int(outs[0].size * (math.prod(params["window_dimensions"]) - 1))


def _updates(ins: list[Any], outs: list[Any], params: dict[str, Any]) -> int:
    """One for each element that is added in place."""
    return int(ins[2].size)


def _comparisons(ins: list[Any], outs: list[Any], params: dict[str, Any]) -> int:
    """n log2 n to sort n elements (an estimate)."""
    n = ins[0].shape[params["dimension"]]
    return math.ceil(ins[0].size * math.log2(n)) if n > 1 else 0


def _factored(thirds: int) -> Formula:
    """thirds/3 n^3 for the factorisation of each n by n matrix (leading term; an estimate)."""

    def formula(ins: list[Any], outs: list[Any], params: dict[str, Any]) -> int:
        return int(ins[0].size) * int(min(ins[0].shape[-2:])) * thirds // 3

    return formula


_FORMULAS: dict[str, Formula] = {
    "integer_pow": lambda ins, outs, params: int(outs[0].size) * _multiplications(params["y"]),
    "triangular_solve": lambda ins, outs, params: int(outs[0].size) * int(ins[0].shape[-1]),
    "lu": _factored(2),
    "cholesky": _factored(1),
    "svd": _factored(60),
    "sort": _comparisons,
}
"""The operations of primitives that are not elementwise."""

for _formula, _names in (
    (_reduction, "reduce_sum reduce_prod reduce_max reduce_min reduce_and reduce_or reduce argmax argmin"),
    (_scan, "cumsum cumprod cummax cummin cumlogsumexp"),
    (_windows, "reduce_window reduce_window_sum reduce_window_max reduce_window_min"),
    (_updates, "scatter-add scatter-mul scatter_add scatter_mul"),
    # Data movement and creation, random bits, and calls out of JAX, whose cost is unknown.
    (_nothing, "broadcast_in_dim reshape transpose squeeze expand_dims rev slice dynamic_slice dynamic_update_slice"),
    (_nothing, "concatenate split pad gather scatter copy convert_element_type bitcast_convert_type"),
    (_nothing, "reduce_precision iota full empty stop_gradient optimization_barrier device_put platform_index"),
    (_nothing, "random_wrap random_unwrap random_bits random_split threefry2x32 lu_pivots_to_permutation"),
    (_nothing, "pure_callback io_callback debug_callback"),
):
    _FORMULAS |= dict.fromkeys(_names.split(), _formula)


class Count(NamedTuple):
    """The cost of a graph; `str()` of it is a table.

    Constants of the graph, which are functions without inputs, are counted separately, since they compute nothing.
    """

    functions: int
    """Functions with inputs, including those that only move elements."""
    matrix_products: int
    """Matrix products; an einsum of n operands counts n - 1, less those that sum over no axis."""
    convolutions: int
    """Convolutions, and their gradients with respect to data and filters."""
    flops: int
    """Operations on elements: 2 m n k for a matrix product, one for each element of an elementwise result, ..."""
    bytes: int
    """Bytes that are read and written if each function runs by itself; XLA fuses many of them, and moves less."""
    constants: int
    """Functions without inputs: arrays filled with a number, and the like."""
    by_op: dict[str, Tally]
    """The same by name of the op, those with most operations first."""
    by_order: dict[int, Tally]
    """The same by order of differentiation: 0 is the user's graph, 1 its gradient, and so on. Functions that a gradient
    shares with the forward graph count there, and only once."""

    @property
    def total(self) -> Tally:
        """The first five fields, as a Tally."""
        return Tally(*self[:5])

    def __str__(self) -> str:
        tallies = [*self.by_op.items(), *[(f"order {k}", tally) for k, tally in self.by_order.items()]]
        rows = [(name, *map(short_number, tally)) for name, tally in (*tallies, ("total", self.total))]
        lines = aligned([_HEAD, *rows], range(1, len(_HEAD)), (1, 1 + len(self.by_op), len(rows)))
        rest = [f"and {self.constants} constant{'s' * (self.constants > 1)}"] if self.constants else []
        return "\n".join([*lines, *rest])

    def _repr_html_(self) -> str:
        return as_html(str(self))


def count(outputs: Variable | Iterable[Variable], each_step: bool = True) -> Count:
    """Count functions, matrix products, operations and bytes of the graph that computes `outputs`, each function once.

    Nothing is run. Leaves are not functions; constants of the graph are counted separately. Functions in the body of a
    loop count at each step, or once if not `each_step`; a loop with an unknown number of steps counts one step, a
    condition its most expensive branch, and a call out of JAX nothing. The loop itself is a function that costs
    nothing.

    Args:
        outputs: A Variable or Variables.
        each_step: Whether functions in a loop count at each step, which measures the work; else they count once, which
            measures the size of the graph and of the compiled program.

    Returns:
        A `Count`.

    Raises:
        TypeError: Something is not a Variable, or `each_step` is not a bool.
    """
    if not isinstance(each_step, bool):
        raise TypeError(f"count: each_step must be True or False, got {each_step!r}")
    by_op: dict[str, Tally] = {}
    by_order: dict[int, Tally] = {}
    constants = 0
    for f in functions_of(variables(outputs, "outputs")):
        for op, order, cost, runs in applications_of(f.op, f.arguments, tuple([x.spec for x in f.inputs]), f.order):
            constants += cost is None
            if cost is not None:
                cost = cost.times(runs if each_step else 1)
                by_op[op.name] = by_op.get(op.name, Tally()).plus(cost)
                by_order[order] = by_order.get(order, Tally()).plus(cost)
    ops = dict(sorted(by_op.items(), key=lambda entry: (-entry[1].flops, -entry[1].functions, entry[0])))
    return Count(*reduce(Tally.plus, by_order.values(), Tally()), constants, ops, dict(sorted(by_order.items())))


_HEAD = ("", "functions", "products", "convolutions", "FLOPs", "bytes")
_UNITS = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"))


def short_number(number: int) -> str:
    """A number in full up to a million, or with four digits and a unit."""
    for size, unit in _UNITS:
        if number >= size:
            return f"{number / size:.3f}"[:5].rstrip(".") + f" {unit}"
    return f"{number:,}" if number else "-"
