"""Rules of loops whose steps are counted by nobody: forward alone."""

from __future__ import annotations

from collections.abc import Sequence

from nngrad.functions.array import zeros_like
from nngrad.functions.while_loops import while_of_bodies
from nngrad.graph import Function, Variable, apply

from .loops import moving_inputs, step_along
from .rules import Rule, registry


def while_backward(f: Function, *gys: Variable) -> None:
    """None: what it would need of each step cannot be kept"""
    del f, gys
    raise ValueError(
        "while_loop: how many steps it takes is not known, so nothing can be kept for a gradient. Give bound=, a "
        "number that the steps do not exceed, or take derivatives forward, with nn.jvp"
    )


def while_tangents(f: Function, ts: Sequence[Variable | None], read: Sequence[bool]) -> list[Variable | None]:
    """The loop of (c, dc), as long as the condition holds of c"""
    del read
    goes_on, body, fixed = f.arguments
    carries = len(body.outputs)
    moving = moving_inputs(body, fixed, carries, [i for i, t in enumerate(ts) if t is not None])
    carried = [i for i in moving if i >= fixed]
    tangent = body.tangent(moving, tuple(dict.fromkeys([body.outputs[i - fixed] for i in carried])))
    place = {number: k for k, number in enumerate(tangent.moved)}
    after = tuple([place.get(body.outputs[i - fixed], -1) for i in carried])
    step = step_along(body, tangent.body, moving, after, (), fixed, carries)

    def part(start: int, end: int) -> list[Variable]:
        directions = [(i, ts[i]) for i in moving if start <= i < end]
        return [*f.inputs[start:end], *[zeros_like(f.inputs[i]) if t is None else t for i, t in directions]]

    same = part(0, fixed)
    condition = goes_on.with_inputs(step.inputs, [*range(fixed), *range(len(same), len(same) + carries)])
    outputs = apply(while_of_bodies, (*same, *part(fixed, len(f.inputs))), (condition, step, len(same)))
    moved: list[Variable | None] = [None] * len(f.specs)
    for i, t in zip(carried, outputs[carries:], strict=True):
        moved[i - fixed] = t
    return moved


registry.add(while_of_bodies, Rule(while_backward, "forward only", True, __name__, tangents=while_tangents))
