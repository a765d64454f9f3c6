"""backward(): the gradient of one Variable, added to its leaves; forward and gradient as one executable."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from backward_registry import registry

from ..execution.compiled import BoundedCache, executable_of
from ..execution.forward import Plan, Snapshot, plan_of, present, take_snapshot
from ..execution.interpret import Hook, interpret
from ..execution.lower import linearize
from ..graph import NdArray, Variable, building
from ..graph.spec import wide_types
from ..graph.variable import leaf_of
from .grad import Grad
from .seeds import seed_of

Wanted = tuple[int, ...]


class Fused(NamedTuple):
    """Forward and gradient of a structure as one executable.

    Its arguments are the arrays of the forward graph's leaves, of the seed if there is one, and of
    `others`; its results the output, the persistent Variables, the leaves that the forward updates, and the gradients.
    """

    executable: Callable[..., tuple[Any, ...]]
    others: list[Variable]
    """Leaves that backward rules brought in. They belong to one graph, so such a structure is not shared."""


_fused = BoundedCache(512)


def backward(
    output: Variable,
    grad: Any = 1,
    function_pre_hook: Hook = None,
    function_post_hook: Hook = None,
) -> None:
    """Add the gradient of `output` to `.grad` of the leaves with `need_grad`; see `Variable.backward`."""
    if not output.spec.differentiable:
        raise TypeError(f"backward: the Variable is {output.dtype.name}; only floating dtypes can be differentiated")
    seed = _seed_array(output, grad)
    if output.parent is None:
        if output._need_grad:
            accumulate([output], [seed_of(output, 1.0 if seed is None else seed, "grad").data.array])  # type: ignore[union-attr]
        return
    snapshot: Snapshot | None = output.parent.snapshot
    if snapshot is None:
        snapshot = present([output]) if output.is_computed else take_snapshot([output])
    plan = plan_of([output])
    wanted = tuple([i for i, x in enumerate(plan.leaves) if x._need_grad and x.spec.differentiable])
    if not wanted or output._need_grad is False:
        return
    if function_pre_hook is not None or function_post_hook is not None:
        gradients = _interpreted(output, plan, wanted, seed, snapshot, function_pre_hook, function_post_hook)
    else:
        gradients = _compiled(output, plan, wanted, seed, snapshot)
    accumulate([plan.leaves[i] for i in wanted], gradients)


def _seed_array(output: Variable, grad: Any) -> Any:
    """The gradient at `output` as an array; None for ones."""
    if grad is None:
        return output.grad.raw()
    if isinstance(grad, int | float) and grad == 1 and not isinstance(grad, bool):
        return None
    if isinstance(grad, int | float | np.integer | np.floating) and not isinstance(grad, bool):
        return np.full(output.shape, grad, output.dtype)
    seed = seed_of(output, grad, "grad")
    return None if seed is None else seed.data.raw()


def _arrays(plan: Plan, snapshot: Snapshot) -> tuple[Any, ...]:
    if snapshot.leaf_ids is plan.leaf_ids:
        return snapshot.arrays
    arrays = snapshot.by_leaf()
    return tuple([arrays[i] for i in plan.leaf_ids])


def _compiled(output: Variable, plan: Plan, wanted: Wanted, seed: Any, snapshot: Snapshot) -> list[Any]:
    """The gradients, from one executable that computes the forward as well."""
    key = (wanted, _stops(output, plan), seed is not None, registry.version, building.simplify)
    fused: Fused | None = plan.fused.get(key)
    if fused is None:
        plan.fused.clear()
        shared = _fused.find((plan.program, key))
        fused = plan.fused[key] = shared or _fuse(output, plan, wanted, seed is not None)
        if shared is None and not fused.others:
            _fused.keep((plan.program, key), fused)
    arrays = _arrays(plan, snapshot)
    if seed is not None:
        arrays = (*arrays, seed)
    results = fused.executable(*arrays, *[x.cell.raw() for x in fused.others])
    count = 1 + len(plan.kept) + len(plan.updated)
    promise = snapshot.promise
    if promise is not None and not promise.kept and snapshot.leaf_ids is plan.leaf_ids:
        promise.keep(results[:count])
    return list(results[count:])


def _stops(output: Variable, plan: Plan) -> tuple[tuple[int, int], ...]:
    """Which outputs of functions gradients stop at, by place in the graph."""
    return tuple([
        (i, k)
        for i, f in enumerate(plan.functions)
        for k, ref in enumerate(f._outputs)
        for y in [ref()]
        if y is not None and y._need_grad is False
    ])


def _gradient_graph(
    output: Variable, plan: Plan, wanted: Wanted, seeded: bool
) -> tuple[list[Variable], Variable | None]:
    seed = leaf_of(NdArray.of_spec(output.spec)) if seeded else None
    with building.having("auto_forward", False), building.having("no_grad", False):
        return Grad()([output], [plan.leaves[i] for i in wanted], [seed]), seed


def _fuse(output: Variable, plan: Plan, wanted: Wanted, seeded: bool) -> Fused:
    gradients, seed = _gradient_graph(output, plan, wanted, seeded)
    first = plan.leaves if seed is None else [*plan.leaves, seed]
    linear = linearize([output, *plan.kept, *gradients], first=first, device=plan.program.device)
    results = linear.program.outputs
    values, rest = results[: 1 + len(plan.kept)], results[1 + len(plan.kept) :]
    updates = {id(x): number for x, number in zip(linear.updated, rest[len(gradients) :], strict=True)}
    program = linear.program._replace(
        outputs=(*values, *[updates[id(x)] for x in plan.updated], *rest[: len(gradients)])
    )
    return Fused(executable_of(program), linear.leaves[len(first) :])


def _interpreted(
    output: Variable, plan: Plan, wanted: Wanted, seed: Any, snapshot: Snapshot, before: Hook, after: Hook
) -> list[Any]:
    """The gradients, op by op, with the hooks around every function of the gradient graph."""
    gradients, leaf = _gradient_graph(output, plan, wanted, seed is not None)
    leaves = snapshot.by_leaf()
    if leaf is not None:
        leaves[id(leaf)] = seed
    own = {*plan.functions, output.parent}
    return interpret(gradients, leaves, before, after, hooked=lambda f: f not in own)


@jax.jit
def _sums(old: tuple[Any, ...], new: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple([a + b for a, b in zip(old, new, strict=True)])


_accumulating = threading.Lock()


def accumulate(leaves: list[Variable], gradients: list[Any]) -> None:
    """Add `gradients` to the grad cells of `leaves`."""
    held: list[tuple[NdArray, Any]] = []
    with _accumulating:
        for x, gx in zip(leaves, gradients, strict=True):
            cell = x.grad
            if cell.is_zero:
                cell.put(gx)
            else:
                held.append((cell, gx))
        while held:
            # A cell that two leaves share comes twice, and takes its second gradient in a second round.
            now = {id(cell): (cell, gx) for cell, gx in reversed(held)}
            held = [(cell, gx) for cell, gx in held if now[id(cell)][1] is not gx]
            cells = [cell for cell, _ in now.values()]
            with wide_types(any(cell.spec.wide for cell in cells)):
                sums = _sums(tuple([cell.raw() for cell in cells]), tuple([gx for _, gx in now.values()]))
            for cell, value in zip(cells, sums, strict=True):
                cell.put(value)
