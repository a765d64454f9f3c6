"""Gradients as arrays, added to what cells hold."""

from __future__ import annotations

import functools
import operator
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import jax
import numpy as np

from ..execution import background
from ..execution.compiled import BoundedCache, executables
from ..graph import NdArray
from ..graph.half_made import unharmed
from ..graph.spec import x64_if
from ..graph.value import put_together

Terms = tuple[tuple[Any, ...], ...]


def _sums(terms: Terms) -> tuple[Any, ...]:
    return tuple([functools.reduce(operator.add, xs) for xs in terms])


class _Sums:
    """Sums of arrays of certain shapes and dtypes, by an executable.

    On a CPU NumPy adds until that is there, and it is compiled in the background when sums come again: else the second
    step of a loop that does not set all gradients to zero would wait for it.
    """

    def __init__(self, terms: Terms) -> None:
        self._jitted: Any = jax.jit(functools.partial(_sums))
        self._given = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), terms)
        self._needs_x64 = any([a.dtype.itemsize == 8 for a in jax.tree.leaves(terms)])
        self._calls = 0
        self._is_compiled = False

    def of(self, terms: Terms) -> tuple[Any, ...]:
        """The sums."""
        if not self._is_compiled and all([_is_on_host(a) for xs in terms for a in xs]):
            self._calls += 1
            if self._calls == 2:
                background.request(self)
            with x64_if(self._needs_x64), np.errstate(all="ignore"):
                return tuple([jax.device_put(total) for total in _sums(jax.tree.map(np.asarray, terms))])
        self._is_compiled = True
        with x64_if(self._needs_x64):
            return tuple(unharmed(self._jitted)(terms))

    def work(self) -> None:
        """Compile, so that it is there at the next call."""
        with x64_if(self._needs_x64), suppress(Exception):  # what fails, fails where somebody waits for it
            self._jitted.lower(self._given).compile()
        self._is_compiled = True


def _is_on_host(array: Any) -> bool:
    if isinstance(array, np.ndarray):
        return True
    return not array.committed and all([device.platform == "cpu" for device in array.devices()])


_executables = executables.learned(BoundedCache(256))


_MOST_SUMS = 256
"""How many sums one executable computes: the time to compile it grows with the square of their number."""

_cell = operator.itemgetter(0)
_accumulating = threading.RLock()


def accumulate(arrived: Sequence[tuple[NdArray, Any]], retained: Sequence[tuple[NdArray, Any]] = ()) -> None:
    """Add arrays to what cells hold, and put others in the place of what is there, all at one moment."""
    with _accumulating:
        if not retained and all([cell.is_empty for cell, _ in arrived]) and len({*map(_cell, arrived)}) == len(arrived):
            put_together([cell for cell, _ in arrived], [gx for _, gx in arrived])
            return
        parts = {cell: [gy] for cell, gy in retained}
        for cell, gx in arrived:
            if cell in parts:  # two leaves may share one
                parts[cell].append(gx)
            else:
                parts[cell] = [gx] if cell.is_empty else [cell.raw(), gx]
        added = {cell: tuple(terms) for cell, terms in parts.items() if len(terms) > 1}
        while added:
            cells = list(added)[:_MOST_SUMS]
            terms = tuple([added.pop(cell) for cell in cells])
            key = tuple([(cell.spec, len(xs)) for cell, xs in zip(cells, terms, strict=True)])
            sums = _executables.get(key, functools.partial(_Sums, terms)).of(terms)
            parts |= {cell: [total] for cell, total in zip(cells, sums, strict=True)}
        for cell in parts:
            cell.variable = None
        put_together(list(parts), [total for (total,) in parts.values()])
