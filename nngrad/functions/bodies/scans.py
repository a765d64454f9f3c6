"""Loops with a known number of steps: one function, whose gradient is a loop over the gradient of its body."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import lax

from ...graph import Array, Function, Spec, Variable, apply, build_options
from ...graph.arguments import Static
from ...graph.block import Block
from ...graph.body_op import (
    Anew,
    Axes,
    ControlOp,
    Followed,
    FusedFunctions,
    Given,
    Gradients,
    Numbers,
    Results,
    Smaller,
    Steps,
    Walk,
    Within,
    in_place_of,
)
from ...graph.closing import close, derived_once
from ..operands import Operand, size_of
from ..shaping import swapaxes
from . import fusion, segments
from .carries import Carried, kinds_of
from .derived_bodies import operations_in
from .loop import AT_ONCE, Loop, Settled, settled


class Scan(ControlOp):
    """A loop that carries values from step to step and stacks the outputs of each step."""

    is_loop = True

    def result_specs(self, inputs: tuple[Spec, ...], arguments: tuple[Any, ...]) -> tuple[Spec, ...]:
        """Shape and dtype of each output."""
        loop = Loop(*arguments)
        finals = [loop.body.spec(number) for number in loop.body.outputs[: loop.carries]]
        return (*finals, *[loop.stack_spec(number) for number in loop.stacked], *loop.start_specs())

    def results_for_users(self, arguments: tuple[Any, ...]) -> int:
        """Final carries and stacks."""
        return Loop(*arguments).results

    def operations(self, f: Function) -> int:
        """The approximate number of operations of all steps."""
        loop = Loop(*f.arguments)
        return loop.length * operations_in(loop.body)

    def steps_to_cut(self, f: Function) -> int:
        """The number of steps; 0 if the gradient recomputes segments anyway."""
        loop = Loop(*f.arguments)
        by_segments = f.order and any([in_place_of(op, static) is not None for op, static, _ in loop.body.steps])
        return 0 if loop.segments or by_segments else loop.length

    def running(self, arguments: tuple[Any, ...], read: Sequence[bool]) -> list[Block]:
        """The body, with the outputs that are read."""
        loop = Loop(*arguments)
        stacked = [number for number, is_read in zip(loop.stacked, read[loop.carries :], strict=False) if is_read]
        return [loop.body.with_outputs((*loop.body.outputs[: loop.carries], *stacked))]

    def sibling_fusion(self, applications: Sequence[tuple[tuple[Any, ...], Numbers]]) -> list[FusedFunctions]:
        """Fuse loops that share carries or values computed at each step."""
        return fusion.fused(applications)

    def showing(self, arguments: tuple[Any, ...], read: Sequence[bool]) -> tuple[tuple[Any, ...], Sequence[int]]:
        """All stacks that are read, as those of the body's outputs."""
        loop, (body,) = Loop(*arguments), self.running(arguments, read)
        ends = itertools.accumulate(read[loop.carries : loop.first_start], initial=loop.carries)
        return tuple(loop._replace(body=body)), (*range(loop.carries), *[*ends][:-1], *range(-loop.carries, 0))

    # ---------------------------------------------------------------- inspection

    def within(self, arguments: tuple[Any, ...], count: int) -> tuple[Within, ...]:
        """The one body."""
        loop = Loop(*arguments)
        slices, stacks = count - loop.first_slice, loop.results - loop.carries
        inputs = (*_numbered("same", loop.fixed), *_numbered("carry", loop.carries), *_numbered("slice", slices))
        outputs = (*_numbered("carry", loop.carries), *_numbered("stacked", stacks))
        finals = [("at the end", number) for number in loop.body.outputs[: loop.carries]]
        starts = [("before each segment", loop.fixed + j) for j in range(loop.carries)] if loop.segments else []
        gives = (*finals, *[("of each step", number) for number in loop.stacked], *starts)
        return (Within("body", loop.body, loop.length, inputs, outputs, tuple(range(count)), gives),)

    def run_in_steps(self, arguments: tuple[Any, ...], inputs: Sequence[Any], steps: Steps[Any]) -> list[Any]:
        """The forward computation, with inspection of the body at each step."""
        loop = Loop(*arguments)
        body, same, scanned = loop.body, inputs[: loop.fixed], inputs[loop.first_slice :]
        carry = list(inputs[loop.fixed : loop.first_slice])
        rows, before = {}, {}
        numbers = range(loop.length)
        for number in reversed(numbers) if loop.reverse else numbers:
            before[number] = carry
            operands = [*same, *carry, *[steps.slice(x, number) for x in scanned]]
            values = steps.run("body", body, operands, number)
            carry = body.picked(operands, values)[: loop.carries]
            rows[number] = body.picked(operands, values, loop.stacked)
        specs = [loop.stack_spec(number) for number in loop.stacked]
        stacks = [steps.stack([rows[number][k] for number in numbers], spec) for k, spec in enumerate(specs)]
        starts = [
            steps.stack([before[number][j] for number in loop.first_steps()], spec)
            for j, spec in enumerate(loop.start_specs())
        ]
        return [*carry, *stacks, *starts]

    # ---------------------------------------------------------------- axes

    def dependence(self, arguments: tuple[Any, ...], varying: Sequence[bool]) -> list[bool]:
        """For each output, True if it depends on an input that is `varying`."""
        loop = Loop(*arguments)
        numbers = loop.carried.depending([i for i, varies in enumerate(varying) if varies])
        carries = [loop.fixed + j in numbers for j in range(loop.carries)]
        return [*carries, *[number in numbers for number in loop.stacked], *(carries if loop.segments else ())]

    def followed(self, f: Function, starts: Given, count: int, walk: Walk) -> Followed:
        """An axis may be the step axis if nothing along it is carried from step to step."""
        loop = Loop(*f.arguments)
        positions = {axes.index(0) for i, axes in starts if axes is not None and i >= loop.first_slice and 0 in axes}
        steps = min(positions, default=None)
        state: dict[int, Axes | None] = {}
        for i, axes in starts:
            if axes is None or (steps is not None and (i < loop.first_slice or axes[steps] != 0)):
                state[i] = None
            elif i >= loop.first_slice:
                state[i] = tuple([a - 1 for k, a in enumerate(axes) if k != steps])
            else:
                state[i] = axes
        places = loop.carried.followed(state, count - (steps is not None), walk, mixed=steps is not None)
        carries = range(loop.fixed, loop.first_slice)
        results: dict[int, Axes | None] = {i - loop.fixed: places[i] for i in carries if i in places}
        for place, number in enumerate(loop.stacked, start=loop.carries):
            if number in places:
                results[place] = _stacked(places[number], steps)
        for place, number in enumerate(carries if loop.segments else (), start=loop.first_start):
            if number in places:
                results[place] = None if steps is not None else _stacked(places[number], None)
        return results

    def batched(self, f: Function, operands: Sequence[Operand], read: Sequence[bool]) -> Results:
        """One loop that computes all elements; the axis of steps is the first inside of it, and the second outside"""
        loop, (count,) = Loop(*f.arguments), size_of(operands)
        body, depending = loop.body, loop.carried.depending([i for i, operand in enumerate(operands) if operand.lead])
        kinds = kinds_of([i in depending for i in range(len(operands))])
        is_read = read[loop.carries : loop.first_start]
        wanted = list(dict.fromkeys([n for n, reads in zip(loop.stacked, is_read, strict=True) if reads]))
        carried = kinds[loop.fixed : loop.first_slice]
        numbers = (*body.outputs[: loop.carries], *wanted)
        batched = loop._replace(body=body.batched(kinds, count, numbers, (*carried, *[""] * len(wanted))))
        inputs = []
        for i, (operand, kind) in enumerate(zip(operands, kinds, strict=True)):
            value = operand.widened()
            if kind and loop.fixed <= i < loop.first_slice:
                value = operand.full((count,))
            elif kind and i >= loop.first_slice:
                value = swapaxes(value, 0, 1)
            inputs.append(value)
        outputs = apply(self, tuple(inputs), tuple(batched))
        stacks = {
            n: swapaxes(y, 0, 1) if n in depending else y
            for n, y in zip(wanted, outputs[loop.carries :], strict=False)
        }
        starts = zip(carried, outputs[batched.first_start :], strict=False)
        return (
            *outputs[: loop.carries], *[stacks.get(n) for n in loop.stacked],
            *[swapaxes(y, 0, 1) if kind else y for kind, y in starts],
        )  # fmt: skip

    # ---------------------------------------------------------------- derivatives

    def gradients(self, f: Function, gys: Sequence[Variable], indexes: Numbers) -> Gradients:
        """With (c', y) = body(k, c, x) at each step, from the last to the first: gk += gk', gc = gc', gx = gx', where
        (gk', gc', gx') is the gradient of <gc, c'> + <gy, y> in (k, c, x)"""
        loop, segments_of = Loop(*f.arguments), build_options().emitting.segments
        sizes = loop.segments or (() if segments_of is None else segments_of(f))
        return segments.gradients(f, loop._replace(segments=sizes), gys, indexes)

    def tangents(self, f: Function, ts: Results, read: Sequence[bool]) -> Gradients:
        """One loop of (c, dc) with (c', dc', dy) = body and its tangent at (k, c, x) along (dk, dc, dx)"""
        loop = Loop(*f.arguments)
        wanted = [number for number, is_read in zip(loop.stacked, read[loop.carries :], strict=False) if is_read]
        moved = loop.carried.along(f.inputs, ts, wanted)
        both = loop._replace(body=moved.step.body, fixed=moved.step.fixed, carries=moved.step.carries)
        outputs = apply(self, moved.inputs, both)
        finals = {i - loop.fixed: outputs[loop.carries + k] for k, i in enumerate(moved.carried)}
        before = outputs[both.results + loop.carries :]
        stacks = dict(zip(moved.stacked, outputs[both.carries :], strict=False))
        stacks |= zip(moved.carried, before, strict=False)
        stacks |= {i: t for i, t in enumerate(ts) if t is not None and i >= loop.first_slice}
        starts = dict(zip(moved.carried, outputs[both.first_start + loop.carries :], strict=False))
        return [
            *[finals.get(j) for j in range(loop.carries)], *[stacks.get(number) for number in loop.stacked],
            *[starts.get(loop.fixed + j) for j in range(loop.carries) if loop.segments],
        ]  # fmt: skip

    # ---------------------------------------------------------------- rewriting

    def with_equal_carries(
        self, inputs: tuple[Variable, ...], arguments: tuple[Any, ...], anew: Anew
    ) -> Smaller | None:
        """Carries are equal if they start equal, and each step maps equal ones to equal ones."""
        loop = Loop(*arguments)
        # A step gets a slice of a scanned Variable, which differs from the same Variable as a carry.
        first: dict[tuple[bool, Variable], int] = {}
        classes = tuple([first.setdefault((i >= loop.first_slice, x), i) for i, x in enumerate(inputs)])
        if len(set(classes[loop.fixed : loop.first_slice])) == loop.carries:
            return None
        return merge_equal_carries(loop, classes, anew)

    def with_changing_carries(self, arguments: tuple[Any, ...]) -> Smaller | None:
        """Carries that no step changes are the same at each step."""
        loop = Loop(*arguments)
        rest = settled(loop)
        return None if rest is None else without_unchanging(loop, rest)


def _numbered(name: str, count: int) -> list[str]:
    return [f"{name}{i}" for i in range(count)]


def _stacked(axes: Axes | None, steps: int | None) -> Axes | None:
    """The axes of a value, as axes of its stack."""
    if axes is None:
        return None
    stacked = [a + 1 for a in axes]
    if steps is not None:
        stacked.insert(steps, 0)
    return tuple(stacked)


@Scan.declared(type_name="Scan", multiple_results=True, lockstep=True)
def scan_of_body(
    *x: Array, body: Static, fixed: int, carries: int, length: int, reverse: bool, unroll: int, segments: Static
) -> tuple[jax.Array, ...]:
    """A loop over a body: the final carries, the stacks that `Loop.stacked` lists, and the carries before each segment.

    Its inputs are the fixed ones, the initial carries, and the arrays to scan; its arguments are those of `Loop`. The
    stacks of values inside the body serve gradients: JAX and XLA remove those that nothing reads.
    """
    loop = Loop(body, fixed, carries, length, reverse, unroll, segments)
    same, first, scanned = x[:fixed], x[fixed : loop.first_slice], x[loop.first_slice :]
    # If moving axes of size 1 has changed its layout, XLA copies an array for a loop, so loops get none of these axes.
    ones = [[a for a in range(1, x.ndim) if x.shape[a] == 1] for x in scanned]
    scanned = tuple(map(lax.squeeze, scanned, ones))

    def step(carry: tuple[Any, ...], slices: tuple[Any, ...]) -> tuple[Any, Any]:
        whole = [lax.expand_dims(x, [a - 1 for a in axes]) for x, axes in zip(slices, ones, strict=True)]
        operands = (*same, *carry, *whole)
        values = body.run(operands)
        after = body.picked(operands, values, body.outputs[:carries])
        return tuple(after), tuple(body.picked(operands, values, loop.stacked))

    def scan(step: Any, carry: Any, slices: Any, length: int) -> Any:
        return lax.scan(step, carry, slices, length=length, reverse=reverse, unroll=max(1, min(unroll, length)))

    if unroll == AT_ONCE and not carries:
        return tuple(jax.vmap(lambda *slices: step((), slices)[1], axis_size=length)(*scanned))
    if not segments:
        last, stacks = scan(step, tuple(first), tuple(scanned), length)
        return (*last, *stacks)

    def stretch(carry: tuple[Any, ...], slices: tuple[Any, ...], length: int) -> tuple[Any, Any]:
        after, stacks = scan(step, carry, slices, length)
        return after, (stacks, tuple([lax.expand_dims(c, (0,)) for c in carry]))

    last, (stacks, starts) = in_segments(stretch, tuple(first), tuple(scanned), length, segments[0], reverse)
    return (*last, *stacks, *starts)


def in_segments(
    stretch: Callable[[Any, tuple[Any, ...], int], tuple[Any, Any]], first: Any, scanned: tuple[Any, ...], length: int,
    size: int, reverse: bool,
) -> tuple[Any, Any]:  # fmt: skip
    """Scan over segments of `size` steps, then over the remaining steps.

    Args:
        stretch: Runs a number of steps: takes a carry, slices and the number, and returns the last carry and stacks
            with a row per step.
        first: The first carry.
        scanned: Arrays to slice along their first axes.
        length: The number of steps, at least `size`.
        size: The number of steps in a segment.
        reverse: Whether the steps go from the last slice to the first.

    Returns:
        The last carry, and the stacks.
    """
    count, rest = divmod(length, size)
    whole, after = (slice(rest, None), slice(rest)) if reverse else (slice(length - rest), slice(length - rest, None))
    cut = tuple([lax.reshape(x[whole] if rest else x, (count, size, *x.shape[1:])) for x in scanned])
    last, stacks = lax.scan(lambda carry, xs: stretch(carry, xs, size), first, cut, length=count, reverse=reverse)
    stacks = jax.tree.map(lambda y: lax.reshape(y, (y.shape[0] * y.shape[1], *y.shape[2:])), stacks)
    if rest:
        last, more = stretch(last, tuple([x[after] for x in scanned]), rest)
        stacks = jax.tree.map(lambda y, z: lax.concatenate((z, y) if reverse else (y, z), 0), stacks, more)
    return last, stacks


def looped(
    body: Carried, inputs: Sequence[Variable], updated: Sequence[Variable], length: int, reverse: bool, unroll: int
) -> list[Variable]:
    """The final carries of a loop, and its stacks. Unchanging carries become fixed inputs. The first carries belong to
    the leaves `updated`, which get their final values; these are not among the results."""
    loop = Loop(*body, length, reverse, unroll)
    rest = settled(loop) or Settled(loop, tuple(range(len(inputs))), frozenset())
    changing = [j for j in range(loop.carries) if j not in rest.unchanging]
    effects = tuple([(leaf, changing.index(j)) for j, leaf in enumerate(updated) if j in changing])
    outputs = iter(apply(scan_of_body, tuple([inputs[i] for i in rest.inputs]), rest.loop, effects))
    finals = [next(outputs) if j in changing else inputs[loop.fixed + j] for j in range(loop.carries)]
    return [*finals[len(updated) :], *itertools.islice(outputs, loop.results - loop.carries)]

# ---------------------------------------------------------------- loops with fewer carries

# A tangent of a loop that carries tangents would carry some of them twice, if both are along the same direction v: the
# derivative of c along v appears once as a carry, and once as the tangent of c. Unmerged, the nth derivative would
# carry 2^n values instead of n + 1.


@derived_once
def merge_equal_carries(loop: Loop, classes: Numbers, anew: Anew) -> Smaller | None:
    """The loop with equal carries merged; None if none are equal. `classes` gives for each input the first one that
    equals it at the first step; `anew` makes a function that inlines the body with hash-consing."""
    body, carried = loop.body, range(loop.fixed, loop.first_slice)
    leaves, canonical = body.leaves(), anew()
    while True:
        inputs = [leaves[i] for i in classes]
        results = body.picked(inputs, canonical(body, inputs))
        first: dict[tuple[int, Variable], int] = {}
        told_apart = [first.setdefault((classes[i], y), i) for i, y in zip(carried, results, strict=False)]
        after = (*classes[: loop.fixed], *told_apart, *classes[loop.first_slice :])
        if after == classes:
            break
        classes = after
    if len(set(told_apart)) == len(told_apart):
        return None
    distinct = [i for i in range(len(leaves)) if classes[i] == i or i not in carried]
    carries = [i for i in distinct if i in carried]
    finals = [results[i - loop.fixed] for i in carries]
    one = loop._replace(
        body=close([*finals, *results[loop.carries :]], [leaves[i] for i in distinct]), carries=len(carries)
    )
    stacks = len(results) - loop.carries
    place = {i: k for k, i in enumerate(carries)}
    places = [place[i] for i in told_apart]
    outputs = (*places, *range(len(carries), len(carries) + stacks), *[len(carries) + stacks + k for k in places])
    starts = [one.first_start + k for k in places] if loop.segments else []
    return Smaller(tuple(one), tuple(distinct), (*outputs, *(None,) * (loop.first_start - len(outputs)), *starts))


def without_unchanging(loop: Loop, changing: Settled) -> Smaller:
    """A replacement for a loop in which no step changes the carries that are missing from `changing`."""

    def carries(first: int, steps: int) -> list[int | tuple[int, int]]:
        """For each carry, its output, counted from `first`; or its input and how many times to repeat it."""
        numbers = itertools.count(first)
        return [(loop.fixed + j, steps) if j in changing.unchanging else next(numbers) for j in range(loop.carries)]

    one = changing.loop
    outputs = [*carries(0, 0), *range(one.carries, one.results), *carries(one.results, loop.length)]
    rest = (None,) * (loop.first_start - len(outputs))
    starts = carries(one.first_start, loop.start_specs()[0].shape[0]) if loop.segments else []
    return Smaller(tuple(one), changing.inputs, (*outputs, *rest, *starts))
