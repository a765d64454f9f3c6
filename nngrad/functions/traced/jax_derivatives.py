"""The ops that stand for a user's JAX function and its derivatives.

Two ops differentiate a traced function f, and are closed under differentiation. With x the inputs that gradients reach,
v1 ... vk directions in their space and y a weight for each output:

    jax_derivative(x, v1 ... vk)      = D^k f(x)[v1 ... vk]                          (f itself for k = 0)
    jax_gradient(x, v1 ... vk, y)     = the gradient of <y, D^k f(x)[v1 ... vk]> in x, or in one of the v

The derivative of the second along w is the first with one more direction, or with w in place of a v. So only
forward-mode derivatives are nested, and reverse mode is applied once, outermost, at every order.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ...graph import Array, Op, Spec, Variable
from ...graph.arguments import Static
from ...graph.by_jax import along, back, transposed
from ...graph.facts import unknown
from ...graph.jaxpr import ONE_WAY, primitives_in
from .jaxprs import holds_tracers, jaxpr_for
from .structure import READS_AROUND, StepsOnlySelect, TracedFunction

_COLUMNS = 128
"""The number of columns of a Jacobian that forward mode computes at a time."""


def inputs_of(fun: TracedFunction, order: int, weighted: bool = False) -> tuple[Spec, ...]:
    """The inputs of `jax_derivative`: those of `fun`, then directions; for `jax_gradient` also the weights."""
    weights = tuple([s for s in fun.outputs if s.differentiable]) if weighted else ()
    return fun.inputs + tuple([fun.inputs[i] for i in fun.active]) * order + weights


# ---------------------------------------------------------------- the ops


class Sized(Op):
    """An op that infers the specs of its outputs from its arguments, without tracing."""

    def infer(self, inputs: tuple[Variable, ...], arguments: tuple[Any, ...]) -> tuple[Spec, ...]:
        """Shape and dtype of each output."""
        fun, order, *rest = arguments
        if rest:
            _, wrt, _ = rest
            return tuple([fun.inputs[fun.active[i]] for i in wrt])
        return tuple([s for s in fun.outputs if order == 0 or s.differentiable])

    def is_heavy(self, inputs: tuple[Spec, ...], arguments: tuple[Any, ...]) -> bool:
        """True if the traced function is heavy: its derivatives do as much work per element."""
        return bool(arguments[0].heavy)


def sized(type_name: str) -> Callable[[Callable[..., Any]], Sized]:
    """Make a `Sized` op of a function on arrays."""
    return lambda forward: Sized(forward, type_name=type_name, multiple_results=True, cost=unknown)


def _custom(op: Sized) -> Sized:
    """The same op for functions that contain `custom_jvp` or `custom_vjp`: its derivative need not be the true one."""

    @functools.wraps(op.forward)
    def forward(*x: Array, **arguments: Any) -> Any:
        return op.forward(*x, **arguments)

    forward.__name__ = f"custom_{op.name}"
    return sized(f"Custom{op.type_name}")(forward)


@sized("JaxFunction")
def jax_derivative(*x: Array, fun: Static, order: int = 0) -> tuple[jax.Array, ...]:
    """The derivative of a JAX function along `order` directions: D^order fun(x)[v1 ...]; the function itself for 0.

    Its inputs are those of `fun`, then for each direction one array per `active` input. It returns all outputs for
    order 0, else the derivatives of the floating ones.
    """
    if order:
        fun.check_rules()
    results: tuple[jax.Array, ...] = _derivative(fun, order, *x) if order else fun(*x)
    return results


@sized("JaxFunctionGradient")
def jax_gradient(*x: Array, fun: Static, order: int, slot: int, wrt: Static, columns: bool) -> tuple[jax.Array, ...]:
    """The gradient of <y, D^order fun(x)[v1 ...]> in x (slot 0) or in the direction v of number `slot`.

    Its inputs are those of `jax_derivative`, then a weight y for each floating output; it returns one array for each of
    the active inputs `wrt`. With `columns` it uses JAX's forward mode, one column of the Jacobian for each element of
    these inputs; else reverse mode.
    """
    fun.check_rules()
    count, first = len(inputs_of(fun, order)), len(fun.inputs) + (slot - 1) * len(fun.active)
    at, ys = x[:count], x[count:]
    places = [first + i if slot else fun.active[i] for i in wrt]
    differentiated = functools.partial(_derivative, fun, order)
    if columns:
        return tuple([_by_columns(differentiated, at, place, ys) for place in places])
    return back(differentiated, at, places, ys)


custom_jax_derivative = _custom(jax_derivative)
custom_jax_gradient = _custom(jax_gradient)


def _derivative(fun: TracedFunction, order: int, *x: Any) -> tuple[Any, ...]:
    """The derivatives of the floating outputs along `order` directions; for 0 the outputs themselves."""
    if order == 0:
        return tuple([y for y, s in zip(fun(*x), fun.outputs, strict=True) if s.differentiable])
    last = len(x) - len(fun.active)
    return along(functools.partial(_derivative, fun, order - 1), x[:last], fun.active, x[last:])[1]


def _by_columns(function: Callable[..., Any], at: Sequence[Any], place: int, ys: Sequence[Any]) -> Any:
    """The gradient of <ys, function(at)> in one input, by forward mode: one derivative for each of its elements."""
    x = at[place]

    def element(k: Any) -> Any:
        unit = (jnp.arange(x.size) == k).astype(x.dtype).reshape(x.shape)
        _, dy = along(function, at, (place,), (unit,))
        y: jax.Array = functools.reduce(operator.add, [jnp.vdot(a, b) for a, b in zip(dy, ys, strict=True)])
        return y.astype(x.dtype)

    return jax.lax.map(element, jnp.arange(x.size), batch_size=_COLUMNS).reshape(x.shape)


@functools.lru_cache(maxsize=512)
def as_function(op: Sized, fun: TracedFunction, order: int, *arguments: Any) -> TracedFunction:
    """`jax_derivative` or `jax_gradient` as a traced function of its own, to be differentiated where JAX has no forward
    mode for `fun`, or where other inputs move than before."""
    weighted = op is jax_gradient
    inputs = inputs_of(fun, order, weighted)
    closed = jaxpr_for(op.traceable((fun, order, *arguments)), inputs)
    active = fun.reachable + tuple(range(len(fun.inputs), len(inputs)))
    kind = "gradient" if weighted else "derivative"
    return TracedFunction(f"{kind} of {fun.name}", closed, (), active)


# ---------------------------------------------------------------- what JAX can do

LOOPS_SELECT = (
    "it has a loop of unknown length whose values are selected by comparisons of what is differentiated, as in a "
    "bisection, so the derivative of its steps is not that of the result. Give the result a rule (jax.custom_jvp, "
    "jax.lax.custom_root), or use nn.root"
)


def by_columns(fun: TracedFunction, order: int, slot: int) -> bool:
    """True if the gradient needs forward mode because JAX has no reverse mode for `fun`. NotImplementedError: it has
    neither."""
    everything = tuple(range(len(fun.active)))
    reverse = _reason_unsupported(jax_gradient, fun, order, slot, everything, False)
    if reverse is None:
        return False
    if reverse == READS_AROUND:
        raise NotImplementedError(f"jax_function({fun.name}): {reverse}")
    forward = _reason_unsupported(jax_gradient, fun, order, slot, everything, True)
    only = forward is None and fun.loops_select(only=True)
    if forward is None and fun.loops_select():
        forward = LOOPS_SELECT
    if forward is None:
        return True
    raise (StepsOnlySelect if only else NotImplementedError)(
        f"jax_function({fun.name}): JAX cannot differentiate it at order {order + 1}.\n"
        f"Reverse mode: {reverse}\nForward mode: {forward}"
    )


def has_derivative(fun: TracedFunction, order: int) -> bool:
    """True if JAX can differentiate `fun` in forward mode `order` times."""
    return _reason_unsupported(jax_derivative, fun, order) is None


@functools.lru_cache(maxsize=1024)
def is_linear_in_weights(fun: TracedFunction, order: int, *arguments: Any) -> bool:
    """True if JAX sees that the gradient is linear in the weights. By a user's rule for `custom_vjp` it need not be."""
    inputs = inputs_of(fun, order, weighted=True)
    weights = range(len(inputs_of(fun, order)), len(inputs))
    results = [fun.inputs[fun.active[i]] for i in arguments[1]]
    gradient = jax_gradient.traceable((fun, order, *arguments))
    try:
        jaxpr_for(lambda *x: transposed(gradient, x[: len(inputs)], weights, x[len(inputs) :]), [*inputs, *results])
    except Exception:  # JAX raises errors of many classes
        return False
    return True


@functools.lru_cache(maxsize=1024)
def follows_what_moves(fun: TracedFunction) -> bool:
    """True if derivatives of `fun` depend on which inputs move: a rule inside is told, or raises if all of them do.

    Rules that are told, and derivatives by what a `custom_vjp` closes over, are never tried: where they raise, JAX's
    own cache stays half filled, and later calls fail that are right.
    """
    if not fun.custom or fun.is_told:
        return fun.is_told
    if not set(fun.closed_over).isdisjoint(fun.active):
        return True
    try:
        return _reason_unsupported(jax_gradient, fun, 0, 0, tuple(range(len(fun.active))), False) is not None
    except Exception:  # raised by the rule for a derivative that nobody wants
        return True


@functools.lru_cache(maxsize=1024)
def _reason_unsupported(op: Sized, fun: TracedFunction, order: int, *arguments: Any) -> str | None:
    """Why JAX cannot compute `op`; None if it can."""
    inputs = inputs_of(fun, order, weighted=op is jax_gradient)
    try:
        closed = jaxpr_for(op.traceable((fun, order, *arguments)), inputs)
    except (TypeError, ValueError, NotImplementedError) as error:
        return str(error).split("\n")[0]
    if holds_tracers(closed):
        return READS_AROUND
    if ONE_WAY in primitives_in(closed.jaxpr):
        return "a function with custom_vjp has no forward mode"
    return None
