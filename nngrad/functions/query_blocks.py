"""Attention by blocks of queries, so that memory grows linearly with the sequence length and not quadratically.

A loop over the blocks computes the weights of a few queries for all keys at a time, and its step is a checkpoint. So a
gradient recomputes the weights of a block when it needs them, and accumulates the gradients of keys and values over the
blocks. It is again a loop over blocks, and differentiable in the same way. Without the checkpoint, the gradient of the
loop would turn its sums of products into one product of stacks, of all weights.

Causal attention computes the blocks above the diagonal too, and masks them. Three exact ways to skip them were
measured, none of which is better at every order within 1.15 of the time to compile: rectangles of a quarter of the
length as more of the batch (0.8 to 1.2 of the time, 2.3 to 3.5 of the memory), block i folded with block n - 1 - i
(half the arithmetic, 1.5 to 7 of the time to compile), and four loops over ranges of queries (0.6 to 0.7 of the time,
twice the time to compile).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ..graph import Variable
from . import checkpoints, loops, movement

BLOCK = 128
"""The largest number of queries in a block. With 256, memory doubles, and time is the same within a tenth."""
WEIGHTS_AT_ONCE = 1 << 18
"""Up to this many weights of a head there are no blocks. For a quarter of a million, a loop takes up to 1.4 times as
long as one product; from a million on it takes less time, since a block stays in cache."""


class ByTarget(NamedTuple):
    """An array with one entry per query along some axis."""

    array: Variable
    axis: int


def by_blocks(
    average: Callable[[Mapping[str, Variable]], tuple[Variable, ...]], arrays: Mapping[str, ByTarget], sources: int
) -> tuple[Variable, ...]:
    """The result of `average` for all queries, computed block by block where there are many weights.

    `average` gets the parts of these arrays for some queries, by name, and returns arrays with these queries along
    their third axis. It may also read arrays that are the same for all queries.
    """
    array, axis = next(iter(arrays.values()))
    targets = array.shape[axis]
    if targets <= BLOCK or targets * sources <= WEIGHTS_AT_ONCE:
        return average({name: part.array for name, part in arrays.items()})
    count = -(-targets // BLOCK)
    size = -(-targets // count)
    stacks = {name: _cut(part, count, size) for name, part in arrays.items()}
    results = loops.map(checkpoints.checkpoint(average), stacks)
    return tuple([_joined(y, targets) for y in results])


def _cut(by_target: ByTarget, count: int, size: int) -> Variable:
    """Blocks of `size` queries along a new first axis; the last one is padded with zeros."""
    (x, axis), shape = by_target, by_target.array.shape
    lacking = count * size - shape[axis]
    if lacking:
        x = movement.pad(x, pad_width=[w for a in range(x.ndim) for w in (0, lacking if a == axis else 0)])
    x = movement.reshape(x, shape=(*shape[:axis], count, size, *shape[axis + 1 :]))
    return movement.transpose(x, axes=(axis, *[a for a in range(x.ndim) if a != axis]))


def _joined(y: Variable, targets: int) -> Variable:
    """The stacks of a loop over blocks, reshaped to all queries along the third axis."""
    count, batch, heads, size, width = y.shape
    whole = movement.reshape(
        movement.transpose(y, axes=(1, 2, 0, 3, 4)), shape=(batch, heads, count * size, width)
    )
    return whole if count * size == targets else whole[:, :, :targets]
