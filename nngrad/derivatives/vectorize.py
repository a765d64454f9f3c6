"""Vectorisation: compute a graph for many values of some of its leaves at once.

`vectorize` gives those leaves a leading axis, and builds a graph that computes the outputs along it. Everything that
does not depend on the leaves is shared. If the outputs are wanted summed over the axis, the sum is propagated through
all linear functions, and nothing is computed per element that need not be.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import nngrad.functions as F

from ..functions.operands import Operand, Shape
from ..graph import (
    Function,
    RuleCall,
    Variable,
    apply,
    build_options,
    contained,
    engine,
    functions_of,
    path_between,
)
from ..graph.block import Block, new_leaves
from ..graph.body_op import dependence
from ..graph.closing import close, derived_once
from ..graph.engine import provide
from ..graph.spec import spec_of
from ..rewrite.builder import emitting
from .along import Along, Diagonals, carried_to, factored, moved_out, shared_diagonals, spread_out, with_one_index
from .batching import Moved, checked_count, commutes, folded_sum, folds, in_batch, is_product, sum_of_sums
from .terms import Terms, additive_groups, one_value, sum_of_terms, summed_product

Values = Mapping[Variable, Variable]
Numbers = tuple[int, ...]


def vectorize(outputs: Sequence[Variable], batched: Values, collapse: bool = False) -> list[Variable]:
    """`outputs` computed for each of K values of the leaves in `batched`.

    Functions that do not depend on these leaves are used as they are. Random functions draw once for all K.

    Args:
        outputs: The Variables to compute.
        batched: For each leaf, the Variable with its K values along a first axis: `(K, *leaf.shape)`, where a
            size 1 in place of one of the leaf's sizes stands for values that repeat along that axis.
        collapse: Return the sum over the K values instead of each.

    Returns:
        One Variable per output: `(K, *output.shape)`, or `output.shape` with `collapse`.

    Raises:
        ValueError: The values do not fit the leaves, or a function that updates a leaf depends on one of them.
    """
    count = checked_count(batched)
    return substituted(outputs, batched, (count,), collapse)


@contained
def substituted(
    outputs: Sequence[Variable],
    batched: Values,
    sizes: Shape,
    collapse: bool,
    diagonals: Mapping[Variable, Diagonals] | None = None,
) -> list[Variable]:
    """`outputs` with values along a leading axis substituted for some Variables, or their sums over that axis.

    Args:
        outputs: The Variables to compute.
        batched: The Variables that have the axis, and their values.
        sizes: The sizes of the axes that the leading one combines.
        collapse: Return the sums.
        diagonals: The axes along which each batched value is diagonal, one for each of the `sizes`; None: none.
    """
    path, _, known = path_between(outputs, [*batched], of_values=True)
    with emitting(known + functions_of(batched.values()), 1) as builder:

        def ascribe(f: Function) -> None:
            builder.order, builder.call = max(1, f.order), RuleCall(f.origin or f, ())

        walk = _BatchedWalk(path, batched, sizes, ascribe, diagonals)
        walk.emit_all(outputs, [collapse] * len(outputs))
        builder.order, builder.call = 1, None
        return [walk.result(y, collapse) for y in outputs]


@contained
def in_batches(
    outputs: Sequence[Variable], batched: Values, count: int, kinds: Sequence[str]
) -> list[Variable]:
    """`outputs`, each keeping its order of differentiation, with values along a leading axis of size `count`
    substituted for some leaves.

    Args:
        outputs: The Variables to compute.
        batched: The leaves that have the axis, and their values.
        count: The size of the axis.
        kinds: For each of `outputs` "each" or "sum", or "" to have the axis only if it depends on a leaf that has it.
    """
    path, _, known = path_between(outputs, [*batched], of_values=True)
    with emitting(known, 0) as builder:

        def ascribe(f: Function) -> None:
            builder.order = f.order

        walk = _BatchedWalk(path, batched, (count,), ascribe)
        walk.emit_all(outputs, [kind == "sum" for kind in kinds])
        builder.order = max([y.parent.order for y in outputs if y.parent is not None], default=0)
        return [
            walk.result(y, kind == "sum") if kind or walk.has_axis(y) else walk.plain.get(y, y)
            for y, kind in zip(outputs, kinds, strict=True)
        ]


@derived_once
def body_batched(
    body: Block, input_kinds: tuple[str, ...], count: int, wanted: tuple[int, ...], kinds: tuple[str, ...]
) -> Block:
    """Implements `Block.batched`."""
    inputs, values, _ = body.opened()
    wide = new_leaves([spec_of((count, *x.shape), x.dtype) for x in inputs])
    batched = {x: many for x, many, kind in zip(inputs, wide, input_kinds, strict=True) if kind == "each"}
    outputs = body.picked(inputs, values, wanted)
    return close(in_batches(outputs, batched, count, kinds), [batched.get(x, x) for x in inputs])


class _BatchedWalk:
    """Vectorises the functions on the path: first it finds which values of each are needed, then it emits those.

    A Variable may have three values: `plain`, without the leading axis; `each`, with it; and `sums`, over it.
    """

    def __init__(
        self,
        path: list[Function],
        batched: Values,
        sizes: Shape,
        ascribe: Callable[[Function], None],
        diagonals: Mapping[Variable, Diagonals] | None = None,
    ) -> None:
        self.path = path
        self._ascribe = ascribe
        """Attributes functions emitted from now on to a function."""
        self.sizes = sizes
        self.count = math.prod(sizes)
        self.plain: dict[Variable, Variable] = {}
        self._none: Diagonals = (None,) * len(sizes)
        diagonals_of = diagonals or dict.fromkeys(batched, self._none)
        self.each: dict[Variable, Terms] = {x: (Along(value, x, diagonals_of[x]),) for x, value in batched.items()}
        self._values: dict[tuple[Terms, Diagonals], Variable] = {}
        """The values in `each` as arrays with these diagonals."""
        self.sums: dict[Variable, Variable] = {}
        self._batched = batched
        self._moved = {*batched}
        """The Variables that have the leading axis."""
        self._each_wanted: set[Variable] = set()
        self._sum_wanted: set[Variable] = set()

    def moved(self, f: Function) -> Moved:
        """For each input of `f`, True if it has the leading axis."""
        return [x in self._moved for x in f.inputs]

    def emit_all(self, outputs: Sequence[Variable], collapsed: Sequence[bool]) -> None:
        """Emit what `outputs` need, for each element of the axis or as sums over it."""
        self._demand(outputs, collapsed)
        for f in self.path:
            self._emit(f)

    def _demand(self, outputs: Sequence[Variable], collapsed: Sequence[bool]) -> None:
        """Find out which Variables are needed for each element, and which as sums."""
        for f in self.path:
            moved = self.moved(f)
            if any(moved):
                dependences = zip(f.outputs, dependence(f.op, f.arguments, moved, len(f.specs)), strict=True)
                self._moved.update(y for y, does in dependences if does and y not in self._batched)
        for y, c in zip(outputs, collapsed, strict=True):
            (self._sum_wanted if c else self._each_wanted).add(y)
        for f in reversed(self.path):
            outs, moved = f.outputs, self.moved(f)
            needs_each = any([y in self._each_wanted for y in outs])
            if any([y in self._sum_wanted for y in outs]) and any(moved):
                if commutes(f, moved):
                    self._sum_wanted.update(x for x, m in zip(f.inputs, moved, strict=True) if m)
                    self._each_wanted.update(x for x, m in zip(f.inputs, moved, strict=True) if not m)
                elif folds(f, moved):
                    self._each_wanted.update(f.inputs)
                else:
                    self._each_wanted.update(outs)
                    needs_each = True
            if needs_each:
                self._each_wanted.update(f.inputs)

    def _emit(self, f: Function) -> None:
        """Emit the values of `f` that are needed."""
        self._ascribe(f)
        outs = [y for y in f.outputs if y not in self._batched]
        needs_each, total = (any([y in wanted for y in outs]) for wanted in (self._each_wanted, self._sum_wanted))
        if not (needs_each or total):
            return
        if f.effects:
            raise ValueError(
                f"cannot vectorize {f.op.name}, which updates a leaf at each forward(); "
                "switch its updates off (batch_stat=False in batch normalisation)"
            )
        moved = self.moved(f)
        if not any(moved):
            self._keep(f, self.plain, apply(f.op, tuple([self.plain.get(x, x) for x in f.inputs]), f.arguments))
            return
        if needs_each:
            self._keep_each(f, moved)
        if total:
            self._keep(f, self.sums, self._sum(f, moved))

    def _keep_each(self, f: Function, moved: Moved) -> None:
        """Emit `f` for each direction."""
        plain = [self.plain.get(x, x) for x in f.inputs]
        results: dict[Variable, list[Along]] = {}
        for alongs, values in additive_groups(f, self._terms(f, moved), plain, self.sizes):
            for y, along in self._each_of_group(f, alongs, values).items():
                results.setdefault(y, []).append(along)
        self.each.update({y: sum_of_terms(terms, self.sizes) for y, terms in results.items()})

    def _each_of_group(
        self, f: Function, alongs: Sequence[Along | None], plain: Sequence[Variable]
    ) -> dict[Variable, Along]:
        """The outputs of `f` for inputs along the directions, the others being `plain`."""
        result = factored(f, alongs, plain, self.sizes) or moved_out(f, alongs, plain, self.sizes)
        if result is not None:
            y = result.x
            if y in self._batched:
                return {}
            stopped = y._need_grad is False
            scale = F.unlink(result.scale) if stopped and result.scale is not None else result.scale
            return {y: result._replace(base=F.unlink(result.base) if stopped else result.base, scale=scale)}
        shared = shared_diagonals(f, alongs, plain)
        remaining = [() if along is None else carried_to(along, shared) for along in alongs]
        read = [y in self._each_wanted for y in f.outputs]
        values: dict[Variable, Variable] = {}
        self._keep(f, values, in_batch(f, self._operands_of_each(f, alongs, plain, remaining), read))
        return {y: Along(value, y, shared) for y, value in values.items()}

    def _terms(self, f: Function, moved: Moved) -> list[Terms | None]:
        """The values of the inputs of `f` along the directions, None for those without."""
        return [self.each[x] if m else None for x, m in zip(f.inputs, moved, strict=True)]

    def _operands_of_each(
        self, f: Function, alongs: Sequence[Along | None], plain: Sequence[Variable], remaining: Sequence[Diagonals]
    ) -> list[Operand]:
        """The inputs of `f`, with only the diagonals `remaining`."""
        return [
            Operand(value, x, 0) if along is None else Operand(self._as_array((along,), k), x, 1)
            for x, along, value, k in zip(f.inputs, alongs, plain, remaining, strict=True)
        ]

    def _value(self, x: Variable) -> Variable:
        """The value of `x` for each direction."""
        return self._as_array(self.each[x], self._none)

    def _as_array(self, terms: Terms, remaining: Diagonals) -> Variable:
        """The sum of terms, with only the diagonals `remaining`."""
        if (terms, remaining) not in self._values:
            builder = build_options().emitting.builder
            assert builder is not None
            order, call = builder.order, builder.call
            parent = terms[0].x.parent
            if parent is not None:
                self._ascribe(parent)
            self._values[terms, remaining] = spread_out(one_value(terms, self.sizes), self.sizes, remaining).value()
            builder.order, builder.call = order, call
        return self._values[terms, remaining]

    def _sum(self, f: Function, moved: Moved) -> Any:
        """The sum of `f`, or of each of its outputs."""
        if commutes(f, moved):
            for x, m in zip(f.inputs, moved, strict=True):
                if m:
                    self._total(x)
            operands = [
                Operand((self.sums if m else self.plain).get(x, x), x, 0) for x, m in zip(f.inputs, moved, strict=True)
            ]
            return sum_of_sums(f, operands, moved, self.count)
        if folds(f, moved):
            terms, plain = self._terms(f, moved), [self.plain.get(x, x) for x in f.inputs]
            apart = summed_product(f, terms, plain, self.sizes) if is_product(f) else None
            if apart is not None:
                return apart
            alongs = [None if several is None else one_value(several, self.sizes) for several in terms]
            if is_product(f):
                product = factored(f, alongs, plain, self.sizes)
                if product is not None:
                    return product.total()
                remaining: Sequence[Diagonals] = [self._none] * len(alongs)
            else:
                remaining = with_one_index(f, alongs)
            return folded_sum(f, self._operands_of_each(f, alongs, plain, remaining))
        totals = tuple([self._total(y) if y in self._sum_wanted and y in self._moved else None for y in f.outputs])
        return totals if f.op.multiple_results else totals[0]

    def _total(self, x: Variable) -> Variable:
        """The sum of `x`; computed here unless it was propagated."""
        if x not in self.sums:
            self.sums[x] = F.add_n(*[term.total() for term in self.each[x]])
        return self.sums[x]

    def _keep(self, f: Function, values: dict[Variable, Variable], results: Any) -> None:
        """Enter the values of the outputs of `f`; gradients stop where they did before."""
        for y, value in zip(f.outputs, results if f.op.multiple_results else (results,), strict=True):
            if value is not None and y not in self._batched:
                table = values if y in self._moved else self.plain
                table[y] = F.unlink(value) if y._need_grad is False else value

    def has_axis(self, y: Variable) -> bool:
        """True if `y` depends on a Variable with the leading axis."""
        return y in self._moved

    def result(self, y: Variable, collapsed: bool) -> Variable:
        """The value of an output, in its full shape."""
        if y in self._moved:
            value = self._total(y) if collapsed else self._value(y)
            return Operand(value, y, 0 if collapsed else 1).widened()
        value = Operand(self.plain.get(y, y), y, 0).full((self.count,))
        result: Variable = F.sum(value, axis=0) if collapsed else value
        return result


provide(engine, {"body_batched": body_batched})
