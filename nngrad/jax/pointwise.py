"""Equations that go element by element, and have no rule: they run as JAX's, and their derivatives are opened.

With D_i the derivative of such a function f in its i-th input, which is a function of the same kind,

    d f(x1, x2, ...) / dx_i = gy D_i(x1, x2, ...)

and JAX tells D_i: it is f's derivative along ones in the place of that input. So what f is made of is not looked into,
but each element depends on those at its place alone, and so rows, forward mode and symmetry go through it.

A derivative that f's author has set need not be the true one. Where one input moves, the sequence f, D, D', ... is
consistent in itself, and calculus holds of it whatever it is; where several do, mixed derivatives need not commute, and
the op is one whose rule is not exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import numpy as jnp
from jax.extend.core import ClosedJaxpr

from backward_registry import Rule, registry

from ..functions.jaxpr_structure import TracedFunction, is_told_what_moves
from ..graph import Array, Function, Op, Variable, apply, functions_of
from ..graph.arguments import Static
from ..graph.by_jax import along
from ..graph.jaxpr import CUSTOM_RULES, alone, jaxpr_for, name_of
from .values import ComplexPair


class PointwiseFunction(TracedFunction):
    """A function of arrays of one shape, as it was traced, and the ways to its derivatives.

    Args:
        name: Its name.
        closed: What was traced; it has one output.
        open_jaxpr: Gives the result of a jaxpr for Variables of its inputs.
    """

    __slots__ = ("_open", "_partials", "closed")

    def __init__(
        self, name: str, closed: ClosedJaxpr, open_jaxpr: Callable[[ClosedJaxpr, Sequence[Variable]], Variable]
    ) -> None:
        active = tuple([i for i, v in enumerate(closed.in_avals) if jnp.issubdtype(v.dtype, jnp.floating)])
        super().__init__(name, closed, (), active)
        self.closed = closed
        self._open = open_jaxpr
        moves = self.outputs[0].differentiable
        self._partials: dict[int, ClosedJaxpr] = {i: self._partial(i) for i in active} if moves else {}

    def of(self, closed: ClosedJaxpr) -> PointwiseFunction:
        """Another function of the same inputs, opened as this one is."""
        return PointwiseFunction(self.name, closed, self._open)

    def _partial(self, i: int) -> ClosedJaxpr:
        """The derivative in input `i`, traced; it raises where JAX has none."""
        return jaxpr_for(lambda *x: along(self, x, (i,), (jnp.ones_like(x[i]),))[1], self.inputs)

    def derivative(self) -> ClosedJaxpr:
        """Its derivative along any directions, which come after its inputs, traced."""
        count = len(self.inputs)
        directions = [self.inputs[i] for i in self.active]
        return jaxpr_for(lambda *x: along(self, x[:count], self.active, x[count:])[1], [*self.inputs, *directions])

    def partial(self, i: int, inputs: Sequence[Variable]) -> Variable | None:
        """The derivative in input `i`, as functions of Variables of the inputs; None where it is of no floating dtype.

        In the shape in which it was traced it is opened; in another one, of which batches are, and where it reads
        arrays that are no inputs, which gradients of loops' bodies have no place for, it is a function that goes
        element by element like this one.
        """
        if i not in self._partials:
            return None
        if all([x.spec is s for x, s in zip(inputs, self.inputs, strict=True)]):
            opened = self._open(self._partials[i], inputs)
            given = {id(x) for x in inputs}
            functions = functions_of([opened], through=lambda x: id(x) not in given)
            if all([x.parent or id(x) in given for x in (opened, *[x for f in functions for x in f.inputs])]):
                return opened
        y: Variable = apply(
            pointwise_jax_function,
            tuple(inputs),
            (self.of(self._partials[i]),),
        )
        return y

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        """Its values for arrays that broadcast, of any shape: in parts of the shape in which it was traced."""
        arrays = tuple(jnp.broadcast_arrays(*arrays))
        shape, own = arrays[0].shape, self.inputs[0].shape
        if shape == own:
            return super().__call__(*arrays)
        size, part = math.prod(shape), max(math.prod(own), 1)
        if not size:
            return arrays[:1]
        filled = [jnp.resize(a, (-(-size // part), *own)) for a in arrays]
        (y,) = jax.vmap(super().__call__)(*filled)
        return (y.reshape(-1)[:size].reshape(shape),)


def _op(name: str, type_name: str) -> Op:
    def forward(*x: Array, fun: Static) -> jax.Array:
        """A JAX function that goes element by element.

        Args:
            x: Its inputs, all of one shape.
            fun: The function, a `PointwiseFunction`.
        """
        y: jax.Array
        (y,) = fun(*x)
        return y

    forward.__name__ = name
    return Op(forward, type_name=type_name, diagonal=True, broadcasts=True, unbounded=True)


pointwise_jax_function = _op("pointwise_jax_function", "PointwiseJaxFunction")
custom_pointwise_jax_function = _op("custom_pointwise_jax_function", "CustomPointwiseJaxFunction")


def _rule(f: Function, gy: Variable) -> list[Variable | None]:
    """gy D_i(x1, x2, ...)"""
    partials = [f.args["fun"].partial(i, f.inputs) for i in range(len(f.inputs))]
    return [None if d is None else gy * d for d in partials]


registry.add(pointwise_jax_function, Rule(_rule, "user", True, __name__))
registry.add(custom_pointwise_jax_function, Rule(_rule, "user", False, __name__))


def pointwise(
    equation: Any,
    function: Callable[..., list[Any]],
    inputs: list[Variable],
    is_seen: Callable[[PointwiseFunction], bool],
    open_jaxpr: Callable[[ClosedJaxpr, Sequence[Variable]], Variable],
) -> list[Variable] | None:
    """What an equation gives, if it goes element by element; None if that is not known.

    Args:
        equation: The equation.
        function: It as a function of arrays that gives all its results.
        inputs: Those, as Variables.
        is_seen: Whether a result, as a function of inputs that are all of one shape, goes element by element.
        open_jaxpr: Gives the result of a jaxpr for Variables of its inputs.
    """
    shapes = {tuple(v.aval.shape) for v in equation.outvars}
    if len(shapes) != 1 or not inputs:
        return None
    (shape,) = shapes
    if any([x.shape != shape for x in inputs]) or not any([x.spec.differentiable for x in inputs]):
        return None
    name = name_of(equation)
    if name == "custom_vjp_call":
        return None  # it has no forward mode
    several = len([x for x in inputs if x.spec.differentiable]) > 1
    if several and is_told_what_moves(alone(equation).jaxpr):
        return None  # so the derivative along several is not the sum of those in each
    try:
        functions = [
            PointwiseFunction(name, jaxpr_for(_result(function, i), [x.spec for x in inputs]), open_jaxpr)
            for i in range(len(equation.outvars))
        ]
        if not all(map(is_seen, functions)):
            return None
    except Exception:  # JAX has no derivative of it in one of its inputs, or its author's rule raises: it stays whole
        return None
    op = custom_pointwise_jax_function if several and name in CUSTOM_RULES else pointwise_jax_function
    return [apply(op, tuple(inputs), (fun,)) for fun in functions]


def complex_pointwise(
    equation: Any,
    function: Callable[..., list[Any]],
    inputs: list[Variable],
    open_jaxpr: Callable[[ClosedJaxpr, Sequence[Variable]], Variable],
) -> ComplexPair | None:
    """What an equation on complex numbers gives that goes element by element; None if JAX has no derivative of it.

    Args:
        equation: The equation; it has one result.
        function: As for `pointwise`.
        inputs: As for `pointwise`: the parts of complex numbers, each by itself.
        open_jaxpr: As for `pointwise`.
    """
    (shape,) = [tuple(v.aval.shape) for v in equation.outvars]
    if any([x.shape != shape or not x.spec.differentiable for x in inputs]):
        return None
    name, specs = name_of(equation), [x.spec for x in inputs]
    try:
        parts = [
            PointwiseFunction(f"{part.__name__} {name}", jaxpr_for(_part(function, part), specs), open_jaxpr)
            for part in (jax.lax.real, jax.lax.imag)
        ]
    except (TypeError, ValueError, NotImplementedError):
        return None
    return ComplexPair(*[apply(pointwise_jax_function, tuple(inputs), (fun,)) for fun in parts])


def _part(function: Callable[..., list[Any]], part: Callable[[Any], Any]) -> Callable[..., Any]:
    """A part of the one result of a function."""
    return lambda *arrays: part(function(*arrays)[0])


def _result(function: Callable[..., list[Any]], i: int) -> Callable[..., Any]:
    """One result of a function."""
    return lambda *arrays: function(*arrays)[i]


def depends_by_places(outputs: Sequence[Variable], inputs: Sequence[Variable]) -> bool:
    """Whether each element of some Variables depends on the inputs' elements at its own place alone, as far as the
    functions between them say so."""
    found = {id(x): x.shape for x in inputs}
    for f in functions_of(outputs):
        shapes = [found[id(x)] for x in f.inputs if id(x) in found]
        if not shapes:
            continue
        if not f.op.diagonal or any([y.shape not in shapes for y in f.outputs]):
            return False
        found.update([(id(y), y.shape) for y in f.outputs])
    return True
