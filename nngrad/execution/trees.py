"""Pytrees of Variables and arrays, as arguments and results of functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from ..graph import Variable


class TreeArguments(NamedTuple):
    """The Variables that are the arguments of a function, in a flat list."""

    variables: list[Variable]
    places: list[str]
    """The place of each: the index of its argument and the path within that, such as "1['w']"."""
    structures: list[Any] | None
    """The pytree of each argument; None if each is one array."""

    def flattened(self, given: Sequence[Any]) -> Sequence[Any]:
        """The arrays in `given`, one for each of the Variables.

        Raises:
            TypeError: There are too many or too few arguments, or one is not arranged like the Variables.
        """
        structures = self.structures
        count = len(self.variables) if structures is None else len(structures)
        if len(given) != count:
            kind = "arrays" if structures is None else "arguments"
            raise TypeError(f"expected {count} {kind}, one for each input, got {len(given)}")
        if structures is None:
            return given
        flat: list[Any] = []
        for i, (structure, each) in enumerate(zip(structures, given, strict=True)):
            try:
                flat += structure.flatten_up_to(each)
            except (TypeError, ValueError) as error:
                raise TypeError(f"argument {i}: expected arrays in the structure {_shown(structure)}, got "
                                f"{_shown(jax.tree.structure(each))}") from error
        return flat


class TreeResults(NamedTuple):
    """The Variables that are the results of a function."""

    variables: list[Variable]
    structure: Any

    def arranged(self, arrays: Sequence[Any]) -> Any:
        """Arrays arranged like the Variables."""
        return jax.tree.unflatten(self.structure, arrays)


def builds(outputs: Any) -> bool:
    """Whether `outputs` is a function that builds a graph, not a callable pytree of Variables, such as a model."""
    return callable(outputs) and jax.tree_util.all_leaves([outputs])


def arguments_of(inputs: Any) -> TreeArguments:
    """`inputs` as arguments: each entry of a list or a tuple is one, anything else is a single one.

    Raises:
        TypeError: Something in it is not a Variable.
        ValueError: A Variable occurs twice.
    """
    each = list(inputs) if type(inputs) in (list, tuple) else [inputs]
    if all([isinstance(x, Variable) for x in each]):
        found = TreeArguments(each, list(map(str, range(len(each)))), None)
    else:
        paths = [jax.tree_util.tree_flatten_with_path(entry) for entry in each]
        places = [f"{i}{jax.tree_util.keystr(path)}" for i, (leaves, _) in enumerate(paths) for path, _ in leaves]
        variables = [x for leaves, _ in paths for _, x in leaves]
        for place, x in zip(places, variables, strict=True):
            if not isinstance(x, Variable):
                raise TypeError(f"inputs: expected a Variable, or a pytree of them, got {x!r:.200} as input {place}")
        found = TreeArguments(variables, places, [structure for _, structure in paths])
    if len({id(x) for x in found.variables}) != len(found.variables):
        raise ValueError("inputs: the same Variable is given twice")
    return found


def filled_results(outputs: Any) -> TreeResults:
    """`outputs` as a result.

    Raises:
        TypeError: Something in it is not a Variable, or it is None.
    """
    leaves, structure = jax.tree_util.tree_flatten_with_path(outputs)
    for path, y in [*leaves, *([((), None)] if outputs is None else [])]:
        if not isinstance(y, Variable):
            place = jax.tree_util.keystr(path)
            raise TypeError(f"outputs: expected a Variable or a list of them, or another pytree, got {y!r:.200}"
                            f"{place and f' at {place}'}")
    return TreeResults([y for _, y in leaves], structure)


def arrays_of_trees(arguments: Sequence[Any]) -> tuple[list[Any], list[str], Any]:
    """The arrays in pytrees, their places, and the structure of the whole. Nested lists of numbers are arrays."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(tuple(arguments), is_leaf=_is_array)
    places = [f"{path[0].idx}{jax.tree_util.keystr(path[1:])}" for path, _ in leaves]
    return [value for _, value in leaves], places, structure


def _is_array(value: Any) -> bool:
    """Whether a list or a tuple contains only numbers, however nested."""
    if type(value) not in (list, tuple):
        return False
    waiting, has_numbers = [value], False
    while waiting:
        for each in waiting.pop():
            if type(each) in (list, tuple):
                waiting.append(each)
            elif isinstance(each, bool | int | float | np.number | np.bool_):
                has_numbers = True
            else:
                return False
    return has_numbers


def _shown(structure: Any) -> str:
    text = str(structure).removeprefix("PyTreeDef(").removesuffix(")")
    return text if len(text) <= 200 else f"{text[:197]}..."
