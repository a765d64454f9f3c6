"""Backward rules of flows: the derivative of a flow is the flow of another field.

    y' = f(p, y, t) from t0 to t1       forward   v' = df/dy v + df/dp dp, beside y
                                        reverse   a' = -(df/dy)' a and q' = -(df/dp)' a, beside y, from t1 back to t0
                                                  with a = gy and q = 0 at t1: gy0 = a and gp = q at t0

So nothing of the way is kept, and the way back is gone along to what rounding and the steps' errors make of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import nngrad.functions as F
from nngrad.functions.flows import Steps, flow_of_body, followed, zeros
from nngrad.functions.inlining import inlined
from nngrad.graph import Function, NdArray, Spec, Variable, spec_of
from nngrad.graph.block import Block
from nngrad.graph.closing import close
from nngrad.graph.derived import derived_once
from nngrad.graph.spec import DType
from nngrad.graph.variable import leaf_of

from .rules import Rule, registry

Numbers = tuple[int, ...]


def _leaves(specs: Sequence[Spec]) -> list[Variable]:
    return [leaf_of(NdArray.of_spec(spec)) for spec in specs]


def _flat(x: Variable) -> Variable:
    return x if x.ndim == 1 else F.reshape(x, shape=(math.prod(x.shape),))


def _joined(parts: Sequence[Variable], dtype: DType) -> Variable:
    """One vector of several arrays."""
    flat = [x if x.dtype == dtype else F.cast(x, dtype=dtype) for x in map(_flat, parts)]
    y: Variable = flat[0] if len(flat) == 1 else F.concatenate(*flat, axis=0)
    return y


def _part(z: Variable, start: int, spec: Spec) -> Variable:
    """The array of this shape and dtype that begins somewhere in a vector."""
    x = F.slice(z, start=(start,), stop=(start + spec.size,))
    x = x if x.shape == spec.shape else F.reshape(x, shape=spec.shape)
    return x if x.dtype == spec.dtype else F.cast(x, dtype=spec.dtype)


@derived_once
def adjoint_field(field: Block, wanted: Numbers) -> Block:
    """The field of the state, its adjoint, and the gradients in some parameters, as one state."""
    *given, state, time = field.inputs
    n, place = state.size, len(given)
    inputs = _leaves([*given, spec_of((2 * n + sum([given[i].size for i in wanted]),), state.dtype), time])
    *parameters, z, t = inputs
    own = [*parameters, _part(z, 0, state), t]
    found = field.gradient(field.outputs, (*wanted, place), tuple(range(place + 2)), ())
    gradients = dict(zip(found.reached, inlined(found.body, [*[own[i] for i in found.residuals], _part(z, n, state)]),
                         strict=True))  # fmt: skip
    falling = [-gradients[i] if i in gradients else zeros(field.inputs[i]) for i in (place, *wanted)]
    return close([_joined([inlined(field, own)[0], *falling], state.dtype)], inputs)


@derived_once
def tangent_field(field: Block, moving: Numbers) -> Block:
    """The field of the state and its tangent, as one state, when some parameters move: its inputs are the parameters,
    the tangents of those that move, the state and the time."""
    *given, state, time = field.inputs
    n, place = state.size, len(given)
    inputs = _leaves([*given, *[given[i] for i in moving], spec_of((2 * n,), state.dtype), time])
    parameters, directions, (z, t) = inputs[:place], inputs[place:-2], inputs[-2:]
    found = field.tangent((*moving, place), field.outputs)
    y, v = _part(z, 0, state), _part(z, n, state)
    results = inlined(found.body, [*parameters, y, t, *directions, v])
    return close([_joined(results if found.moved else [results[0], zeros(state)], state.dtype)], inputs)


def flow_gradients(
    f: Function, gys: Sequence[Variable], indexes: Numbers, take: Callable[[int], Variable | None]
) -> list[Variable | None]:
    """gy0 = a and gp = q at t0, where a' = -(df/dy)' a and q' = -(df/dp)' a, with a = gy and q = 0 at t1"""
    del take
    field, _, *options = f.arguments
    *parameters, y0, start, end = f.inputs
    (y,), (gy,) = f.outputs, gys
    place = len(parameters)
    wanted = tuple([i for i in indexes if i < place])
    parts = [zeros(field.inputs[i]) for i in wanted]
    z = followed(adjoint_field(field, wanted), [*parameters, _joined([y, gy, *parts], y.dtype), end, start],
                 Steps(*options))  # fmt: skip
    gxs: list[Variable | None] = [None] * len(f.inputs)
    gxs[place] = adjoint = _part(z, y.size, y0.spec)
    at = 2 * y.size
    for i in wanted:
        gxs[i] = _part(z, at, field.inputs[i])
        at += field.inputs[i].size
    if place + 1 in indexes:
        gxs[place + 1] = -F.sum(adjoint * inlined(field, [*parameters, y0, start])[0])
    if place + 2 in indexes:
        gxs[place + 2] = F.sum(gy * inlined(field, [*parameters, y, end])[0])
    return gxs


def flow_backward(f: Function, *gys: Variable) -> list[Variable | None]:
    """The same, of all inputs"""
    return flow_gradients(f, gys, tuple([i for i, x in enumerate(f.inputs) if x.spec.differentiable]), lambda i: None)


def flow_tangents(f: Function, ts: Sequence[Variable | None], read: Sequence[bool]) -> list[Variable | None]:
    """v at t1, where v' = df/dy v + df/dp dp, with v = dy0 at t0; and what the times add"""
    del read
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
        moved = _part(followed(tangent_field(field, moving), given, Steps(*options)), y.size, y.spec)
    if t_end is not None:
        along = inlined(field, [*parameters, y, end])[0] * t_end
        moved = along if moved is None else moved + along
    return [moved]


registry.add(
    flow_of_body, Rule(flow_backward, "rule", True, __name__, accumulate=flow_gradients, tangents=flow_tangents)
)
