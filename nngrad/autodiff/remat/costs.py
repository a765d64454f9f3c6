"""What functions cost, from shapes and dtypes alone, and what they read."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax

from ...graph import Function, Op, Spec, Variable
from ...graph.jaxpr import primitives_in
from ...graph.spec import arguments_need_x64, spec_of, x64_if

_COSTLY = frozenset({
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cos", "cosh", "div", "erf", "exp", "expm1", "log",
    "log1p", "logistic", "pow", "rsqrt", "sin", "sinh", "sqrt", "tan", "tanh",
})  # fmt: skip
"""Primitives that take several times the arithmetic of a product for each element."""


def reads(f: Function) -> tuple[Variable, ...]:
    """The inputs that `f` computes its outputs from: not those that only say when, whose gradient it carries, or that
    it passes on besides."""
    return f.inputs[: 1 if f.op.forwards_inputs else f.op.reads]


def arithmetic(f: Function) -> int:
    """About how many additions and multiplications `f` takes."""
    op = f.op
    if op.cost is not None:
        return op.cost(f) if f.heavy else 8 * max([s.size for s in f.specs] + [x.size for x in f.inputs])
    if op.view or op.reads is not None:
        return 0
    elements = max([f.specs[0].size, *[x.size for x in f.inputs]])
    return (8 if is_costly(op, f.arguments, [x.spec for x in f.inputs]) else 1) * elements


def is_costly(op: Op, arguments: tuple[Any, ...], inputs: Sequence[Spec]) -> bool:
    """Whether `op` takes several times the arithmetic of a product for each element."""
    if op.fuses == "moving":
        return False
    # One element stands for all where the op is diagonal.
    specs = [spec_of((), s.dtype) for s in inputs] if op.diagonal else inputs
    return not _COSTLY.isdisjoint(_primitives(op, arguments, tuple(specs)))


@functools.lru_cache(maxsize=1 << 12)
def _primitives(op: Op, arguments: tuple[Any, ...], inputs: tuple[Spec, ...]) -> frozenset[str]:
    """The steps that JAX hands to the compiler for an op."""
    with x64_if(arguments_need_x64(arguments) or any([spec.needs_x64 for spec in inputs])):
        jaxpr = jax.make_jaxpr(op.traceable(arguments))(*[spec.abstract() for spec in inputs]).jaxpr
    return frozenset(primitives_in(jaxpr))
