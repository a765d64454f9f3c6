"""Values of functions with custom derivative rules once they have been differentiated.

`jax.custom_jvp` and `custom_vjp` set one derivative at a time. Where JAX differentiates such a function, its value is
the one that the rule returns (`fwd` of `custom_vjp`), and the next derivative is that of the rule's own code:

    clip.defvjp(lambda x: (x, None), lambda _, g: (jnp.clip(g, -1, 1),))

has the derivative of `x` from the second order on. Rules that call the function itself keep theirs at every order,
also in loops, where JAX drops them from the second order on, since partial evaluation inlines what they call. So tests
compare these with unrolled loops.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from jax.extend.core import ClosedJaxpr, Literal

from ..extend import Block, Op, Spec, Variable, apply, bodies_in, functions_of, path_between
from ..functions.traced import (
    TracedFunction,
    custom_jax_derivative,
    custom_jax_gradient,
    inputs_of,
    jax_derivative,
    jax_gradient,
    jaxpr_for,
    key_of_array,
    structure_of,
    value_of_back,
)
from .pointwise import PointwiseFunction, custom_pointwise_jax_function, pointwise_jax_function

_POINTWISE = (pointwise_jax_function, custom_pointwise_jax_function)
_WITH_RULES = (custom_jax_derivative, custom_jax_gradient, *_POINTWISE)
_OPAQUE = (jax_derivative, jax_gradient, *_WITH_RULES)

Call = tuple[Op, tuple[Any, ...]]


def by_their_rules(ys: Sequence[Variable], moving: Sequence[Variable], results: Sequence[Variable]) -> list[Variable]:
    """`results`, ready to be differentiated again after `ys` were differentiated by `moving`: custom functions on the
    path between the two are replaced by the values that their rules return."""
    path, _, present = path_between(ys, moving)
    rules = {call: new for f in path for call, new in _with_new_values((f.op, f.arguments)).items()}
    if not rules:
        return list(results)
    still = {id(f) for f in present} - {id(f) for f in path}
    instead: dict[int, Variable] = {}
    for f in functions_of(results):
        inputs = tuple([instead.get(id(x), x) for x in f.inputs])
        op, arguments = (f.op, f.arguments) if id(f) in still else _replaced((f.op, f.arguments), rules)
        if arguments is f.arguments and op is f.op and all([a is b for a, b in zip(inputs, f.inputs, strict=True)]):
            continue
        outputs = apply(op, inputs, arguments)
        for old, new in zip(f.outputs, outputs if op.multiple_results else (outputs,), strict=True):
            if old.need_grad_set is not None:
                new.need_grad = old.need_grad_set
            instead[id(old)] = new
    return [instead.get(id(y), y) for y in results]


def with_opaque(ys: Sequence[Variable]) -> bool:
    """True if `ys` depend on opaque functions, including those in bodies of loops and branches."""
    functions = functions_of(ys)
    return any([f.op in _OPAQUE for f in functions]) or any(
        [not body.ops.isdisjoint(_OPAQUE) for f in functions for body in bodies_in(f.arguments)]
    )


def _with_new_values(call: Call) -> dict[Call, Call]:
    """Replacements for this call, and for calls in its bodies, whose values change once they are differentiated. All
    inputs of a body count as moving, as in JAX's loops."""
    op, arguments = call
    if op in _WITH_RULES:
        new = _value_of_rule(op, arguments) if arguments[0].custom else None
        return {call: new} if new else {}
    replacements: dict[Call, Call] = {}
    for body in bodies_in(arguments):
        if not body.ops.isdisjoint(_WITH_RULES):
            moving = body.reach(range(len(body.inputs)))
            for step in body.steps:
                if not moving.isdisjoint(step[2]):
                    replacements.update(_with_new_values(step[:2]))
    return replacements


def _replaced(call: Call, rules: Mapping[Call, Call]) -> Call:
    """The call with replacements applied, to itself and to the steps of its bodies, so that rematerialised code uses
    them too."""
    op, arguments = call
    if op in _WITH_RULES:
        return rules.get(call, call)
    replaced = Block.changed_in(arguments, lambda body: _with_rules(body, rules))
    return (op, replaced) if replaced != arguments else call


def _with_rules(body: Block, rules: Mapping[Call, Call]) -> Block:
    if body.ops.isdisjoint(_WITH_RULES):
        return body
    steps = tuple([(*_replaced((op, arguments), rules), ins) for op, arguments, ins in body.steps])
    return body.with_steps(steps) if steps != body.steps else body


@functools.lru_cache(maxsize=1024)
def _value_of_rule(op: Op, arguments: tuple[Any, ...]) -> Call | None:
    fun: TracedFunction = arguments[0]
    if isinstance(fun, PointwiseFunction):
        inputs = fun.inputs
    else:
        inputs = inputs_of(fun, arguments[1], weighted=op is custom_jax_gradient)
    directions = tuple(range(len(fun.inputs), len(inputs)))
    try:
        moving = tuple([i for i in fun.active + directions if i not in fun.closed_over])
        before, closed = _traced(op, arguments, inputs, ()), _traced(op, arguments, inputs, moving)
    except Exception:  # the rule raises, or JAX has no reverse mode: no derivative can have passed
        return None
    structure, constants = _key(closed)
    if _key(before) == (structure, constants):
        return None
    if isinstance(fun, PointwiseFunction):
        pointwise = fun.of(closed)
        return (op if pointwise.custom else pointwise_jax_function), (pointwise,)
    traced = TracedFunction(fun.name, closed, (), fun.reachable + directions, structure)
    return (custom_jax_derivative if traced.custom else jax_derivative), (traced, 0)


def _key(closed: ClosedJaxpr) -> tuple[Hashable, Hashable]:
    return structure_of(closed.jaxpr), tuple(map(key_of_array, closed.consts))


def _traced(op: Op, arguments: tuple[Any, ...], inputs: Sequence[Spec], moving: Sequence[int]) -> ClosedJaxpr:
    """Trace an op differentiated by its `moving` inputs, without equations that only derivatives read."""
    run = op.traceable(arguments)

    def results(*x: Any) -> Any:
        return run(*x) if op.multiple_results else (run(*x),)

    closed = jaxpr_for(lambda *arrays: value_of_back(results, arrays, moving), inputs)
    read = {v for v in closed.jaxpr.outvars if not isinstance(v, Literal)}
    equations = []
    for equation in reversed(closed.jaxpr.eqns):
        if equation.effects or not read.isdisjoint(equation.outvars):
            equations.append(equation)
            read.update([v for v in equation.invars if not isinstance(v, Literal)])
    live: ClosedJaxpr = closed.replace(jaxpr=closed.jaxpr.replace(eqns=equations[::-1]))
    return live
