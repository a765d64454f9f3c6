"""Rebuild a gradient graph so that it reads some forward values from recomputations instead of the forward pass.

A recomputation waits for gradients that must have arrived (`functions/control.py`). The gradient reads
`F.recomputed(clone, original)`, whose own gradient passes to the original: further derivatives are those of the plain
graph.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import nngrad.functions as F

from ..extend import Function, Op, RuleCall, Variable, create, functions_of
from ..functions.control import Recomputation, computed_again, input_passed_on
from .plan import Node, Plan, reads

Outputs = tuple[Variable, ...]


class Rebuilt(NamedTuple):
    """A gradient graph rebuilt by a plan."""

    gradients: list[Variable]
    again: list[Function]
    """The recomputing functions."""
    sums_split: bool
    """Whether sums of gradients were split: where weights are shared, keeping bases saves a few percent at most."""


class Sweep:
    """Recomputations that begin at one moment of the backward pass: of the values `node` needs, from values kept before
    it."""

    def __init__(self, node: Node, outer: Sweep | None, tokens: list[Variable]) -> None:
        self.first, self.end = node.first, node.end
        self.outer = outer
        self.recomputation = Recomputation(tokens)
        self.values: dict[Function, Outputs] = {}
        """The recomputed outputs of forward functions."""
        self.made: set[Function | None] = set()
        """The new functions."""


class _Renewed:
    """Functions that are rebuilt because their inputs are replaced, and the replacements of their outputs."""

    def __init__(self) -> None:
        self.instead: dict[Function, Outputs] = {}
        self._made: dict[Hashable, Outputs] = {}
        """By op, arguments and inputs."""

    def now(self, x: Variable) -> Variable:
        """The replacement of `x`, or `x`."""
        new = None if x.parent is None else self.instead.get(x.parent)
        return x if new is None else new[x.index]

    def renew(self, f: Function, inputs: Outputs) -> None:
        """Make `f` read `inputs`. From then on, functions that differed only by reading a value or its recomputation
        are one."""
        if not inputs:
            return
        stops = [y.index for y in f.outputs if y.need_grad_set is False]
        key = f.op, f.arguments, inputs
        if not stops and key in self._made:
            self.instead[f] = self._made[key]
        elif any([new is not old for new, old in zip(inputs, f.inputs, strict=True)]):
            outputs = self.instead[f] = created_like(f, f.op, inputs, f.arguments, f.mark)
            for k in stops:
                outputs[k].need_grad = False
        if not stops:
            self._made.setdefault(key, self.instead.get(f, f.outputs))


class _Rebuilding(_Renewed):
    """A gradient graph while it is rebuilt by a plan; see `rebuild`."""

    def __init__(self, plan: Plan, passing: BackwardPass, mark: Any, outputs: Sequence[Variable]) -> None:
        super().__init__()
        self._plan, self._pass, self._mark, self._outputs = plan, passing, mark, outputs
        self.again: list[Function] = []
        self._clones: dict[Hashable, Outputs] = {}
        """By op, arguments and inputs."""
        self._latest: dict[Function, Outputs] = {}
        """The latest recomputed outputs of forward functions."""
        self._bases: dict[Function, Sweep] = {}
        """The sweeps with the values that a segment was recomputed from, by the functions that compute them."""
        self._marked: dict[tuple[Variable, Variable], Variable] = {}
        """`F.recomputed` values, by the recomputed value and the original."""

    def run(self) -> None:
        """Go back through the segments."""
        stack = [(self._plan.tree, Sweep(self._plan.tree, None, []), False)]
        while stack:
            node, sweep, apart = stack.pop()
            if apart:
                tokens = list(map(self.now, self._pass.arriving(node.end)))
                sweep = Sweep(node, sweep, tokens or [y for y in self._outputs if y.parent is not None and y.size][:1])
            if node.parts:
                stack += [(part, sweep, True) for part in node.parts[:-1]]
                stack.append((node.parts[-1], sweep, False))
            else:
                for segment in range(node.end - 1, node.first - 1, -1):
                    self._of_segment(segment, sweep)

    def _of_segment(self, segment: int, sweep: Sweep) -> None:
        """Rebuild the functions of the backward pass that wait for a segment, reading from `sweep`."""
        for e in self._pass.of_segment.get(segment, ()):
            self.renew(e, tuple([self._input(self._pass.split(x), sweep, e) for x in e.inputs]))

    def _input(self, x: Variable, sweep: Sweep, reader: Function) -> Variable:
        if x.parent not in self._plan.dropped:
            return self.now(x)
        value = self._value(x, sweep)
        if value is not x and (value, x) not in self._marked:
            self._marked[value, x] = created_like(reader, F.recomputed, (value, x))[0]
        return self._marked.get((value, x), x)

    # ---------------------------------------------------------------- forward values

    def _value(self, x: Variable, sweep: Sweep) -> Variable:
        """The replacement of the forward value `x` in `sweep`."""
        f = x.parent
        if f not in self._plan.dropped:
            return x
        segment = self._plan.segment[f]
        if segment >= sweep.end:
            # This segment is finished: use its last recomputed value.
            later = self._latest.get(f)
            return x if later is None else later[x.index]
        inner = sweep
        while segment < sweep.first and sweep.outer is not None:
            sweep = sweep.outer
        if segment == inner.first - 1 and self._plan.bases_stay:
            self._bases[f] = sweep
        elif sweep.outer is not None and self._bases.get(f) is sweep.outer:
            sweep = sweep.outer
        if sweep.outer is None:
            return x
        if f not in sweep.values:
            self._compute(f, sweep)
        return sweep.values[f][x.index]

    def _compute(self, f: Function, sweep: Sweep) -> None:
        """Recompute `f` in `sweep`, with everything it needs."""
        plan, needed, stack = self._plan, {f}, [f]
        while stack:
            for x in reads(stack.pop()):
                p = x.parent
                if p in plan.dropped and p not in needed and p not in sweep.values:
                    assert p is not None
                    if sweep.first <= plan.segment[p] < sweep.end:
                        needed.add(p)
                        stack.append(p)
        for g in sorted(needed, key=attrgetter("rank")):
            self._latest[g] = sweep.values[g] = self._clone(g, sweep)

    def _clone(self, g: Function, sweep: Sweep) -> Outputs:
        inputs = [self._value(x, sweep) for x in reads(g)]
        if g.op.forwards_inputs or input_passed_on(g.op) is not None:
            return (inputs[0], *g.outputs[1:])
        if not any([x.parent in sweep.made for x in inputs]):
            inputs = sweep.recomputation.begun(
                inputs, range(len(inputs)), lambda inputs: created_like(g, F.optimization_barrier, inputs)[0]
            )
        taken = (*inputs, *g.inputs[len(inputs) :])  # no value depends on those that it does not read
        # A function that already recomputes may have the same clone as its original.
        key = g.op, g.arguments, taken
        if key not in self._clones:
            self._clones[key] = created_like(g, g.op, taken, g.arguments, self._mark)
            self.again.append(self._clones[key][0].parent)  # type: ignore[arg-type]
        new = self._clones[key]
        sweep.made.add(new[0].parent)
        for old, y in zip(g.outputs, new, strict=True):
            if old.need_grad_set is False:
                y.need_grad = False
        return new


def rebuild(
    forward: Iterable[Function],
    outputs: Sequence[Variable],
    gradients: list[Variable],
    plan: Plan,
    mark: Any = None,
) -> Rebuilt:
    """Rebuild gradients as a graph that follows `plan`.

    Args:
        forward: The functions that exist apart from the gradients.
        outputs: The differentiated Variables.
        gradients: The gradients, as emitted.
        plan: The plan.
        mark: The mark of recomputing functions.
    """
    known = set(forward)
    passing = BackwardPass(plan, [f for f in functions_of(gradients) if f not in known], gradients)
    rebuilding = _Rebuilding(plan, passing, mark, outputs)
    rebuilding.run()
    rebuilt = [rebuilding.now(passing.split(gx)) for gx in gradients]
    return Rebuilt(rebuilt, rebuilding.again, bool(passing.sums))


# ---------------------------------------------------------------- gradients of gradients with recomputation


def contains_recomputed(functions: Iterable[Function]) -> bool:
    """True if there are recomputing functions among `functions`."""
    return any([computed_again(f) is not None for f in functions])


def reading_originals(known: Sequence[Function], gradients: Sequence[Variable]) -> list[Variable]:
    """The same gradients with recomputed values of `known` replaced by their originals.

    If a graph contains a rematerialised gradient, a further gradient reads values of both kinds: the part for the first
    gradient's functions reads the values that these read, which were recomputed for them, and the part for the model
    reads the model's own values. Both would be kept, which is more than the plain graph keeps. As the values are equal,
    one is enough.

    Args:
        known: The functions that existed before, in topological order.
        gradients: The gradients, as emitted.
    """
    reading = _Renewed()
    for f in known:
        pair = computed_again(f)
        if pair is not None:
            reading.instead[f] = (reading.now(pair[1]),)
        elif f.order and f.op.fuses and any([x.parent in reading.instead for x in f.inputs]):
            # A part of an elementwise expression of a recomputed value, such as g * (1 - tanh(x)^2). Emitted functions
            # share it. If XLA recomputes it for them, it reads the recomputed value.
            reading.renew(f, tuple(map(reading.now, f.inputs)))
    before = frozenset(known)
    for f in functions_of(gradients):
        if f not in before:
            reading.renew(f, tuple(map(reading.now, f.inputs)))
    return list(map(reading.now, gradients))


NEVER = 1 << 60
"""The stage of functions that depend on no recomputation."""

_CONSTANT = NEVER + 1
"""The stage of functions that depend on no input at all."""


def created_like(
    f: Function, op: Op, inputs: tuple[Variable, ...], arguments: tuple[Any, ...] = (), mark: Any = None
) -> tuple[Variable, ...]:
    """The outputs of `op` on `inputs`, made in the context of `f`, of its order, and updating no leaf."""
    origin = f.origin if f.order else f  # a sum of gradients was emitted for no function
    result = create(op, inputs, arguments, (), None if origin is None else RuleCall(origin, ()), f.order)
    outputs: tuple[Variable, ...] = result if isinstance(result, tuple) else (result,)
    new = outputs[0].parent
    assert new is not None
    new.context, new.mark = f.context, mark
    return outputs


class BackwardPass:
    """The functions of a backward pass by stage.

    The *stage* of a function is the first of the segments (in forward order) whose recomputed values it depends on. So
    it can run once that segment, and before it all later ones, have been recomputed.

    Args:
        plan: The plan.
        emitted: The functions of the backward pass, in topological order.
        gradients: Its results.
    """

    def __init__(self, plan: Plan, emitted: list[Function], gradients: Sequence[Variable]) -> None:
        self._plan = plan
        self._readers = Counter([*gradients, *[x for f in emitted for x in f.inputs]])
        self._stage: dict[Function, int] = {}
        self.sums: dict[Function, Variable] = {}
        """The last of the partial sums that replace a sum of gradients."""
        self.of_segment: dict[int, list[Function]] = {}
        """The functions that wait for a segment, in topological order."""
        lowest: dict[Variable, int] = {}
        for f in emitted:
            for g in self._parts(f):
                inputs = [self.split(x) for x in g.inputs]
                stage = self._stage[g] = min(map(self._stage_of, inputs), default=_CONSTANT)
                self.of_segment.setdefault(stage, []).append(g)
                for x in inputs:
                    if x.parent in self._stage:
                        lowest[x] = min(stage, lowest.get(x, stage))
        spans = [(self._stage[x.parent], low, x) for x, low in lowest.items()]  # type: ignore[index]
        self._spans = [(first, low, x) for first, low, x in spans if low < first <= NEVER and x.size]

    def split(self, x: Variable) -> Variable:
        """`x`, or the last of the partial sums that replace it."""
        return x if x.parent is None else self.sums.get(x.parent, x)

    def arriving(self, end: int) -> list[Variable]:
        """Gradients that pass from the segments from `end` on to earlier ones: computed without any of the latter."""
        return [x for first, low, x in self._spans if low < end <= first]

    def _stage_of(self, x: Variable) -> int:
        f = x.parent
        if f in self._stage:
            return self._stage[f]
        return self._plan.segment[f] if f in self._plan.dropped else NEVER

    def _parts(self, f: Function) -> list[Function]:
        """`f`; or, if it sums gradients of several stages, or several products, the functions that add them up as they
        come.

        A parameter that is used at every step of a long sequence gets gradients from all of them. If they were summed
        at the end, all terms would be alive until then. So a product that only this sum reads waits until those before
        it have been added.
        """
        terms: dict[tuple[int, int], list[Variable]] = {}
        for x in map(self.split, f.inputs if f.op is F.add_n else ()):
            terms.setdefault((-min(NEVER, self._stage_of(x)), self._turn(x)), []).append(x)
        if len(terms) < 2:
            return [f]
        parts: list[Function] = []

        def made(like: Function, op: Op, inputs: Outputs, arguments: tuple[Any, ...] = ()) -> Variable:
            (y,) = created_like(like, op, inputs, arguments, like.mark)
            parts.append(y.parent)  # type: ignore[arg-type]
            return y

        total: list[Variable] = []
        for stage, turn in sorted(terms):
            for x in terms[stage, turn]:
                p = x.parent
                if turn and parts and p is not None:
                    k = min(range(len(p.inputs)), key=lambda k: p.inputs[k].spec.nbytes)
                    begun = made(p, F.optimization_barrier, (p.inputs[k], *total[:1]))
                    x = made(p, p.op, (*p.inputs[:k], begun, *p.inputs[k + 1 :]), p.arguments)
                total.append(x)
            if len(total) > 1:
                total = [made(f, F.add2 if len(total) == 2 else F.add_n, tuple(total))]
        self.sums[f] = total[0]
        return parts

    def _turn(self, x: Variable) -> int:
        """When a product is added to the sum that alone reads it; 0 for other terms."""
        f = x.parent
        if f is None or f not in self._stage or not f.heavy or len(f.specs) > 1:
            return 0
        return f.rank if self._readers[x] == 1 and x.need_grad_set is not False else 0
