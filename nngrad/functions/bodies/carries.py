"""Loop bodies with carries, the values that each step passes to the next."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ...graph import Spec, Variable, create
from ...graph.block import Block
from ...graph.body_op import Axes, Followed, Numbers, Results, Walk
from ...graph.closing import close, derived_once
from ..array import constant, zeros_like


class Carried(NamedTuple):
    """A loop body with carries. Its inputs are the fixed ones, which are the same at each step, then the carries, then
    slices of the scanned arrays; its first outputs are the carries for the next step."""

    body: Block
    fixed: int
    """The number of inputs that are the same at each step."""
    carries: int

    def depending(self, inputs: Iterable[int]) -> set[int]:
        """The numbers of the values that depend, at some step, on some of the inputs, including these; carries among
        the inputs are those of the first step."""
        return self._reached_at_any_step(inputs, self.body.depending)[1]

    def moving(self, inputs: Iterable[int]) -> tuple[Numbers, set[int]]:
        """The inputs and carries that move at some step if `inputs` move at the first; and all values that move."""
        start = [i for i in inputs if self.body.inputs[i].differentiable]
        moving, reached = self._reached_at_any_step(start, self.body.reach)
        return tuple(sorted(moving)), reached

    def _reached_at_any_step(
        self, inputs: Iterable[int], reach: Callable[[Iterable[int]], set[int]]
    ) -> tuple[set[int], set[int]]:
        """The inputs that are reached at some step, and the numbers of all values that are."""
        reached = set(inputs)
        while True:
            numbers = reach(reached)
            more = {self.fixed + j for j in range(self.carries) if self.body.outputs[j] in numbers}
            if more <= reached:
                return reached, numbers
            reached |= more

    def followed(self, starts: Followed, count: int, walk: Walk, mixed: bool = False) -> Followed:
        """The positions of `count` axes of some inputs through all steps; those of carries hold at the first step.

        With `mixed`, the followed axis distinguishes steps, so a carry, which comes from other steps, mixes it.
        """
        state = dict(starts)
        while True:
            places = followed_through(self.body, state, count, walk)
            before = dict(state)
            for j in range(self.carries):
                number = self.body.outputs[j]
                if number in places:
                    after = None if mixed else places[number]
                    state[self.fixed + j] = after if state.get(self.fixed + j, after) == after else None
            if state == before:
                return places

    def along(self, inputs: Sequence[Variable], ts: Results, read: Iterable[int] = ()) -> Moved:
        """The body with its tangents, and the inputs of its loop, when the inputs of the original loop move along `ts`.
        Each step also returns the tangents of the values `read`."""
        body, end = self.body, self.fixed + self.carries
        moving, reached = self.moving([i for i, t in enumerate(ts) if t is not None])
        carried = tuple([i for i in moving if self.fixed <= i < end])
        known = set(moving) - set(range(self.fixed))  # their tangents are given, or stacked anyway
        read = [number for number in dict.fromkeys(read) if number in reached and number not in known]
        handed_on = [body.outputs[i - self.fixed] for i in carried]
        tangent = body.tangent(moving, tuple(dict.fromkeys([*handed_on, *read])))
        place = {number: k for k, number in enumerate(tangent.moved)}
        stacked = tuple([number for number in read if number in place])
        step = step_along(
            body, tangent.body, moving, tuple([place.get(number, -1) for number in handed_on]),
            tuple([place[number] for number in stacked]), self.fixed, self.carries,
        )  # fmt: skip
        both: list[Variable] = []
        for first, last in ((0, self.fixed), (self.fixed, end), (end, len(inputs))):
            directions = [(i, ts[i]) for i in moving if first <= i < last]
            both += [*inputs[first:last], *[zeros_like(inputs[i]) if t is None else t for i, t in directions]]
        return Moved(Carried(step, self.fixed + sum([i < self.fixed for i in moving]), self.carries + len(carried)),
                     tuple(both), carried, stacked)  # fmt: skip


class Moved(NamedTuple):
    """A body with its tangents."""

    step: Carried
    """In each of the three kinds of inputs, and in the outputs, tangents come after the values that they belong to."""
    inputs: tuple[Variable, ...]
    """The inputs of the loop over `step`."""
    carried: Numbers
    """The input numbers of the carries that move."""
    stacked: Numbers
    """The values whose tangents each step returns."""


@derived_once
def step_along(
    body: Block, tangent: Block, moving: Numbers, after: Numbers, stacked: Numbers, fixed: int, carries: int
) -> Block:
    """The step of the tangent loop: a body with its tangents, in the order of a loop's inputs. For each moving carry,
    `after` is the position of the tangent that the next step gets; -1 for none."""
    inputs, _, results = tangent.opened()
    order = max(tangent.orders, default=1)
    primals, along = inputs[: len(body.inputs)], dict(zip(moving, inputs[len(body.inputs) :], strict=True))
    ts = results[len(body.outputs) :]
    carried = [i for i in moving if fixed <= i < fixed + carries]
    new = [ts[k] if k >= 0 else zeros_of(primals[i].spec, order) for k, i in zip(after, carried, strict=True)]
    parts = (range(fixed), range(fixed, fixed + carries), range(fixed + carries, len(primals)))
    ordered = [x for part in parts for x in (*[primals[i] for i in part], *[along[i] for i in part if i in along])]
    return close([*results[:carries], *new, *[ts[k] for k in stacked]], ordered)


def kinds_of(leading: Iterable[bool]) -> tuple[str, ...]:
    """Kinds of the inputs or outputs of a body: "each" for those with a leading batch axis."""
    return tuple(["each" if has_lead else "" for has_lead in leading])


def zeros_of(spec: Spec, order: int) -> Variable:
    """Zeros, as a constant in a derived body."""
    y: Variable = create(constant, (), (0.0, spec.shape, spec.dtype), order=order)
    return y


def is_zeros(x: Variable) -> bool:
    """True if a gradient is a constant 0."""
    f = x.parent
    return f is not None and f.op is constant and not f.arguments[0]


def followed_through(body: Block, starts: Followed, count: int, walk: Walk) -> Followed:
    """The positions of `count` axes of some inputs of a body, in these inputs and in all its values."""
    return _followed_through(body, tuple(sorted(starts.items())), count, walk)


@derived_once
def _followed_through(body: Block, starts: tuple[tuple[int, Axes | None], ...], count: int, walk: Walk) -> Followed:
    inputs, values, _ = body.opened()
    places = {id(inputs[i]): axes for i, axes in starts}
    functions = {y.parent: None for y in values if y.parent is not None}
    walk(list(functions), places, count)
    numbered: list[tuple[int, Variable]] = [*enumerate(inputs), *[(~k, y) for k, y in enumerate(values)]]
    return {number: places[id(x)] for number, x in numbered if id(x) in places}
