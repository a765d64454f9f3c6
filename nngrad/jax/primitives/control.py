"""Control flow: loops, branches and checkpoints, whose bodies are opened too; and random keys. Draws stay opaque."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp
from jax.extend.core import ClosedJaxpr, Literal

from ... import functions as F
from ...extend import NdArray, Variable, leaf_of
from ...functions.array import in_dtype
from ...functions.checkpoints import applied_checkpoint
from ...functions.traced import (
    CALLS,
    CUSTOM_RULES,
    counts_of_scan,
    is_key,
    name_of,
    parameters_of,
)
from ..values import ComplexPair, Delayed, Keys, KnownArray, Value, implementation_of, is_complex, is_held, known, read
from .registry import CONTROL, JaxprEquation, controls, require


def _as_variables(values: Sequence[Value], described: Sequence[Any]) -> list[Variable]:
    """Values as Variables of these avals' dtypes; keys as their data."""
    variables = []
    for value, aval in zip(values, described, strict=True):
        require(is_held(aval), f"it has values of {aval.dtype}")
        if isinstance(value, Keys):
            variables.append(value.data)
            continue
        if isinstance(value, KnownArray):
            variables.append(_leaf(value))
            continue
        x: Any = value
        variables.append(in_dtype(x, aval.dtype))
    return variables


def _leaf(value: KnownArray) -> Variable:
    if not is_key(value):
        return value.variable()
    with jax.ensure_compile_time_eval():  # known values stay known while JAX traces the code around
        return leaf_of(NdArray.from_numpy_array(np.asarray(jax.random.key_data(value.array))))


def _as_values(variables: Sequence[Variable], described: Sequence[Any]) -> list[Value]:
    """Variables as values: keys for avals of keys, else themselves."""
    return [
        Keys(x, implementation_of(aval), tuple(aval.shape)) if is_key(aval) else x
        for x, aval in zip(variables, described, strict=True)
    ]


@controls("scan")
def _scan(opening: Any, equation: JaxprEquation, values: list[Value]) -> list[Any]:
    p = equation.params
    (fixed, carries), body = counts_of_scan(p), p["jaxpr"]
    described = list(body.in_avals)
    carried, sliced = described[fixed : fixed + carries], described[fixed + carries :]
    outside = values[:fixed]
    init = _as_variables(values[fixed : fixed + carries], carried)
    stacked = _as_variables(values[fixed + carries :], equation.inputs[fixed + carries :])

    def step(carry: list[Variable], xs: list[Variable]) -> tuple[list[Variable], list[Variable]]:
        results = opening.run_closed(body, [*outside, *_as_values(carry, carried), *_as_values(xs, sliced)])
        variables = _as_variables(results, body.out_avals)
        return variables[:carries], variables[carries:]

    last, ys = F.scan(
        step, init, stacked, length=int(p["length"]), reverse=bool(p["reverse"]), unroll=max(int(p["unroll"]), 1)
    )
    return _as_values([*last, *ys], equation.outputs)


@controls("while")
def _while(opening: Any, equation: JaxprEquation, values: list[Value]) -> list[Any]:
    p = equation.params
    of_condition, of_body = int(p["cond_nconsts"]), int(p["body_nconsts"])
    goes_on, body = p["cond_jaxpr"], p["body_jaxpr"]
    seen, read = values[:of_condition], values[of_condition : of_condition + of_body]
    carried = list(body.out_avals)
    moving = [isinstance(v, Variable) and v.spec.differentiable for v in values]
    require(
        not (any(moving) and any([jnp.issubdtype(aval.dtype, jnp.floating) for aval in carried])),
        "its number of steps is unknown, so reverse mode runs it forward once for each element of its inputs",
    )
    init = _as_variables(values[of_condition + of_body :], carried)

    (several,) = goes_on.out_avals  # for mapped loops: whether each of them continues

    def goes(carry: list[Variable]) -> Variable:
        (holds,) = _as_variables(opening.run_closed(goes_on, [*seen, *_as_values(carry, carried)]), goes_on.out_avals)
        return holds

    def condition(carry: list[Variable]) -> Variable:
        holds = goes(carry)
        return F.amax(F.cast(holds, dtype=np.float32)) if several.shape else holds

    def step(carry: list[Variable]) -> list[Variable]:
        results = _as_variables(opening.run_closed(body, [*read, *_as_values(carry, carried)]), carried)
        if not several.shape:
            return results
        holds = goes(carry)
        return [_chosen(holds, new, old) for new, old in zip(results, carry, strict=True)]

    last: Any = F.while_loop(condition, step, init)
    return _as_values(last, equation.outputs)


def _chosen(holds: Variable, new: Variable, old: Variable) -> Variable:
    """The new carry if a mapped loop continues, the old one if it has ended."""
    condition = F.reshape(holds, shape=(*holds.shape, *[1] * (new.ndim - holds.ndim)))
    return F.where(F.broadcast(condition, shape=new.shape), new, old)


@controls("cond")
def _cond(opening: Any, equation: JaxprEquation, values: list[Value]) -> list[Any]:
    branches = equation.params["branches"]
    which, operands = values[0], values[1:]
    if isinstance(which, KnownArray):
        taken = branches[min(max(int(np.asarray(which.array)), 0), len(branches) - 1)]
        return list(opening.run_closed(taken, operands))
    (index,) = _as_variables([which], equation.inputs[:1])

    def branch(closed: Any) -> Any:
        return lambda: _as_variables(opening.run_closed(closed, operands), closed.out_avals)

    index = F.cast(index, dtype=np.int32) if index.dtype == bool else index
    return _as_values(F.switch(index, [branch(closed) for closed in branches]), equation.outputs)


@controls("remat2")
def _checkpoint(opening: Any, equation: JaxprEquation, values: list[Value]) -> list[Any]:
    body, policy = equation.params["jaxpr"], equation.params["policy"]
    jaxpr, consts = (body.jaxpr, body.consts) if isinstance(body, ClosedJaxpr) else (body, [])
    known_values = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*map(known, consts), *values), strict=True))
    computed = {v for inner in jaxpr.eqns for v in inner.outvars}
    wanted = list(dict.fromkeys([v for v in jaxpr.outvars if not isinstance(v, Literal) and v in computed]))
    taken = dict.fromkeys([v for inner in jaxpr.eqns for v in inner.invars if not isinstance(v, Literal)])
    moving = [v for v in taken if v in known_values and not isinstance(known_values[v], KnownArray)]
    described = [v.aval for v in moving]

    def of_moving(variables: list[Variable]) -> tuple[list[Variable], list[Variable]]:
        values_within = known_values | dict(zip(moving, _as_values(variables, described), strict=True))
        saving = Saving(policy)
        with opening.saving(saving):
            opening.follow(jaxpr.eqns, values_within)
        return _as_variables([values_within[v] for v in wanted], [v.aval for v in wanted]), saving.saved

    inputs = _as_variables([known_values[v] for v in moving], described)
    results = applied_checkpoint(of_moving, inputs, opening.follow)
    known_values.update(zip(wanted, _as_values(results, [v.aval for v in wanted]), strict=True))
    return list(read(jaxpr.outvars, known_values))


# ---------------------------------------------------------------- checkpoint policies


class Saving:
    """Collects the values that a policy saves.

    Args:
        policy: One of `jax.checkpoint_policies`, or a function like them; None saves nothing.
    """

    def __init__(self, policy: Any) -> None:
        self._policy = policy
        self.saved: list[Variable] = []

    def take(self, equation: Any, results: Sequence[Value]) -> None:
        """Keep the results of an equation if the policy saves them. As in JAX, it is not asked about equations that
        hold jaxprs. Values to be offloaded to the host are recomputed, which takes no device memory either."""
        name = name_of(equation)
        if self._policy is None or name in CALLS or name in CONTROL or name in CUSTOM_RULES:
            return
        said = self._policy(equation.primitive, *[v.aval for v in equation.invars], **equation.params)
        if said is True or type(said).__name__ == "SaveableType":
            self.saved += [y for y in results if isinstance(y, Variable)]


def stays_checkpoint(equation: Any, values: Sequence[Value]) -> bool:
    """True if a call of `jax.checkpoint` stays one in the graph. It does not if everything is saved, if JAX has already
    differentiated it, or if it takes or returns complex numbers."""
    parameters = parameters_of(equation)
    if name_of(equation) != "remat2" or parameters.get("differentiated", False):
        return False
    if parameters["policy"] is jax.checkpoint_policies.everything_saveable:
        return False
    held = all([is_held(v.aval) and not is_complex(v.aval) for v in (*equation.invars, *equation.outvars)])
    return held and not any([isinstance(v, Delayed | ComplexPair) for v in values])


# ---------------------------------------------------------------- random keys


@controls("random_wrap")
def _random_wrap(opening: Any, equation: JaxprEquation, values: list[Any]) -> list[Any]:
    (data,) = values
    return [Keys(data, implementation_of(equation.outputs[0]), equation.shape)]


@controls("random_unwrap")
def _random_unwrap(opening: Any, equation: JaxprEquation, values: list[Any]) -> list[Any]:
    (keys,) = values
    return [keys.data]
