"""What a body costs, from what its ops are declared with."""

from __future__ import annotations

import functools

from ..graph import NdArray
from ..graph.block import Block
from ..graph.variable import leaf_of


@functools.lru_cache(maxsize=1024)
def operations_in(body: Block) -> int:
    """About how many operations a body takes."""
    values = body.instantiate([leaf_of(NdArray.of_spec(spec)) for spec in body.inputs])
    functions = {y.parent: None for y in values if y.parent is not None}
    return sum([max([1, *[s.size for s in f.specs]]) if f.op.cost is None else f.op.cost(f) for f in functions])
