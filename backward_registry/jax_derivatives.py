"""Backward rules of JAX functions of the user's own and of their derivatives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from nngrad.functions.array import zeros_like
from nngrad.functions.jax_derivatives import (
    by_columns,
    custom_jax_derivative,
    custom_jax_gradient,
    gradient_function,
    has_derivative,
    inputs_of,
    jax_derivative,
    jax_gradient,
)
from nngrad.functions.jaxpr_structure import TracedFunction
from nngrad.graph import Function, Variable, apply

from .rules import backward

Variables = tuple[Variable, ...]


class Point(NamedTuple):
    """Where a derivative of a function is taken: its inputs, and directions in the space of the active ones."""

    fun: TracedFunction
    xs: Variables
    directions: tuple[Variables, ...]

    @property
    def order(self) -> int:
        """Order of the derivative."""
        return len(self.directions)

    @property
    def flat(self) -> Variables:
        """All of it as inputs of an op."""
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
        """The same, by reverse mode, or column by column, from JAX."""
        fun, order = self.fun, self.order
        op = custom_jax_gradient if fun.custom else jax_gradient
        everything = tuple(range(len(fun.active)))
        if not by_columns(fun, order, slot):
            return list(apply(op, (*self.flat, *ys), (fun, order, slot, everything, False)))
        # One function for each input, so that what is not wanted is not computed, column by column.
        return [apply(op, (*self.flat, *ys), (fun, order, slot, (i,), True))[0] for i in everything]

    def gradients(self, ys: Variables, but: int | None = None) -> list[Variable | None]:
        """The gradient of <ys, derivative> in all of `flat`; None in the slot `but`."""
        gxs: list[Variable | None] = [None] * len(self.flat)
        for slot in range(self.order + 1):
            if slot != but and ys and self.fun.active:
                for i, gx in zip(self.places(slot), self.gradient(slot, ys), strict=True):
                    gxs[i] = gx
        return gxs

    def places(self, slot: int) -> Sequence[int]:
        """Where in `flat` the active inputs are (slot 0), or the parts of a direction."""
        first = len(self.xs) + (slot - 1) * len(self.fun.active)
        return range(first, first + len(self.fun.active)) if slot else self.fun.active


def point_of(f: Function) -> tuple[Point, Variables]:
    """The point at which `f` differentiates, and the inputs that come after it: the weights of the outputs."""
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
        return Point(gradient_function(*f.arguments), f.inputs, ()).gradients(gs)
    w = _direction(point, f.args["wrt"], gs)
    if slot == 0:
        moved = point._replace(directions=(*point.directions, w))
        gradients = moved.gradients(ys, but=moved.order)[: len(point.flat)]
    else:
        before, after = point.directions[: slot - 1], point.directions[slot:]
        moved = point._replace(directions=(*before, w, *after))
        gradients = moved.gradients(ys, but=slot)
    return [*gradients, *moved.derivative()]


backward(custom_jax_derivative, exact=False)(jax_derivative_backward)
backward(custom_jax_gradient, exact=False)(jax_gradient_backward)


def _direction(point: Point, wrt: tuple[int, ...], gs: Sequence[Variable]) -> Variables:
    """A direction in the space of all active inputs, from its parts in some of them."""
    parts = dict(zip(wrt, gs, strict=True))
    return tuple([parts[k] if k in parts else zeros_like(point.xs[i]) for k, i in enumerate(point.fun.active)])
