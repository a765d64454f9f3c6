"""Gradients of gradients by forward mode, where symmetry allows it, so that each order adds as much as the one before.

Reverse mode applied again and again multiplies the graph by about three with each order: each pass reads the whole
graph from its end to its beginning and writes it out once more in reverse. Forward mode carries a tangent along each
value that is there already; with the canonical form it is Taylor mode, of which each order adds a constant number of
matrix products. What `grad` is asked for are products with a *transposed* Jacobian, v' J, while forward mode gives J
t. Two facts turn one into the other. Both hold for the true derivatives only, so both ask that every rule on the way
be exact and that nothing on the way stop gradients; otherwise, and for all that fits neither, the gradient is the
plain walk's.

*Independent elements.* Let each element of y depend on one element of x (`independence.py`), as in a network from one
input to one output, evaluated on a batch. Then J is diagonal but for axes that y has besides: with those indexed by
k, y[b, k] depends on x[b] alone, and

    (v' J)[b] = sum_k v[b, k] dy[b, k]/dx[b] = sum_k v[b, k] (J 1)[b, k]

so one tangent of ones gives v' J. Derivatives of y in this sense have independent elements again.

*Gradients of scalars.* Let g = dU/dx be the gradient of U = <seed, u(x, z)>, a number, with a seed that depends on
neither of the leaves x and z. The second derivatives of U commute (Schwarz), so for any v

    d<v, g>/dz = d/dz sum_i v_i dU/dx_i = sum_i v_i d/dx_i (dU/dz) = derivative of dU/dz along x := v

where v is held fixed: forward mode over the reverse-mode gradient dU/dz; with z = x that gradient is g itself. The
result, as the gradient of the number <v, g>, is of the same kind if v depends on neither leaf, so the third order
follows from the second in the same way. An x in the middle of the graph will do in place of a leaf if z = x.

A result of `grad` remembers what it is the gradient of (`Derivation`), for as long as it lives.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence

import nngrad.functions as F
from backward_registry import registry

from ..functions.array import zeros_like
from ..graph import Function, Variable, build_options, functions_of, path_between
from ..graph.function import any_hooked, function_hooks
from ..rewrite.builder import emitting
from ..rewrite.numbers import grad_end as GradEndFunction
from ..rewrite.numbers import is_zero
from .forward_mode import Pushforward
from .sparsity import Axes, carried
from .walk import Grad, order_of

Seeds = Sequence[Variable | None]


class Derivation:
    """One call of `grad`: its results are the gradients of <seeds, outputs> with respect to each of `inputs`."""

    __slots__ = ("inputs", "outputs", "results", "seeds")

    def __init__(self, outputs: Sequence[Variable], inputs: Sequence[Variable], seeds: Seeds) -> None:
        self.outputs, self.inputs, self.seeds = outputs, inputs, seeds
        self.results: list[weakref.ref[Variable]] = []

    def gradient(self, x: Variable) -> Variable | None:
        """The gradient with respect to `x`, while it lives."""
        for each, result in zip(self.inputs, self.results, strict=True):
            if each is x:
                return result()
        return None


def remember(outputs: Sequence[Variable], inputs: Sequence[Variable], seeds: Seeds, results: list[Variable]) -> None:
    """Let `results` know what they are the gradients of."""
    derivation = Derivation(outputs, inputs, seeds)
    derivation.results = [weakref.ref(gx) for gx in results]
    for x, gx in zip(inputs, results, strict=True):
        gx._derived = derivation, x


def derivation_of(g: Variable) -> tuple[Derivation | None, Variable]:
    """The call of `grad` that `g` is a result of, and its input there; None if it is not."""
    derived: tuple[Derivation | None, Variable] = getattr(g, "_derived", (None, g))
    return derived


def gradients(outputs: Sequence[Variable], inputs: Sequence[Variable], seeds: Seeds) -> list[Variable]:
    """What `Grad` gives, by the way that makes the smallest graph at higher orders.

    Args:
        outputs: What is differentiated.
        inputs: With respect to what.
        seeds: Gradient at each output; None for ones.
    """
    options = build_options()
    if not options.simplify or options.watched:
        return Grad()(outputs, inputs, seeds)
    result = None
    if len(inputs) == 1:
        alone = elementwise(outputs, inputs[0], seeds)
        result = None if alone is None else [alone]
    return result or symmetric(outputs, inputs, seeds) or Grad()(outputs, inputs, seeds)


def exact(path: Sequence[Function]) -> bool:
    """Whether all functions on a way have exact rules, none of their outputs stops gradients, and no hook watches."""
    if function_hooks and any_hooked(path):
        return False
    for f in path:
        rule = registry.find(f.op)
        if rule is None or not rule.exact or any([y._need_grad is False for y in f.outputs]):
            return False
    return True


def unrelated(seeds: Seeds, inputs: Sequence[Variable]) -> bool:
    """Whether no seed depends on any of `inputs`."""
    given = [seed for seed in seeds if seed is not None]
    wanted = {id(x) for x in inputs}
    return not any([id(seed) in wanted for seed in given]) and not path_between(given, inputs, stops=False)[0]


# ---------------------------------------------------------------- independent elements


def elementwise(outputs: Sequence[Variable], x: Variable, seeds: Seeds) -> Variable | None:
    """The gradient with respect to `x`, where each element of the outputs depends on one of `x`; else None.

    With gradients given at the outputs it is None too: in 16 bits a scale for the loss has to be in from the start.
    """
    given = any([seed is not None for seed in seeds])
    if given or not x.spec.differentiable or any([y.size < x.size for y in outputs]):
        return None
    outputs = [forward_form(y) for y in outputs]
    path, active, known = path_between(outputs, [x])
    if not exact(path) or not any([f.order or f.op.heavy for f in path]):
        # Without a product on the way there is nothing that higher orders would have to share with the first, and the
        # walk back makes one sum of all gradients that arrive at a Variable.
        return None
    places = carried(path, x, long_axes(x))
    reached = [y for y in outputs if id(y) in active]
    if any([places.get(id(y)) is None for y in reached]):
        return None
    with emitting(known, order_of(path)):
        ones = GradEndFunction(shape=x.shape, dtype=x.dtype)
        tangents = Pushforward()(reached, [x], [ones])
        parts = [gathered(t, places[id(y)] or (), x) for y, t in zip(reached, tangents, strict=True)]
        return F.add_n(*parts) if parts else zeros_like(x)


def long_axes(x: Variable) -> Axes:
    """The axes of `x` that tell its elements apart: those longer than 1."""
    return tuple([a for a, n in enumerate(x.shape) if n != 1])


def gathered(t: Variable, axes: Axes, x: Variable) -> Variable:
    """`t` summed over all but `axes`, where it has the long axes of `x`, in the shape and dtype of `x`."""
    if t.spec is x.spec and axes == long_axes(x):
        return t
    rest = tuple([a for a in range(t.ndim) if a not in axes])
    t = F.sum(t, axis=rest) if rest else t
    order = tuple([sorted(axes).index(a) for a in axes])
    t = F.reshape(F.transpose(t, axes=order), shape=x.shape)
    return t if t.dtype == x.dtype else F.cast(t, dtype=x.dtype)


def forward_form(g: Variable) -> Variable:
    """A result of `grad` with respect to several inputs as the derivative along its own, if that is the same."""
    derivation, x = derivation_of(g)
    if derivation is None or len(derivation.inputs) == 1:
        return g
    form = elementwise(derivation.outputs, x, derivation.seeds)
    return g if form is None else form


# ---------------------------------------------------------------- gradients of scalars


def symmetric(outputs: Sequence[Variable], inputs: Sequence[Variable], seeds: Seeds) -> list[Variable] | None:
    """The gradients, where outputs depend on results of `grad` through which forward mode can go; else None."""
    if not any([f.order for f in functions_of(outputs)]):
        return None  # nothing there was emitted
    wanted = {id(x) for x in inputs}
    direct = {id(y) for y in outputs}
    fit: dict[int, bool] = {}
    commuting: dict[Derivation, bool] = {}

    def passes(y: Variable) -> bool:
        if id(y) not in fit:
            fit[id(y)] = id(y) not in wanted and symmetry_holds(y, inputs, id(y) in direct, commuting)
        return not fit[id(y)]

    above = functions_of(outputs, through=passes)
    met = [x for f in above for x in f.inputs] + list(outputs)
    found = list({id(x): x for x in met if fit.get(id(x))}.values())
    if not found:
        return None
    calls: dict[Derivation, list[Variable]] = {}
    for g in found:
        calls.setdefault(derivation_of(g)[0], []).append(g)  # type: ignore[arg-type]
    path, _, known = path_between(outputs, inputs)
    with emitting(known, order_of(path)):
        arrived = Grad(ends=frozenset([id(g) for g in found]))(outputs, [*inputs, *found], seeds)
        parts = [[gx] for gx in arrived[: len(inputs)]]
        at = {id(g): v for g, v in zip(found, arrived[len(inputs) :], strict=True)}
        for derivation, gs in calls.items():
            moving = [(derivation_of(g)[1], at[id(g)]) for g in gs if not is_zero(at[id(g)])]
            if moving:
                bases = first_gradients(derivation, inputs)
                moved = Pushforward()(bases, [x for x, _ in moving], [v for _, v in moving])
                for part, t in zip(parts, moved, strict=True):
                    part.append(t)
        return [F.add_n(*part) for part in parts]


def symmetry_holds(g: Variable, inputs: Sequence[Variable], direct: bool, commuting: dict[Derivation, bool]) -> bool:
    """Whether `g` is the gradient of a number, and its derivatives with respect to `inputs` commute with that.

    Args:
        g: A Variable.
        inputs: With respect to what it is to be differentiated.
        direct: Whether it is itself what is to be differentiated. Otherwise the inputs must be among those of the call
            that it comes from: the gradient of a loss with respect to parameters is better had in reverse.
        commuting: What is known of other results of the same calls, and takes what is found.
    """
    derivation, x = derivation_of(g)
    if derivation is None or g._need_grad is False:
        return False
    own = {id(each) for each in derivation.inputs}
    if not all([z is x or (z.parent is None and x.parent is None and (direct or id(z) in own)) for z in inputs]):
        return False
    if derivation not in commuting:
        sources = [*derivation.inputs, *inputs]
        path, _, _ = path_between(derivation.outputs, sources)
        commuting[derivation] = exact(path) and unrelated(derivation.seeds, sources)
    return commuting[derivation]


def first_gradients(derivation: Derivation, inputs: Sequence[Variable]) -> list[Variable]:
    """The gradients of what was differentiated with respect to `inputs`: those that are there, and the others anew."""
    found = [derivation.gradient(x) for x in inputs]
    missing = [x for x, g in zip(inputs, found, strict=True) if g is None]
    made = iter(Grad()(derivation.outputs, missing, derivation.seeds)) if missing else iter(())
    return [next(made) if g is None else g for g in found]
