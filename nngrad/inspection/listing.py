"""`show`: a graph as a readable program, one line per function, with the bodies of loops and branches below them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..extend import Variable
from .description import Description, describe
from .lines import Line, Writer
from .naming import Parameters
from .shown import as_html

_WIDEST, _WIDEST_CELL = 72, 32
"""The widths of a line's code, and of the text of another column, beyond which what follows is no longer aligned."""
_MOST_IN_NOTEBOOKS = 1000
"""The maximum number of lines in notebooks."""


class Listing:
    """A graph as text: `print` it."""

    def __init__(self, lines: Iterable[Line], described: Description) -> None:
        self.lines = tuple(lines)
        """The lines."""
        self.described = described
        """The description of the graph, without its Variables."""

    def __repr__(self) -> str:
        functions = sum([op is not None for op in self.described.ops])
        return f"<listing of {functions} functions in {len(self.lines)} lines; print it>"

    def __str__(self) -> str:
        return "\n".join(_texts(self.lines))

    def _repr_html_(self) -> str:
        texts = [*_texts(self.lines[:_MOST_IN_NOTEBOOKS])]
        if len(self.lines) > _MOST_IN_NOTEBOOKS:
            texts.append(f"… {len(self.lines) - _MOST_IN_NOTEBOOKS} more lines; print() shows them")
        return as_html("\n".join(texts))


def _texts(lines: tuple[Line, ...]) -> Iterator[str]:
    """The lines, with shapes, orders and the other columns aligned."""
    lengths = [4 * line.depth + len(line.text) for line in lines]
    widest = min(max([n for n, line in zip(lengths, lines, strict=True) if line.cells], default=0), _WIDEST)
    columns = zip(*[line.cells for line in lines if line.cells], strict=True)
    widths = [min(max(map(len, column)), _WIDEST_CELL) for column in columns]
    for length, line in zip(lengths, lines, strict=True):
        text, space = "    " * line.depth + line.text, max(0, widest - length)
        for cell, width in zip(line.cells, widths, strict=False):
            if cell:
                text += " " * (space + 2) + cell
                space = max(0, width - len(cell))
            elif width:
                space += 2 + width
        yield text


def show(outputs: Variable | Iterable[Variable], *, parameters: Parameters = None) -> Listing:
    """The graph that computes `outputs` as text: `print(nn.show(y))`.

    Each leaf and each function has a line, in the order of their creation: its results, its inputs, arguments, shapes
    and dtypes, and the order of differentiation if that is not 0, with the function whose backward rule it comes from.
    A function without inputs is a constant. The body of a loop or a branch is indented below it, with the operands of
    its inputs. Only outputs that are read have names. Nothing is run.

    Further columns say, where the graph has something to say: which values are kept for gradients and which are
    rematerialised; the parameter scope; and the line of your program, if recorded (`nn.source_locations`).

    Args:
        outputs: A Variable or Variables.
        parameters: Names of unregistered parameters, such as a module's: `model.get_parameters()`.

    Returns:
        A `Listing`.

    Raises:
        TypeError: Something is not a Variable, or another argument has the wrong type.
        ValueError: There are no outputs.
    """
    described = describe(outputs, parameters)
    lines = tuple(Writer(described).lines())
    described.forget_graph()
    return Listing(lines, described)
