"""Gradients as arrays, added to what cells hold."""

from __future__ import annotations

import functools
import operator
import threading
from collections.abc import Sequence
from typing import Any

import jax

from ..graph import NdArray
from ..graph.spec import x64_if
from ..graph.value import put_together


@jax.jit
def _sums(terms: tuple[tuple[Any, ...], ...]) -> tuple[Any, ...]:
    return tuple([functools.reduce(operator.add, xs) for xs in terms])


_MOST_SUMS = 256
"""How many sums one executable computes: the time to compile it grows with the square of their number."""

_cell = operator.itemgetter(0)
_accumulating = threading.RLock()


def accumulate(arrived: Sequence[tuple[NdArray, Any]], retained: Sequence[tuple[NdArray, Any]] = ()) -> None:
    """Add arrays to what cells hold, and put others in the place of what is there, all at one moment."""
    with _accumulating:
        if not retained and all([cell.is_zero for cell, _ in arrived]) and len({*map(_cell, arrived)}) == len(arrived):
            put_together([cell for cell, _ in arrived], [gx for _, gx in arrived])
            return
        parts = {cell: [gy] for cell, gy in retained}
        for cell, gx in arrived:
            if cell in parts:  # two leaves may share one
                parts[cell].append(gx)
            else:
                parts[cell] = [gx] if cell.is_zero else [cell.raw(), gx]
        added = {cell: tuple(terms) for cell, terms in parts.items() if len(terms) > 1}
        while added:
            cells = list(added)[:_MOST_SUMS]
            with x64_if(any([cell.spec.needs_x64 for cell in cells])):
                sums = _sums(tuple([added.pop(cell) for cell in cells]))
            parts |= {cell: [total] for cell, total in zip(cells, sums, strict=True)}
        put_together(list(parts), [total for (total,) in parts.values()])
