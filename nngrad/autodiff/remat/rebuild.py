"""A gradient graph built anew, which reads some forward values from recomputations and not from the forward pass."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Any, NamedTuple

import nngrad.functions as F

from ...graph import Function, Variable, by_rank, functions_of
from .costs import reads
from .plan import NEVER, BackwardSchedule, Node, Plan, created_like


class Rebuilt(NamedTuple):
    """What came of a plan."""

    gradients: list[Variable]
    again: list[Function]
    """The functions that compute something again."""
    sums_split: bool
    """Whether sums of gradients were split into partial ones."""


class Sweep:
    """Recomputations that begin at one moment of the backward pass: what `node` needs, from what was kept before it."""

    __slots__ = ("end", "first", "made", "outer", "tied", "tokens", "values")

    def __init__(self, node: Node, outer: Sweep | None, tokens: list[Variable]) -> None:
        self.first, self.end = node.first, node.end
        self.outer = outer
        self.tokens = tokens
        """Gradients that must have arrived before it begins."""
        self.values: dict[Function, tuple[Variable, ...]] = {}
        """What stands for the outputs of a forward function."""
        self.made: set[Function] = set()
        """The new functions."""
        self.tied: dict[Variable, Variable] = {}
        """Inputs from before it, as they are after the tokens."""


def rebuild(
    forward: Iterable[Function],
    outputs: Sequence[Variable],
    gradients: list[Variable],
    plan: Plan,
    mark: Any = None,
    readers: Container[Function] | None = None,
    awaited: Sequence[Variable] = (),
) -> Rebuilt:
    """The same gradients by a graph that follows `plan`.

    Args:
        forward: The functions that are there apart from the gradients.
        outputs: What was differentiated.
        gradients: The gradients' graph as it was emitted.
        plan: What is computed again.
        mark: The mark of the functions that compute it.
        readers: The emitted functions that are to read what is computed again; None for all.
        awaited: What must have been computed before anything is computed again.
    """
    known = set(forward)
    emitted = [f for f in functions_of(gradients) if f not in known]
    rest: list[Function] = []
    if readers is not None:
        emitted, rest = [f for f in emitted if f in readers], [f for f in emitted if f not in readers]
    return _Rebuilding(outputs, emitted, rest, gradients, plan, mark, awaited).run()


class _Rebuilding:
    def __init__(
        self,
        outputs: Sequence[Variable],
        emitted: list[Function],
        rest: list[Function],
        gradients: list[Variable],
        plan: Plan,
        mark: Any,
        awaited: Sequence[Variable],
    ) -> None:
        self._plan = plan
        self._mark = mark
        self._awaited = awaited
        self._outputs = outputs
        self._rest = rest
        """Emitted functions that read nothing that is computed again but by way of others."""
        self._gradients = gradients
        self._again: list[Function] = []
        self._clones: dict[tuple[Any, ...], tuple[Variable, ...]] = {}
        """By op, arguments and inputs."""
        self._latest: dict[Function, tuple[Variable, ...]] = {}
        """What last stood for the outputs of a forward function."""
        self._bases: dict[Function, Sweep] = {}
        """Where the values are that a segment was computed again from, by the functions that compute them."""
        self._marked: dict[tuple[Variable, Variable], Variable] = {}
        """Recomputed values, by themselves and what they are in place of."""
        self._new: dict[Function, tuple[Variable, ...]] = {}
        """Outputs of the new functions, by the emitted ones that they replace."""
        self._schedule = BackwardSchedule(plan, emitted)

    def run(self) -> Rebuilt:
        """Go back through the segments."""
        root = Sweep(self._plan.tree, None, [])
        stack: list[tuple[Node, Sweep, bool]] = [(self._plan.tree, root, False)]
        while stack:
            node, sweep, apart = stack.pop()
            if apart:
                sweep = Sweep(node, sweep, self._tokens(node.end))
            if node.parts:
                stack += [(part, sweep, True) for part in node.parts[:-1]]
                stack.append((node.parts[-1], sweep, False))
            else:
                for segment in range(node.end - 1, node.first - 1, -1):
                    self._renew(segment, sweep)
        self._carry_on()
        gradients = [self._now(self._schedule.split(gx)) for gx in self._gradients]
        return Rebuilt(gradients, self._again, self._schedule.sums_split)

    # ---------------------------------------------------------------- the gradients' functions

    def _now(self, x: Variable) -> Variable:
        new = None if x.parent is None else self._new.get(x.parent)
        return x if new is None else new[x.index]

    def _renew(self, segment: int, sweep: Sweep) -> None:
        """Build the functions of the backward pass that belong to `segment` anew, on what `sweep` has."""
        for e in self._schedule.of_segment.get(segment, ()):
            inputs = tuple([self._input(self._schedule.split(x), sweep, e) for x in e.inputs])
            if any([new is not old for new, old in zip(inputs, e.inputs, strict=True)]):
                self._new[e] = created_like(e, e.op, inputs, e.arguments)

    def _carry_on(self) -> None:
        """Build the functions anew that only depend on others that were."""
        for e in self._rest:
            inputs = tuple([self._now(self._schedule.split(x)) for x in e.inputs])
            if any([new is not old for new, old in zip(inputs, e.inputs, strict=True)]):
                new = self._new[e] = created_like(e, e.op, inputs, e.arguments)
                new[0].parent.mark = e.mark  # type: ignore[union-attr]

    def _input(self, x: Variable, sweep: Sweep, reader: Function) -> Variable:
        if x.parent not in self._plan.dropped:
            return self._now(x)
        value = self._value(x, sweep)
        if value is x:
            return x
        marked = self._marked.get((value, x))
        if marked is None:
            marked = self._marked[value, x] = created_like(reader, F.recomputed, (value, x))[0]
        return marked

    def _tokens(self, end: int) -> list[Variable]:
        """The gradients that have arrived at the end of a stretch; what was differentiated where none has."""
        tokens = [self._now(x) for x in self._schedule.arriving(end)]
        return [*tokens, *self._awaited] or [y for y in self._outputs if y.parent is not None and y.size][:1]

    # ---------------------------------------------------------------- forward values

    def _value(self, x: Variable, sweep: Sweep) -> Variable:
        """Returns what stands for the forward value `x` in `sweep`."""
        f = x.parent
        if f is None or f not in self._plan.dropped:
            return x
        original = self._plan.originals.get(f)
        if original is not None:
            f, x = original, original.outputs[x.index]
            if f not in self._plan.dropped:
                return x
        segment = self._plan.segment[f]
        if segment >= sweep.end:
            # Of a segment whose turn is over: what it was computed as then.
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
        """Compute `f` again in `sweep`, and all that it needs for that."""
        needed = {f}
        stack = [f]
        while stack:
            for x in reads(stack.pop()):
                p = x.parent
                if p is not None:
                    p = self._plan.originals.get(p, p)
                if (
                    p in self._plan.dropped
                    and p not in needed
                    and p not in sweep.values
                    and sweep.first <= self._plan.segment[p] < sweep.end
                ):
                    needed.add(p)
                    stack.append(p)
        for g in sorted(needed, key=by_rank):
            self._latest[g] = sweep.values[g] = self._clone(g, sweep)

    def _clone(self, g: Function, sweep: Sweep) -> tuple[Variable, ...]:
        inputs = [self._value(x, sweep) for x in reads(g)]
        if g.op.forwards_inputs or g.op.reads is not None:
            return (inputs[0], *g.outputs[1:])
        if not any([x.parent in sweep.made for x in inputs]):
            # Without this it would be the same function as one of those that are there already.
            i = min(range(len(inputs)), key=lambda i: inputs[i].spec.nbytes or NEVER)
            inputs[i] = self._tied(inputs[i], g, sweep)
        # What computes something again already may have the same clone as that which it computes.
        same = (g.op, g.arguments, *inputs)
        new = self._clones.get(same)
        known = new is not None
        if new is None:
            new = self._clones[same] = created_like(g, g.op, tuple(inputs), g.arguments)
        clone = new[0].parent
        assert clone is not None
        sweep.made.add(clone)
        if not known:
            clone.mark = self._mark
            self._again.append(clone)
        for old, y in zip(g.outputs, new, strict=True):
            if old._need_grad is False:
                y.need_grad = False
        return new

    def _tied(self, x: Variable, g: Function, sweep: Sweep) -> Variable:
        """`x`, known only after the tokens of `sweep`."""
        tied = sweep.tied.get(x)
        if tied is None:
            tied = sweep.tied[x] = created_like(g, F.optimization_barrier, (x, *sweep.tokens))[0]
        return tied
