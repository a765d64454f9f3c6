"""Recognise calls of JAX's functions by their equations and derivatives, never by their names.

A call with a custom derivative is recognised if its equations and those of its derivative are the same as those of a
JAX function in the table. A call of `jax.jit` has no derivative of its own, so its equations decide.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import numpy as jnp
from jax.scipy import special

from .. import functions as F
from ..extend import Variable, interrupt_safe, x64_if
from ..functions.traced import (
    CUSTOM_RULES,
    called_function,
    name_of,
    primitives_in,
    structure_of_called,
    structure_of_rules,
)
from .primitives.registry import scalar, variable
from .values import ComplexPair, Delayed, Keys, needs_x64


class Reference(NamedTuple):
    """A function of JAX's, and what replaces it."""

    function: Callable[..., Any]
    opened: Callable[..., list[Variable] | None]
    """Returns its results for the values of its inputs; None for values that it does not support."""
    sign: str
    """A primitive that it contains in all versions of JAX; calls without it need not be compared."""
    elementwise: bool = False
    """Whether each element of the result depends on elements at its own place, so that maps change nothing."""
    results: int = 1
    """The number of results."""

    def can_be(self, equation: Any, names: Collection[str]) -> bool:
        """Whether a call that contains these primitives may be this function, as far as this can be told without
        tracing."""
        if self.sign not in names or len(equation.outvars) != self.results:
            return False
        shapes = [shape for shape, *_ in _described(equation)]
        return not self.elementwise or _broadcast(shapes) == equation.outvars[0].aval.shape


def _logaddexp(x: Any, y: Any) -> list[Variable]:
    if scalar(y) == 0 or scalar(x) == 0:
        return [F.softplus(variable(x if scalar(y) == 0 else y))]
    return [F.logaddexp(variable(x), variable(y))]


def _sinc(x: Any) -> list[Variable]:
    """`sin(pi x) / (pi x)`; F.sinc has no pi."""
    return [F.sinc(F.mul_scalar(variable(x), val=math.pi))]


def _of_variables(function: Callable[..., Any]) -> Callable[..., list[Variable]]:
    def opened(*values: Any) -> list[Variable]:
        results = function(*map(variable, values))
        return list(results) if isinstance(results, tuple | list) else [results]

    return opened


def _slogdet(a: Variable) -> list[Variable]:
    return [F.signum(F.batch_det(a)), F.batch_logdet(a)]


def _hypot(x: Any, y: Any) -> list[Variable]:
    """JAX's formula, but of two equal lengths one is taken as the larger: with half of each, second derivatives are
    lost."""
    x, y = F.abs(variable(x)), F.abs(variable(y))
    first = F.greater_equal(x, y)
    larger, smaller = F.where(first, x, y), F.where(first, y, x)
    is_zero = F.equal_scalar(larger, 0)
    length = larger * F.sqrt(1 + F.square(smaller / F.where(is_zero, 1, larger)))
    infinite = F.logical_or(F.isinf(x), F.isinf(y))
    return [F.where(infinite, math.inf, F.where(is_zero, F.maximum2(x, y), length))]


REFERENCES = (
    Reference(jax.nn.relu, _of_variables(F.relu), "max", elementwise=True),
    Reference(jnp.logaddexp, _logaddexp, "log1p", elementwise=True),
    Reference(jnp.sinc, _sinc, "div", elementwise=True),
    Reference(jnp.hypot, _hypot, "sqrt", elementwise=True),
    Reference(special.xlogy, _of_variables(F.xlogy), "log", elementwise=True),
    Reference(special.xlog1py, _of_variables(F.xlog1py), "log1p", elementwise=True),
    Reference(special.expi, _of_variables(F.expi), "while", elementwise=True),
    *[Reference(f, _of_variables(F.erfcx), "square", True) for f in [getattr(special, "erfcx", None)] if f is not None],
    Reference(special.log_ndtr, _of_variables(F.log_ndtr), "log", elementwise=True),
    *[Reference(f, _of_variables(F.i0), "bessel_i0e", elementwise=True) for f in (jnp.i0, special.i0)],
    Reference(special.i1, _of_variables(F.i1), "bessel_i1e", elementwise=True),
    Reference(jnp.linalg.det, _of_variables(F.batch_det), "abs"),
    Reference(jnp.linalg.slogdet, _of_variables(_slogdet), "log", results=2),
    Reference(jnp.linalg.inv, _of_variables(F.batch_inv), "lu"),
    Reference(jnp.linalg.pinv, _of_variables(F.batch_pinv), "svd"),
    Reference(jnp.linalg.solve, _of_variables(F.batch_solve), "lu"),
)
"""The recognised functions. Those of one argument work on any leading axes, so they are also recognised under
`jax.vmap`, where the equations of some differ from those for a batch."""


def _broadcast(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...] | None:
    """The broadcast shape; None if the shapes do not broadcast."""
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        return None


def _axes_of_maps(described: tuple[Any, ...], elementwise: bool) -> list[tuple[int, ...]]:
    """The axes over which at most two calls of `jax.vmap` may map a function: one tuple for each possibility, the
    outermost map first."""
    ranks = {len(shape) for shape, *_ in described}
    # `jax.vmap` aligns inputs of different ranks by the mapped axis, not from the right: elements would change places.
    if (len(described) != 1 and not elementwise) or len(ranks - {0}) > 1:
        return [()]
    axes = range(max(ranks))
    return [(), *[(a,) for a in axes], *[(a, 0) for a in axes if len(axes) > 1]]


def _axes_first(x: Any, axes: tuple[int, ...]) -> Any:
    """`x` with the mapped axes first."""
    x = variable(x)
    order = list(range(x.ndim))
    front = [order.pop(a) for a in axes]
    return x if front + order == list(range(x.ndim)) else F.transpose(x, axes=(*front, *order))


def _described(equation: Any) -> tuple[Any, ...]:
    """Shape, dtype and weak type of each input, except closed-over arrays."""
    given = equation.invars[int(equation.params.get("num_consts", 0)) :]
    return tuple([(v.aval.shape, v.aval.dtype, bool(getattr(v.aval, "weak_type", False))) for v in given])


def recognised(equation: Any, values: list[Any]) -> list[Any] | None:
    """The replacement of a call of a recognised function; None if it is not recognised.

    Args:
        equation: The call.
        values: Its inputs.
    """
    if any([isinstance(v, Keys | Delayed | ComplexPair) for v in values]):
        return None
    inner = called_function(equation)
    if inner is None:
        return None
    own = Call(equation)
    custom = name_of(equation) in CUSTOM_RULES
    values = values[int(equation.params.get("num_consts", 0)) :]
    names = primitives_in(inner.jaxpr)
    described = _described(equation)
    for reference in REFERENCES:
        if not reference.can_be(equation, names):
            continue
        for axes in _axes_of_maps(described, reference.elementwise):
            if own.is_one_of(_calls_of(reference.function, reference.elementwise, described, custom, axes)):
                moved = axes and not reference.elementwise
                return reference.opened(*[_axes_first(v, axes) for v in values] if moved else values)
    return None


class Call:
    """A call, comparable by its equations and, where these agree, by its derivative."""

    def __init__(self, equation: Any) -> None:
        self._equation = equation

    @functools.cached_property
    def _computed(self) -> Hashable:
        return structure_of_called(self._equation, False)

    @functools.cached_property
    def _structure(self) -> Hashable:
        """The structure of its equations, and of its custom derivative if it has one."""
        if name_of(self._equation) in CUSTOM_RULES:
            return structure_of_rules(self._equation)
        return structure_of_called(self._equation)

    def is_one_of(self, others: tuple[Call, ...]) -> bool:
        """Whether it equals one of the others."""
        return any([self._computed == each._computed and self._structure == each._structure for each in others])


@functools.lru_cache(maxsize=1024)
def _calls_of(
    function: Callable[..., Any], elementwise: bool, described: Any, custom: bool, axes: tuple[int, ...]
) -> tuple[Call, ...]:
    """The calls that JAX traces for a function with inputs of these kinds, mapped over these axes."""
    for a in reversed(axes):
        moved = tuple([a if shape else None for shape, *_ in described])
        function = jax.vmap(function, in_axes=moved, out_axes=a if elementwise else 0)
    abstract = [jax.ShapeDtypeStruct(shape, dtype, weak_type=weak) for shape, dtype, weak in described]
    try:
        with x64_if(any([needs_x64(v) for v in abstract])):
            closed = interrupt_safe(jax.make_jaxpr(function))(*abstract)
    except (TypeError, ValueError, NotImplementedError):
        return ()
    found = []
    jaxpr = closed.jaxpr
    while len(jaxpr.eqns) == 1:  # the whole jaxpr is one call
        (equation,) = jaxpr.eqns
        inner = called_function(equation)
        if (
            inner is None
            or list(equation.invars) != [*jaxpr.constvars, *jaxpr.invars]
            or list(equation.outvars) != list(jaxpr.outvars)
        ):
            break
        if (name_of(equation) in CUSTOM_RULES) == custom:
            found.append(Call(equation))
        jaxpr = inner.jaxpr
    return tuple(found)
