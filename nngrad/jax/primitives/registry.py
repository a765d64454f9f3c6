"""The registry of rules that open equations, by name of JAX's primitive."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jax import numpy as jnp

from ... import functions as F
from ...extend import Variable
from ...functions.traced import name_of, parameters_of
from ..values import ComplexPair, KnownArray


class Unsupported(Exception):
    """The rule does not support the equation's parameters; the equation stays opaque."""


class JaxprEquation:
    """An equation as a rule sees it: the primitive, its parameters, and the avals of inputs and outputs."""

    __slots__ = ("dtype", "inputs", "name", "outputs", "params", "shape")

    def __init__(self, equation: Any) -> None:
        self.name = name_of(equation)
        self.params = parameters_of(equation)
        self.inputs: list[Any] = [v.aval for v in equation.invars]
        self.outputs: list[Any] = [v.aval for v in equation.outvars]
        self.shape: tuple[int, ...] = tuple(self.outputs[0].shape) if self.outputs else ()
        self.dtype: Any = self.outputs[0].dtype if self.outputs else None

    def of_parts(self) -> JaxprEquation:
        """The same equation on the real parts of complex numbers."""
        parts = object.__new__(JaxprEquation)
        for name in JaxprEquation.__slots__:
            setattr(parts, name, getattr(self, name))
        parts.dtype = _REAL.get(np.dtype(self.dtype), self.dtype)
        return parts

    @property
    def is_floating(self) -> bool:
        """True if the output is floating."""
        return bool(jnp.issubdtype(self.dtype, jnp.floating))


_REAL = {np.dtype(np.complex64): np.dtype(np.float32), np.dtype(np.complex128): np.dtype(np.float64)}

Rule = Callable[..., Any]


class PrimitiveRule(NamedTuple):
    """A rule, and whether it takes known inputs as `KnownArray` rather than as Variables."""

    function: Rule
    takes_known: bool


RULES: dict[str, PrimitiveRule] = {}
"""Rules by primitive name: `function(equation, *values)` returns a Variable, or a list of results."""

CONTROL: dict[str, Callable[[Any, JaxprEquation, list[Any]], list[Any]]] = {}
"""Rules of primitives that hold jaxprs, by name: `control(opening, equation, values)`."""


POINTWISE: set[str] = set()
"""Primitives known to be elementwise, for equations that no rule takes."""


def opens(*names: str, takes_known: bool = False) -> Callable[[Rule], Rule]:
    """Register the decorated function as the rule of these primitives."""

    def enter(function: Rule) -> Rule:
        for name in names:
            RULES[name] = PrimitiveRule(function, takes_known)
        return function

    return enter


def opens_each(functions: dict[str, Callable[..., Any]]) -> None:
    """Register functions of Variables as the rules of primitives without parameters."""
    for name, function in functions.items():
        opens(name)(lambda equation, *xs, function=function: function(*xs))


def controls(*names: str) -> Callable[[Rule], Rule]:
    """Register the decorated function as the rule of control-flow primitives, which hold jaxprs."""

    def enter(function: Rule) -> Rule:
        for name in names:
            CONTROL[name] = function
        return function

    return enter


def require(condition: object, what: str) -> None:
    """Leave the equation opaque unless the condition holds; the report shows `what`."""
    if not condition:
        raise Unsupported(what)


def require_floating(equation: JaxprEquation) -> None:
    """Leave an equation on integers opaque."""
    require(equation.is_floating, f"its result is {equation.dtype}")


def variable(value: Any) -> Variable:
    """A value as a Variable, even if it is a known array."""
    y: Variable = value.variable() if isinstance(value, KnownArray) else value
    return y


def both_parts(value: Any) -> tuple[Variable, Variable]:
    """The real and imaginary parts of a value, which may be real."""
    if isinstance(value, ComplexPair):
        return variable(value.real), variable(value.imaginary)
    x = variable(value)
    return x, F.constant(val=0.0, shape=x.shape, dtype=x.dtype)


def scalar(value: Any) -> float | None:
    """The number that fills a known array; None for all other values."""
    return value.scalar if isinstance(value, KnownArray) else None
