"""Sums over a batch that have several terms, such as the gradient of a weight that is used more than once: each device
adds up the terms of its own rows, and the devices exchange only the sum.

XLA partitions each product by itself, so it would exchange every term before it adds them. A sum under `shard_map` says
itself what is exchanged. Results differ by the order of summation.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import jax
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec

from ...extend import Array, Block, Call, Function, Static, op, placement

DATA = "data"
"""The axis over which batches are divided."""

Share: TypeAlias = "int | Literal['factor', 'term']"
"""What a device reads of an input of a sum: its own rows along this axis, all of a factor, or all of a term, which only
the first device adds."""


@op
def sum_of_rows(*x: Array, body: Static, shares: Static) -> jax.Array:
    """The result of the Block `body`, a sum over rows of inputs, as the sum of its results for each device's rows;
    `shares` has the Share of each input."""
    mesh = placement.mesh_of_program()
    assert mesh is not None
    specs = [PartitionSpec(*[None] * share, DATA) if isinstance(share, int) else PartitionSpec() for share in shares]

    def of_own_rows(device: Any, *x: Any) -> jax.Array:
        is_first = device[0] == 0
        arrays = [lax.select(is_first, y, lax.full_like(y, 0)) if share == "term" else y
                  for y, share in zip(x, shares, strict=True)]  # fmt: skip
        (part,) = body.results_of(arrays)
        wide = part.astype(np.float32) if part.dtype.itemsize == 2 else part
        y: jax.Array = lax.psum(wide, DATA).astype(part.dtype)
        return y

    over = jax.shard_map(of_own_rows, mesh=mesh.grid, in_specs=(PartitionSpec(DATA), *specs),
                         out_specs=PartitionSpec(), check_vma=False)  # fmt: skip
    y: jax.Array = over(np.arange(mesh.grid.size, dtype=np.int32), *x)
    return y


def with_sums_of_rows(block: Block, places: Sequence[placement.Axes], count: int) -> Block:
    """The block with sums over rows that are exchanged once, on a mesh of `count` devices along one axis; unchanged if
    none has several terms. `places` are the mesh axes over which each input is divided."""
    divided = {i: axes.index(DATA) for i, axes in enumerate(places) if DATA in axes}
    if not divided:
        return block
    sums = _Sums(block, divided, count)
    instead: dict[int, Call | None] = {}
    for n, call in reversed([*enumerate(block.calls)]):
        if n not in instead and call.op.is_sum and sums.terms.get(call.outs[0], 0) > 1:
            instead.update(sums.joined(n))
    calls = [instead.get(n, call) for n, call in enumerate(block.calls)]
    return Block.of(block.inputs, [call for call in calls if call is not None], block.outputs) if instead else block


class _Sums:
    """The sums over rows in a block, where some inputs are `divided` along an axis."""

    terms: dict[int, int]
    """For values that are linear in the results of functions that sum over rows: the number of these."""

    def __init__(self, block: Block, divided: dict[int, int], count: int) -> None:
        self.terms = {}
        self._calls, self._specs, self._count = block.calls, block.spec_by_number, count
        self._divided = divided  # by value, the axis of its rows
        self._rows: dict[int, list[int | None]] = {}  # by result of a function that sums over rows, those of its inputs
        self._maker = {i: n for n, call in enumerate(self._calls) for i in call.outs}
        self._readers = Counter([*block.outputs, *[i for call in self._calls for i in call.ins]])
        graph = Block(block.inputs, block.steps, (0,) * len(block.steps), block.outputs, results=block.results)
        values = graph.opened().values
        for call in self._calls:
            f = values[~call.outs[0]].parent
            assert f is not None
            self._enter(call, f)

    def _enter(self, call: Call, f: Function) -> None:
        """Note along which axis a function's results have rows, or how many sums over rows are in them."""
        op, out = call.op, call.outs[0]
        known = {k: self._divided[i] for k, i in enumerate(call.ins) if i in self._divided}
        axis, rows = self._carried(f, known), self._summed(f, known)
        if axis is not None:
            self._divided.update(dict.fromkeys(call.outs, axis))
        elif rows is not None:
            self._rows[out], self.terms[out] = rows, 1
        elif not known:
            parts = [i for i in call.ins if self._is_term(i, out)]
            offset = f.args[op.offset] if op.offset else 0  # perhaps a tracer
            adds = op.is_sum and parts and offset.__class__ is int and offset == 0
            if adds or (len(parts) == 1 and op.linear_in(call.ins.index(parts[0]))):
                self.terms[out] = sum([self.terms[i] for i in parts])

    def _is_term(self, i: int, out: int) -> bool:
        """True if value i can be exchanged as part of the value `out`, which is as large."""
        a, b = self._specs[i], self._specs[out]
        return i in self.terms and self._readers[i] == 1 and (a.size, a.dtype) == (b.size, b.dtype)

    def _carried(self, f: Function, known: dict[int, int]) -> int | None:
        """The axis of a function's results to which it carries the rows of its inputs."""
        op, shape, axes = f.op, f.specs[0].shape, list[int | None]()
        for k, a in known.items():
            x = f.inputs[k]
            if op.view:  # a device has a stretch of the elements, whatever their shape
                before = math.prod(x.shape[:a])
                axes += [b for b, n in enumerate(shape) if math.prod(shape[:b]) == before and n % self._count == 0]
            elif op.axes is not None and (op.reads is None or k < op.reads):
                axes.append(op.axes.places(f)[k][a])
            elif op.diagonal:
                axes.append(a + len(shape) - x.ndim)
        carried = [b for b in axes if b is not None]
        even = [b for b in carried if all([b < s.ndim and s.shape[b] % self._count == 0 for s in f.specs])]
        return min(even, default=None)

    def _summed(self, f: Function, known: dict[int, int]) -> list[int | None] | None:
        """The axis of rows of each input of a function that sums over them; None if it does not."""
        axes, rows = f.op.axes, list[int | None]()
        if known and f.op.adds_rows:
            rows = [0] * len(f.inputs)
        elif known and axes is not None and axes.indices is not None:
            terms, output = axes.indices(f)
            index = next(terms[k][a] for k, a in known.items())
            rows = [] if index in output else [t.index(index) if index in t else None for t in terms]
        elif axes is not None and axes.adds == "sum":
            rows = [*known.values()]
        agree = bool(rows) and all([rows[k] == a for k, a in known.items()])
        even = all([a is None or x.shape[a] % self._count == 0 for x, a in zip(f.inputs, rows, strict=agree)])
        return rows if agree and even and f.specs[0].differentiable else None

    def joined(self, n: int) -> dict[int, Call | None]:
        """By its index, the call that takes the place of a sum, and None for each that goes into it."""
        members, inputs, waiting = {n: self._calls[n]}, dict[tuple[int, Share], int](), [n]
        for m in waiting:
            call, ins = self._calls[m], list[int]()
            for k, i in enumerate(call.ins):
                rows = self._rows.get(call.outs[0])
                if rows is None and self._is_term(i, call.outs[0]):
                    waiting.append(self._maker[i])
                    ins.append(i)
                else:
                    axis = None if rows is None else rows[k]
                    share: Share = axis if axis is not None else "term" if call.op.is_sum else "factor"
                    ins.append(inputs.setdefault((i, share), len(inputs)))
            members[m] = call._replace(ins=tuple(ins))
        numbers, shares = zip(*inputs, strict=True)
        outs = self._calls[n].outs
        body = Block.of(tuple([self._specs[i] for i in numbers]), [members[m] for m in sorted(members)], outs)
        return dict.fromkeys(members) | {n: Call(sum_of_rows, (body, shares), numbers, outs)}
