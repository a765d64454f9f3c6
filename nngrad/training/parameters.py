"""Parameters as they are given, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax

from ..graph import Variable
from .modules import Module


def named_parameters(parameters: Any) -> dict[str, Variable]:
    """Parameters by name; those of a Module that are trained; those in a list by their numbers; those of a pytree by
    their paths.

    Raises:
        TypeError: One is no Variable.
        ValueError: One is no leaf, or there are none.
    """
    if isinstance(parameters, Variable):
        parameters = [parameters]
    if isinstance(parameters, Module):
        parameters = parameters.get_parameters()
    named = dict(parameters) if isinstance(parameters, Mapping) else {str(i): p for i, p in enumerate(parameters)}
    if any([isinstance(p, Mapping | list | tuple) for p in named.values()]):
        leaves, _ = jax.tree_util.tree_flatten_with_path(named)
        named = {jax.tree_util.keystr(path, simple=True, separator="/"): p for path, p in leaves}
    if not named:
        raise ValueError("parameters: there are none")
    for name, p in named.items():
        if not isinstance(p, Variable):
            raise TypeError(f"parameters: {name!r} must be a Variable, got {type(p).__name__}")
        if p.parent is not None:
            raise ValueError(f"parameters: {name!r} is an output of {p.parent.op.name}; only leaves can be trained")
    return named
