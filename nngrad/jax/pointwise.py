"""Elementwise equations without a rule: JAX computes their values, and their derivatives are opened.

With D_i the derivative of such a function f in its i-th input, which is elementwise too,

    d f(x1, x2, ...) / dx_i = gy D_i(x1, x2, ...)

JAX gives D_i as f's derivative along a tangent of ones in input i. So f itself is not opened, but each element still
depends only on the elements at its own place, and rows, forward mode and symmetry carry through it.

A custom derivative need not be the true one. If one input moves, the sequence f, D, D', ... is consistent in itself,
and calculus applies to it whatever it is. If several move, mixed derivatives need not commute, and the op counts as one
whose rule is not exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import numpy as jnp
from jax.extend.core import ClosedJaxpr

from backward_registry import Rule, registry

from ..extend import Array, Function, Op, Static, Variable, apply, functions_of
from ..functions.traced import CUSTOM_RULES, TracedFunction, alone, along, is_told_what_moves, jaxpr_for, name_of
from .values import ComplexPair


class PointwiseFunction(TracedFunction):
    """A traced elementwise function of arrays of one shape, and its derivatives.

    Args:
        name: Its name.
        closed: Its jaxpr, with one output.
        open_jaxpr: Opens a jaxpr, applied to Variables.
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
        """Another function of the same inputs, opened in the same way."""
        return PointwiseFunction(self.name, closed, self._open)

    def _partial(self, i: int) -> ClosedJaxpr:
        """The traced derivative in input `i`; raises if JAX has none."""
        return jaxpr_for(lambda *x: along(self, x, (i,), (jnp.ones_like(x[i]),))[1], self.inputs)

    def derivative(self) -> ClosedJaxpr:
        """Its traced jvp: the tangents come after the inputs."""
        count = len(self.inputs)
        directions = [self.inputs[i] for i in self.active]
        return jaxpr_for(lambda *x: along(self, x[:count], self.active, x[count:])[1], [*self.inputs, *directions])

    def partial(self, i: int, inputs: Sequence[Variable]) -> Variable | None:
        """The derivative in input `i` as functions of Variables; None if that input is not floating.

        At the shape of the trace it is opened. At another shape (such as a batch), or if it closes over arrays, for
        which gradients of loop bodies have no place, it is an elementwise function like this one.
        """
        if i not in self._partials:
            return None
        if all([x.spec is s for x, s in zip(inputs, self.inputs, strict=True)]):
            opened = self._open(self._partials[i], inputs)
            of_inputs = {id(x) for x in inputs}
            functions = functions_of([opened], through=lambda x: id(x) not in of_inputs)
            if all([x.parent or id(x) in of_inputs for x in (opened, *[x for f in functions for x in f.inputs])]):
                return opened
        y: Variable = apply(
            pointwise_jax_function,
            tuple(inputs),
            (self.of(self._partials[i]),),
        )
        return y

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        """Its values for arrays of any broadcastable shapes, computed in pieces of the traced shape."""
        arrays = tuple(jnp.broadcast_arrays(*arrays))
        shape, traced_shape = arrays[0].shape, self.inputs[0].shape
        if shape == traced_shape:
            return super().__call__(*arrays)
        size, part = math.prod(shape), max(math.prod(traced_shape), 1)
        if not size:
            return arrays[:1]
        filled = [jnp.resize(a, (-(-size // part), *traced_shape)) for a in arrays]
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
    """The results of an elementwise equation; None if it is not known to be elementwise.

    Args:
        equation: The equation.
        function: The equation as a function of arrays that returns all its results.
        inputs: Its inputs, as Variables.
        is_seen: Decides whether a result, as a function of inputs of one shape, is elementwise.
        open_jaxpr: Opens a jaxpr, applied to Variables.
    """
    shapes = {tuple(v.aval.shape) for v in equation.outvars}
    if len(shapes) != 1 or not inputs:
        return None
    (shape,) = shapes
    if any([x.shape != shape for x in inputs]) or not any([x.spec.differentiable for x in inputs]):
        return None
    name = name_of(equation)
    if name == "custom_vjp_call":
        return None  # this has no forward mode
    several = len([x for x in inputs if x.spec.differentiable]) > 1
    if several and is_told_what_moves(alone(equation).jaxpr):
        return None  # the derivative along several is not the sum of those in each
    try:
        functions = [
            PointwiseFunction(name, jaxpr_for(lambda *x, i=i: function(*x)[i], [x.spec for x in inputs]), open_jaxpr)
            for i in range(len(equation.outvars))
        ]
        if any([traced.loops_select() for traced in functions]) or not all(map(is_seen, functions)):
            return None
    except Exception:  # JAX cannot differentiate it in some input, or its custom rule raises: it stays opaque
        return None
    op = custom_pointwise_jax_function if several and name in CUSTOM_RULES else pointwise_jax_function
    return [apply(op, tuple(inputs), (fun,)) for fun in functions]


def complex_pointwise(
    equation: Any,
    function: Callable[..., list[Any]],
    inputs: list[Variable],
    open_jaxpr: Callable[[ClosedJaxpr, Sequence[Variable]], Variable],
) -> ComplexPair | None:
    """The results of an elementwise equation on complex numbers; None if JAX has no derivative of it.

    Args:
        equation: The equation; it has one result.
        function: As in `pointwise`.
        inputs: As in `pointwise`: real and imaginary parts are inputs of their own.
        open_jaxpr: As in `pointwise`.
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


def depends_by_places(outputs: Sequence[Variable], inputs: Sequence[Variable]) -> bool:
    """True if the functions between inputs and outputs show that each output element depends only on input elements at
    its own place."""
    shape_of = {id(x): x.shape for x in inputs}
    for f in functions_of(outputs):
        shapes = [shape_of[id(x)] for x in f.inputs if id(x) in shape_of]
        if not shapes:
            continue
        if not f.op.diagonal or any([y.shape not in shapes for y in f.outputs]):
            return False
        shape_of.update([(id(y), y.shape) for y in f.outputs])
    return True
