"""Backward rules of a user's JAX functions and of their derivatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from nngrad.functions.array import zeros_like
from nngrad.functions.bodies.carries import is_zeros
from nngrad.functions.traced.jax_derivatives import (
    as_function,
    by_columns,
    custom_jax_derivative,
    custom_jax_gradient,
    follows_what_moves,
    has_derivative,
    inputs_of,
    is_linear_in_weights,
    jax_derivative,
    jax_gradient,
)
from nngrad.functions.traced.structure import Positions, TracedFunction
from nngrad.graph import Function, Op, Variable, apply

from .rules import Gradients, Rule, RuleFunction, backward, registry

Variables = tuple[Variable, ...]


class Point(NamedTuple):
    """Where a function is differentiated: its inputs, and directions in the space of the active ones."""

    fun: TracedFunction
    xs: Variables
    directions: tuple[Variables, ...]

    @property
    def order(self) -> int:
        """The order of the derivative."""
        return len(self.directions)

    @property
    def flat(self) -> Variables:
        """The inputs and directions as the inputs of an op."""
        return (*self.xs, *[v for block in self.directions for v in block])

    def derivative(self) -> list[Variable]:
        """The derivatives of the floating outputs along the directions."""
        op = custom_jax_derivative if self.fun.custom else jax_derivative
        ys = apply(op, self.flat, (self.fun, self.order))
        return [y for y in ys if y.spec.differentiable] if self.order == 0 else list(ys)

    def gradient(self, slot: int, ys: Variables) -> list[Variable]:
        """The gradient of <ys, derivative> in each active input (slot 0), or in each part of a direction."""
        if slot and (slot == self.order or not self.fun.custom):
            # D^k f(x)[v1 ... vk] is linear in the last direction taken, and its gradient there is that of
            # D^(k-1) f(x)[v1 ...] in x. If derivatives commute, any direction may count as the last.
            others = (*self.directions[: slot - 1], *self.directions[slot:])
            return self._replace(directions=others).gradient(0, ys)
        if slot:
            # It is linear in the others too, so that its gradient there is the same wherever it is taken: at 0, which
            # shows that it does not depend on the direction.
            zeros = tuple([zeros_like(v) for v in self.directions[slot - 1]])
            return self._replace(directions=(*self.directions[: slot - 1], zeros, *self.directions[slot:]))._pulled(
                slot, ys
            )
        return self._pulled(slot, ys)

    def _pulled(self, slot: int, ys: Variables) -> list[Variable]:
        """The same, computed by JAX: in reverse mode or column by column."""
        fun, order = self.fun, self.order
        op = custom_jax_gradient if fun.custom else jax_gradient
        everything = tuple(range(len(fun.active)))
        if not by_columns(fun, order, slot):
            return list(apply(op, (*self.flat, *ys), (fun, order, slot, everything, False)))
        # One function for each input, so that what is not wanted is not computed, column by column.
        return [apply(op, (*self.flat, *ys), (fun, order, slot, (i,), True))[0] for i in everything]

    def gradients(self, ys: Variables, but: int | None = None) -> list[Variable | None]:
        """The gradients of <ys, derivative> in all of `flat`; None in the slot `but`."""
        gxs: list[Variable | None] = [None] * len(self.flat)
        for slot in range(self.order + 1):
            if slot != but and ys and self.fun.active:
                for i, gx in zip(self.places(slot), self.gradient(slot, ys), strict=True):
                    gxs[i] = gx
        return gxs

    def places(self, slot: int) -> Sequence[int]:
        """The positions in `flat` of the active inputs (slot 0), or of the parts of a direction."""
        first = len(self.xs) + (slot - 1) * len(self.fun.active)
        return range(first, first + len(self.fun.active)) if slot else self.fun.active


def point_of(f: Function) -> tuple[Point, Variables]:
    """The point at which `f` differentiates, and the inputs after it: the weights of the outputs."""
    fun, order = f.args["fun"], f.args["order"]
    count, n = len(fun.inputs), len(fun.active)
    blocks = tuple([tuple(f.inputs[count + i * n : count + (i + 1) * n]) for i in range(order)])
    return Point(fun, tuple(f.inputs[:count]), blocks), tuple(f.inputs[len(inputs_of(fun, order)) :])


@backward(jax_derivative)
def jax_derivative_backward(f: Function, *gys: Variable) -> list[Variable | None]:
    """d<gy, D^k f(x)[v1 ... vk]> in x and in each v"""
    point, _ = point_of(f)
    return point.gradients(tuple([gy for gy in gys if gy.spec.differentiable]))


@backward(jax_gradient)
def jax_gradient_backward(f: Function, *gs: Variable) -> list[Variable | None]:
    """With w the direction of the gradient: <w, d<y, D^k f(x)[v]>/dx> = <y, D^(k+1) f(x)[v, w]>, and of the gradient
    in v_i it is <y, D^k f(x)[v with w in the place of v_i]>"""
    point, ys = point_of(f)
    slot = f.args["slot"]
    if slot == 0 and not has_derivative(point.fun, point.order + 1):
        # No forward mode for it (custom_vjp): the gradient is differentiated as a function like any other.
        gxs = Point(as_function(jax_gradient, *f.arguments), f.inputs, ()).gradients(gs)
        return [*gxs[: len(point.flat)], *_in_weights(f, gxs, gs)]
    w = _direction(point, f.args["wrt"], gs)
    if slot == 0:
        moved = point._replace(directions=(*point.directions, w))
        gradients = moved.gradients(ys, but=moved.order)[: len(point.flat)]
    else:
        before, after = point.directions[: slot - 1], point.directions[slot:]
        moved = point._replace(directions=(*before, w, *after))
        gradients = moved.gradients(ys, but=slot)
    return [*gradients, *moved.derivative()]


# ---------------------------------------------------------------- where it matters what moves


def _custom_derivative_backward(f: Function, gys: Sequence[Variable], indexes: Positions, take: Any) -> Gradients:
    """The same for custom rules that may be told which inputs move: those whose gradient is wanted."""
    del take
    point, _ = point_of(f)
    if not follows_what_moves(point.fun):
        return jax_derivative_backward(f, *gys)
    if point.order:
        point = Point(as_function(jax_derivative, *f.arguments), f.inputs, ())
    return _moving(point, gys, indexes)


def _custom_gradient_backward(f: Function, gs: Sequence[Variable], indexes: Positions, take: Any) -> Gradients:
    """The same. The gradient in the weights is the derivative; otherwise the gradient is differentiated like any other
    function, since other inputs may move than those of which it is the gradient."""
    del take
    point, ys = point_of(f)
    if not follows_what_moves(point.fun) and point.fun.active == point.fun.reachable:
        return jax_gradient_backward(f, *gs)
    first = len(f.inputs) - len(ys)
    others = tuple([i for i in indexes if i < first])
    gradients: list[Variable | None] = [None] * len(ys)
    if len(others) < len(indexes) and has_derivative(point.fun, 1):
        gradients = [*point._replace(directions=(_direction(point, f.args["wrt"], gs),)).derivative()]
        indexes = others
    gxs = _moving(Point(as_function(jax_gradient, *f.arguments), f.inputs, ()), gs, indexes)
    return [a if b is None else b for a, b in zip(gxs, [*[None] * first, *gradients], strict=True)]


def _in_weights(f: Function, gradients: list[Variable | None], gs: Sequence[Variable]) -> list[Variable | None]:
    """The gradients in the weights of a gradient. If it is linear in these, they do not depend on the weights: taken at
    0, which shows it, they yield tangents of functions without a forward mode."""
    point, ys = point_of(f)
    if not is_linear_in_weights(*f.arguments):
        return gradients[len(point.flat) :]
    at = (*point.flat, *map(zeros_like, ys))
    return Point(as_function(jax_gradient, *f.arguments), at, ()).gradients(tuple(gs))[len(point.flat) :]


def _moving(point: Point, ys: Sequence[Variable], indexes: Positions) -> list[Variable | None]:
    """The gradients in the active inputs at these indexes, if only those move."""
    outputs = point.fun.outputs
    read = tuple([i for i, (y, s) in enumerate(zip(ys, outputs, strict=True)) if s.differentiable and not is_zeros(y)])
    active = tuple([i for i in point.fun.active if i in indexes])
    return point._replace(fun=point.fun.with_moving(active, read)).gradients(tuple([ys[i] for i in read]))


def _custom_tangents(f: Function, ts: Sequence[Any], read: Sequence[bool]) -> list[Variable | None] | None:
    """The derivative along ts, as JAX has it of the function that `f` is; None if JAX has no forward mode for it"""
    del read
    fun = f.args["fun"]
    if "wrt" in f.args or f.args["order"]:
        fun = as_function(jax_gradient if "wrt" in f.args else jax_derivative, *f.arguments)
    moving = tuple([i for i in fun.active if ts[i] is not None])
    fun = fun.with_moving(moving, tuple(range(len(fun.outputs))))
    if not has_derivative(fun, 1):
        return None
    derivative = iter(Point(fun, f.inputs, (tuple([ts[i] for i in moving]),)).derivative())
    return [next(derivative) if spec.differentiable else None for spec in f.specs]


def _enter(op: Op, like: RuleFunction, accumulate: Callable[..., Gradients]) -> None:
    registry.add(op, Rule(like, "rule", False, __name__, accumulate, _custom_tangents))


_enter(custom_jax_derivative, jax_derivative_backward, _custom_derivative_backward)
_enter(custom_jax_gradient, jax_gradient_backward, _custom_gradient_backward)

# ---------------------------------------------------------------- directions


def _direction(point: Point, wrt: tuple[int, ...], gs: Sequence[Variable]) -> Variables:
    """A direction in the space of all active inputs, from its parts in some of them."""
    parts = dict(zip(wrt, gs, strict=True))
    return tuple([parts[k] if k in parts else zeros_like(point.xs[i]) for k, i in enumerate(point.fun.active)])
