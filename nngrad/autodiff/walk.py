"""Grad: the walk that turns a forward graph into the graph of its gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any

import nngrad.functions as F
from backward_registry import Registry, missing, registry

from ..functions.array import zeros_like
from ..graph import Function, RuleCall, Variable, contained, path_between
from ..graph.function import watched
from ..graph.options import Builder
from ..graph.scopes import pause_collector
from ..rewrite.builder import emitting
from ..rewrite.masks import rank_of_masks, summed, through_masks
from ..rewrite.numbers import grad_end as GradEndFunction
from ..rewrite.numbers import is_zero
from .checking import check_gradients, fitted, way
from .steering import Aggregate

Gradients = dict[int, list[Variable]]
"""The gradients that have arrived at a Variable, by its id."""


class Grad:
    """Walks a graph from its outputs back to its inputs and emits the graph of the gradients.

    Functions are visited from the highest rank down, so that a function's turn comes when all that
    use its outputs have had theirs. Its rule is looked up and called on the sums of what arrived;
    what the rule returns arrives at the inputs. All that is not calculus is done here and in no rule:
    sums over fan-out and over broadcast axes, casts, zeros, and stopping where no gradient is wanted.

    Args:
        rules: Where backward rules are looked up.
        aggregate: Sums a list of two or more gradients that have arrived at one Variable.
        ends: Ids of Variables that no gradient passes, besides those with `need_grad` set to False.
        retained: A list that takes every Variable on the way together with its gradient.
    """

    def __init__(
        self,
        rules: Registry = registry,
        aggregate: Aggregate | None = None,
        ends: frozenset[int] = frozenset(),
        retained: list[tuple[Variable, Variable]] | None = None,
    ) -> None:
        self.rules = rules
        self.aggregate = aggregate or sum_of
        self.ends = ends
        self.retained = retained

    @contained
    def __call__(
        self, outputs: Sequence[Variable], inputs: Sequence[Variable], seeds: Sequence[Variable | None]
    ) -> list[Variable]:
        """The sum over `outputs` of their gradients with respect to each of `inputs`.

        Args:
            outputs: What is differentiated.
            inputs: With respect to what.
            seeds: Gradient at each output; None for ones.
        """
        pause_collector()
        path, active, known = path_between(outputs, inputs, ends=self.ends)
        with emitting(known, order_of(path)) as builder:
            return self.walk(builder, path, active, outputs, inputs, seeds)

    def walk(
        self,
        builder: Builder,
        path: list[Function],
        active: set[int],
        outputs: Sequence[Variable],
        inputs: Sequence[Variable],
        seeds: Sequence[Variable | None],
    ) -> list[Variable]:
        """The gradients, from the functions on some way, lowest rank first, and the ids of the Variables there."""
        total, ends, keep, outer = self.total, self.ends, watched(), builder.call
        masks_to = rank_of_masks(path)
        arrived: Gradients = {}
        for y, seed in zip(outputs, seeds, strict=True):
            if id(y) in active:
                end = GradEndFunction(shape=y.shape, dtype=y.dtype) if seed is None else seed
                arrived.setdefault(id(y), []).append(end)
        for f in reversed(path):
            outs = f.outputs
            gys = [None if y._need_grad is False or id(y) in ends else total(arrived, y) for y in outs]
            if any([gy is not None for gy in gys]):
                builder.call = outer or RuleCall(f, gys, keep)  # a rule that asks for gradients is still one rule
                gxs = self.pulled(f, outs, gys, outputs, active, arrived, f.rank >= masks_to)
                for x, gx in zip(f.inputs, gxs, strict=True):
                    if gx is not None and id(x) in active and x.spec.differentiable and not is_zero(gx):
                        arrived.setdefault(id(x), []).append(gx if gx.spec is x.spec else fitted(f, x, gx))
                builder.call = outer
        if self.retained is not None:
            on_the_way = {id(y): y for f in path for y in f.outputs} | {id(x): x for x in (*outputs, *inputs)}
            self.retained += [(x, gx) for x in on_the_way.values() for gx in [total(arrived, x)] if gx is not None]
        return [zeros_like(x) if gx is None else gx for x in inputs for gx in [total(arrived, x)]]

    def total(self, arrived: Gradients, x: Variable) -> Variable | None:
        """The sum of the gradients that have arrived at `x`: one function, however many they are."""
        gxs = arrived.get(id(x))
        if gxs is None:
            return None
        if len(gxs) > 1:
            # In the order in which they can be had, so that nothing waits for the last one but the last addition:
            # two cores then finish a step with several branches a tenth sooner.
            gxs = sorted(gxs, key=_by_rank)
            arrived[id(x)] = gxs = [self.aggregate(gxs)]
        return gxs[0]

    def pulled(
        self,
        f: Function,
        outs: Sequence[Variable],
        gys: list[Variable | None],
        outputs: Sequence[Variable],
        active: set[int],
        arrived: Gradients,
        masked: bool = True,
    ) -> Sequence[Any]:
        """One gradient per input of `f`, from its rule; an output that nothing arrived at counts as zero. Where
        `masked`, selections of gradients stay outermost."""
        rule = self.rules.find(f.op)
        if rule is None:
            raise missing(f.op, way(outputs, f))
        filled = [zeros_like(y) if gy is None else gy for y, gy in zip(outs, gys, strict=True)]
        try:
            if rule.accumulate is not None:
                gxs = self.accumulated(rule.accumulate, f, filled, active, arrived)
            else:
                gxs = through_masks(rule, f, filled) if masked else rule.function(f, *filled)
            gxs = gxs if isinstance(gxs, tuple | list) else (gxs,)
            check_gradients(f, gxs)
        except Exception as error:
            error.add_note(f"in the backward rule of {f.op.name} ({rule.module}), for {f!r}")
            if hasattr(f, "place"):
                error.add_note(f"{f.op.name} was called at {f.place}")
            raise
        return gxs

    def accumulated(
        self, accumulate: Callable[..., Any], f: Function, gys: list[Variable], active: set[int], arrived: Gradients
    ) -> Any:
        """The gradients from a rule that is told which are wanted, and may add to what has arrived."""

        def take(i: int) -> Variable | None:
            gx = self.total(arrived, f.inputs[i])
            arrived.pop(id(f.inputs[i]), None)
            return gx

        indexes = tuple([i for i, x in enumerate(f.inputs) if id(x) in active and x.spec.differentiable])
        return accumulate(f, gys, indexes, take)


def order_of(path: Iterable[Function]) -> int:
    """The order of differentiation of what a walk along `path` emits."""
    return 1 + max([f.order for f in path], default=0)


_by_rank = attrgetter("rank")


def sum_of(gradients: list[Variable]) -> Variable:
    """The sum of gradients of one Variable."""
    return summed(gradients, lambda gxs: F.add2(*gxs) if len(gxs) == 2 else F.add_n(*gxs))
