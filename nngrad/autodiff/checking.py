"""Check the gradients that rules return, and bring them into the form of the inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..functions.array import in_dtype
from ..graph import Function, Spec, Variable, build_options
from ..rewrite.masks import reduced


def check_gradients(f: Function, gxs: Sequence[Any]) -> None:
    """Raise unless there is a Variable or None for each input of `f`, of its shape and of a floating dtype.

    An op that broadcasts may give gradients of its output's shape, which are summed back.
    """
    if len(gxs) != len(f.inputs):
        names = ", ".join(f.op.names_of(len(f.inputs)))
        raise ValueError(
            f"{f.op.name}: its rule gave {len(gxs)} gradients for {len(f.inputs)} inputs ({names}); "
            "expected one for each, None for zero"
        )
    for i, (x, gx) in enumerate(zip(f.inputs, gxs, strict=True)):
        if gx is None or (gx.__class__ is Variable and gx.spec is x.spec):
            continue
        what = f"its input {f.op.names_of(len(f.inputs))[i]}, {x.spec}"
        if gx.__class__ is not Variable:
            raise TypeError(
                f"{f.op.name}: its rule must return Variables or None, got {type(gx).__name__} for {what}; use F"
            )
        if not gx.spec.differentiable:
            raise TypeError(f"{f.op.name}: its rule gave {gx.spec} for {what}; expected a floating dtype")
        if gx.shape != x.shape and not (f.op.broadcasts and gx.shape == f.specs[0].shape):
            raise ValueError(f"{f.op.name}: its rule gave shape {gx.shape} for {what}; expected shape {x.shape}")


def in_form_of(spec: Spec, gx: Variable) -> Variable:
    """`gx` in the shape and dtype of `spec`: a broadcasting op's gradient is summed over the broadcast axes."""
    if gx.shape != spec.shape:
        gx = reduced(gx, spec.shape)
    return in_dtype(gx, spec.dtype)


def described_path(outputs: Sequence[Variable], target: Function) -> str:
    """The chain of functions from `outputs` to `target`, by type, for messages."""
    below: dict[Function, Function | None] = {y.parent: None for y in outputs if y.parent is not None}
    stack = list(below)
    while stack and target not in below:
        f = stack.pop()
        for x in f.inputs:
            if x.parent is not None and x.parent not in below:
                below[x.parent] = f
                stack.append(x.parent)
    names, step = [], below.get(target)
    while step is not None:
        names.append(step.op.type_name)
        step = below[step]
    shown = names if len(names) <= 8 else [*names[:4], "...", *names[-4:]]
    return " <- ".join(["output", *reversed(shown), target.op.type_name])


def check_updates(path: Sequence[Function]) -> None:
    """Raise an error if a derivative in a body passes a function there that updates a leaf: whether a step updates it
    would depend on which values the derivative happens to need.

    Args:
        path: The functions that the derivative passes.
    """
    body = build_options().applying.body
    for f in path:
        if f.effects and body is not None and f.serial > body:
            raise ValueError(
                f"{f.op.name} updates a Variable at each run of a body, and the body takes a derivative through it; "
                "use one that updates none (batch_stat=False, or batch normalisation without running statistics)"
            )
