"""What the forward of an op is made of: the steps that JAX hands to the compiler for it."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
from jax.extend.core import Literal

from ..graph import Function, Op, Spec
from ..graph.jaxpr import primitives_in
from ..graph.spec import is_wide, spec_of, wide_types

_COSTLY = frozenset({
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cos", "cosh", "erf", "exp", "expm1", "log", "log1p",
    "logistic", "pow", "rsqrt", "sin", "sinh", "sqrt", "tan", "tanh",
})  # fmt: skip
"""Primitives that take several times the arithmetic of a product for each element."""


class Steps(NamedTuple):
    """The steps of a forward."""

    primitives: frozenset[str]
    """Their names."""
    combines: bool
    """Whether the last one combines several arrays that are made of the inputs."""


def steps_of(f: Function) -> Steps:
    """The steps of the forward of `f`; one element stands for all where the op is diagonal."""
    inputs = [spec_of((), x.dtype) if f.op.diagonal else x.spec for x in f.inputs]
    return _traced(f.op, f.arguments, tuple(inputs))


@functools.lru_cache(maxsize=1 << 12)
def _traced(op: Op, arguments: tuple[Any, ...], inputs: tuple[Spec, ...]) -> Steps:
    with wide_types(is_wide(arguments) or any([spec.wide for spec in inputs])):
        jaxpr = jax.make_jaxpr(op.bind(arguments))(*[spec.abstract() for spec in inputs]).jaxpr
    made = set(jaxpr.invars)
    last = 0
    for equation in jaxpr.eqns:
        operands = {v for v in equation.invars if not isinstance(v, Literal) and v in made}
        if operands:
            made.update(equation.outvars)
            last = len(operands)
    return Steps(frozenset(primitives_in(jaxpr)), last > 1)


def is_costly(f: Function) -> bool:
    """Whether `f` takes several times the arithmetic of a product for each element."""
    return f.op.fuses != "moving" and not _COSTLY.isdisjoint(steps_of(f).primitives)
