"""Closing: convert a graph to a Block.

Every closed graph is numbered here: the body of a loop, the program of a graph to run, a request for a gradient and the
graph emitted for it. Also the cache for results that are derived from Blocks.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ParamSpec, TypeVar

from .block import Block, Step, bodies_in
from .function import Function
from .messages import SourceLocation
from .options import Switched, build_options, contained, watching_for_users_code
from .origins import GradientsTaken, GradientTaken
from .spec import Spec
from .thresholds import MOST_DERIVED
from .traverse import as_made, before_their_turns, functions_of, taken_in_turn
from .variable import Variable

Reference = Callable[[], Variable | None]
"""A weak reference to a Variable."""


class Closing(dict[Variable, int]):
    """The numbering of the Variables of a graph that is being closed.

    Leaves are numbered from 0 as they are met; results of functions are ~0, ~1, ...

    Args:
        inputs: Variables that come first among the leaves. They may be intermediate values of the graph.
    """

    functions: list[Function]
    """The function of each step."""
    leaves: list[Variable]
    steps: list[Step]
    references: list[Reference]
    """Weak references to the functions' results."""
    stop_gradients: list[int]
    """Numbers of the values at which gradients stop."""
    derived: list[Variable]
    """The results of `grad` among the values."""

    def __init__(self, inputs: Iterable[Variable] = ()) -> None:
        self.leaves = [*inputs]
        super().__init__(zip(self.leaves, itertools.count(), strict=False))
        self.functions, self.steps, self.references, self.stop_gradients, self.derived = [], [], [], [], []

    def __missing__(self, x: Variable) -> int:
        """Number a leaf met for the first time, or an output that nobody held when its function was written."""
        f = x.parent
        if f is None:
            number = len(self.leaves)
            self.leaves.append(x)
        else:
            before = self.functions[: self.functions.index(f)]
            number = ~(sum([len(earlier.specs) for earlier in before]) + x.index)
        self[x] = number
        return number

    def has(self, x: Variable) -> bool:
        """True if `x` already has a number."""
        return x in self or (x.parent is not None and any([ref() in self for ref in x.parent._outputs]))

    def write(self, functions: Sequence[Function]) -> None:
        """Append the steps of functions, given in topological order."""
        references, append = self.references, self.steps.append
        count = len(references)
        for f in functions:
            ref = f._output
            if ref.__class__ is tuple:
                references += ref
            else:
                references.append(ref)
        enter = self.setdefault
        for number, value in enumerate([ref() for ref in references[count:]], count):
            if value is not None:
                enter(value, ~number)
                if value._need_grad is False:
                    self.stop_gradients.append(~number)
                if value.derived_by is not None:
                    self.derived.append(value)
        for f in functions:
            inputs = f.inputs
            if len(inputs) == 1:  # most have one input or two
                numbers: tuple[int, ...] = (self[inputs[0]],)
            elif len(inputs) == 2:
                x, y = inputs
                numbers = self[x], self[y]
            else:
                numbers = tuple([self[x] for x in inputs])
            append((f.op, f.arguments, numbers))
        self.functions += functions

    def write_in_turn(self, functions: Sequence[Function], passing_on: bool = False) -> Sequence[Function]:
        """Append the steps of functions, given in topological order, some of which may update leaves; return the
        functions in the order of the steps.

        Args:
            functions: The functions. One that takes a leaf which it updates takes what the update before has made.
            passing_on: Whether those that only pass on their inputs, beside updating leaves, are left out.
        """
        if not any([f.effects for f in functions]):
            self.write(functions)
            return functions
        in_turn = bool(before_their_turns(functions))
        if in_turn:
            functions = as_made(functions)
        newest: dict[Variable, int] = {}
        start = 0
        for end, f in enumerate(functions):
            if not f.effects or not (in_turn or passing_on):
                continue
            self.write(functions[start:end])
            start = end + 1
            first = {x: self[x] for x in taken_in_turn(f)}
            self.update({x: newest[x] for x in first if x in newest})
            if passing_on and f.op.forwards_inputs and not any([y._need_grad is False for y in f.outputs]):
                self.update({y: self[x] for x, y in zip(f.inputs, f.outputs, strict=True) if y not in self})
            else:
                self.write([f])
            self.update(first)
            if in_turn:
                newest |= {leaf: self[f.outputs[i]] for leaf, i in f.effects}
        self.write(functions[start:])
        return functions

    def append(self, f: Function, inputs: tuple[int, ...]) -> int:
        """Append the step of a function with other inputs, and return the number of its first value."""
        number = ~len(self.references)
        self.functions.append(f)
        self.steps.append((f.op, f.arguments, inputs))
        self.references += f._outputs
        return number

    def numbers(self, variables: Iterable[Variable | None]) -> tuple[Any, ...]:
        """The numbers of Variables, with None for None."""
        return tuple([None if x is None else self[x] for x in variables])

    def block(self, outputs: Iterable[int], places: Sequence[SourceLocation | None] = ()) -> Block:
        """The block that the steps make, with the leaves as inputs.

        Args:
            outputs: Numbers of the results.
            places: Where the user wrote the steps.
        """
        orders = tuple([f.order for f in self.functions])
        stop, results = frozenset(self.stop_gradients), self._results
        return Block(self._inputs, tuple(self.steps), orders, tuple(outputs), stop, tuple(places), results)

    def taken(self, outside: int, places: Sequence[SourceLocation | None]) -> GradientsTaken | None:
        """The gradients whose results are among the values, each with the graph that was differentiated, if that can be
        computed from the leaves.

        Args:
            outside: How many leading leaves may depend on one another. A gradient by one of them may have passed
                through another, unseen here, and is left out.
            places: Where the user wrote the steps so far.
        """
        records = []
        for derivation in derivations_of(self.derived):
            variables = [*derivation.outputs, *derivation.inputs, *[x for x in derivation.seeds if x is not None]]
            more = functions_of(variables, through=lambda x: not self.has(x))
            computed = {x for f in more for x in f.outputs}
            there = all([x in computed or self.has(x) for x in (*variables, *[x for f in more for x in f.inputs])])
            if there and not any([f.effects for f in more]):
                self.write(more)
                results = [g if g is not None and g in self else None for g in [ref() for ref in derivation.results]]
                inputs = self.numbers(derivation.inputs)
                if not any([0 <= i < outside for i in inputs]):
                    records.append(GradientTaken(
                        self.numbers(derivation.outputs), inputs, self.numbers(derivation.seeds), self.numbers(results)
                    ))  # fmt: skip
        places = [*places, *[None] * (len(self.steps) - len(places))]
        return GradientsTaken(self.block((), places), tuple(records)) if records else None

    def block_to_run(self, outputs: Iterable[int]) -> Block:
        """The block without what matters only for gradients: graphs that compute the same share an executable."""
        return Block(self._inputs, tuple(self.steps), (), tuple(outputs), results=self._results)

    @property
    def _inputs(self) -> tuple[Spec, ...]:
        return tuple([x.spec for x in self.leaves])

    @property
    def _results(self) -> tuple[tuple[Spec, ...], ...]:
        return tuple([f.specs for f in self.functions])


def close(outputs: Sequence[Variable], inputs: Sequence[Variable], outside: int | None = None) -> Block:
    """The block that computes `outputs` from `inputs`, which may be intermediate values and must cover all leaves that
    the outputs depend on.

    Args:
        outputs: The results.
        inputs: The Variables that become its inputs.
        outside: The number of leading inputs that may depend on one another, if the block should record the gradients
            taken in it.
    """
    closing = Closing(inputs)
    cut = frozenset(closing)
    functions = functions_of(outputs, through=lambda x: x not in cut)
    # An output that is passed on with new values of leaves does not depend on them.
    closing.write_in_turn(functions, passing_on=True)
    numbers, places = closing.numbers(outputs), [source_location_of(f) for f in closing.functions]
    block = closing.block(numbers, places)
    if len(block.inputs) > len(inputs):
        raise ValueError("the graph depends on leaves that are not among its inputs")
    taken = None if outside is None or not closing.derived else closing.taken(outside, places)
    return block if taken is None else block.with_taken(taken)


def derivations_of(derived: Iterable[Variable]) -> list[Any]:
    """The known derivations of results of `grad`, except those with stopped gradients on the path."""
    derivations = dict.fromkeys([getattr(g.derived_by, "derivation", None) for g in derived])
    return [derivation for derivation in derivations if derivation is not None and not derivation.stop_gradients]


def source_location_of(f: Function) -> SourceLocation | None:
    """Where the user wrote `f`, or the function whose derivative it belongs to; None if that is unknown."""
    place: SourceLocation | None = getattr(f, "location", None)
    return getattr(f.origin, "location", None) if place is None else place


# ---------------------------------------------------------------- results derived from blocks


P = ParamSpec("P")
R = TypeVar("R")


class _NotKept(Exception):
    """Carries an answer past the cache."""


def derived_once(derive: Callable[P, R]) -> Callable[P, R]:
    """Cache a function that derives something from bodies, its only arguments. An answer in which user code took part
    is not cached.

    The function runs with none of the caller's switches in force, except the rules that simplify gradients. Equal
    bodies written in different places have separate entries.
    """

    @contained
    def derived(simplify: Any, *args: P.args, **kwargs: P.kwargs) -> R:
        Switched(simplify=simplify).from_now_on(alone=True)
        return derive(*args, **kwargs)

    @functools.lru_cache(maxsize=MOST_DERIVED)
    def derivation(simplify: Any, locations: Any, *args: P.args, **kwargs: P.kwargs) -> R:
        del locations
        answer, is_users = watching_for_users_code(lambda: derived(simplify, *args, **kwargs))
        if is_users:
            raise _NotKept(answer)  # a raised answer is not cached
        return answer

    @functools.wraps(derive)
    def ask(*args: P.args, **kwargs: P.kwargs) -> R:
        locations = tuple([body.locations for body in bodies_in(args)])
        try:
            return derivation(build_options().emitting.simplify, locations, *args, **kwargs)  # type: ignore[arg-type]  # hashable
        except _NotKept as given:
            answer: R = given.args[0]
            return answer

    return ask
