"""Pushforward: the traversal that propagates tangents from the inputs of a graph to its outputs, using backward rules.

A rule is linear in the incoming gradients: it multiplies by the transposed Jacobian J' of its function. A pushforward
needs the product with J itself. Ops with bodies, and functions of JAX's with derivatives that authors set, provide it
(`Rule.tangents`). For all others there are three ways, tried in this order:

- The op is linear in the moving inputs. Then J t is the op applied to the tangent.
- The op is diagonal. Then J = J': the rule itself, applied to the tangent instead of the gradient.
- Otherwise the rule is applied to a placeholder u, which gives the graph of J' u, and `Grad` differentiates that with
  respect to u: the gradient of <t, J' u> is J t. (Radul et al., "You Only Linearize Once", 2023, use the converse.)

Where a rule on the path takes limits, the whole pass is that of the last item, for all functions at once.

So forward mode needs no second set of rules, and derivatives in any mix of the two modes are as exact as the rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import nngrad.functions as F
from backward_registry import Registry, missing, registry

from ..functions.array import in_dtype, zeros_like
from ..graph import (
    Function,
    NdArray,
    RuleCall,
    Spec,
    Variable,
    among,
    apply,
    build_options,
    contained,
    functions_of,
    path_between,
)
from ..graph.function import next_serial
from ..graph.options import Builder
from ..graph.traverse import by_serial
from ..graph.variable import leaf_of
from ..rewrite.builder import emitting
from ..rewrite.masks import applied
from ..rewrite.numbers import is_zero
from .request import check_updates
from .walk import Grad, described_path, in_form_of, order_of, pushed_in_reverse, sum_of

Tangents = Sequence[Any]
"""For each of some Variables, its tangent, or None for zero."""


class NoForwardMode(ValueError):
    """A rule is not linear in the incoming gradient, or cannot be shown to be, so it cannot yield tangents."""


class Pushforward:
    """Traverses a graph from its inputs to its outputs, and emits the graph of the directional derivative.

    Functions are visited by ascending rank. Whatever stops gradients stops tangents.

    Args:
        rules: The registry of backward rules.
        stop_ids: Ids of Variables that no tangent passes, besides those with `need_grad` set to False.
        in_body: As in `Grad`.
    """

    def __init__(
        self,
        rules: Registry = registry,
        stop_ids: frozenset[int] = frozenset(),
        in_body: bool = False,
    ) -> None:
        self.stop_ids = stop_ids
        self.reverse = Grad(rules, in_body=in_body)

    @contained
    def __call__(
        self, outputs: Sequence[Variable], inputs: Sequence[Variable], tangents: Sequence[Variable]
    ) -> list[Variable]:
        """The derivative of each of `outputs` as `inputs` move along `tangents`.

        Args:
            outputs: The Variables to differentiate.
            inputs: The Variables that move; one that depends on others moves with these as well.
            tangents: The direction: a tangent of each input's shape and dtype.

        Raises:
            NoForwardMode: A rule on the path cannot yield tangents.
        """
        path, active, known = path_between(outputs, inputs, stop_ids=self.stop_ids)
        if build_options().applying.body is not None:
            check_updates(path)
        rules = [f.op.rules.get(self.reverse.place) for f in path]
        if any([rule is not None and rule.limits is not None for rule in rules]):
            return pushed_in_reverse(self.reverse, outputs, inputs, tangents, self.stop_ids)
        with emitting(known, order_of(path)) as builder:
            return self.walk(builder, path, active, outputs, inputs, tangents)

    def walk(
        self,
        builder: Builder,
        path: list[Function],
        active: set[int],
        outputs: Sequence[Variable],
        inputs: Sequence[Variable],
        tangents: Sequence[Variable],
    ) -> list[Variable]:
        """The derivatives, from the functions on some path, by ascending rank, and the ids of the Variables there."""
        outer, stopped = builder.call, self.stop_ids
        moved: dict[int, Variable] = {}
        for x, t in zip(inputs, tangents, strict=True):
            add(moved, x, t)
        for f in path:
            ts = [moved.get(id(x)) for x in f.inputs]
            live = [i for i, t in enumerate(ts) if t is not None]
            if live:
                builder.call = outer or RuleCall(f, ())
                for y, t in zip(f.outputs, self.pushed(builder, f, ts, live, outputs, path), strict=True):
                    passes = id(y) in active and y._need_grad is not False and id(y) not in stopped
                    if t is not None and passes and y.spec.differentiable:
                        add(moved, y, t)
        builder.call = outer
        return [zeros_like(y) if t is None else t for y in outputs for t in [moved.get(id(y))]]

    def pushed(
        self,
        builder: Builder,
        f: Function,
        ts: Tangents,
        live: list[int],
        outputs: Sequence[Variable],
        path: Sequence[Function],
    ) -> Tangents:
        """The tangent of each output of `f`, from those of its inputs, of which the `live` ones are not None."""
        op, rule = f.op, f.op.rules.get(self.reverse.place)
        if rule is None:
            raise missing(op, described_path(outputs, f))
        if rule.limits is not None:
            raise NoForwardMode(f"{op.name}: its rule takes limits that follow only from gradients at its outputs")
        if rule.kind == "non-differentiable":
            return [None] * len(f.specs)
        if rule.tangents is not None:
            read = {id(y) for y in outputs}.union([id(x) for g in path for x in g.inputs])
            tangents: Tangents | None = rule.tangents(f, ts, [id(y) in read for y in f.outputs])
            if tangents is not None:
                return tangents
        if rule.exact and all(map(op.linear_in, live)):
            parts = []
            for i in live:
                t = applied(op, (*f.inputs[:i], ts[i], *f.inputs[i + 1 :]), f.arguments, i)
                parts.append(t if op.multiple_results else (t,))
            return sum_of_tangents(parts)
        fixed = None if op.diagonal or op.offset or not rule.exact else op.fixed(len(ts))
        if fixed is not None and not set(fixed) & set(live):
            both = tuple([
                x if i in fixed else zeros_like(x) if t is None else t
                for i, (x, t) in enumerate(zip(f.inputs, ts, strict=True))
            ])
            t = apply(op, both, f.arguments)
            return t if op.multiple_results else (t,)
        if op.diagonal:
            return self.along(f, ts, live, outputs)
        return self.transposed(builder, f, ts, outputs)

    def along(self, f: Function, ts: Tangents, live: list[int], outputs: Sequence[Variable]) -> Tangents:
        """The tangent of a diagonal function: its rule, applied to the tangent instead of the gradient."""
        (spec,) = f.specs
        parts = []
        for i in live:
            t = ts[i] if ts[i].spec is spec else stretched(ts[i], spec)
            gx = self.reverse.pulled(f, [t], outputs, {id(f.inputs[i])}, {})[i]
            if gx is not None:
                parts.append((gx if gx.spec is spec else stretched(gx, spec),))
        return sum_of_tangents(parts) if parts else (None,)

    def transposed(self, builder: Builder, f: Function, ts: Tangents, outputs: Sequence[Variable]) -> Tangents:
        """The tangents of a function, by differentiating its rule applied to placeholders."""
        marks = [leaf_of(NdArray.of_spec(spec)) if spec.differentiable else None for spec in f.specs]
        us = [u for u in marks if u is not None]
        live = {id(x) for x, t in zip(f.inputs, ts, strict=True) if t is not None}
        since, order, builder.order = next_serial(), builder.order, f.order + 1
        gxs = self.reverse.pulled(f, marks, outputs, live, {})
        builder.order = order
        pairs = [
            (in_form_of(x, gx, True), t)
            for x, gx, t in zip(f.inputs, gxs, ts, strict=True)
            if gx is not None and t is not None
        ]
        path, active = depending([gx for gx, _ in pairs], us, since)
        gus = self.reverse.walk(builder, path, active, [gx for gx, _ in pairs], us, [t for _, t in pairs])
        _, nonlinear = depending(gus, us, since)
        if any([id(gu) in nonlinear for gu in gus]):
            name = getattr(f.args.get("fun"), "name", f.op.name)
            raise NoForwardMode(
                f"{name}: its backward rule is not linear in the incoming gradient, or cannot be shown to be, so "
                "forward mode cannot use it; a rule must multiply the gradient by the Jacobian and do nothing else to "
                "it. (JAX's custom_vjp has no forward mode at all.) Reverse mode can: nn.jacobian, nj.jacfwd, nj.vjp"
            )
        tangents = iter(gus)
        return [None if u is None else next(tangents) for u in marks]


def depending(outputs: list[Variable], us: list[Variable], since: int) -> tuple[list[Function], set[int]]:
    """The functions made since a serial number that `outputs` are computed by and that depend on `us`, in the order of
    their creation; and the ids of `us` and of their outputs."""
    new = functions_of(outputs, lambda x: x.parent is not None and x.parent.serial > since)
    return among(sorted(new, key=by_serial), us, of_values=True)


def stretched(t: Variable, spec: Spec) -> Variable:
    """A tangent broadcast to a shape, in its dtype."""
    if t.shape != spec.shape:
        t = F.broadcast(t, shape=spec.shape)
    return in_dtype(t, spec.dtype)


def sum_of_tangents(parts: list[Any]) -> Tangents:
    """The sum of several tangents of the same outputs."""
    return parts[0] if len(parts) == 1 else [sum_of(list(terms)) for terms in zip(*parts, strict=True)]


def add(moved: dict[int, Variable], x: Variable, t: Variable) -> None:
    """Add `t` to the tangent of `x`."""
    if not is_zero(t):
        before = moved.get(id(x))
        moved[id(x)] = t if before is None else sum_of([before, t])
