"""Names of the arrays in a solver's state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import optax

from .loss_scale import DynamicState, ScaledState


def names_of(init: Callable[[Any], Any], state: Any, parameters: tuple[str, ...]) -> list[str]:
    """A name for each array in a state that `init` made for some parameters, in its order.

    It is the array's place in the state, and the parameter that it belongs to: 'mu:conv/W', 'count'. With a loss scale
    the names are those without one, and its own.
    """
    owners = optax.tree_utils.tree_map_params(
        init, lambda _, name: name, state, parameters,
        transform_non_params=lambda leaf: jax.tree.map(lambda _: None, leaf),
    )
    scaled = isinstance(state, ScaledState)
    paths = [path for path, _ in jax.tree_util.tree_flatten_with_path(state)[0]]
    owned = jax.tree.leaves(owners, is_leaf=lambda x: x is None)
    return [
        _name(path[1:] if scaled and path[0] == _INNER else path, owner)
        for path, owner in zip(paths, owned, strict=True)
    ]


def _name(path: tuple[Any, ...], owner: str | None) -> str:
    if owner is None:
        return jax.tree_util.keystr(path, simple=True, separator=".")
    return f"{jax.tree_util.keystr(path[:-1], simple=True, separator='.')}:{owner}"


_INNER = jax.tree_util.GetAttrKey("inner")
NAMES_OF_LOSS_SCALE = {f"loss_scale.{field}" for field in DynamicState._fields}
