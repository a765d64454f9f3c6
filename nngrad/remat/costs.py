"""What functions cost, from shapes and dtypes alone, and what they read."""

from __future__ import annotations

from ..graph import Function, Op, Variable
from .steps import is_costly


def reads(f: Function) -> tuple[Variable, ...]:
    """The inputs that `f` computes its outputs from: not those that only say when, whose gradient it carries, or that
    it passes on besides."""
    return f.inputs[: 1 if f.op.passes else f.op.reads]


def tokens(f: Function) -> tuple[Variable, ...]:
    """The inputs of `f` that only say when."""
    return () if f.op.reads is None or f.op.passes else f.inputs[f.op.reads :]


def is_sum(op: Op) -> bool:
    """Whether `op` adds up several arrays, element by element."""
    return op.linear == "together" and op.diagonal and (op.variadic or len(op.input_names) > 1)


def arithmetic(f: Function) -> int:
    """About how many additions and multiplications `f` takes."""
    op = f.op
    if op.cost is not None:
        return op.cost(f)
    if op.view or op.reads is not None:
        return 0
    elements = max([f.specs[0].size, *[x.size for x in f.inputs]])
    return (8 if is_costly(f) else 1) * elements
