"""Checks of the sizes and axes that layers are given. Their messages start with the `name` of the argument."""

from __future__ import annotations

from collections.abc import Iterable

from ..graph.arguments import as_float, as_int, as_ints, axis_of


def ints(value: int | Iterable[int], name: str) -> tuple[int, ...]:
    """An int, or several, as a tuple."""
    try:
        return as_ints(value)
    except TypeError as error:
        raise TypeError(f"{name} must be {error}, got {value!r}") from None


def sizes(value: int | Iterable[int], name: str) -> tuple[int, ...]:
    """An int of 1 or more, or several, as a tuple."""
    result: tuple[int, ...] = (value,) if value.__class__ is int else ints(value, name)
    if result and min(result) < 1:
        raise ValueError(f"{name} must be 1 or more, got {value!r}")
    return result


def size(value: int, name: str) -> int:
    """An int of 1 or more."""
    result = as_whole_number(value, name)
    if result < 1:
        raise ValueError(f"{name} must be 1 or more, got {value!r}")
    return result


def as_whole_number(value: int, name: str) -> int:
    """An int."""
    try:
        return as_int(value)
    except TypeError as error:
        raise TypeError(f"{name} must be {error}, got {value!r}") from None


def fraction(value: float, name: str) -> float:
    """A number from 0 to 1."""
    try:
        result = as_float(value)
    except TypeError as error:
        raise TypeError(f"{name} must be {error}, got {value!r}") from None
    if not 0 <= result <= 1:
        raise ValueError(f"{name} must be from 0 to 1, got {value!r}")
    return result


def axis(value: int, ndim: int, name: str) -> int:
    """An axis, not negative."""
    return axis_of(as_whole_number(value, name), ndim, name)


def evenly(count: int, group: int, name: str) -> int:
    """`count` split evenly into groups."""
    if count % group:
        raise ValueError(f"{name}: {count} cannot be split into {group} groups")
    return count // group
