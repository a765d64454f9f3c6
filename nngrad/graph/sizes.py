"""Sizes that have a name in place of a number, where a program is exported for any size."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from jax.export import is_symbolic_dim


def has_name(sizes: Iterable[Any]) -> bool:
    """Whether one of the sizes has a name."""
    return any([type(n) is not int and is_symbolic_dim(n) for n in sizes])


def surely(holds: Callable[[], bool]) -> bool:
    """Whether a comparison of sizes holds; False where a size has a name and nobody can tell. For what is as right one
    way as the other, and only faster one way."""
    try:
        return bool(holds())
    except Exception as error:
        if type(error).__name__ != "InconclusiveDimensionOperation":
            raise
        return False
