"""Validation of JSON values: numbers in a range, strings, lists."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

T = TypeVar("T")
_MOST = 2**63 - 1
"""The largest number that an int64 holds."""


class NotAvailable(Exception):
    """A valid file needs something that this installation lacks; the message says what."""


def integer(value: Any, least: int, most: int = _MOST) -> int:
    """Check that `value` is an integer from `least` to `most`, and return it.

    Raises:
        ValueError: `value` is anything else.
    """
    if value.__class__ is not int or not least <= value <= most:
        raise ValueError(f"expected an integer from {least} to {most}, got {value!r:.40}")
    return value


def whole_numbers(value: Any, least: int, most: int = _MOST) -> tuple[int, ...]:
    """Check that `value` is a list of integers from `least` to `most`, and return them.

    Raises:
        ValueError: `value` is anything else.
    """
    if value.__class__ is not list or not _INT.issuperset(map(type, value)):
        raise ValueError(f"expected a list of integers, got {value!r:.40}")
    if value and not (least <= min(value) and max(value) <= most):
        raise ValueError(f"expected integers from {least} to {most}, got {value!r:.40}")
    return tuple(value)


_INT = frozenset({int})


def of_type(value: Any, kind: type[T]) -> T:
    """Check that `value` is of a type, and return it.

    Raises:
        ValueError: It is of another one.
    """
    if value.__class__ is not kind:
        raise ValueError(f"expected a {kind.__name__}, got {value!r:.40}")
    return value


def list_of(table: Mapping[str, Any], name: str) -> list[Any]:
    """The list with this name in a table.

    Raises:
        ValueError: There is no such list.
    """
    value = table.get(name)
    if value.__class__ is not list:
        raise ValueError(f"{name!r} must be a list, got {value!r:.40}")
    return value
