"""What a body costs, from what its ops are declared with."""

from __future__ import annotations

import functools

from ...graph.block import Block


@functools.lru_cache(maxsize=1024)
def operations_in(body: Block) -> int:
    """About how many operations a body takes."""
    functions = {y.parent: None for y in body.opened().values if y.parent is not None}
    return sum([max([1, *[s.size for s in f.specs]]) if f.op.cost is None else f.op.cost(f) for f in functions])
