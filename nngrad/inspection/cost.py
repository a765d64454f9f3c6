"""What one function costs: products, convolutions, operations on elements, and bytes.

The forward of an op is traced to JAX's primitives, and the operations of each are counted by formula. So the cost
belongs to what runs: an op needs no formula of its own, and a user's function has its cost too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from ..execution.compiled import BoundedCache
from ..graph import Op, Spec
from ..graph.block import Block
from ..graph.body_op import ControlOp
from ..graph.jaxpr import name_of, parameters_of
from ..graph.spec import arguments_need_x64, x64_if


class Cost(NamedTuple):
    """What it takes to compute something."""

    matrix_products: int = 0
    """Matrix products that sum over at least one axis."""
    convolutions: int = 0
    flops: int = 0
    """Operations on elements, whatever their dtype; see `docs/inspection.md` for the formulas."""
    bytes: int = 0
    """Bytes that are read and written when each function runs by itself."""

    def plus(self, other: Cost) -> Cost:
        """The sum of both."""
        return Cost(*[a + b for a, b in zip(self, other, strict=True)])

    def times(self, count: int) -> Cost:
        """The same `count` times."""
        return Cost(*[a * count for a in self])


_traced = BoundedCache(4096)
"""Costs without the bytes, by op, arguments and specs of the inputs."""


def cost_of(op: Op, arguments: tuple[Any, ...], given: tuple[Spec, ...]) -> Cost:
    """The cost of an op on inputs of these shapes and dtypes, alone: each is read and each output written once."""
    cost: Cost = _traced.part((op,)).get((op, arguments, given), lambda: _traced_cost(op, arguments, given))
    return cost._replace(bytes=sum([s.nbytes for s in (*given, *op.result_specs(given, arguments))]))


def _traced_cost(op: Op, arguments: tuple[Any, ...], given: tuple[Spec, ...]) -> Cost:
    with x64_if(any(s.needs_x64 for s in given) or arguments_need_x64(arguments)):
        traced = jax.make_jaxpr(op.traceable(arguments))(*[s.abstract() for s in given])
    return _cost_of_jaxpr(traced.jaxpr)


class Application(NamedTuple):
    """An op applied in a graph, or in a body in it."""

    op: Op
    order: int
    cost: Cost | None
    """What it takes one time; None for a constant, which has no inputs."""
    runs: int
    """How often it runs."""


def applications_in(block: Block) -> list[Application]:
    """The applications of ops in a block, and in the bodies within it."""
    return [
        each for (op, arguments, ins), order in zip(block.steps, block.orders, strict=True)
        for each in applications_of(op, arguments, tuple([block.spec(i) for i in ins]), order)
    ]  # fmt: skip


def applications_of(op: Op, arguments: tuple[Any, ...], given: tuple[Spec, ...], order: int) -> list[Application]:
    """The application of an op, and those in its bodies. A loop costs nothing but what is in it; of branches it is the
    dearest one.

    Args:
        op: The op.
        arguments: Its static arguments.
        given: Shape and dtype of each input.
        order: Its order of differentiation.
    """
    if not isinstance(op, ControlOp):
        return [Application(op, order, cost_of(op, arguments, given) if given else None, 1)]
    alternatives: list[list[Application]] = []
    found = [Application(op, order, Cost(), 1)]
    for within in op.within(arguments, len(given)):
        inner = applications_in(within.body)  # as deep as there are loops within loops
        if within.alternative:
            alternatives.append(inner)
        else:
            found += [each._replace(runs=each.runs * within.runs) for each in inner]
    return found + max(alternatives, key=_operations, default=[])


def _operations(applications: Sequence[Application]) -> int:
    return sum([each.cost.flops * each.runs for each in applications if each.cost is not None])


def _cost_of_jaxpr(jaxpr: Any) -> Cost:
    """The cost of a jaxpr and all within it. Work in progress is a stack of (jaxpr, how often it runs)."""
    total, stack = Cost(), [(jaxpr, 1)]
    while stack:
        body, runs = stack.pop()
        for equation in body.eqns:
            name, params = name_of(equation), parameters_of(equation)
            if name == "cond":
                branches = [_cost_of_jaxpr(b.jaxpr) for b in _branches(params)]
                total = total.plus(max(branches, key=lambda c: c.flops).times(runs))
                continue
            # What has a formula is not looked into: a reduction's parameters hold the function that combines.
            inner = [] if name in _FORMULAS else list(_inner(params))
            if inner:
                stack += [(each, runs * params.get("length", 1)) for each in inner]
            else:
                total = total.plus(_cost_of_equation(equation).times(runs))
    return total


def _branches(params: dict[str, Any]) -> Sequence[Any]:
    """Returns what may run. Of ways that differ by platform it is the one for all that are not named, which
    has no detours."""
    branches: Sequence[Any] = params["branches"]
    return branches[-1:] if params.get("branches_platforms") is not None else branches


def _inner(params: dict[str, Any]) -> Iterator[Any]:
    """The jaxprs among an equation's parameters: bodies of calls and loops."""
    for name, value in params.items():
        if name == "cond_jaxpr" or "jvp" in name or name.startswith(("fwd", "bwd")):
            continue
        if name == "jaxprs":  # of a linear solve: of its four functions only this one runs
            value = value.solve
        body = getattr(value, "jaxpr", value)
        if hasattr(body, "eqns"):
            yield body


def _cost_of_equation(equation: Any) -> Cost:
    name, params = equation.primitive.name, equation.params
    ins, outs = [v.aval for v in equation.invars], [v.aval for v in equation.outvars]
    if name == "dot_general":
        (contracted, _), _ = params["dimension_numbers"]
        k = math.prod([ins[0].shape[a] for a in contracted])
        return Cost(matrix_products=1 if contracted else 0, flops=(2 * k if contracted else 1) * outs[0].size)
    if name == "conv_general_dilated":
        return Cost(convolutions=1, flops=_convolution_flops(ins[0].shape, ins[1].shape, outs[0].shape, params))
    formula = _FORMULAS.get(name)
    return Cost(flops=formula(ins, outs, params) if formula is not None else max([o.size for o in outs], default=0))


# ---------------------------------------------------------------- formulas of primitives
# Each takes the shapes of inputs and outputs and the parameters. Primitives that have none here are elementwise and
# count one operation for each element of the result, transcendental functions too.

Formula = Callable[[list[Any], list[Any], dict[str, Any]], int]


def _multiplications(n: int) -> int:
    """Products in the n-th power by repeated squaring, and one division if n is negative."""
    m = abs(n)
    return (m.bit_length() - 1 + m.bit_count() - 1 if m else 0) + (1 if n < 0 else 0)


def _convolution_flops(x: Any, w: Any, y: Any, params: dict[str, Any]) -> int:
    """2 for each product of an element of `x` with one of `w`; those with the zeros of margins and of dilation, which
    are not there, do not count. So the gradients of a convolution, too, count what it counts itself."""
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
    """n - 1 for n elements that are made one."""
    size, groups = int(ins[0].size), int(outs[0].size)
    return size - groups if size > groups else 0


def _scan(ins: list[Any], outs: list[Any], params: dict[str, Any]) -> int:
    """One for each element but the first."""
    n = ins[0].shape[params["axis"]]
    return int(ins[0].size) // n * (n - 1) if n else 0


def _windows(ins: list[Any], outs: list[Any], params: dict[str, Any]) -> int:
    """n - 1 for each window of n elements."""
    return int(outs[0].size * (math.prod(params["window_dimensions"]) - 1))


def _updates(ins: list[Any], outs: list[Any], params: dict[str, Any]) -> int:
    """One for each element that is added where it goes."""
    return int(ins[2].size)


def _comparisons(ins: list[Any], outs: list[Any], params: dict[str, Any]) -> int:
    """n log2 n for n elements in order (an estimate)."""
    n = ins[0].shape[params["dimension"]]
    return math.ceil(ins[0].size * math.log2(n)) if n > 1 else 0


def _factored(thirds: int) -> Formula:
    """Of a factorisation: thirds/3 n^3 for each n by n matrix (leading term; an estimate)."""

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
"""Operations of the primitives that are not elementwise."""

for _formula, _names in (
    (_reduction, "reduce_sum reduce_prod reduce_max reduce_min reduce_and reduce_or reduce argmax argmin"),
    (_scan, "cumsum cumprod cummax cummin cumlogsumexp"),
    (_windows, "reduce_window reduce_window_sum reduce_window_max reduce_window_min"),
    (_updates, "scatter-add scatter-mul scatter_add scatter_mul"),
    # Movement and creation, a random generator's bits, and calls out of JAX, of which nothing is known.
    (_nothing, "broadcast_in_dim reshape transpose squeeze expand_dims rev slice dynamic_slice dynamic_update_slice"),
    (_nothing, "concatenate split pad gather scatter copy convert_element_type bitcast_convert_type"),
    (_nothing, "reduce_precision iota full empty stop_gradient optimization_barrier device_put platform_index"),
    (_nothing, "random_wrap random_unwrap random_bits random_split threefry2x32 lu_pivots_to_permutation"),
    (_nothing, "pure_callback io_callback debug_callback"),
):
    _FORMULAS |= dict.fromkeys(_names.split(), _formula)
