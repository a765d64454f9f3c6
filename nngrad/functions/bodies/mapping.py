"""Other ops mapped along a batch axis: the fallback for functions without a better batched form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from ...graph import Function, Spec, Variable, apply, spec_of
from ...graph.arguments import Static
from ...graph.axes import AxisMap, Places
from ...graph.block import Block
from ...graph.body_op import BodyOp, Gradients, Numbers
from ...graph.placement import Processes, group_of, groups_of
from ..axes import row_places
from ..inlining import inlined
from ..operands import Operand
from .carries import kinds_of


class Mapped(BodyOp):
    """An op that applies another one, given as a static argument, to each element along a leading axis."""

    def gradients(self, f: Function, gys: Sequence[Variable], indexes: Numbers) -> Gradients:
        """The rule of the mapped op, mapped: it is built for one element and batched. The gradient of an input that is
        the same for all elements is the sum over them."""
        of, arguments, batched = f.arguments
        count = f.specs[0].shape[0]
        specs = tuple([_element_spec(x.spec) if lead else x.spec for x, lead in zip(f.inputs, batched, strict=True)])
        outputs = tuple([~k for k in range(len(f.specs))])
        body = Block(specs, ((of, arguments, tuple(range(len(specs)))),), (0,), outputs,
                     results=(tuple([_element_spec(spec) for spec in f.specs]),))  # fmt: skip
        seeds = tuple([n for n in outputs if body.spec(n).differentiable])
        gradient = body.gradient(seeds, indexes, (), (*range(len(specs)), *outputs))
        leading = [i < 0 or batched[i] for i in gradient.residuals]
        kinds = tuple(["each" if batched[i] else "sum" for i in gradient.reached])
        many = gradient.body.batched(kinds_of([*leading, *[True] * len(seeds)]), count, gradient.body.outputs, kinds)
        taken = [f.inputs[i] if i >= 0 else f.outputs[~i] for i in gradient.residuals]
        gxs: Gradients = [None] * len(f.inputs)
        for i, gx in zip(gradient.reached, inlined(many, [*taken, *[gys[~n] for n in seeds]]), strict=True):
            gxs[i] = gx
        return gxs

    def commutes(self, f: Function, index: int) -> bool:
        """True if the mapped op is linear in this input, which is batched."""
        of, _, batched = f.arguments
        return bool(of.linear_in(index) and batched[index])


def _element_spec(spec: Spec) -> Spec:
    """Shape and dtype of one element along the first axis."""
    return spec_of(spec.shape[1:], spec.dtype)


def mapped(f: Function, operands: Sequence[Operand]) -> Any:
    """Map the op of a function along the batch axis that some operands have."""
    inputs = tuple([operand.widened() for operand in operands])
    if not any([operand.lead for operand in operands]):
        return apply(f.op, inputs, f.arguments)
    leading = tuple([bool(operand.lead) for operand in operands])
    return apply(mapped_several if f.op.multiple_results else mapped_one, inputs, (f.op, f.arguments, leading))


def _places(f: Function) -> tuple[Places, ...]:
    return row_places(f, [i for i, is_batched in enumerate(f.args["batched"]) if is_batched])


def _exchanges(static: tuple[Any, ...]) -> Processes | None:
    """The processes among which the mapped op exchanges arrays."""
    of, arguments, _ = static
    return group_of(groups_of(of, arguments))


def _op(name: str, several: bool) -> Mapped:
    def forward(*x, of: Static, arguments: Static, batched: Static):  # type: ignore[no-untyped-def]
        """The op `of`, with its static arguments, applied to each element along the first axis of the `batched`
        inputs."""
        return jax.vmap(of.bind(arguments), in_axes=tuple([0 if b else None for b in batched]))(*x)

    forward.__name__ = name
    axes = AxisMap(places=_places)
    return Mapped(forward, multiple_results=several, axes=axes, exchanges=_exchanges, lockstep=True, cost=None)


mapped_one, mapped_several = _op("mapped", False), _op("mapped_several", True)
