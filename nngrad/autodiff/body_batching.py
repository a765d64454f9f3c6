"""Bodies batched: what a body computes for many values of some of its inputs at once is a body."""

from __future__ import annotations

from ..graph import NdArray
from ..graph.block import Block
from ..graph.closing import close
from ..graph.derived import derived_once
from ..graph.spec import spec_of
from ..graph.variable import leaf_of
from .vectorize import in_batches


@derived_once
def body_batched(
    body: Block, given: tuple[str, ...], count: int, wanted: tuple[int, ...], kinds: tuple[str, ...]
) -> Block:
    """What `Block.batched` gives."""
    inputs, values, _ = body.opened()
    each = {
        x: leaf_of(NdArray.of_spec(spec_of((count, *x.shape), x.dtype)))
        for x, kind in zip(inputs, given, strict=True)
        if kind == "each"
    }
    sums = {x: leaf_of(NdArray.of_spec(x.spec)) for x, kind in zip(inputs, given, strict=True) if kind == "sum"}
    outputs = body.picked(inputs, values, wanted)
    instead = each | sums
    return close(in_batches(outputs, each, sums, count, kinds), [instead.get(x, x) for x in inputs])
