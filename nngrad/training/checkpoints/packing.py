"""States of any make, as text and arrays: what objects with `get_state` give, and dicts of the user's."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from ...graph import NdArray, Variable

_ARRAY, _BYTES = "nngrad.array", "nngrad.bytes"


def state_of(holder: Any) -> Any:
    """The state of `holder`: what its `get_state()` or `get_states()` returns, or the dict that it is."""
    return holder if isinstance(holder, dict) else getattr(holder, _methods_of(holder)[0])()


def _methods_of(holder: Any) -> tuple[str, ...]:
    """The names of its methods that give its state and take it; none where it has not both."""
    for methods in (("get_state", "set_state"), ("get_states", "set_states")):
        if all([callable(getattr(holder, method, None)) for method in methods]):
            return methods
    return ()


def check_holder(holder: Any, name: str) -> None:
    """Raise a TypeError unless the state of `holder` can be read and replaced."""
    if not isinstance(holder, dict) and not _methods_of(holder):
        raise TypeError(f"{name}: expected a dict, or an object with get_state() and set_state(state), "
                        f"got {type(holder).__name__}")


def restore_state(holder: Any, state: Any) -> None:
    """Let `holder` have a state again; a dict is changed in place."""
    if isinstance(holder, dict):
        holder.clear()
        holder.update(state)
    else:
        getattr(holder, _methods_of(holder)[1])(state)


def packed(state: Any, name: str) -> tuple[str, dict[str, Any]]:
    """A state as JSON text, and the arrays in it by names that start with `name`.

    Args:
        state: None, bools, numbers, strings, bytes and arrays, in lists and in dicts with strings as keys. Tuples
            become lists, NumPy's scalars arrays.
        name: What it is called in errors, and in the names of arrays.

    Raises:
        TypeError: Something else is in it.
    """
    arrays: dict[str, Any] = {}

    def other(value: Any) -> dict[str, Any]:
        if isinstance(value, bytes):
            return {_BYTES: base64.b85encode(value).decode()}
        if isinstance(value, Variable | NdArray):
            value = (value.data if isinstance(value, Variable) else value).raw()
        elif isinstance(value, np.ndarray | np.generic):
            value = np.array(value)  # which may be changed while it is written
        if not isinstance(value, np.ndarray | jax.Array) or value.dtype == object:
            raise TypeError(f"{name}: a state is made of arrays, bytes and what JSON knows, got {type(value).__name__}")
        key = f"{name}/{len(arrays)}"
        arrays[key] = value
        return {_ARRAY: key}

    _check_keys(state, name)
    return json.dumps(state, default=other), arrays


def _check_keys(state: Any, name: str) -> None:
    left = [state]
    while left:
        item = left.pop()
        if isinstance(item, Mapping):
            for key in item:
                if not isinstance(key, str):
                    raise TypeError(f"{name}: keys in a state must be strings, got {key!r}")
            left += item.values()
        elif isinstance(item, list | tuple):
            left += item


def unpacked(text: str, arrays: Mapping[str, Any]) -> Any:
    """The state of which `packed` has made text and arrays."""

    def other(found: dict[str, Any]) -> Any:
        if found.keys() == {_ARRAY}:
            return arrays[found[_ARRAY]]
        if found.keys() == {_BYTES}:
            return base64.b85decode(found[_BYTES])
        return found

    return json.loads(text, object_hook=other)
