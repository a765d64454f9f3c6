"""The structure of a graph, without the graph."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax

from ..graph import Op, Spec
from ..graph.spec import is_wide
from .host_calls import has_opaque

Step = tuple[Op, tuple[Any, ...], tuple[int, ...]]


class Program(NamedTuple):
    """The structure of a graph, without the graph: equal structures are equal programs.

    Values are numbered: leaf i is i, and output k of the steps, counted through all of them, is ~k.
    """

    leaves: tuple[Spec, ...]
    """Shape and dtype of each leaf."""
    steps: tuple[Step, ...]
    """Op, static arguments, and the numbers of the inputs, in an order in which they can run."""
    outputs: tuple[int, ...]
    """Numbers of the results."""
    device: jax.Device | None
    """Where it runs; None leaves it to JAX."""

    @property
    def wide(self) -> bool:
        """Whether 64-bit values occur in it, by way of a leaf or of an argument."""
        return any([s.wide for s in self.leaves]) or any([is_wide(arguments) for _, arguments, _ in self.steps])

    @property
    def opaque(self) -> bool:
        """Whether it holds code of the user's."""
        return any([has_opaque(arguments) for _, arguments, _ in self.steps])
