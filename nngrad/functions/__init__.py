"""F: the functions that graphs are made of, one file per family."""

from __future__ import annotations

from typing import Any

from ..graph import Composite, Op
from ..graph.spelling import did_you_mean
from . import (
    activation,
    arithmetic,
    array,
    comparison,
    contractions,
    control,
    convolution,
    cumulative,
    elementwise,
    indexing,
    linear,
    loss,
    movement,
    normalization,
    polynomial,
    pooling,
    reduction,
    slicing,
    stochastic,
)
from .jax_functions import jax_function as jax_function

FAMILIES = (
    arithmetic,
    polynomial,
    comparison,
    elementwise,
    activation,
    reduction,
    cumulative,
    array,
    movement,
    slicing,
    indexing,
    control,
    linear,
    contractions,
    convolution,
    pooling,
    normalization,
    loss,
    stochastic,
)

for _family in FAMILIES:
    for _name, _value in vars(_family).items():
        if isinstance(_value, Op | Composite) and _value.module == _family.__name__:
            globals()[_name] = _value
del _family, _name, _value  # `_value` is a function too, and would be listed


def names() -> list[str]:
    """Names of all functions, sorted."""
    return sorted(name for name, value in globals().items() if isinstance(value, Op | Composite))


def __getattr__(name: str) -> Any:
    hint = did_you_mean(name, [*names(), "jax_function"]) or "; `nngrad ops` lists those there are"
    raise AttributeError(f"nngrad.functions has no function {name!r}{hint}")
