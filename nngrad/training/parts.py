"""Gradient accumulation: run a step on parts of a batch in turn, and combine the results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ..graph import Spec
from ..graph.spec import spec_of
from ..solvers.gradients import Arrays, widened_array
from ..solvers.loss_scale import like


def spec_of_part(spec: Spec, count: int, name: str) -> Spec:
    """The spec of an input in each of `count` parts of a batch: a share of the rows along the first axis. An input
    without axes is the same in all parts.

    Raises:
        ValueError: `count` does not divide the first axis.
    """
    if count == 1 or not spec.shape:
        return spec
    rows, *rest = spec.shape
    if rows % count:
        raise ValueError(f"{name}: the number of rows must be a multiple of accumulate={count}, got {rows}; pass "
                         f"{rows - rows % count} or {rows - rows % count + count}")
    return spec_of((rows // count, *rest), spec.dtype)


def spec_of_whole(spec: Spec, count: int) -> Spec:
    """The spec of the whole batch of an input that is `spec` in each of `count` parts."""
    return spec if count == 1 or not spec.shape else spec_of((count * spec.shape[0], *spec.shape[1:]), spec.dtype)


def over_parts(
    run: Callable[[Arrays, Sequence[Any], Sequence[Any]], Sequence[Any]],
    count: int,
    arrays: Sequence[Any],
    keys: Sequence[Any],
    carried: Sequence[Any],
    stacked: Sequence[int],
) -> list[Any]:
    """The results for a batch that is computed in parts, one after another, in the memory of one part.

    Returns means over the parts, accumulated at least in float32; results at the positions in `stacked` are stacked
    along a new first axis instead. The last results are new values of the `carried` leaves, which are passed from part
    to part. Each part has its own random keys, derived from `keys`.
    """

    def part(number: Any, leaves: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
        given = tuple([_rows_of_part(a, number, count) if a.ndim else a for a in arrays])
        results = list(run(given, [_key_of_part(key, number) for key in keys], leaves))
        after = len(results) - len(leaves)
        summed = [r for i, r in enumerate(results[:after]) if i not in stacked]
        return summed, [results[i] for i in stacked], [like(r, x) for r, x in zip(results[after:], leaves, strict=True)]

    summed, _, _ = jax.eval_shape(part, jnp.uint32(0), list(carried))

    def step(carry: tuple[list[Any], list[Any]], number: Any) -> Any:
        sums, leaves = carry
        results, kept, leaves = part(number, leaves)
        return ([s + widened_array(r) for s, r in zip(sums, results, strict=True)], leaves), kept

    sums = [jnp.zeros(r.shape, jnp.promote_types(r.dtype, jnp.float32)) for r in summed]
    numbers = jnp.arange(count, dtype=jnp.uint32)
    (sums, leaves), kept = jax.lax.scan(step, (sums, list(carried)), numbers)
    means = iter([s / count for s in sums])
    stacks = dict(zip(stacked, kept, strict=True))
    return [stacks[i] if i in stacks else next(means) for i in range(len(sums) + len(kept))] + leaves


def _rows_of_part(array: Any, number: Any, count: int) -> Any:
    """The rows of a part: `number`, `number + count`, `number + 2 count`, ... If devices hold contiguous shards of the
    rows, every part has an equal share of each shard, and no rows have to move.
    """
    rows = array.reshape(array.shape[0] // count, count, *array.shape[1:])
    return jax.lax.dynamic_index_in_dim(rows, number, axis=1, keepdims=False)


def _key_of_part(key: Any, number: Any) -> Any:
    """The key of a random function in part `number`."""
    folded = jax.random.fold_in(jax.random.wrap_key_data(key, impl="threefry2x32"), number)
    return jax.random.key_data(folded)
