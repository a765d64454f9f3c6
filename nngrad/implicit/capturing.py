"""Functions of pytrees as bodies of one vector."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..functions.inlining import inlined
from ..graph import Variable
from ..graph.body import Body, captured
from .packing import Packing


class Equation(NamedTuple):
    """A function of a vector, as a body, with what it reads from outside."""

    body: Body
    """Its inputs are the parameters and the vector."""
    parameters: tuple[Variable, ...]

    def at(self, vector: Variable) -> Variable:
        """The function of a vector, as functions of the graph."""
        return inlined(self.body, [*self.parameters, vector])[0]


def equation(
    function: Callable[[Variable], Variable], packing: Packing, owner: str, written: Callable[..., Any]
) -> Equation:
    """A function of a vector that is called once, on a Variable without a value. Random keys in it are drawn once for
    each `forward()`, so that all steps of an iteration see the same function.

    Args:
        function: The function.
        packing: What the vector stands for.
        owner: The name of the function that solves the equation, for messages.
        written: What the user has written, for messages.
    """
    found = captured(lambda given: [function(given[0])], [packing.spec], owner, written, often=True)
    parameters = (*found.variables, *found.keys)
    first = len(found.variables)
    places = [*range(first), len(parameters), *range(first, len(parameters))]
    specs = (*[x.spec for x in parameters], packing.spec)
    return Equation(found.body.with_inputs(specs, places), parameters)

