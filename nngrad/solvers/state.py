"""The arrays in a solver's state: their names, and what they can be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
import optax

from ..execution.executable import run_once
from ..graph.half_made import unharmed
from .loss_scale import DynamicLossScale, DynamicState, LossScale, ScaledState


@unharmed
def first_state(init: Callable[[Any], Any], params: tuple[Any, ...], structure: bytes | None) -> Any:
    """The state that `init` makes for arrays of parameters; `structure` is a digest of what it does, by which the
    disk knows it."""
    tree = jax.tree.structure(jax.eval_shape(init, params))
    leaves = run_once(lambda given: tuple(jax.tree.leaves(init(given))), params, structure=structure)
    return jax.tree.unflatten(tree, leaves)


def names_of_state(init: Callable[[Any], Any], state: Any, parameters: tuple[str, ...]) -> list[str]:
    """A name for each array in a state that `init` made for some parameters, in its order.

    It is the array's place in the state, and the parameter that it belongs to: 'mu:conv/W', 'count'. With a loss scale
    the names are those without one, and its own.
    """
    try:
        owners = optax.tree_utils.tree_map_params(
            init, lambda _, name: name, state, parameters,
            transform_non_params=lambda leaf: jax.tree.map(lambda _: None, leaf),
        )
    except IndexError:  # that of `optax.lbfgs` looks at the first parameter, where optax has none
        owners = _owners_by_size(init, parameters)
    scaled = isinstance(state, ScaledState)
    paths = [path for path, _ in jax.tree_util.tree_flatten_with_path(state)[0]]
    owned = jax.tree.leaves(owners, is_leaf=lambda x: x is None)
    return [
        _name(path[1:] if scaled and path[0] == _INNER else path, owner)
        for path, owner in zip(paths, owned, strict=True)
    ]


def _owners_by_size(init: Callable[[Any], Any], parameters: tuple[str, ...]) -> Any:
    """The same, found from what sizes the state has for parameters of so many different sizes."""
    sizes = {_PROBE + i: name for i, name in enumerate(parameters)}
    made = jax.eval_shape(init, tuple([jax.ShapeDtypeStruct((size,), np.float32) for size in sizes]))
    return jax.tree.map(lambda array: next((sizes[n] for n in array.shape if n in sizes), None), made)


def _name(path: tuple[Any, ...], owner: str | None) -> str:
    if owner is None:
        return jax.tree_util.keystr(path, simple=True, separator=".")
    return f"{jax.tree_util.keystr(path[:-1], simple=True, separator='.')}:{owner}"


def fitting_states(states: Any, own: Mapping[str, Any], scaling: LossScale | None) -> dict[str, Any]:
    """`states` as arrays by name, which can take the place of a solver's `own` state with this loss scaling.

    Raises:
        TypeError: `states` is no mapping.
        ValueError: Names, shapes or dtypes are others, a counter is negative, or the loss scale out of its bounds.
    """
    if not isinstance(states, Mapping):
        raise TypeError(f"set_states: expected arrays by name, got {type(states).__name__}")
    given = {name: array if isinstance(array, jax.Array) else np.asarray(array) for name, array in states.items()}
    if set(given) != set(own):
        missing, unknown = sorted(set(own) - set(given)), sorted(set(given) - set(own), key=str)
        raise ValueError(f"set_states: missing {missing}, unknown {unknown}")
    for name, leaf in own.items():
        array = given[name]
        if array.shape != leaf.shape or array.dtype != leaf.dtype:
            raise ValueError(f"set_states: {name!r} must be {leaf.dtype.name}{list(leaf.shape)}, "
                             f"got {array.dtype.name}{list(array.shape)}")
        if name.rpartition(".")[2] in _COUNTERS and (array < 0).any():
            raise ValueError(f"set_states: {name!r} counts, so it must not be negative, got {array}")
    if isinstance(scaling, DynamicLossScale):
        scaling.check_scale(given["loss_scale.scale"], "set_states: 'loss_scale.scale'")
    return given


_COUNTERS = {"count", "good_steps", "skipped"}
"""What optax calls its counters of steps, and those of the loss scale."""
_PROBE = 1_000_003
"""A size that no state has by itself."""
_INNER = jax.tree_util.GetAttrKey("inner")
NAMES_OF_LOSS_SCALE = {f"loss_scale.{field}" for field in DynamicState._fields}
