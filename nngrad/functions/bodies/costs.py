"""The cost of a body, from the costs of its ops."""

from __future__ import annotations

import functools

from ...graph.block import Block


@functools.lru_cache(maxsize=1024)
def operations_in(body: Block) -> int:
    """The approximate number of operations of a body."""
    functions = {y.parent: None for y in body.opened().values if y.parent is not None}
    return sum([max([1, *[s.size for s in f.specs]]) if f.op.cost is None else f.op.cost(f) for f in functions])
