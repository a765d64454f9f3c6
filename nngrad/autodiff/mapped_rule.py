"""The rule of the ops that apply another one along a leading axis: it is derived from that one's."""

from __future__ import annotations

from backward_registry import Rule, registry

from ..graph import Function, NdArray, Variable, build_options, create, switched
from ..graph.spec import spec_of
from ..graph.variable import leaf_of
from ..rewrite.numbers import is_zero
from .mapped import mapped, mapped_several
from .vectorize import substituted
from .walk import Grad


def _mapped_rule(f: Function, *gys: Variable) -> list[Variable | None]:
    """The rule of the op that is mapped, mapped: it is built for one element and vectorized. The gradient of an input
    that is the same for all elements is the sum of theirs."""
    of, arguments, batched = f.arguments
    inputs = [_leaf_like(x, lead) for x, lead in zip(f.inputs, batched, strict=True)]
    single = create(of, tuple(inputs), arguments)
    outputs = list(single) if of.multiple_results else [single]
    seeds = [_leaf_like(gy, True) for gy in gys]
    wanted = [i for i, x in enumerate(inputs) if x.spec.differentiable]
    with switched(builder=None, precision=None):
        gradients = Grad()(outputs, [inputs[i] for i in wanted], seeds)
    found = {i: gx for i, gx in zip(wanted, gradients, strict=True) if not is_zero(gx)}
    along = {x: value for x, value, lead in zip(inputs, f.inputs, batched, strict=True) if lead}
    along |= dict(zip(outputs, f.outputs, strict=True)) | dict(zip(seeds, gys, strict=True))
    fixed = {x: value for x, value, lead in zip(inputs, f.inputs, batched, strict=True) if not lead}
    summed = [not batched[i] for i in found]
    builder = build_options().emitting.builder
    gxs = substituted(list(found.values()), along, fixed, f.specs[0].shape[:1], summed, builder)
    results = dict(zip(found, gxs, strict=True))
    return [results.get(i) for i in range(len(inputs))]


def _leaf_like(x: Variable, lead: bool) -> Variable:
    """A leaf for one element along the first axis of `x`, or for `x`."""
    return leaf_of(NdArray.of_spec(spec_of(x.shape[1:], x.dtype) if lead else x.spec))


for _op in (mapped, mapped_several):
    # What is mapped may have a rule that is not its derivative.
    registry.add(_op, Rule(_mapped_rule, "rule", False, __name__))
