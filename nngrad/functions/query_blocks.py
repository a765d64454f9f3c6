"""Attention by blocks of queries, so that memory grows linearly with the sequence length and not quadratically.

A loop over the blocks computes the weights of a few queries for all keys at a time, and its step is a checkpoint. So a
gradient recomputes the weights of a block when it needs them, and accumulates the gradients of keys and values over the
blocks. It is again a loop over blocks, and differentiable in the same way. Without the checkpoint, the gradient of the
loop would turn its sums of products into one product of stacks, of all weights.

On CPUs one head is computed after another (`loops.each`): its weights stay in cache, and XLA's products of plain
matrices are faster than those with batch axes. A gradient takes 0.85 of the time, and half the memory.

Causal attention computes the blocks above the diagonal too, and masks them. Three exact ways to skip them were
measured, none of which is better at every order within 1.15 of the time to compile: rectangles of a quarter of the
length as more of the batch (0.8 to 1.2 of the time, 2.3 to 3.5 of the memory), block i folded with block n - 1 - i
(half the arithmetic, 1.5 to 7 of the time to compile), and four loops over ranges of queries (0.6 to 0.7 of the time,
twice the time to compile).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..graph import Variable
from . import checkpoints, loops, movement

BLOCK = 128
"""The largest number of queries in a block. With 256, memory doubles, and time is the same within a tenth."""
WEIGHTS_AT_ONCE = 1 << 18
"""Up to this many weights of a head there are no blocks. For a quarter of a million, a loop takes up to 1.4 times as
long as one product; from a million on it takes less time, since a block stays in cache. Heads of just as
many are computed one after another, without blocks, if a batch has more than 8: of length 512 those of 2 x 8 take 0.9
of the time and 0.5 of the memory, 0.8 and 0.6 with gradients; of 8 x 8 0.6 and 0.55, 0.85 and 0.6."""


def heads_apart(heads: int, targets: int, sources: int) -> bool:
    """Whether there are so many weights that heads, of all in a batch so many, are computed one after another."""
    weights = targets * sources
    return targets > BLOCK and weights >= WEIGHTS_AT_ONCE and (weights > WEIGHTS_AT_ONCE or heads > 8)


def by_blocks(
    average: Callable[[Mapping[str, Variable]], Variable], arrays: Mapping[str, Variable], sources: int
) -> Variable:
    """The result of `average` for all queries, computed block by block where there are many weights.

    `average` gets the parts of these arrays for some queries, by name. Queries are along the third of four axes of each
    array, and of the result. It may also read arrays that are the same for all queries.
    """
    targets = next(iter(arrays.values())).shape[2]
    if targets <= BLOCK or targets * sources <= WEIGHTS_AT_ONCE:
        return average(arrays)
    count = -(-targets // BLOCK)
    size = -(-targets // count)
    lacking = count * size - targets

    def cut(x: Variable) -> Variable:
        """Blocks of `size` queries along a new first axis; the last one is padded with zeros."""
        if lacking:
            x = movement.pad(x, pad_width=(0, 0, 0, 0, 0, lacking, 0, 0))
        x = movement.reshape(x, shape=(*x.shape[:2], count, size, x.shape[3]))
        return movement.transpose(x, axes=(2, 0, 1, 3, 4))

    y = loops.map(checkpoints.checkpoint(average), {name: cut(x) for name, x in arrays.items()})
    _, batch, heads, _, width = y.shape
    y = movement.reshape(movement.transpose(y, axes=(1, 2, 0, 3, 4)), shape=(batch, heads, count * size, width))
    return y[:, :, :targets] if lacking else y
