"""Collectives on lists of arrays: one cached executable for each kind of list.

Arrays of a pack are concatenated, so that one collective transfers all of them.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ...extend import NdArray, Spec, Value, Variable, placement, x64_if
from ...functions.collectives import from_process
from ...parallel.across import Across

Kind = Literal["sum", "from one", "gather", "sum and scatter"]
Packs = tuple[tuple[int, ...], ...]
"""A partition of a list of arrays into packs, by index."""


class Exchange(NamedTuple):
    """A collective operation, as the cache key of its executable."""

    kind: Kind
    processes: placement.Processes
    specs: tuple[Spec, ...]
    """The shape and dtype of each array of a process."""
    packs: Packs = ()
    """The packs, for the kinds "sum" and "from one"."""
    terms: int = 1
    """For sums: the number of successive arrays of a process that are first added up to one summand."""
    divisor: int = 1
    """The divisor of each sum."""
    scale: float = 1.0
    """The factor of each summand."""
    root: int = 0
    """The position of the process that sends its arrays."""

    def __call__(self, arrays: Sequence[Any]) -> tuple[Any, ...]:
        """Exchange the arrays of this process, and return its results. All processes call this together."""
        with x64_if(any([spec.needs_x64 for spec in self.specs])):
            return _executable(self)(*arrays)

    def run(self, *arrays: Any) -> tuple[Any, ...]:
        """The collective, along the axis of processes."""
        if self.kind == "gather":
            return tuple(lax.all_gather(arrays[0], placement.AXIS))
        if self.kind == "sum and scatter":
            return (self._divided(lax.psum_scatter(jnp.stack(arrays), placement.AXIS)),)
        if self.kind == "from one":
            return self._in_packs(arrays, lambda packed: from_process(packed, self.root))
        summands = [sum(arrays[i + 1 : i + self.terms], arrays[i]) for i in range(0, len(arrays), self.terms)]
        return self._in_packs(summands, lambda packed: self._divided(lax.psum(self._scaled(packed), placement.AXIS)))

    def _scaled(self, x: Any) -> Any:
        return x if self.scale == 1.0 else x * jnp.asarray(self.scale, x.dtype)

    def _divided(self, x: Any) -> Any:
        return x if self.divisor == 1 else x / jnp.asarray(self.divisor, x.dtype)

    def _in_packs(self, arrays: Sequence[Any], exchange: Callable[[Any], Any]) -> tuple[Any, ...]:
        results: dict[int, Any] = {}
        for pack in self.packs:
            several = [arrays[i] for i in pack]
            packed = several[0] if len(several) == 1 else jnp.concatenate([x.reshape(-1) for x in several])
            got = exchange(packed).astype(packed.dtype)
            if len(several) == 1:
                results[pack[0]] = got
                continue
            ends = list(itertools.accumulate([x.size for x in several]))
            parts = [got[end - x.size : end] for end, x in zip(ends, several, strict=True)]
            results |= {i: part.reshape(x.shape) for i, part, x in zip(pack, parts, several, strict=True)}
        return tuple([results[i] for i in range(len(arrays))])


@functools.lru_cache(512)
def _executable(exchange: Exchange) -> Callable[..., tuple[Any, ...]]:
    if len(exchange.processes) == 1:
        return jax.jit(placement.as_one_of(exchange.run, [exchange.processes]))
    return Across(exchange.run, exchange.processes)


def packs_of(specs: Sequence[Spec], most: int | None = None) -> Packs:
    """Group arrays of the same dtype, in order, into packs of at most `most` elements, or of a single larger array."""
    packs: list[list[int]] = []
    open_packs: dict[Any, tuple[list[int], int]] = {}
    for i, spec in enumerate(specs):
        pack, count = open_packs.get(spec.dtype, (None, 0))
        if pack is None or (most is not None and count + spec.size > most):
            pack, count = [], 0
            packs.append(pack)
        pack.append(i)
        open_packs[spec.dtype] = pack, count + spec.size
    return tuple(map(tuple, packs))


def one_by_one(specs: Sequence[Spec]) -> Packs:
    """Packs of a single array each."""
    return tuple([(i,) for i in range(len(specs))])


def cells_in(data: Any, argument: str) -> list[NdArray]:
    """`data`, an NdArray or several, as a list."""
    alone = isinstance(data, NdArray | Variable) or not isinstance(data, Iterable)
    listed: list[Any] = [data] if alone else list(data)
    for cell in listed:
        if not isinstance(cell, NdArray):
            hint = "; pass its .data or its .grad" if isinstance(cell, Variable) else ""
            raise TypeError(f"{argument}: expected an NdArray or a list of them, got {cell!r:.200}{hint}")
    return listed


def write_to(cells: list[NdArray], arrays: Iterable[Any]) -> None:
    """Store arrays in cells, atomically."""
    for cell in cells:
        cell.variable = None  # the cell no longer holds the gradient of that Variable alone
    Value.write(cells, arrays)


def check_list(cells: list[NdArray], one: NdArray, processes: placement.Processes) -> None:
    """Raise a ValueError unless there is a cell like `one` for each process."""
    if len(cells) != len(processes) or any([cell.spec != one.spec for cell in cells]):
        raise ValueError(
            f"ndarray_list: expected {len(processes)} NdArrays of {one.spec}, one for each process of the group, "
            f"got {[cell.spec for cell in cells]}"
        )


def check_division(cells: list[NdArray], division: bool) -> None:
    """Raise a TypeError if integers are to be divided."""
    whole = [cell.spec for cell in cells if not cell.spec.differentiable]
    if division and whole:
        raise TypeError(f"division: cannot divide integers, got {whole[0]}; sum them without division")


class AllReduceCallback:
    """Sums gradients over processes after backward has computed them: for `backward(communicator_callbacks=...)`.

    Made by `comm.all_reduce_callback`.
    """

    def __init__(self, exchange: Callable[[], None]) -> None:
        self._exchange = exchange

    def __call__(self) -> None:
        """Sum the gradients. All processes of the group call this together."""
        self._exchange()
