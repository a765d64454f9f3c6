"""A graph computed for many values of some of its leaves at once.

`vectorize` gives those leaves one more, leading, axis, and builds what computes the outputs along it. What does not
depend on the leaves is shared. Where the outputs are wanted summed over the axis, the sum is propagated through
whatever is linear, and nothing is computed element by element that need not be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import nngrad.functions as F
from backward_registry import Rule, registry
from backward_registry.batching import Operand

from ..graph import (
    Function,
    NdArray,
    RuleCall,
    Variable,
    apply,
    build_options,
    contained,
    create,
    functions_of,
    path_between,
    switched,
)
from ..graph.options import Builder
from ..graph.spec import spec_of
from ..graph.variable import leaf_of
from ..rewrite.builder import emitting
from ..rewrite.numbers import is_zero
from .batching import in_batch
from .collapsing import Moved, commutes, folded_sum, folds, sum_of_sums
from .mapped import mapped, mapped_several
from .walk import Grad

Values = Mapping[Variable, Variable]


def vectorize(outputs: Sequence[Variable], batched: Values, collapse: bool = False) -> list[Variable]:
    """`outputs` computed for each of K values of the leaves in `batched`.

    Functions that do not depend on these leaves are used as they are. Random functions draw once for all K.

    Args:
        outputs: What to compute.
        batched: For each leaf the Variable that holds its K values along a first axis: `(K, *leaf.shape)`, where a
            size 1 in place of one of the leaf's sizes stands for values that repeat along that axis.
        collapse: Give the sum over the K values in place of each.

    Returns:
        One Variable per output: `(K, *output.shape)`, or `output.shape` with `collapse`.

    Raises:
        ValueError: The values do not fit the leaves, or a function that updates a leaf depends on one of them.
    """
    count = _checked_count(batched)
    return substituted(outputs, batched, {}, count, [collapse] * len(outputs))


@contained
def substituted(
    outputs: Sequence[Variable],
    batched: Values,
    replaced: Values,
    count: int,
    collapsed: Sequence[bool],
    within: Builder | None = None,
) -> list[Variable]:
    """`outputs` with values along a leading axis of size `count` put in the place of some Variables (`batched`), and
    others in the place of others as they are (`replaced`); those that are `collapsed`, summed over that axis.

    Args:
        within: What is emitting, where the order of what is emitted and the call it belongs to are the present ones;
            else both are those of the functions in the graph.
    """
    path, _, known = path_between(outputs, [*batched, *replaced], stops=False)
    known += functions_of([*batched.values(), *replaced.values()])
    order, call = (1, None) if within is None else (within.order, within.call)
    with emitting(known, order) as builder:
        walk = _Walk(path, batched, replaced, count)
        walk.demand(outputs, collapsed)
        for f in path:
            if within is None:
                builder.order, builder.call = max(order, f.order), RuleCall(f.origin or f, ())
            walk.emit(f)
        builder.order, builder.call = order, call
        return [walk.result(y, c) for y, c in zip(outputs, collapsed, strict=True)]


@contained
def in_batches(outputs: Sequence[Variable], batched: Values, count: int, full: Sequence[bool]) -> list[Variable]:
    """`outputs`, each of the order of differentiation that it has, with values along a leading axis of size `count` put
    in the place of the leaves in `batched`; those that do not depend on these are as they are, unless they are `full`.
    """
    path, _, known = path_between(outputs, [*batched], stops=False)
    with emitting(known, 0) as builder:
        walk = _Walk(path, batched, {}, count)
        walk.demand(outputs, [False] * len(outputs))
        for f in path:
            builder.order = f.order
            walk.emit(f)
        builder.order = max([y.parent.order for y in outputs if y.parent is not None], default=0)
        return [
            walk.result(y, False) if is_full or walk.has_axis(y) else walk.plain.get(y, y)
            for y, is_full in zip(outputs, full, strict=True)
        ]


def _checked_count(batched: Values) -> int:
    """The K of a table of leaves and their K values."""
    if not batched:
        raise ValueError("batched: give at least one leaf with its values")
    counts = set()
    for x, value in batched.items():
        own = value.shape[1:]
        if value.ndim != x.ndim + 1 or value.dtype != x.dtype or any(
            [n not in (1, m) for n, m in zip(own, x.shape, strict=True)]
        ):
            raise ValueError(f"batched: {value.spec} does not hold values of {x.spec} along a first axis")
        counts.add(value.shape[0])
    if len(counts) > 1:
        raise ValueError(f"batched: all must hold equally many values, got {sorted(counts)}")
    return int(counts.pop())


class _Walk:
    """What becomes of each function on the way: first what is demanded of it is found, then it is emitted.

    Of each Variable three values may be there: `plain`, without the leading axis; `each`, with it; and `sums`, over it.
    """

    def __init__(self, path: list[Function], batched: Values, replaced: Values, count: int) -> None:
        self.path = path
        self.count = count
        self.plain: dict[Variable, Variable] = dict(replaced)
        self.each: dict[Variable, Variable] = dict(batched)
        self.sums: dict[Variable, Variable] = {}
        self._given = {*batched, *replaced}
        self._moved = set(batched)
        """What has the leading axis."""
        self._each_wanted: set[Variable] = set()
        self._sum_wanted: set[Variable] = set()

    def moved(self, f: Function) -> Moved:
        """Which inputs of `f` have the leading axis."""
        return [x in self._moved for x in f.inputs]

    def demand(self, outputs: Sequence[Variable], collapsed: Sequence[bool]) -> None:
        """Find out of what each element is needed, and of what the sum."""
        for f in self.path:
            moved = self.moved(f)
            if any(moved):
                depends = [True] * len(f.specs) if f.op.dependence is None else f.op.dependence(f.arguments, moved)
                given = zip(f.outputs, depends, strict=True)
                self._moved.update(y for y, does in given if does and y not in self._given)
        for y, c in zip(outputs, collapsed, strict=True):
            (self._sum_wanted if c else self._each_wanted).add(y)
        for f in reversed(self.path):
            outs, moved = f.outputs, self.moved(f)
            each = any([y in self._each_wanted for y in outs])
            if any([y in self._sum_wanted for y in outs]) and any(moved):
                if commutes(f, moved):
                    self._sum_wanted.update(x for x, m in zip(f.inputs, moved, strict=True) if m)
                    self._each_wanted.update(x for x, m in zip(f.inputs, moved, strict=True) if not m)
                elif folds(f, moved):
                    self._each_wanted.update(f.inputs)
                else:
                    self._each_wanted.update(outs)
                    each = True
            if each:
                self._each_wanted.update(f.inputs)

    def emit(self, f: Function) -> None:
        """Emit what is demanded of `f`."""
        outs = [y for y in f.outputs if y not in self._given]
        each, total = (any([y in wanted for y in outs]) for wanted in (self._each_wanted, self._sum_wanted))
        if not (each or total):
            return
        if f.effects:
            raise ValueError(
                f"a function that updates a leaf at each forward(), {f.op.name}, depends on what is vectorized; "
                "switch its updates off (batch_stat=False in batch normalisation)"
            )
        moved = self.moved(f)
        if not any(moved):
            self._keep(f, self.plain, apply(f.op, tuple([self.plain.get(x, x) for x in f.inputs]), f.arguments))
            return
        if each:
            read = [y in self._each_wanted for y in f.outputs]
            self._keep(f, self.each, in_batch(f, self._operands(f, moved, self.each, 1), read))
        if total:
            self._keep(f, self.sums, self._sum(f, moved))

    def _sum(self, f: Function, moved: Moved) -> Any:
        """The sum of `f`, or of each of its outputs."""
        if commutes(f, moved):
            for x, m in zip(f.inputs, moved, strict=True):
                if m:
                    self._total(x)
            return sum_of_sums(f, self._operands(f, moved, self.sums, 0), moved, self.count)
        if folds(f, moved):
            return folded_sum(f, self._operands(f, moved, self.each, 1))
        totals = tuple([self._total(y) if y in self._sum_wanted and y in self._moved else None for y in f.outputs])
        return totals if f.op.multiple_results else totals[0]

    def _total(self, x: Variable) -> Variable:
        """The sum of `x`; added up here where nothing was that propagates it."""
        if x not in self.sums:
            self.sums[x] = F.sum(self.each[x], axis=0)
        return self.sums[x]

    def _operands(self, f: Function, moved: Moved, values: Values, lead: int) -> list[Operand]:
        """The inputs of `f`: those that have the axis with their `values`, the others as they are."""
        return [
            Operand(values[x], x, lead) if m else Operand(self.plain.get(x, x), x, 0)
            for x, m in zip(f.inputs, moved, strict=True)
        ]

    def _keep(self, f: Function, values: dict[Variable, Variable], results: Any) -> None:
        """Enter what became of the outputs of `f`; where gradients stopped they still do."""
        for y, value in zip(f.outputs, results if f.op.multiple_results else (results,), strict=True):
            if value is not None and y not in self._given:
                kept = values if y in self._moved else self.plain
                kept[y] = F.unlink(value) if y._need_grad is False else value

    def has_axis(self, y: Variable) -> bool:
        """Whether `y` depends on what has the leading axis."""
        return y in self._moved

    def result(self, y: Variable, collapsed: bool) -> Variable:
        """Returns what became of an output, in its full shape."""
        if y in self._moved:
            value = self._total(y) if collapsed else self.each[y]
            return Operand(value, y, 0 if collapsed else 1).widened()
        value = Operand(self.plain.get(y, y), y, 0).full((self.count,))
        result: Variable = F.sum(value, axis=0) if collapsed else value
        return result


# ---------------------------------------------------------------- the rule of a mapped op


def _mapped_rule(f: Function, *gys: Variable) -> list[Variable | None]:
    """The rule of the op that is mapped, mapped: it is built for one element and vectorized. The gradient of an input
    that is the same for all elements is the sum of theirs."""
    of, arguments, batched = f.arguments
    inputs = [_leaf_like(x, lead) for x, lead in zip(f.inputs, batched, strict=True)]
    single = create(of, tuple(inputs), arguments)
    outputs = list(single) if of.multiple_results else [single]
    seeds = [_leaf_like(gy, True) for gy in gys]
    wanted = [i for i, x in enumerate(inputs) if x.spec.differentiable]
    with switched(builder=None):
        gradients = Grad()(outputs, [inputs[i] for i in wanted], seeds)
    found = {i: gx for i, gx in zip(wanted, gradients, strict=True) if not is_zero(gx)}
    along = {x: value for x, value, lead in zip(inputs, f.inputs, batched, strict=True) if lead}
    along |= dict(zip(outputs, f.outputs, strict=True)) | dict(zip(seeds, gys, strict=True))
    fixed = {x: value for x, value, lead in zip(inputs, f.inputs, batched, strict=True) if not lead}
    summed = [not batched[i] for i in found]
    gxs = substituted(list(found.values()), along, fixed, f.specs[0].shape[0], summed, build_options().builder)
    results = dict(zip(found, gxs, strict=True))
    return [results.get(i) for i in range(len(inputs))]


def _leaf_like(x: Variable, lead: bool) -> Variable:
    """A leaf for one element along the first axis of `x`, or for `x`."""
    return leaf_of(NdArray.of_spec(spec_of(x.shape[1:], x.dtype) if lead else x.spec))


for _op in (mapped, mapped_several):
    # What is mapped may have a rule that is not its derivative.
    registry.add(_op, Rule(_mapped_rule, "rule", False, __name__))
