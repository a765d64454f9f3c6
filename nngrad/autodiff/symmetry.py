"""Forward mode for gradients of gradients where symmetry allows it, so that each order adds only as much as the last.

Repeated reverse mode multiplies the graph by about three with each order: each pass reads the whole graph from end to
beginning and writes it out once more in reverse. Forward mode propagates a tangent along each existing value; in
canonical form it is Taylor mode, in which each order adds a constant number of matrix products. `grad` computes
products with a *transposed* Jacobian, v' J, while forward mode gives J t. Two facts turn one into the other. Both hold
only for true derivatives, so both require that every rule on the path is exact and that nothing on the path stops
gradients; otherwise, and in all other cases, the gradient is computed in reverse mode.

*Independent elements.* Let each element of y depend on one element of x (`carried.py`), as in a network from one
input to one output, evaluated on a batch. Then J is diagonal except for additional axes of y: with those indexed by
k, y[b, k] depends only on x[b], and

    (v' J)[b] = sum_k v[b, k] dy[b, k]/dx[b] = sum_k v[b, k] (J 1)[b, k]

so a single tangent of ones gives v' J. Derivatives of y in this sense have independent elements again.

*Gradients of scalars.* Let g = dU/dx be the gradient of U = <seed, u(x, z)>, a number, with a seed that depends on
neither of the leaves x and z. The second derivatives of U commute (Schwarz), so for any v

    d<v, g>/dz = d/dz sum_i v_i dU/dx_i = sum_i v_i d/dx_i (dU/dz) = derivative of dU/dz along x := v

with v held fixed: forward mode over the reverse-mode gradient dU/dz; with z = x that gradient is g itself. The result,
as the gradient of the number <v, g>, is of the same kind if v depends on neither leaf, so the third order follows from
the second in the same way. If z = x, an intermediate value x will do in place of a leaf.

A Variable at which gradients stop is a constant in all this: with the same stops in both derivatives, they are partial
derivatives of one function, and those commute too. So is the output of an op that derivatives treat as a constant
(`unlink`; the fact `constant`). Let c be all such values in the graph of U, so that U = u(x, z, c(x, z)). What `grad`
computes is D_x U = du/dx(x, z, c), whose graph has the same c in it; and as each derivative treats c as a constant
again, D_z D_x U = d2u/dz dx at (x, z, c) = D_x D_z U. The op is the same at every order, unlike `need_grad` set to
False, which may have been set after a first derivative was taken: that rules the mode out. No path between Variables
leads through such an op, so neither of the two facts above depends on how c was computed.

A result of `grad` records what it is the gradient of (`request.py`), for as long as it lives.
"""

from __future__ import annotations

from collections.abc import Sequence

import nngrad.functions as F
from backward_registry import registry

from ..functions.array import in_dtype, zeros_like
from ..graph import Function, Variable, among, functions_of, path_between
from ..graph.block import bodies_in
from ..graph.body_op import Axes
from ..graph.spec import Spec
from ..rewrite.builder import emitting
from ..rewrite.numbers import is_zero
from .carried import followed_axes
from .forward_mode import Pushforward
from .request import Derivation, Seeds, Task, derivation_of, task_of
from .walk import Grad, ones, order_of


class NotApplicable(Exception):
    """A mode does not apply; the message says why."""


def obstacle(path: Sequence[Function]) -> str:
    """Why derivatives along a path are not true ones (an inexact rule, or a stop); "" if they are."""
    for f in path:
        bodies = bodies_in(f.arguments)
        for op in {f.op}.union(*[body.ops for body in bodies]):
            rule = registry.find(op)
            if rule is None or not (rule.exact or op.constant):
                place = f" (called at {f.location})" if hasattr(f, "location") else ""
                return f"the rule of {op.name}{place} is not its derivative"
            if rule is not None and rule.limits is not None:
                return f"the rule of {op.name} takes limits, which only the reverse pass can"
        if any([y._need_grad is False for y in f.outputs]):
            return f"need_grad is False at an output of {f.op.name}"
        if any([body.stops_gradients for body in bodies]):
            return f"need_grad is False in the body of {f.op.name}"
    return ""


def unrelated(seeds: Seeds, inputs: Sequence[Variable]) -> bool:
    """True if no seed depends on any of `inputs`."""
    present = [seed for seed in seeds if seed is not None]
    wanted = {id(x) for x in inputs}
    return not any([id(seed) in wanted for seed in present]) and not path_between(present, inputs, of_values=True)[0]


# ---------------------------------------------------------------- independent elements


def forward(task: Task) -> list[Variable]:
    """The gradient by a single input, if each element of the outputs depends on only one of its elements. A sum of all
    elements, whose gradient is often asked for, counts as its summand.

    It does not apply if gradients are given at the outputs: in 16 bits a loss scale must be applied from the start.
    """
    if len(task.inputs) != 1:
        raise NotApplicable(f"there are {len(task.inputs)} inputs")
    (x,) = task.inputs
    if any([seed is not None for seed in task.seeds]):
        raise NotApplicable("grad_outputs are given")
    task = forward_task(task, x.size)
    places = followed_axes(task.path, x, long_axes(x.spec))
    reached = [y for y in task.outputs if id(y) in task.active]
    if any([places.get(id(y)) is None for y in reached]):
        raise NotApplicable("an element of an output may depend on several elements of the input")
    with emitting(task.functions, order_of(task.path)) as builder:
        push = Pushforward(stop_ids=task.stop_ids)
        tangents = push.walk(builder, task.path, task.active, reached, [x], [ones(builder, x.spec)])
        parts = [summed_to_axes(t, places[id(y)] or (), x.spec) for y, t in zip(reached, tangents, strict=True)]
        return [F.add_n(*parts) if parts else zeros_like(x)]


def forward_task(task: Task, fewest: int = 0) -> Task:
    """The task in forward form, for the summands of its outputs, if forward mode applies and is worthwhile.

    Args:
        task: The task.
        fewest: The least number of elements of each of these outputs.
    """
    summed = [summand(y, task.stop_ids) for y in task.outputs]
    if not all([x.spec.differentiable for x in task.inputs]) or any([y.size < fewest for y in summed]):
        raise NotApplicable("an output has fewer elements than the input")
    outputs = [forward_form(y) for y in summed]
    if any([y is not original for y, original in zip(outputs, task.outputs, strict=True)]):
        task = task.about(outputs)
    if not any([f.order or f.heavy for f in task.path]):
        # Higher orders would have nothing to share with the first, and the reverse pass adds all gradients that arrive
        # at a Variable in a single sum.
        raise NotApplicable("there is no matrix product on the path")
    reason = obstacle(task.path)
    if reason:
        raise NotApplicable(reason)
    return task


def summand(y: Variable, stop_ids: frozenset[int]) -> Variable:
    """The Variable whose elements `y` sums, if it has the same gradient; else `y`."""
    f = y.parent
    if f is None or f.op.axes is None or f.op.axes.adds != "sum" or y.size != 1 or id(y) in stop_ids or obstacle([f]):
        return y
    return f.inputs[0] if f.inputs[0].spec.differentiable else y


def long_axes(spec: Spec) -> Axes:
    """The axes that distinguish elements: those longer than 1."""
    return tuple([a for a, n in enumerate(spec.shape) if n != 1])


def summed_to_axes(t: Variable, axes: Axes, spec: Spec) -> Variable:
    """`t` summed over all but `axes`, which are the long axes of `spec`, in the shape and dtype of `spec`."""
    if t.spec is spec and axes == long_axes(spec):
        return t
    rest = tuple([a for a in range(t.ndim) if a not in axes])
    t = F.sum(t, axis=rest) if rest else t
    order = tuple([sorted(axes).index(a) for a in axes])
    t = F.reshape(F.transpose(t, axes=order), shape=spec.shape)
    return in_dtype(t, spec.dtype)


def forward_form(g: Variable) -> Variable:
    """A result of `grad` by several inputs as the derivative along its own input, if that is the same."""
    derived_by = derivation_of(g)
    if derived_by is None or derived_by.derivation is None or derived_by.input is None:
        return g
    derivation, x = derived_by.derivation, derived_by.input
    if len(derivation.inputs) == 1 or derived_by.mode.name == "forward":
        return g
    try:
        (form,) = forward(task_of(derivation.outputs, [x], derivation.seeds, derivation.stop_gradients))
    except NotApplicable:
        return g
    return form


# ---------------------------------------------------------------- gradients of scalars


def symmetric(task: Task) -> list[Variable]:
    """The gradients by forward mode over results of `grad` that the outputs depend on."""
    outputs, inputs = task.outputs, task.inputs
    wanted, direct = {id(x) for x in inputs}, {id(y) for y in outputs}
    obstacles: dict[int, str] = {}
    known: dict[Derivation, str] = {}

    def passes(y: Variable) -> bool:
        if id(y) not in obstacles:
            stops_here = id(y) in wanted or id(y) in task.stop_ids
            obstacles[id(y)] = _NO_GRADIENT if stops_here else obstacle_at(y, task, id(y) in direct, known)
        return bool(obstacles[id(y)])

    met = {id(x): x for f in functions_of(outputs, passes) for x in f.inputs} | {id(y): y for y in outputs}
    gradients = [x for x in met.values() if obstacles.get(id(x)) == ""]
    if not gradients:
        reasons = [reason for reason in obstacles.values() if reason != _NO_GRADIENT]
        raise NotApplicable(reasons[0] if reasons else "it is not recognised as the derivative of a gradient")
    calls: dict[Derivation, list[tuple[Variable, Variable]]] = {}
    for g in gradients:
        derived_by = derivation_of(g)
        assert derived_by is not None and derived_by.derivation is not None and derived_by.input is not None
        calls.setdefault(derived_by.derivation, []).append((g, derived_by.input))
    stop_ids = task.stop_ids | {id(g) for g in gradients}
    targets = [*inputs, *gradients]
    path, active = among(task.functions, targets, stop_ids=stop_ids)
    with emitting(task.functions, order_of(task.path)) as builder:
        with emitting([], order_of(path)):
            walk = Grad(stop_ids=stop_ids)
            arrived = walk.walk(builder, path, active, outputs, targets, task.seeds)
        parts = [[gx] for gx in arrived[: len(inputs)]]
        at = {id(g): v for g, v in zip(gradients, arrived[len(inputs) :], strict=True)}
        for derivation, pairs in calls.items():
            moving = [(x, at[id(g)]) for g, x in pairs if not is_zero(at[id(g)])]
            if moving:
                bases = first_gradients(derivation, inputs)
                moved = Pushforward(stop_ids=task.stop_ids)(bases, [x for x, _ in moving], [v for _, v in moving])
                for part, t in zip(parts, moved, strict=True):
                    part.append(t)
        return [F.add_n(*part) for part in parts]


_NO_GRADIENT = "not a result of grad"


def obstacle_at(g: Variable, task: Task, direct: bool, known: dict[Derivation, str]) -> str:
    """Why `g` is not known to be the gradient of a number whose derivatives by the inputs commute with it; "" if it is.

    Args:
        g: A Variable.
        task: The task.
        direct: Whether `g` is one of the outputs. Otherwise the inputs must be among those of the call that it comes
            from: the gradient of a loss with respect to parameters is better computed in reverse.
        known: Obstacles found for other results of the same calls; extended.
    """
    derived_by = derivation_of(g)
    if derived_by is None:
        return _NO_GRADIENT
    derivation, x = derived_by.derivation, derived_by.input
    if derivation is None or x is None:
        return derived_by.unknown
    if g._need_grad is False:
        return "need_grad is False at a gradient"
    ids = {id(other) for other in derivation.inputs}
    if not all([z is x or (z.parent is None and x.parent is None and (direct or id(z) in ids)) for z in task.inputs]):
        return "it contains a gradient with respect to other Variables"
    if derivation not in known:
        sources = [*derivation.inputs, *task.inputs]
        path, _, _ = path_between(derivation.outputs, sources, stop_ids=[id(y) for y in derivation.stop_gradients])
        depends = not unrelated(derivation.seeds, sources)
        reason = "the grad_outputs of a gradient in it depend on the inputs" if depends else ""
        known[derivation] = obstacle(path) or reason
    return known[derivation] or other_stops(g, derivation, task)


def other_stops(g: Variable, derivation: Derivation, task: Task) -> str:
    """Why the stop_gradients of `g` differ from those for the present derivative; "" if they do not."""
    if not (task.stop_gradients or derivation.stop_gradients):
        return ""
    stop_ids = {id(x) for x in derivation.stop_gradients}
    if not stop_ids <= task.stop_ids:
        return "a gradient in it was taken with stop_gradients that are not given now"
    _, active, _ = path_between([g], task.inputs, stop_ids=stop_ids)
    active |= {id(derivation.gradient(z)) for z in task.inputs}  # these would also move
    added = [x for x in task.stop_gradients if x.parent is not None and id(x) not in stop_ids and id(x) in active]
    return "stop_gradients are on the path of a gradient in it" if added else ""


def first_gradients(derivation: Derivation, inputs: Sequence[Variable]) -> list[Variable]:
    """The gradients of what was differentiated by `inputs`: the existing ones, and new ones for the rest."""
    gradients = [derivation.gradient(x) for x in inputs]
    missing = [x for x, g in zip(inputs, gradients, strict=True) if g is None]
    walk = Grad(stop_ids=frozenset([id(x) for x in derivation.stop_gradients]))
    new = iter(walk(derivation.outputs, missing, derivation.seeds)) if missing else iter(())
    return [next(new) if g is None else g for g in gradients]
