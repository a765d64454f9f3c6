"""Solver state: in nnabla's form, as named arrays, and checks of what fits."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal
from jax.tree_util import DictKey, GetAttrKey, keystr, tree_flatten_with_path

from ..extend import NdArray, Variable, interrupt_safe, leaf_of
from .loss_scale import DynamicLossScale, DynamicState, LossScale, ScaledState


@dataclass
class SolverState:
    """The state of a solver for one parameter."""

    pstate: dict[str, Any] = field(default_factory=dict)
    """Variables by nnabla's names, such as 'mean' and 'var'; `set_states` also takes arrays."""
    t: int = 0
    """The number of updates it has seen."""


@interrupt_safe
def first_state(init: Callable[[Any], Any], params: tuple[Any, ...]) -> Any:
    """The state that `init` makes for arrays of parameters. If all are constant, as is usual, nothing is compiled."""
    trees: list[Any] = []

    def arrays_of_state(params: tuple[Any, ...]) -> tuple[Any, ...]:
        arrays, tree = jax.tree.flatten(init(params))
        trees.append(tree)
        return tuple(arrays)

    jitted = jax.jit(arrays_of_state)
    closed = jitted.trace(params).jaxpr
    numbers = None if any([getattr(a, "committed", False) for a in params]) else _numbers_of(closed)
    if numbers is not None:
        arrays = [np.full(a.shape, x, a.dtype) for a, x in zip(closed.out_avals, numbers, strict=True)]
        return jax.tree.unflatten(trees[0], jax.device_put(arrays, may_alias=False))
    return jax.tree.unflatten(trees[0], jitted(params))


def _numbers_of(closed: ClosedJaxpr) -> list[Any] | None:
    """The numbers that fill the results of a traced function, whatever its inputs; None unless each result has one."""
    if closed.effects or any([aval.weak_type for aval in closed.out_avals]):
        return None
    filled = {
        eqn.outvars[0]: eqn.invars[0] for eqn in closed.jaxpr.eqns if eqn.primitive.name == "broadcast_in_dim"
    }
    sources = [x if isinstance(x, Literal) else filled.get(x) for x in closed.jaxpr.outvars]
    numbers = [x.val for x in sources if isinstance(x, Literal)]
    return numbers if len(numbers) == len(sources) else None


def names_of_state(state: Any, parameters: Collection[str], names: Mapping[str, str]) -> list[str]:
    """A name for each array of a state, in order; transformations see parameters in dicts by name.

    A name is what `names` calls the array's place in the state, or else that place, and the parameter it belongs to:
    'mean:conv/W', 't'. With a loss scale there are the same names, and those of the scale.
    """
    scaled = isinstance(state, ScaledState)
    paths = [path for path, _ in tree_flatten_with_path(state)[0]]
    return [_name(path[1:] if scaled and path[0] == _INNER else path, parameters, names) for path in paths]


def _name(path: tuple[Any, ...], parameters: Collection[str], names: Mapping[str, str]) -> str:
    owner = next((key for key in reversed(path) if isinstance(key, DictKey) and key.key in parameters), None)
    place = keystr(tuple([key for key in path if key is not owner]), simple=True, separator=".")
    name = names.get(place, place)
    return name if owner is None else f"{name}:{owner.key}"


def states_of(
    named: Mapping[str, Any], parameters: Iterable[str], count: int, updates: int
) -> OrderedDict[str, SolverState]:
    """The state of each parameter, from arrays by the names of `names_of_state`, without the count of updates. If some
    updates were skipped, `updates` is larger than `count`."""
    states = OrderedDict((parameter, SolverState(t=count)) for parameter in parameters)
    shared = SolverState(t=updates)
    for name, array in named.items():
        what, colon, owner = name.partition(":")
        of = states[owner] if colon else shared
        of.pstate[what] = leaf_of(NdArray.of_host_array(np.array(array)))
    if shared.pstate or updates != count:
        states[SHARED] = shared
    return states


def named_of(states: Any, counted: bool) -> tuple[dict[str, Any], int | None, int | None]:
    """The inverse of `states_of`: the arrays by name; the count of updates, which must be equal for all parameters if
    the solver computes with it (`counted`); and the number of updates.

    Raises:
        TypeError: `states` is something else.
        ValueError: A count is not an int, is negative, or differs between parameters.
    """
    if not isinstance(states, Mapping):
        raise TypeError(f"set_states: expected a dict of states by name, got {type(states).__name__}")
    named: dict[str, Any] = {}
    counts: dict[str, int] = {}
    for parameter, state in states.items():
        if not hasattr(state, "pstate") or not hasattr(state, "t"):
            raise TypeError(f"set_states: {parameter!r} must be a SolverState, with pstate and t, as from get_states, "
                            f"got {type(state).__name__}")
        if isinstance(state.t, bool) or not isinstance(state.t, int | np.integer) or not 0 <= state.t < 2**31:
            raise ValueError(f"set_states: t of {parameter!r} must be an int between 0 and 2**31 - 1, got {state.t!r}")
        counts[parameter] = int(state.t)
        for what, array in state.pstate.items():
            cell = array.data if isinstance(array, Variable) else array
            name = what if parameter == SHARED else f"{what}:{parameter}"
            named[name] = cell.raw() if isinstance(cell, NdArray) else cell
    shared = counts.pop(SHARED, None)
    fewest, most = min(counts, key=counts.__getitem__, default=""), max(counts, key=counts.__getitem__, default="")
    if counted and counts and counts[fewest] != counts[most]:
        raise ValueError(f"set_states: t is {counts[fewest]} for {fewest!r} and {counts[most]} for {most!r}, but this "
                         "solver has one count of updates for all its parameters; use two solvers")
    return named, counts.get(most), counts.get(most) if shared is None else shared


def fitting_states(states: Mapping[str, Any], present: Mapping[str, Any], scaling: LossScale | None) -> dict[str, Any]:
    """`states`, arrays by name, converted to replace a solver's `present` state with this loss scaling.

    Raises:
        ValueError: Names, shapes or dtypes differ, a counter is negative, or the loss scale is out of its bounds.
    """
    arrays = {name: array if isinstance(array, jax.Array) else np.asarray(array) for name, array in states.items()}
    if set(arrays) != set(present):
        missing, unknown = sorted(set(present) - set(arrays)), sorted(set(arrays) - set(present), key=str)
        raise ValueError(f"set_states: missing {missing}, unknown {unknown}")
    for name, leaf in present.items():
        array = arrays[name]
        if array.shape != leaf.shape or array.dtype != leaf.dtype:
            raise ValueError(f"set_states: {name!r} must be {leaf.dtype.name}{list(leaf.shape)}, "
                             f"got {array.dtype.name}{list(array.shape)}")
        if name.rpartition(".")[2] in _COUNTERS and (array < 0).any():
            raise ValueError(f"set_states: {name!r} is a counter and must not be negative, got {array}")
    if isinstance(scaling, DynamicLossScale):
        scaling.checked_scale(arrays["loss_scale.scale"], "set_states: 'loss_scale.scale'")
    return arrays


SHARED = ""
"""The name for state arrays that belong to no parameter."""
_COUNTERS = {"t", "count", "good_steps", "skipped"}
"""The names of step counters in nnabla and optax, and of those of the loss scale."""
_INNER = GetAttrKey("inner")
NAMES_OF_LOSS_SCALE = {f"loss_scale.{field}" for field in DynamicState._fields}
