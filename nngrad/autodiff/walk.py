"""Grad: the traversal that turns a forward graph into the graph of its gradients."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any

import nngrad.functions as F
from backward_registry import OWN, Registry, missing, registry
from backward_registry.spectral_limits import Near

from ..functions.array import in_dtype, zeros_like
from ..functions.spectra import arbitrary
from ..graph import Function, RuleCall, Spec, Variable, build_options, by_rank, contained, functions_of, path_between
from ..graph.options import Builder, pause_collector, users_code_runs
from ..rewrite.builder import emitting
from ..rewrite.masks import reduced, summed, through_masks
from ..rewrite.numbers import grad_end, is_exact, is_zero

Gradients = dict[int, list[Variable]]
"""The gradients that have arrived at a Variable, by its id."""

Retained = list[tuple[Variable, Variable]]
"""Variables on the path, each with its gradient."""

Outputs = tuple[Variable, ...]
Equal = dict[Function, tuple[Outputs, Outputs]]
"""For a function, its own outputs, and those of an equal function that comes before it."""


class Grad:
    """Traverses a graph from its outputs back to its inputs, and emits the graph of the gradients.

    Functions are visited by descending rank, so that all functions that read an output come before the one that
    computes it. The rule of each is looked up and called on the sums of the gradients that arrived; its results arrive
    at the inputs. Everything but calculus is done here and not in rules: sums over fan-out and over broadcast axes,
    casts, zeros, and stopping where no gradient is wanted.

    Args:
        rules: The registry of backward rules.
        stop_ids: Ids of Variables that no gradient passes, besides those with `need_grad` set to False.
        retained: A list to fill with every Variable on the path and its gradient.
        equal: Functions that equal ones before them replace, with the outputs of both.
        in_body: Whether the seeds are arguments, which may depend on the outputs in ways that cannot be seen.
        depth: The number of calls of `pushed_in_reverse` around it.
    """

    def __init__(
        self,
        rules: Registry = registry,
        stop_ids: frozenset[int] = frozenset(),
        retained: Retained | None = None,
        equal: Equal | None = None,
        in_body: bool = False,
        depth: int = 0,
    ) -> None:
        self.rules, self.in_body, self.depth = rules, in_body, depth
        self.place = rules.place
        self.stop_ids = stop_ids
        self.retained = retained
        self.equal = equal or {}

    @contained
    def __call__(
        self, outputs: Sequence[Variable], inputs: Sequence[Variable], seeds: Sequence[Variable | None]
    ) -> list[Variable]:
        """The sum over `outputs` of their gradients with respect to each of `inputs`.

        Args:
            outputs: The Variables to differentiate.
            inputs: The Variables to differentiate by.
            seeds: Gradient at each output; None for ones.
        """
        pause_collector()
        path, active, known = path_between(outputs, inputs, stop_ids=self.stop_ids)
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
        """The gradients, from the functions on some path, by ascending rank, and the ids of the Variables there."""
        keep, outer = build_options().watched, builder.call
        masked_from = min([f.rank for f in path if not f.op.linear or f.op.unbounded], default=math.inf)
        arrived: Gradients = {}
        for y, seed in zip(outputs, seeds, strict=True):
            if id(y) in active:
                arrived.setdefault(id(y), []).append(ones(builder, y.spec) if seed is None else seed)
        for f in reversed(path):
            if f in self.equal:
                for y, same in zip(*self.equal[f], strict=True):
                    hand_on(arrived, y, id(same))
                continue
            gys = self.arrived_at(f, arrived)
            if gys is not None:
                # A rule that calls `grad` is still one rule. Hooks that watch are shown the gradients.
                builder.call = outer or RuleCall(f, gys if keep else (None,) * len(gys), keep)
                masked = f.rank >= masked_from
                gxs = self.pulled(f, gys, outputs, active, arrived, masked)
                for x, gx in zip(f.inputs, gxs, strict=True):
                    if gx is not None and id(x) in active and x.spec.differentiable and not is_zero(gx):
                        arrived.setdefault(id(x), []).append(gx if gx.spec is x.spec else in_form_of(x, gx, masked))
                builder.call = outer
        if self.retained is not None:
            on_the_way = {id(y): y for f in path for y in f.outputs} | {id(x): x for x in (*outputs, *inputs)}
            totals = [(x, self.total(arrived, x)) for x in on_the_way.values()]
            self.retained += [(x, gx) for x, gx in totals if gx is not None]
        return [zeros_like(x) if gx is None else gx for x in inputs for gx in [self.total(arrived, x)]]

    def arrived_at(self, f: Function, arrived: Gradients) -> list[Variable | None] | None:
        """The gradient at each output of `f`, None where none may pass or has arrived; None if that holds for all."""
        ref, stop_ids = f._output, self.stop_ids
        if ref.__class__ is not tuple:  # a short cut for most functions
            y = ref()
            gys = arrived.get(id(y))
            if gys is None or y is None or y._need_grad is False or id(y) in stop_ids:
                return None
            return [gys[0] if len(gys) == 1 else self.total(arrived, y)]
        several = [None if y._need_grad is False or id(y) in stop_ids else self.total(arrived, y) for y in f.outputs]
        return several if any([gy is not None for gy in several]) else None

    def total(self, arrived: Gradients, x: Variable) -> Variable | None:
        """The sum of the gradients that have arrived at `x`, as one function."""
        gxs = arrived.get(id(x))
        if gxs is None:
            return None
        if len(gxs) > 1:
            # In order of availability, so that only the last addition waits for the last gradient: two cores then
            # finish a step with several branches a tenth sooner.
            gxs = sorted(gxs, key=by_rank)
            arrived[id(x)] = gxs = [sum_of(gxs)]
        return gxs[0]

    def pulled(
        self,
        f: Function,
        gys: list[Variable | None],
        outputs: Sequence[Variable],
        active: set[int],
        arrived: Gradients,
        masked: bool = True,
    ) -> Sequence[Any]:
        """One gradient per input of `f`, from its rule; an output at which nothing arrived counts as zero. If `masked`,
        selections of gradients stay outermost."""
        rule = f.op.rules.get(self.place)
        if rule is None:
            raise missing(f.op, described_path(outputs, f))
        if not rule.module.startswith(OWN):
            users_code_runs()
        filled: Any = gys
        if len(gys) > 1 or gys[0] is None:
            filled = [zeros_like(y) if gy is None else gy for y, gy in zip(f.outputs, gys, strict=True)]
        try:
            if rule.limits is not None:
                functions = functions_of(outputs)
                equal = self.equal or duplicate_functions(functions, ())
                pushed = functools.partial(pushed_in_reverse, self)
                near = Near(pushed, self.in_body, f, rule.spectral, outputs, functions, equal)
                returned = rule.limits(f, gys, near)
            elif rule.accumulate is not None:
                returned = self.accumulated(rule.accumulate, f, filled, active, arrived)
            elif masked and filled[0].parent is not None and filled[0].parent.inputs:
                returned = through_masks(rule, f, filled)
            else:  # nothing is masked where a gradient starts
                returned = rule.function(f, *filled)
            gxs = returned if isinstance(returned, _SEVERAL) else (returned,)
            fit = len(gxs) == len(f.inputs)
            for x, gx in zip(f.inputs, gxs, strict=False):
                fit = fit and (gx is None or (gx.__class__ is Variable and gx.spec is x.spec))
            if not fit:
                check_gradients(f, gxs)
        except Exception as error:
            error.add_note(f"in the backward rule of {f.op.name} ({rule.module}), for {f!r}")
            if hasattr(f, "location"):
                error.add_note(f"{f.op.name} was called at {f.location}")
            raise
        return gxs

    def accumulated(
        self, accumulate: Callable[..., Any], f: Function, gys: list[Variable], active: set[int], arrived: Gradients
    ) -> Any:
        """The gradients from a rule that is told which are wanted, and may add to gradients that have arrived."""

        def take(i: int) -> Variable | None:
            gx = self.total(arrived, f.inputs[i])
            arrived.pop(id(f.inputs[i]), None)
            return gx

        indexes = tuple([i for i, x in enumerate(f.inputs) if id(x) in active and x.spec.differentiable])
        return accumulate(f, gys, indexes, take)


def pushed_in_reverse(
    walk: Grad, outputs: Sequence[Variable], inputs: Sequence[Variable], tangents: Sequence[Variable],
    stop_ids: frozenset[int],
) -> list[Variable]:  # fmt: skip
    """The derivatives of `outputs` as `inputs` move along `tangents`, without a tangent of any single function: the
    gradients at the inputs are linear in those at the outputs, and this map is transposed. So the latter may be any
    numbers; rules with limits test on them whether what must vanish for all of them does."""
    first = 1000 * walk.depth  # so that they are not those of another such call around this one
    seeds = [arbitrary(shape=y.shape, number=first + i, dtype=y.dtype.name) for i, y in enumerate(outputs)]
    there = Grad(walk.rules, stop_ids=stop_ids, in_body=walk.in_body, depth=walk.depth + 1)
    return Grad(walk.rules)(there(outputs, inputs, seeds), seeds, tangents)


def is_estimate(f: Function) -> bool:
    """True if the rule of a function is deliberately not its derivative, as that of rounding."""
    rule = f.op.rules.get(registry.place)
    return rule is not None and not rule.exact


def hand_on(arrived: Gradients, x: Variable, to: int) -> None:
    """Move the gradients that have arrived at `x` to the Variable with the id `to`."""
    if id(x) in arrived:
        arrived.setdefault(to, []).extend(arrived.pop(id(x)))


def order_of(path: Iterable[Function]) -> int:
    """The order of differentiation of gradients along `path`."""
    return 1 + max([f.order for f in path], default=0)


_SEVERAL = (tuple, list)


def ones(builder: Builder, spec: Spec) -> Variable:
    """The gradient of an output with respect to itself: the start of a gradient graph."""
    y: Variable = builder.emit(grad_end, (), (spec.shape, spec.dtype), spec.alone)
    return y


def sum_of(gradients: list[Variable]) -> Variable:
    """The sum of gradients of one Variable; masks shared by all of them stay outermost."""
    return summed(gradients, sum_of_all)


def sum_of_all(gradients: list[Variable]) -> Variable:
    """The plain sum of gradients."""
    total: Variable = F.add2(*gradients) if len(gradients) == 2 else F.add_n(*gradients)
    return total


# ---------------------------------------------------------------- equal functions


def duplicate_functions(functions: Iterable[Function], fixed: Container[int]) -> Equal:
    """The functions that compute the same as others before them; empty if something watches or simplification is off.

    A program that recomputes a value wherever it is needed, such as the lengths of edges in each layer, contains it
    more than once, and so do gradients that were requested one by one. The compiler merges the copies. But the gradient
    of two equal functions takes more than that of one: two gradients arrive, each with its own matrix products, where
    their sum would do. So the reverse pass moves the gradients of the one to the other. This excludes infinite numbers
    and signed zeros: there the gradient of a sum is not the sum of two. With NaN it is, and `F.gather` returns NaN for
    indices outside.

    Args:
        functions: All functions that are computed, by ascending rank.
        fixed: Ids of Variables to keep separate.
    """
    first_of: dict[tuple[Any, ...], Function] = {}
    same: dict[int, Variable] = {}
    equal: Equal = {}
    options = build_options()
    if options.emitting.simplify is not True or options.watched:
        return equal
    for f in functions:
        if f.effects or f.mark is not None:
            continue
        inputs = tuple([same.get(id(x), x) for x in f.inputs]) if same else f.inputs
        key = f.op, f.arguments, f.context, inputs
        first = first_of.setdefault(key, f)
        if first is f or any([not is_exact(a) and a == a for a in f.arguments if isinstance(a, int | float)]):
            continue
        rule = registry.find(f.op)
        if rule is None or not rule.exact:  # a nonlinear rule maps a sum to something else
            continue
        outputs, shared = f.outputs, first.outputs
        if _alone(shared, fixed):
            first_of[key] = f
        elif not _alone(outputs, fixed):
            equal[f] = outputs, shared
            same.update(zip(map(id, outputs), shared, strict=True))
    return equal


def _alone(outputs: Outputs, fixed: Container[int]) -> bool:
    """True if some of the outputs must be kept separate."""
    return any([id(y) in fixed or y._need_grad is False for y in outputs])


# ---------------------------------------------------------------- what rules return


def check_gradients(f: Function, gxs: Sequence[Any]) -> None:
    """Raise unless there is a Variable or None for each input of `f`, of its shape and of a floating dtype.

    An op that broadcasts may give gradients of its output's shape, which are summed back.
    """
    if len(gxs) != len(f.inputs):
        names = ", ".join(f.op.names_of(len(f.inputs)))
        raise ValueError(
            f"{f.op.name}: its rule must return one gradient for each of its {len(f.inputs)} inputs ({names}), None "
            f"for zero, got {len(gxs)}"
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
            raise TypeError(f"{f.op.name}: its rule must return a floating dtype for {what}, got {gx.spec}")
        if gx.shape != x.shape and not (f.op.broadcasts and gx.shape == f.specs[0].shape):
            raise ValueError(f"{f.op.name}: its rule must return shape {x.shape} for {what}, got shape {gx.shape}")


def in_form_of(x: Variable, gx: Variable, masked: bool) -> Variable:
    """`gx` in the shape and dtype of `x`: a broadcasting op's gradient is summed over the broadcast axes."""
    if gx.shape != x.shape:
        gx = reduced(gx, x.shape, masked and x.parent is not None)
    return in_dtype(gx, x.spec.dtype)


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
