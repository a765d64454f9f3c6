"""Functions of vectors, captured as bodies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ...functions.control import unlink
from ...functions.inlining import inlined
from ...graph import Spec, Variable, switched
from ...graph.block import Block
from ...graph.capture import captured

at_full_precision = switched(precision=None)
"""Decorates what looks for solutions: an iteration that is rounded to 16 bits comes to no end."""


class CapturedEquation(NamedTuple):
    """A function captured as a body, with the Variables that it reads from outside."""

    body: Block
    """Its inputs are the parameters and those of the function."""
    parameters: tuple[Variable, ...]

    def at(self, *given: Variable) -> Variable:
        """The function applied to these, as functions of the graph."""
        return inlined(self.body, [*self.parameters, *given])[0]


def equation(
    function: Callable[..., Variable], specs: Sequence[Spec], owner: str, written: Callable[..., Any]
) -> CapturedEquation:
    """Capture a function by calling it once, on Variables without values.

    Args:
        function: The function.
        specs: Shape and dtype of its arguments.
        owner: The name of the function that solves the equation, for messages.
        written: The user's function, for messages.
    """
    found = captured(lambda given: [function(*given)], specs, owner, written, often=True)
    first, count = len(found.variables), len(found.variables) + len(found.keys)
    # A random key that is behind a function is no key to draw anew at each step of the loops that find a solution.
    parameters = (*found.variables, *[unlink(key) for key in found.keys])
    places = [*range(first), *range(count, count + len(specs)), *range(first, count)]
    return CapturedEquation(found.body.with_inputs((*[x.spec for x in parameters], *specs), places), parameters)
