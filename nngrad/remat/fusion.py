"""What XLA on a CPU does with functions where memory is concerned: which it fuses, which it would rather keep.

The rules are those of its fusion pass ("instruction fusion"), in terms of nngrad's functions: of what an op is declared
to be, and of the steps that its forward is made of.
"""

from __future__ import annotations

import re
from importlib.metadata import version

import nngrad.functions as F

from ..graph import Function, Op
from .costs import is_sum
from .steps import is_costly, steps_of


def is_fused(op: Op) -> bool:
    """Whether XLA can compute `op` within the loop of what reads its result."""
    return bool(op.fuses)


def is_kept(f: Function) -> bool:
    """Whether XLA would rather keep the result of `f`, a function that it can fuse, than compute it twice."""
    return f.op.diagonal and (is_costly(f) or "div" in steps_of(f).primitives)


def keeps_places(op: Op) -> bool:
    """Whether each element that `op`, which XLA can fuse, gives is made of the elements at the same place."""
    return op.fuses != "moving"


def has_part(op: Op) -> bool:
    """Whether `op` first makes an array that several of its steps read, and its result, cheaply, from that."""
    return op.fuses == "in parts"


def combines_arrays(f: Function) -> bool:
    """Whether the last step of `f` combines several arrays of the size of its result."""
    op = f.op
    if len(f.inputs) == 1 and op.diagonal and not op.linear:
        return steps_of(f).combines
    if is_sum(op) and not op.weights and all([_is_turned(x.parent) for x in f.inputs]):
        return False  # it runs in the convolutions' order of axes, so that turning them comes last
    whole = [x.size == f.specs[0].size and (x.parent is None or x.parent.op is not F.broadcast) for x in f.inputs]
    if op.variadic and not whole[-1]:
        return False  # it ends with a function of the sum so far
    if op.offset and f.args[op.offset] != 0:
        return False
    return len({x for x, is_whole in zip(f.inputs, whole, strict=True) if is_whole}) > 1


def _is_turned(f: Function | None) -> bool:
    """Whether XLA computes the result of `f` in another order of axes."""
    return f is not None and f.op.turned is not None and -1 in f.op.turned(f)


def combines_at_once(f: Function, operand: int) -> bool:
    """Whether `f` combines this of its inputs with others as it is, and does not multiply it by a number before."""
    return not f.op.weights or abs(f.args[f.op.weights][operand]) == 1


def copied_operands(f: Function) -> tuple[int, ...]:
    """Which operands of `f` XLA reads from a copy with turned axes."""
    return () if f.op.turned is None else tuple([i for i in f.op.turned(f) if i >= 0])


# ---------------------------------------------------------------- reductions

_WINDOW = 32
"""XLA's own reductions go in several passes over an axis that is longer, and then they read from memory."""

_TO_LIBRARY: frozenset[str] = (
    frozenset({"add", "max", "min"})
    if tuple(map(int, re.findall(r"\d+", version("jaxlib"))[:3])) >= (0, 10, 2)
    else frozenset()
)
"""Reductions that XLA on a CPU gives to a library (YNNPACK), since jaxlib 0.10.2."""

_MANY = 4096
"""From how many elements on it does."""

_KNOWN_TO_LIBRARY = frozenset({
    "abs", "add", "add_any", "bitcast_convert_type", "broadcast_in_dim", "ceil", "convert_element_type", "cosh", "div",
    "erf", "exp", "floor", "integer_pow", "log", "log1p", "logistic", "max", "min", "mul", "neg", "or",
    "population_count", "pow", "reshape", "rsqrt", "shift_right_logical", "slice", "sqrt", "sub", "tanh",
})  # fmt: skip
"""The steps that it takes on the way: tried one by one. Comparisons and what chooses by them are not among them, nor is
what XLA makes of a maximum and a minimum together, which is one step."""


def computes_operands(f: Function) -> bool:
    """Whether XLA computes what `f` reads within the loop of `f`, unless something else has it in memory."""
    return is_fused(f.op) or (bool(f.op.reduction) and not is_in_library(f) and max(_reduced(f), default=0) <= _WINDOW)


def is_in_library(f: Function) -> bool:
    """Whether XLA has `f`, a reduction, done by a library, which computes on the way what it knows."""
    return f.op.reduction in _TO_LIBRARY and f.inputs[0].size >= _MANY


def is_known_to_library(f: Function) -> bool:
    """Whether the library that reduces can compute `f` on the way."""
    if not is_fused(f.op) or f.op.passes or not f.inputs:
        return False
    steps = steps_of(f).primitives
    return steps <= _KNOWN_TO_LIBRARY and not steps >= {"max", "min"}


def _reduced(f: Function) -> list[int]:
    """How long the axes are that `f` reduces."""
    assert f.op.axes is not None
    (places,) = f.op.axes.places(f)
    return [n for n, place in zip(f.inputs[0].shape, places, strict=True) if place is None]
