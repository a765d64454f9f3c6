"""Primitives on random keys. Sampling stays opaque: it is right, and no gradient passes through it."""

from __future__ import annotations

from typing import Any

from ..values import Keys, implementation_of
from .registry import JaxprEquation, controls


@controls("random_wrap")
def _random_wrap(opening: Any, equation: JaxprEquation, values: list[Any]) -> list[Any]:
    (data,) = values
    return [Keys(data, implementation_of(equation.outputs[0]), equation.shape)]


@controls("random_unwrap")
def _random_unwrap(opening: Any, equation: JaxprEquation, values: list[Any]) -> list[Any]:
    (keys,) = values
    return [keys.data]
