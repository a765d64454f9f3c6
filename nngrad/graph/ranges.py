"""Ranges of static arguments, as annotations: `p: Probability`. A value outside is refused before the function runs, by
an error that names the function and the argument, and the docstring says so under `Raises:`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, TypeAlias

from jax import lax


class Range(NamedTuple):
    """The range of an argument, for use as `Annotated[int, Range(...)]`."""

    holds: Callable[[Any], bool]
    demand: str
    """What an error demands of the argument, after its name."""
    refused: str
    """The docstring's clause for values out of range, with {} for the name."""


def between(low: float, high: float) -> Range:
    """From `low` to `high`, both included."""
    return Range(lambda v: low <= v <= high, f"must be from {low} to {high}", f"`{{}}` is not from {low} to {high}")


def at_least(low: float) -> Range:
    """`low` or more."""
    return Range(lambda v: v >= low, f"must be at least {low}", f"`{{}}` is below {low}")


def one_of(*values: Any) -> Range:
    """One of the given values."""
    *most, last = map(repr, values)
    listed = f"{', '.join(most)} or {last}" if most else last
    return Range(lambda v: v in values, f"must be {listed}", "there is no such `{}`")


_POSITIVE = Range(lambda v: v > 0, "must be positive", "`{}` is not positive")
_NOT_NEGATIVE = Range(lambda v: v >= 0, "must not be negative", "`{}` is negative")

Positive: TypeAlias = Annotated[float, _POSITIVE]
NotNegative: TypeAlias = Annotated[float, _NOT_NEGATIVE]
Probability: TypeAlias = Annotated[float, between(0, 1)]
Share: TypeAlias = Annotated[
    float, Range(lambda v: 0 <= v < 1, "must be at least 0 and below 1", "`{}` is not at least 0 and below 1")
]
AtLeastOne: TypeAlias = Annotated[int, at_least(1)]
Size: TypeAlias = Annotated[int, _NOT_NEGATIVE]
MatmulPrecision: TypeAlias = Annotated[
    str, one_of("default", "high", "highest", *[preset.name for preset in lax.DotAlgorithmPreset])
]
