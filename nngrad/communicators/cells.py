"""What users give communicators: cells, alone or in lists, which is checked before anything is exchanged."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..graph import NdArray, Variable
from ..graph.exchange import Processes
from ..graph.value import put_together


def cells_in(data: Any, argument: str) -> list[NdArray]:
    """One cell, or several, as a list."""
    alone = isinstance(data, NdArray | Variable) or not isinstance(data, Iterable)
    listed: list[Any] = [data] if alone else list(data)
    for each in listed:
        if not isinstance(each, NdArray):
            hint = "; give its .data or its .grad" if isinstance(each, Variable) else ""
            raise TypeError(f"{argument}: expected an NdArray or a list of them, got {each!r:.200}{hint}")
    return listed


def write_to(cells: list[NdArray], arrays: Iterable[Any]) -> None:
    """Let cells hold arrays, all from one moment on."""
    for cell in cells:
        cell.variable = None  # what it was the gradient of, it is alone no more
    put_together(cells, arrays)


def check_list(cells: list[NdArray], one: NdArray, processes: Processes) -> None:
    """Raise a ValueError where there is not a cell like `one` for each process."""
    if len(cells) != len(processes) or any([cell.spec != one.spec for cell in cells]):
        raise ValueError(
            f"ndarray_list: expected {len(processes)} cells of {one.spec}, one for each process of the group, got "
            f"{[cell.spec for cell in cells]}"
        )


def check_division(cells: list[NdArray], division: bool) -> None:
    """Raise a TypeError where integers were to be divided."""
    whole = [cell.spec for cell in cells if not cell.spec.differentiable]
    if division and whole:
        raise TypeError(f"division: integers cannot be divided in their dtype, and there is {whole[0]}; sum them alone")
