"""The backward rule of checkpoints: the gradient of a checkpoint is one too, and begins with the body once more."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import nngrad.functions as F
from nngrad.functions.checkpoints import checkpoint_of_body
from nngrad.graph import Function, NdArray, Variable, apply, create, functions_of
from nngrad.graph.block import Block
from nngrad.graph.closing import close
from nngrad.graph.derived import derived_once
from nngrad.graph.variable import leaf_of

from .branches import gradients_of, tangents_of
from .loops import is_zeros
from .rules import Rule, registry

Numbers = tuple[int, ...]


@derived_once
def begun_after(body: Block, seeds: int) -> Block:
    """A body whose steps do not begin before the last inputs are there.

    Without this, what a derivative of a checkpoint computes again would be the same functions as those that it repeats,
    and the compiler would compute them once, and keep the results.

    Args:
        body: The gradient of a body, or its tangents.
        seeds: How many of its inputs, the last ones, are the gradients that have arrived, or directions.
    """
    inputs = [leaf_of(NdArray.of_spec(spec)) for spec in body.inputs]
    first = len(inputs) - seeds
    tokens = [x for x in inputs[first:] if x.size]
    if not tokens:
        return body
    before = {id(x) for x in inputs[:first] if x.size}
    """What could be computed from too early."""
    tied: dict[int, Variable] = {}
    values: list[Variable] = []
    for (op, arguments, ins), order in zip(body.steps, body.orders, strict=True):
        given = [inputs[i] if i >= 0 else values[~i] for i in ins]
        own = [k for k, x in enumerate(given) if id(x) in before]
        if own and all([id(x) in before or not _depends(x) for x in given]):
            k = min(own, key=lambda k: given[k].spec.nbytes)
            x = given[k]
            if id(x) not in tied:
                tied[id(x)] = create(F.optimization_barrier, (x, *tokens), (), order=order)
            given[k] = tied[id(x)]
        made = create(op, tuple(given), arguments, order=order)
        values.extend(made if op.multiple_results else (made,))
    for number in body.stops:
        values[~number].need_grad = False
    return close([inputs[i] if i >= 0 else values[~i] for i in body.outputs], inputs)


def _depends(x: Variable) -> bool:
    """Whether it is no constant."""
    return x.parent is None or bool(x.parent.inputs)


def checkpoint_gradients(
    f: Function, gys: Sequence[Variable], indexes: Numbers, take: Callable[[int], Variable | None]
) -> list[Variable | None]:
    """The gradient of <gy, body(x)> in x, of x and gy, as a checkpoint"""
    del take
    arrived = tuple([k for k, gy in enumerate(gys) if gy.spec.differentiable and not is_zeros(gy)])
    gxs: list[Variable | None] = [None] * len(f.inputs)
    derived = gradients_of(f.arguments, arrived, tuple(indexes)) if arrived and indexes else None
    if derived is not None and derived.results:
        (body,) = derived.bodies
        inputs = (*[f.inputs[i] for i in derived.residuals], *[gys[k] for k in arrived])
        outputs = apply(checkpoint_of_body, inputs, (begun_after(body, len(arrived)),))
        for i, gx in zip(derived.results, outputs, strict=True):
            gxs[i] = gx
    return gxs


def checkpoint_backward(f: Function, *gys: Variable) -> list[Variable | None]:
    """The same, of all inputs"""
    wanted = tuple([i for i, x in enumerate(f.inputs) if x.spec.differentiable])
    return checkpoint_gradients(f, gys, wanted, lambda i: None)


def checkpoint_tangents(f: Function, ts: Sequence[Variable | None], read: Sequence[bool]) -> list[Variable | None]:
    """The tangents of the body, as a checkpoint"""
    moving = tuple([i for i, t in enumerate(ts) if t is not None])
    asked = tuple([k for k, spec in enumerate(f.specs) if read[k] and spec.differentiable])
    moved: list[Variable | None] = [None] * len(f.specs)
    derived = tangents_of(f.arguments, moving, asked)
    if derived.results:
        directions = [t for t in ts if t is not None]
        (body,) = derived.bodies
        if _come_after(directions, f):
            body = begun_after(body, len(directions))
        for k, t in zip(derived.results, apply(checkpoint_of_body, (*f.inputs, *directions), (body,)), strict=True):
            moved[k] = t
    return moved


def _come_after(directions: Sequence[Variable], f: Function) -> bool:
    """Whether directions depend on what `f` gives, as those that are made of a gradient do: what is computed along them
    is computed later then, and not beside `f`."""
    above = functions_of(directions, through=lambda x: x.parent is not None and x.parent.rank > f.rank)
    return any([x.parent is f for g in above for x in g.inputs])


registry.add(
    checkpoint_of_body,
    Rule(checkpoint_backward, "rule", True, __name__, accumulate=checkpoint_gradients, tangents=checkpoint_tangents),
)
