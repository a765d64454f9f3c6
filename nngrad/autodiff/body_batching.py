"""Bodies batched: what a body computes for many values of some of its inputs at once is a body."""

from __future__ import annotations

from ..graph import NdArray
from ..graph.body import Body, closed, derived_once
from ..graph.spec import spec_of
from ..graph.variable import leaf_of
from .vectorize import in_batches


@derived_once
def body_batched(
    body: Body, led: tuple[bool, ...], count: int, wanted: tuple[int, ...], full: tuple[bool, ...]
) -> Body:
    """What `Body.batched` gives."""
    inputs = [leaf_of(NdArray.of_spec(spec)) for spec in body.inputs]
    values = body.values_of(inputs)
    many = {
        x: leaf_of(NdArray.of_spec(spec_of((count, *x.shape), x.dtype)))
        for x, is_led in zip(inputs, led, strict=True)
        if is_led
    }
    outputs = [inputs[i] if i >= 0 else values[~i] for i in wanted]
    return closed(in_batches(outputs, many, count, full), [many.get(x, x) for x in inputs])
