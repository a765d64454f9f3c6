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
from jax.extend.core import Literal
from jax.scipy import special

from .. import functions as F
from ..extend import Variable, interrupt_safe, x64_if
from ..functions.complex_matrices import complex_det, complex_inv, complex_slogdet
from ..functions.traced import (
    CUSTOM_RULES,
    called_function,
    name_of,
    primitives_in,
    structure_of,
    structure_of_called,
    structure_of_rules,
)
from .primitives.registry import both_parts, scalar, variable
from .values import ComplexPair, Delayed, Keys, needs_x64


class Reference(NamedTuple):
    """A function of JAX's, and what replaces it."""

    function: Callable[..., Any]
    opened: Callable[..., list[Variable] | None]
    """Returns its results for the values of its inputs; None for values that it does not support."""
    sign: str
    """A primitive that it contains in all versions of JAX; calls without it need not be compared."""
    elementwise: bool = False
    """True if each element of the result depends on elements at its own place, so that maps change nothing."""
    results: int = 1
    """The number of results."""
    fewer_axes: int | None = None
    """How many axes each result has less than the one argument; None if there are several arguments."""
    of_pairs: Callable[..., list[Any] | None] | None = None
    """As `opened`, for complex numbers as pairs of their parts."""

    def can_be(self, equation: Any, names: Collection[str]) -> bool:
        """True if a call that contains these primitives may be this function, as far as this can be told without
        tracing."""
        if self.sign not in names or len(equation.outvars) != self.results:
            return False
        shapes, result = [shape for shape, *_ in _described(equation)], equation.outvars[0].aval.shape
        if self.elementwise:
            return bool(_broadcast(shapes) == result)
        return self.fewer_axes is None or [len(shape) for shape in shapes] == [len(result) + self.fewer_axes]


def _logaddexp(x: Any, y: Any) -> list[Variable]:
    if scalar(y) == 0 or scalar(x) == 0:
        return [F.softplus(variable(x if scalar(y) == 0 else y))]
    return [F.logaddexp(variable(x), variable(y))]


def _sinc(x: Any) -> list[Variable]:
    """`sin(pi x) / (pi x)`; F.sinc has no pi."""
    return [F.sinc(F.mul_scalar(variable(x), val=math.pi))]


def _expn(n: Any, x: Any) -> list[Variable] | None:
    order = scalar(n)
    return [F.expn(int(order), variable(x))] if order is not None and order in range(1, 5) else None


def _of_variables(function: Callable[..., Any]) -> Callable[..., list[Variable]]:
    def opened(*values: Any) -> list[Variable]:
        results = function(*map(variable, values))
        return list(results) if isinstance(results, tuple | list) else [results]

    return opened


def _slogdet(a: Variable) -> list[Variable]:
    return [F.signum(F.batch_det(a)), F.batch_logdet(a)]


def _complex_slogdet(a: ComplexPair) -> list[Any]:
    real, imaginary, size = complex_slogdet(*both_parts(a))
    return [ComplexPair(real, imaginary), size]


def _complex_det(a: ComplexPair) -> list[Any]:
    return [ComplexPair(*complex_det(*both_parts(a)))]


def _complex_inv(a: ComplexPair) -> list[Any]:
    return [ComplexPair(*complex_inv(*both_parts(a)))]


def _complex_solve(a: Any, b: Any) -> list[Any]:
    """A real system of twice the size."""
    (ar, ai), (br, bi) = both_parts(a), both_parts(b)
    rows = F.concatenate(ar, F.mul_scalar(ai, val=-1.0), axis=-1), F.concatenate(ai, ar, axis=-1)
    axis = -1 if br.ndim == 1 else -2
    y = F.batch_solve(F.concatenate(*rows, axis=-2), F.concatenate(br, bi, axis=axis))
    n = ar.shape[-1]
    windows = [[(0, m, 1) for m in y.shape] for _ in range(2)]
    windows[0][axis], windows[1][axis] = (0, n, 1), (n, n, 1)
    return [ComplexPair(*[F.take_slices(y, key=tuple(window)) for window in windows])]


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
    *[Reference(functools.partial(special.expn, n), _of_variables(functools.partial(F.expn, n)), "while", True)
      for n in range(1, 5)],
    Reference(special.expn, _expn, "while", elementwise=True),
    Reference(special.exp1, _of_variables(functools.partial(F.expn, 1)), "while", elementwise=True),
    *[Reference(f, _of_variables(F.erfcx), "square", True) for f in [getattr(special, "erfcx", None)] if f is not None],
    Reference(special.log_ndtr, _of_variables(F.log_ndtr), "log", elementwise=True),
    *[Reference(f, _of_variables(F.i0), "bessel_i0e", elementwise=True) for f in (jnp.i0, special.i0)],
    Reference(special.i1, _of_variables(F.i1), "bessel_i1e", elementwise=True),
    Reference(jnp.linalg.det, _of_variables(F.batch_det), "abs", of_pairs=_complex_det, fewer_axes=2),
    Reference(jnp.linalg.slogdet, _of_variables(_slogdet), "log", results=2, of_pairs=_complex_slogdet, fewer_axes=2),
    Reference(jnp.linalg.inv, _of_variables(F.batch_inv), "lu", of_pairs=_complex_inv, fewer_axes=0),
    Reference(jnp.linalg.pinv, _of_variables(F.batch_pinv), "svd", fewer_axes=0),
    Reference(jnp.linalg.solve, _of_variables(F.batch_solve), "lu", of_pairs=_complex_solve),
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
    if isinstance(x, ComplexPair):
        return ComplexPair(_axes_first(x.real, axes), _axes_first(x.imaginary, axes))
    x = variable(x)
    order = list(range(x.ndim))
    front = [order.pop(a) for a in axes]
    return x if front + order == list(range(x.ndim)) else F.transpose(x, axes=(*front, *order))


def _described(equation: Any) -> tuple[Any, ...]:
    """Shape, dtype and weak type of each input, except closed-over arrays."""
    inputs = equation.invars[int(equation.params.get("num_consts", 0)) :]
    return tuple([(v.aval.shape, v.aval.dtype, bool(getattr(v.aval, "weak_type", False))) for v in inputs])


def recognised(equation: Any, values: list[Any]) -> list[Any] | None:
    """The replacement of a call of a recognised function; None if it is not recognised.

    Args:
        equation: The call.
        values: Its inputs.
    """
    if any([isinstance(v, Keys | Delayed) for v in values]):
        return None
    inner = called_function(equation)
    if inner is None:
        return None
    call = Call(equation)
    custom = name_of(equation) in CUSTOM_RULES
    values = values[int(equation.params.get("num_consts", 0)) :]
    names = primitives_in(inner.jaxpr)
    described = _described(equation)
    pairs = any([isinstance(v, ComplexPair) for v in values])
    for reference in REFERENCES:
        opened = reference.of_pairs if pairs else reference.opened
        if opened is None or not reference.can_be(equation, names):
            continue
        for axes in _axes_of_maps(described, reference.elementwise):
            calls = _calls_of(reference.function, reference.elementwise, described, custom, axes)
            if call.is_one_of(calls or ()):
                moved = axes and not reference.elementwise
                return opened(*[_axes_first(v, axes) for v in values] if moved else values)
            if reference.elementwise and (not calls or not any([c.computes_with(names) for c in calls])):
                break  # nor does any map of it
    return None


INLINED = (Reference(special.betaln, _of_variables(F.betaln), "min", elementwise=True),)
"""Functions that JAX inlines, and the primitive that they begin with."""


def inlined_calls(equations: Sequence[Any]) -> dict[int, tuple[Callable[..., Any], list[Any]]]:
    """Where the equations of inlined functions end, what opens these functions, and their inputs."""
    ends = {}
    for start, first in enumerate(equations):
        for reference in INLINED:
            if name_of(first) != reference.sign or not jnp.issubdtype(first.outvars[0].aval.dtype, jnp.floating):
                continue
            inputs = list(first.invars)
            variables = list(dict.fromkeys([v for v in inputs if not isinstance(v, Literal)]))
            numbered = [(None, _number_of(v)) if isinstance(v, Literal) else (variables.index(v), None) for v in inputs]
            described = [(v.aval.shape, v.aval.dtype, v.aval.weak_type) for v in variables]
            whole = _inlined(reference.function, tuple(numbered), tuple(described))
            sequence = equations[start : start + len(whole.eqns)]
            if list(map(name_of, sequence)) != list(map(name_of, whole.eqns)):
                continue
            here = whole.replace(invars=variables, outvars=sequence[-1].outvars, eqns=sequence)
            if structure_of(here) == structure_of(whole):
                ends[start + len(sequence) - 1] = reference.opened, inputs
    return ends


def _number_of(literal: Any) -> Any:
    return float(literal.val) if literal.aval.weak_type else np.asarray(literal.val, literal.aval.dtype)[()]


@functools.lru_cache(maxsize=256)
def _inlined(function: Callable[..., Any], numbered: tuple[Any, ...], described: tuple[Any, ...]) -> Any:
    """The equations of a function that JAX inlines, given some of the described arrays, by number, or numbers."""
    abstract = [jax.ShapeDtypeStruct(shape, dtype, weak_type=weak) for shape, dtype, weak in described]
    with x64_if(any([needs_x64(v) for v in abstract])):
        traced = interrupt_safe(jax.make_jaxpr(lambda *xs: function(*[n if i is None else xs[i] for i, n in numbered])))
        return traced(*abstract).jaxpr


_MOVING = {"broadcast_in_dim", "reshape", "squeeze", "transpose", "jit", "pjit"}
"""Primitives that a map may add to an elementwise function, or leave out."""


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

    def computes_with(self, names: Collection[str]) -> bool:
        """True if it, or a map of it, may contain these primitives: maps move axes, and choose in loops."""
        inner = called_function(self._equation)
        own = set() if inner is None else set(primitives_in(inner.jaxpr))
        return "while" in own or own - _MOVING == set(names) - _MOVING

    def is_one_of(self, others: tuple[Call, ...]) -> bool:
        """True if it equals one of the others."""
        return any([self._computed == other._computed and self._structure == other._structure for other in others])


@functools.lru_cache(maxsize=1024)
def _calls_of(
    function: Callable[..., Any], elementwise: bool, described: Any, custom: bool, axes: tuple[int, ...]
) -> tuple[Call, ...] | None:
    """The calls that JAX traces for a function with inputs of these kinds, mapped over these axes; None if it does not
    take such inputs."""
    for a in reversed(axes):
        moved = tuple([a if shape else None for shape, *_ in described])
        function = jax.vmap(function, in_axes=moved, out_axes=a if elementwise else 0)
    abstract = [jax.ShapeDtypeStruct(shape, dtype, weak_type=weak) for shape, dtype, weak in described]
    try:
        with x64_if(any([needs_x64(v) for v in abstract])):
            closed = interrupt_safe(jax.make_jaxpr(function))(*abstract)
    except (TypeError, ValueError, NotImplementedError):
        return None
    calls = []
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
            calls.append(Call(equation))
        jaxpr = inner.jaxpr
    return tuple(calls)
