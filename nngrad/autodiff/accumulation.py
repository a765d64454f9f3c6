"""Accumulate gradient arrays in cells."""

from __future__ import annotations

import functools
import operator
import threading
from collections.abc import Hashable, Sequence
from typing import Any

import jax
import numpy as np

from ..execution.compiled import BoundedCache, executables
from ..execution.compiling import count_of
from ..execution.program import digest_of
from ..graph import NdArray
from ..graph.process import unharmed
from ..graph.spec import x64_if
from ..graph.thresholds import MOST_SUMS, SUMS_ON_HOST
from ..graph.value import put_together

Terms = tuple[tuple[Any, ...], ...]


def _sums(terms: Terms) -> tuple[Any, ...]:
    return tuple([functools.reduce(operator.add, xs) for xs in terms])


class _Sums:
    """An executable for sums of arrays of given shapes and dtypes.

    On a CPU, NumPy computes the first calls: otherwise the second step of a loop that does not zero all gradients would
    wait for the compiler.
    """

    def __init__(self, terms: Terms, key: Hashable) -> None:
        self._jitted: Any = jax.jit(functools.partial(_sums))
        self._needs_x64 = any([a.dtype.itemsize == 8 for a in jax.tree.leaves(terms)])
        self._count = count_of(digest_of(b"sums", str(key).encode()))

    def of(self, terms: Terms) -> tuple[Any, ...]:
        """The sums."""
        with x64_if(self._needs_x64):
            # NumPy rounds each partial sum in 16 bits, where XLA may round only the last.
            is_same_there = all([len(xs) == 2 or a.dtype.itemsize > 2 for xs in terms for a in xs])
            is_on_host = is_same_there and all([_is_on_host(a) for xs in terms for a in xs])
            if not is_on_host or not self._count.count(SUMS_ON_HOST):
                return tuple(unharmed(self._jitted)(terms))
            with np.errstate(all="ignore"):
                return tuple([jax.device_put(total) for total in _sums(jax.tree.map(np.asarray, terms))])


def _is_on_host(array: Any) -> bool:
    if isinstance(array, np.ndarray):
        return True
    return not array.committed and all([device.platform == "cpu" for device in array.devices()])


_executables = executables.registered(BoundedCache(256))


_cell = operator.itemgetter(0)
_accumulating = threading.RLock()


def accumulate(arrived: Sequence[tuple[NdArray, Any]], retained: Sequence[tuple[NdArray, Any]] = ()) -> None:
    """Add arrays to the contents of cells, and replace those of others, all atomically."""
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
            cells = list(added)[:MOST_SUMS]
            terms = tuple([added.pop(cell) for cell in cells])
            key = tuple([(cell.spec, len(xs)) for cell, xs in zip(cells, terms, strict=True)])
            sums = _executables.get(key, functools.partial(_Sums, terms, key)).of(terms)
            parts |= {cell: [total] for cell, total in zip(cells, sums, strict=True)}
        for cell in parts:
            cell.variable = None
        put_together(list(parts), [total for (total,) in parts.values()])
