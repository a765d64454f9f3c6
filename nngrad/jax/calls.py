"""A JAX primitive that calls a graph, and its rules for `jit`, `vmap`, `jvp` and transposition."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Primitive
from jax.interpreters import ad, batching, mlir

from ..extend import Variable
from ..functions.traced import back, equations_in, without_unread


@dataclasses.dataclass(frozen=True, eq=False)
class GraphCall:
    """The callee of an equation; two are equal if they compute the same."""

    graph: Any
    """A `GraphOfCall`, or an `OverRowsByJax`. It holds none of the user's functions."""
    owner: Any
    """The function from which the graph can be rebuilt."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GraphCall) and (self.graph is other.graph or self.graph.key == other.graph.key)

    def __hash__(self) -> int:
        return hash(self.graph.key)


CALLED = Primitive("nngrad_call")
CALLED.multiple_results = True


@functools.cache
def _empty() -> Jaxpr:
    (constant,) = jax.make_jaxpr(lambda x: ())(0.0).jaxpr.invars
    empty: Jaxpr = jax.make_jaxpr(lambda: ())().jaxpr.replace(constvars=[constant])
    return empty


def results_of_call(graph: Any, owner: Any, arrays: Sequence[Any]) -> list[Any]:
    """Call a graph on arrays, which may be tracers.

    JAX caches facts about an equation by its parameters, in tables that hold jaxprs weakly and anything else for long.
    To let functions and their arrays be released, the parameter is an empty jaxpr with the call as a constant.
    """
    return list(CALLED.bind(*arrays, held=ClosedJaxpr(_empty(), [GraphCall(graph, owner)])))


def call_in(held: ClosedJaxpr) -> GraphCall:
    (call,) = held.consts
    callee: GraphCall = call
    return callee


def graph_called(equation: Any) -> Callable[[Sequence[Variable]], list[Variable]] | None:
    """The function that applies an equation's graph to Variables; None if the equation is not a graph call."""
    if equation.primitive is not CALLED:
        return None
    call = call_in(equation.params["held"])
    return lambda inputs: call.graph.applied(call.owner, inputs)


def require_one_device(jaxpr: Jaxpr) -> None:
    """Raise an error if a jaxpr has collectives over named axes around it, or devices within.

    Raises:
        NotImplementedError: It has.
    """
    for equation in equations_in(jaxpr):
        axes = [equation.params.get(key) for key in ("axes", "axis_name")]
        names = [n for parameter in axes for n in (parameter if isinstance(parameter, tuple | list) else (parameter,))]
        devices = equation.params["mesh"].size if equation.primitive.name == "shard_map" else 1
        if devices > 1 or not all([n is None or isinstance(n, int | np.integer) for n in names]):
            raise NotImplementedError(
                "functions with collectives (lax.psum), or with jax.shard_map over several devices, are left to JAX. "
                "Put both around what nngrad.jax returns"
            )


def acts(jaxpr: Jaxpr) -> bool:
    """True if a jaxpr has equations with side effects and no results, such as `jax.debug.print`.

    Raises:
        NotImplementedError: Some also have results (`io_callback`): either kind would be called twice.
    """
    if not jaxpr.effects:
        return False
    acting = [e for e in equations_in(jaxpr) if e.primitive.name in _ACTING]
    without_results = any([not e.outvars for e in acting])
    if without_results and any([e.outvars for e in acting]):
        raise NotImplementedError(
            "cannot combine io_callback with results and jax.debug.print, jax.debug.callback or io_callback without "
            "results: nngrad.jax would call one of them twice. Leave one out, or use jax.pure_callback"
        )
    return without_results


_ACTING = {"debug_callback", "debug_print", "io_callback"}


def _run(*arrays: Any, held: ClosedJaxpr) -> list[Any]:
    return list(call_in(held).graph.run_now(*arrays))


VARIES = (
    "nngrad.jax does not track what varies over the devices of jax.shard_map. Pass it check_vma=False if transformed "
    "functions differentiate by arguments that are equal on all devices; gradients by these are then not summed over "
    "the devices"
)


def varies(aval: Any) -> bool:
    """True if an aval varies among devices; its attribute depends on the version of JAX."""
    return bool(getattr(getattr(aval, "mat", aval), "varying", None) or getattr(aval, "vma", None))


def _results(*avals: Any, held: ClosedJaxpr) -> list[Any]:
    graph = call_in(held).graph
    plain = [jax.core.ShapedArray(spec.shape, a.dtype) for spec, a in zip(graph.inputs, avals, strict=True)]
    if all([a.update(weak_type=False) == b for a, b in zip(avals, plain, strict=True)]):
        return [jax.core.ShapedArray(y.shape, jax.dtypes.canonicalize_dtype(y.dtype)) for y in graph.outputs]
    return list(jax.make_jaxpr(graph.run)(*avals).out_avals)  # arrays, and so results, are divided among devices


def _pushed(primals: Sequence[Any], tangents: Sequence[Any], *, held: ClosedJaxpr) -> Any:
    call = call_in(held)
    graph, owner = call.graph, call.owner
    moving = tuple(
        [i for i, t in enumerate(tangents) if not isinstance(t, ad.Zero) and graph.inputs[i].differentiable]
    )
    if not moving:
        results, moved = results_of_call(graph, owner, primals), iter(())
    else:
        everything = graph.pushforward(moving)(*primals, *[tangents[i] for i in moving])
        results, moved = everything[: len(graph.outputs)], iter(everything[len(graph.outputs) :])
    return results, [
        next(moved) if moving and y.differentiable else ad.Zero(jax.typeof(r).to_tangent_aval())
        for r, y in zip(results, graph.outputs, strict=True)
    ]


def _over_rows(arrays: Sequence[Any], axes: Sequence[Any], *, held: ClosedJaxpr) -> Any:
    """The batching rule."""
    call = call_in(held)
    graph, owner = call.graph, call.owner
    having_rows = tuple([axis is not None for axis in axes])
    (size, *_) = [int(a.shape[axis]) for a, axis in zip(arrays, axes, strict=True) if axis is not None]
    first = [a if axis is None else jnp.moveaxis(a, axis, 0) for a, axis in zip(arrays, axes, strict=True)]
    results = results_of_call(graph.over_rows(owner, having_rows, size), owner, first)
    reached = graph.reached_by(having_rows) if size else [True] * len(results)
    out_axes = [0 if with_rows else None for with_rows in reached]  # `out_axes=None` returns results without the axis
    return [y[0] if axis is None else y for y, axis in zip(results, out_axes, strict=True)], out_axes


def _transposed(cotangents: Sequence[Any], *arrays: Any, held: ClosedJaxpr) -> list[Any]:
    """The transpose rule, for a graph that is linear in some inputs (as in `jax.linear_transpose` of a result of
    `linearize`): JAX transposes the functions of the graph."""
    places = [i for i, a in enumerate(arrays) if ad.is_undefined_primal(a)]
    at = [jnp.zeros(a.aval.shape, a.aval.dtype) if ad.is_undefined_primal(a) else a for a in arrays]
    # Not `jax.linear_transpose`: before JAX 0.9 it rejects loops that compute nonlinear values beside linear ones.
    gradients = back(call_in(held).graph.run, at, places, [*map(ad.instantiate_zeros, cotangents)])
    into = dict(zip(places, gradients, strict=True))
    return [into.get(i) for i in range(len(arrays))]


def _lowered(context: Any, *operands: Any, held: ClosedJaxpr) -> Any:
    return mlir.lower_fun(without_unread(call_in(held).graph.run))(context, *operands)


CALLED.def_impl(_run)
CALLED.def_abstract_eval(_results)
ad.primitive_jvps[CALLED] = _pushed
ad.primitive_transposes[CALLED] = _transposed
batching.primitive_batchers[CALLED] = _over_rows
mlir.register_lowering(CALLED, _lowered)
