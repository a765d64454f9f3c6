"""Graphs that a function builds, one for each combination of shapes and dtypes that its inputs come in.

The shapes of a graph are fixed, and what was made of a shape when it was built, such as a factor of 1/8 for eight
rows, cannot be told from other numbers. So for other shapes a graph is built again, and never bent.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import Any, Generic, TypeVar

import jax

from ..graph import NdArray, Spec, Variable, build_options, switched
from ..graph.capture import placeholder
from ..graph.ndarray import host_array
from ..graph.spec import spec_of
from ..graph.thresholds import MOST_GRAPHS
from .compiled import BoundedCache

T = TypeVar("T")
R = TypeVar("R")


class ByShape(Generic[T]):
    """What is made of the graphs that `function` builds.

    It is called in the scopes that are in force where this is made: the same parameters are found for all shapes.

    Args:
        function: Takes Variables, and returns what is computed of them.
        make: Takes what `function` returned, and the Variables that it was given.
        spec_of_input: The shape and dtype of the Variable for an array, from the array's and from its name in
            messages; by default they are the same.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        make: Callable[[Any, list[Variable]], T],
        spec_of_input: Callable[[Spec, str], Spec] = lambda spec, name: spec,
    ) -> None:
        self._function = function
        self._make = make
        self._spec_of_input = spec_of_input
        self._context = copy_context()
        self._mesh = build_options().running.mesh
        self._made = BoundedCache(MOST_GRAPHS)
        self._building = threading.RLock()

    def called_with(
        self, values: Sequence[Any], places: Sequence[str] | None = None, structure: Any = None
    ) -> tuple[T, list[Any]]:
        """Returns what is made for values like these, and the values as arrays.

        Args:
            values: An array for each Variable that the function is given.
            places: Where each is, for messages; by default its number.
            structure: The pytree of the function's arguments; None where each value is one.
        """
        names = [f"array {place}" for place in (range(len(values)) if places is None else places)]
        arrays = [_array(value, name) for value, name in zip(values, names, strict=True)]
        if self._mesh is not None:
            arrays = [self._mesh.argument(array, name) for array, name in zip(arrays, names, strict=True)]
        specs = tuple([spec_of(tuple(array.shape), array.dtype) for array in arrays])
        key = specs, structure
        made: T | None = self._made.find(key)
        if made is None:
            with self._building:  # two graphs of one shape would have parameters made twice
                made = self._made.get(key, lambda: self._built(specs, names, structure))
        return made, arrays

    def _built(self, specs: Sequence[Spec], names: Sequence[str], structure: Any) -> T:
        own = [self._spec_of_input(spec, name) for spec, name in zip(specs, names, strict=True)]
        inputs = [placeholder(spec, "what is compiled") for spec in own]
        arguments = inputs if structure is None else jax.tree.unflatten(structure, inputs)
        outputs = self.in_its_scopes(lambda: self._outputs(arguments))
        for x in inputs:
            x.cell.zero()
        return self.in_its_scopes(lambda: self._make(outputs, inputs))

    def in_its_scopes(self, run: Callable[[], R]) -> R:
        """Returns what `run` returns in the scopes that were in force when this was made."""
        return self._context.copy().run(run)  # a copy, since a context is entered by one thread at a time

    def _outputs(self, arguments: Sequence[Any]) -> Any:
        # Parameters that are made here are arrays, also where JAX traces the caller.
        with switched(auto_forward=False), jax.ensure_compile_time_eval():
            return self._function(*arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a function that was compiled by shape cannot be pickled or copied: it holds executables of "
                        "this process. Make it anew in the process where it runs")


def _array(value: Any, name: str) -> Any:
    """An argument as an array: numbers and lists have the dtypes that leaves of them have."""
    if isinstance(value, jax.core.Tracer):
        return value
    if isinstance(value, Variable):
        return value.data.raw()
    return value.raw() if isinstance(value, NdArray) else host_array(value, None, name)
