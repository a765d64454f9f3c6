"""associative_scan: prefix results of an associative operation, in log2(n) steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import jax

from ..graph import Variable, as_variable
from ..graph.leaf import common_floating
from ..graph.signatures import explained_by_name
from . import movement
from .axes import axis_of

T = TypeVar("T")


@explained_by_name
def associative_scan(fn: Callable[[T, T], T], elems: T, reverse: bool = False, axis: int = 0) -> T:
    """Prefix results of an associative operation: entry i is `fn(... fn(fn(x[0], x[1]), x[2]) ..., x[i])`.

        sums = F.associative_scan(lambda a, b: a + b, x)

    As `jax.lax.associative_scan`: entries are combined in pairs, the results in pairs again, and so on. So each
    doubling of the length takes two more calls of `fn`, each on many entries at a time. The scan and its gradients of
    any order are composed of ordinary functions.

    Args:
        fn: An associative operation: pytrees like `elems`, with any length along `axis`, in and out. It must work on
            each entry along the axis by itself.
        elems: A pytree of the arrays to combine, all of the same length along `axis`.
        reverse: Begin with the last entry.
        axis: The axis.

    Returns:
        A pytree like `elems`.

    Raises:
        TypeError: `fn` cannot be called, or returns another structure.
        ValueError: The lengths differ, the axis is out of range, or `fn` returns another shape.
    """
    if not callable(fn):
        raise TypeError(f"associative_scan: fn must be a function of two pytrees, got {fn!r}")
    leaves, tree = jax.tree.flatten(elems)
    floating = common_floating(leaves)
    xs = [as_variable(x, f"elems[{i}]", "associative_scan", floating) for i, x in enumerate(leaves)]
    if not xs:
        raise ValueError("associative_scan: elems must contain at least one array")
    along = [axis_of(axis, x.ndim, f"associative_scan: elems[{i}] of shape {x.shape}: axis") for i, x in enumerate(xs)]
    lengths = [x.shape[a] for x, a in zip(xs, along, strict=True)]
    if len(set(lengths)) > 1:
        raise ValueError(f"associative_scan: elems must have the same length along axis {axis}, got {lengths}")

    def combined(first: list[Variable], second: list[Variable]) -> list[Variable]:
        result, structure = jax.tree.flatten(fn(jax.tree.unflatten(tree, first), jax.tree.unflatten(tree, second)))
        if str(structure) != str(tree):
            raise TypeError(f"associative_scan: fn must keep the structure of its arguments, {tree}, got {structure}")
        ys = [as_variable(y, f"result {i} of fn", "associative_scan", floating) for i, y in enumerate(result)]
        for i, (x, y) in enumerate(zip(first, ys, strict=True)):
            if x.spec is not y.spec:
                raise ValueError(f"associative_scan: fn must keep the type of leaf {i}, {x.spec}, got {y.spec}")
        return ys

    def cut(ys: list[Variable], start: int, stop: int, step: int = 1) -> list[Variable]:
        return [_cut(y, a, start, stop, step) for y, a in zip(ys, along, strict=True)]

    def scanned(ys: list[Variable]) -> list[Variable]:
        count = ys[0].shape[along[0]]
        if count < 2:
            return ys
        results = scanned(combined(cut(ys, 0, count - 1, 2), cut(ys, 1, count, 2)))  # of pairs
        even = cut(ys, 0, 1)
        if count > 2:  # the entries between the pairs
            between = combined(cut(results, 0, (count - 1) // 2), cut(ys, 2, count, 2))
            even = [movement.concatenate(x, y, axis=a) for x, y, a in zip(even, between, along, strict=True)]
        return [_alternating(x, y, a) for x, y, a in zip(even, results, along, strict=True)]

    def turned(ys: list[Variable]) -> list[Variable]:
        return [movement.flip(y, axes=(a,)) for y, a in zip(ys, along, strict=True)] if reverse else ys

    prefixes: T = jax.tree.unflatten(tree, turned(scanned(turned(xs))))
    return prefixes


def _cut(x: Variable, axis: int, start: int, stop: int, step: int) -> Variable:
    result: Variable = x[(*[slice(None)] * axis, slice(start, stop, step))]
    return result


def _alternating(even: Variable, odd: Variable, axis: int) -> Variable:
    """Entries of `even` and `odd` alternately; `even` may have one more entry."""
    count = odd.shape[axis]
    pairs = movement.stack(_cut(even, axis, 0, count, 1), odd, axis=axis + 1)
    joined: Variable = movement.reshape(pairs, shape=(*odd.shape[:axis], 2 * count, *odd.shape[axis + 1 :]))
    if even.shape[axis] == count:
        return joined
    rest: Variable = movement.concatenate(joined, _cut(even, axis, count, count + 1, 1), axis=axis)
    return rest
