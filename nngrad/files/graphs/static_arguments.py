"""Static arguments of functions as tagged JSON values, and back.

None, bools, ints and strings stay as they are, and tuples become lists. Anything else becomes an object with one key,
the tag of its type. Bodies and ops become their numbers in the tables of the file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from ...extend import Block, Op, coerced, dtype_of
from ..checked import integer

_MOST_DEEP = 32
"""The limit on the nesting of tuples."""


class NotSerializable(TypeError):
    """A value that has no meaning outside this process."""


def argument_to_json(
    value: Any, op: Callable[[Op], int], body: Callable[[Block], int] | None = None, depth: int = 0
) -> Any:
    """A static argument as a JSON value.

    Args:
        value: The argument.
        op: Returns the number of an op.
        body: Returns the number of a body; None where bodies are not allowed.
        depth: The number of enclosing tuples.

    Raises:
        NotSerializable: The argument has another type.
    """
    kind = value.__class__
    if value is None or kind is bool or kind is int or kind is str:
        return value
    if kind is tuple and depth < _MOST_DEEP:
        return [argument_to_json(each, op, body, depth + 1) for each in value]
    if isinstance(value, float) and not value and math.copysign(1.0, value) < 0:
        return {"number": "-0"}
    if kind is float:
        return {"float": value.hex()}
    if kind is Fraction:
        return {"fraction": [value.numerator, value.denominator]}
    if isinstance(value, np.dtype) and value.isbuiltin:
        return {"dtype": value.name}
    if kind is Block and body is not None:
        return {"body": body(value)}
    if isinstance(value, Op):
        return {"op": op(value)}
    if kind is slice:
        bounds = value.start, value.stop, value.step
        return {"slice": [argument_to_json(each, op, body, _MOST_DEEP) for each in bounds]}
    if value is Ellipsis:
        return {"ellipsis": None}
    raise NotSerializable(f"{kind.__module__}.{kind.__qualname__}")


def argument_from_json(given: Any, definitions: Sequence[Any], op: Callable[[Any], Op], depth: int = 0) -> Any:
    """The inverse of `argument_to_json`.

    Args:
        given: The parsed JSON value.
        definitions: The definitions read so far, including the bodies that this may refer to.
        op: Returns the op with a number.
        depth: The number of enclosing tuples.

    Raises:
        ValueError: `given` is not the JSON value of a static argument.
    """
    kind = given.__class__
    if given is None or kind is bool or kind is int or kind is str:
        return given
    if kind is list and depth < _MOST_DEEP:
        return tuple([argument_from_json(each, definitions, op, depth + 1) for each in given])
    if kind is dict and len(given) == 1:
        ((key, value),) = given.items()
        if key == "number" and value == "-0":
            return coerced(float, -0.0, "-0.0")
        if key == "float" and isinstance(value, str) and len(value) < 64:
            number = float.fromhex(value)
            return math.nan if number != number else number
        if key == "fraction" and value.__class__ is list and [each.__class__ for each in value] == [int, int]:
            return Fraction(*value)
        if key == "dtype" and isinstance(value, str):
            return dtype_of(value)
        if key == "body":
            body = definitions[integer(value, 0, len(definitions) - 1)]
            if isinstance(body, Block):
                return body
        if key == "op":
            return op(value)
        if key == "slice" and value.__class__ is list and len(value) == 3:
            return slice(*[argument_from_json(each, definitions, op, _MOST_DEEP) for each in value])
        if key == "ellipsis":
            return Ellipsis
    raise ValueError(f"invalid static argument: {given!r:.60}")
