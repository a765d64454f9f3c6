"""Variables that are there in two forms: computed as they were asked for, and as what something else is built on.

A graph is never changed. Where functions of the other form are in a graph anyway, what reads the Variable is taken to
read the other form, so that only one of the two is computed, and differentiated. So this depends on the graph alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from .traverse import operands_first

if TYPE_CHECKING:
    from .function import Function
    from .variable import Variable


class Form(NamedTuple):
    """Another form of a Variable."""

    variable: Variable
    """It has the same value; the output of a function that only passes it on."""
    functions: frozenset[Function]
    """The functions that are there for such forms alone."""


def forms_within(
    functions: Collection[Function], apart: Container[int] = ()
) -> list[tuple[Variable, Variable]]:
    """Returns the Variables among what `functions` compute of whose other form some function is among these too, each
    with that.

    Args:
        functions: All that is computed.
        apart: Ids of Variables that stand for themselves.
    """
    found: list[tuple[Variable, Variable]] = []
    partly: dict[frozenset[Function], bool] = {}
    living = [x for f in functions if f.order for ref in f._outputs if (x := ref()) is not None]
    for x in [x for x in living if x._derived is not None and x._need_grad is not False and id(x) not in apart]:
        form: Form | None = x._derived.form
        if form is not None:
            if form.functions not in partly:
                partly[form.functions] = not form.functions.isdisjoint(functions)
            if partly[form.functions]:
                found.append((x, form.variable))
    return found


def seen_through(
    outputs: Sequence[Variable], forms: Mapping[int, Variable], through: Callable[[Variable], bool] | None = None
) -> tuple[list[Variable], list[Function]]:
    """Returns `outputs`, and what they depend on, each function after those whose results it reads, with `forms` in
    place of what they are forms of.

    Args:
        outputs: What is computed.
        forms: By the ids of Variables, what is taken for them.
        through: Where given, the walk goes on only through Variables for which it is true.
    """
    outputs = [forms.get(id(y), y) for y in outputs]

    def above(variables: Sequence[Variable]) -> list[Function]:
        seen = [forms.get(id(x), x) for x in variables]
        return [x.parent for x in seen if x.parent is not None and (through is None or through(x))]

    return outputs, operands_first(above(outputs), lambda f: above(f.inputs))
