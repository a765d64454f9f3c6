"""Solutions of ordinary differential equations as ops; their derivatives are solutions of other equations.

    y' = f(p, y, t) from t0 to t1       forward   v' = df/dy v + df/dp dp, beside y
                                        reverse   a' = -(df/dy)' a and q' = -(df/dp)' a, beside y, from t1 back to t0
                                                  with a = gy and q = 0 at t1: gy0 = a and gp = q at t0

So no intermediate state is stored, and the reverse pass retraces it up to rounding and the steps' errors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from ...graph import Array, Function, Spec, Variable, apply, spec_of
from ...graph.arguments import Static
from ...graph.block import Block, new_leaves
from ...graph.body_op import BodyOp, Gradients, Numbers, Results
from ...graph.closing import close, derived_once
from ...graph.spec import DType
from ..array import constant, in_dtype
from ..flows import FlowSteps, integrated
from ..inlining import inlined
from ..movement import concatenate, reshape
from ..reduction import sum as total
from ..slicing import slice as part
from .derived_bodies import operations_in


class Flow(BodyOp):
    """The flow of a field: the state at a second time, from the state at a first."""

    def result_specs(self, given: tuple[Spec, ...], arguments: tuple[Any, ...]) -> tuple[Spec, ...]:
        """Shape and dtype of the output."""
        field: Block = arguments[0]
        return (field.inputs[-2],)

    def operations(self, f: Function) -> int:
        """The approximate number of operations of all steps."""
        field, _, _, number, *_ = f.arguments
        return int(number * operations_in(field))

    def gradients(self, f: Function, gys: Sequence[Variable], indexes: Numbers) -> Gradients:
        """gy0 = a and gp = q at t0, where a' = -(df/dy)' a and q' = -(df/dp)' a, with a = gy and q = 0 at t1"""
        field, _, *options = f.arguments
        *parameters, y0, start, end = f.inputs
        (y,), (gy,) = f.outputs, gys
        place = len(parameters)
        wanted = tuple([i for i in indexes if i < place])
        parts = [zeros(field.inputs[i]) for i in wanted]
        z = followed(adjoint_field(field, wanted), [*parameters, _joined([y, gy, *parts], y.dtype), end, start],
                     FlowSteps(*options).of_derivative())  # fmt: skip
        gxs: Gradients = [None] * len(f.inputs)
        gxs[place] = adjoint = _part(z, y.size, y0.spec)
        at = 2 * y.size
        for i in wanted:
            gxs[i] = _part(z, at, field.inputs[i])
            at += field.inputs[i].size
        if place + 1 in indexes:
            gxs[place + 1] = -total(adjoint * inlined(field, [*parameters, y0, start])[0])
        if place + 2 in indexes:
            gxs[place + 2] = total(gy * inlined(field, [*parameters, y, end])[0])
        return gxs

    def tangents(self, f: Function, ts: Results, read: Sequence[bool]) -> Gradients:
        """v at t1, where v' = df/dy v + df/dp dp, with v = dy0 at t0; and what the times add"""
        field, _, *options = f.arguments
        *parameters, y0, start, end = f.inputs
        (y,) = f.outputs
        *moves, ty, t_start, t_end = ts
        if t_start is not None:
            along = inlined(field, [*parameters, y0, start])[0] * t_start
            ty = -along if ty is None else ty - along
        moving = tuple([i for i, t in enumerate(moves) if t is not None])
        moved: Variable | None = None
        if ty is not None or moving:
            z0 = _joined([y0, zeros(y0.spec) if ty is None else ty], y.dtype)
            given = [*parameters, *[t for t in moves if t is not None], z0, start, end]
            steps = FlowSteps(*options).of_derivative()
            moved = _part(followed(tangent_field(field, moving), given, steps), y.size, y.spec)
        if t_end is not None:
            along = inlined(field, [*parameters, y, end])[0] * t_end
            moved = along if moved is None else moved + along
        return [moved]


def _flat(x: Variable) -> Variable:
    return x if x.ndim == 1 else reshape(x, shape=(math.prod(x.shape),))


def _joined(parts: Sequence[Variable], dtype: DType) -> Variable:
    """Several arrays, flattened and concatenated into one vector."""
    flat = [in_dtype(x, dtype) for x in map(_flat, parts)]
    y: Variable = flat[0] if len(flat) == 1 else concatenate(*flat, axis=0)
    return y


def _part(z: Variable, start: int, spec: Spec) -> Variable:
    """The array of this shape and dtype that begins at index `start` of the vector `z`."""
    x = part(z, start=(start,), stop=(start + spec.size,))
    x = x if x.shape == spec.shape else reshape(x, shape=spec.shape)
    return in_dtype(x, spec.dtype)


@derived_once
def adjoint_field(field: Block, wanted: Numbers) -> Block:
    """The field of the state, its adjoint and the gradients with respect to some parameters, as one vector."""
    *given, state, time = field.inputs
    n, place = state.size, len(given)
    inputs = new_leaves([*given, spec_of((2 * n + sum([given[i].size for i in wanted]),), state.dtype), time])
    *parameters, z, t = inputs
    own = [*parameters, _part(z, 0, state), t]
    found = field.gradient(field.outputs, (*wanted, place), tuple(range(place + 2)), ())
    gradients = dict(zip(found.reached, inlined(found.body, [*[own[i] for i in found.residuals], _part(z, n, state)]),
                         strict=True))  # fmt: skip
    falling = [-gradients[i] if i in gradients else zeros(field.inputs[i]) for i in (place, *wanted)]
    return close([_joined([inlined(field, own)[0], *falling], state.dtype)], inputs)


@derived_once
def tangent_field(field: Block, moving: Numbers) -> Block:
    """The field of the state and its tangent, as one vector, when some parameters move. Its inputs are the parameters,
    the tangents of those that move, this vector, and the time."""
    *given, state, time = field.inputs
    n, place = state.size, len(given)
    inputs = new_leaves([*given, *[given[i] for i in moving], spec_of((2 * n,), state.dtype), time])
    parameters, directions, (z, t) = inputs[:place], inputs[place:-2], inputs[-2:]
    found = field.tangent((*moving, place), field.outputs)
    y, v = _part(z, 0, state), _part(z, n, state)
    results = inlined(found.body, [*parameters, y, t, *directions, v])
    return close([_joined(results if found.moved else [results[0], zeros(state)], state.dtype)], inputs)


@derived_once
def flow(field: Block, method: str, number: int, rtol: float, atol: float) -> Block:
    """The body that integrates a field as `FlowSteps` says. Its inputs are those of the field, with two times instead
    of one."""
    *parameters, y, start, end = inputs = new_leaves((*field.inputs, field.inputs[-1]))

    def along(y: Variable, t: Variable) -> Variable:
        return inlined(field, [*parameters, y, t])[0]

    return close([integrated(along, y, start, end, FlowSteps(method, number, rtol, atol), bounded=False)], inputs)


@Flow.declared()
def flow_of_body(
    *x: Array, field: Static, way: Static, method: str, number: int, rtol: float, atol: float
) -> jax.Array:
    """The state to which a field, given as a body, leads from one time to another; the body `way` integrates it.

    Its inputs are those of the field except the last, and two times; `FlowSteps` describes the other arguments.
    """
    del field, method, number, rtol, atol
    y: jax.Array = way.results_of(x)[0]
    return y


def followed(field: Block, inputs: Sequence[Variable], steps: FlowSteps) -> Variable:
    """The state to which a field leads; `inputs` are its parameters, the state at the first time, and both times."""
    y: Variable = apply(flow_of_body, tuple(inputs), (field, flow(field, *steps), *steps))
    return y


def zeros(spec: Spec) -> Variable:
    """A constant 0 of this shape and dtype."""
    return constant(0.0, spec.shape, np.dtype(spec.dtype))
