"""Capture: close a user's function of Variables as a Block.

The function runs once, on placeholders. Variables that it closes over become inputs; a leaf that it updates, such as
batch normalisation's running statistics, becomes an input whose new value is an output.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from .block import Block
from .closing import close, derivations_of
from .event import MADE
from .function import Function, create, locate, next_serial
from .ndarray import NdArray
from .options import Switched, build_options, contained, watch
from .spec import Spec
from .traverse import functions_of, path_between, updates_by
from .value import Thunk
from .variable import Variable, leaf_of


@dataclass(frozen=True)
class _NoValue:
    """The source of a placeholder's value: reading it raises an error."""

    owner: str
    argument: Variable | None = None
    """The Variable of which it stands for a row or a slice."""

    def __call__(self, thunk: Thunk) -> None:
        """Raise a ValueError."""
        raise ValueError(
            f"cannot read a value in the body of {self.owner}, which runs once to record a graph. Return the Variables "
            "that you want to read, use F.where instead of if, and do not store Variables of the body outside it"
        )


def placeholder(spec: Spec, owner: str, argument: Variable | None = None) -> Variable:
    """A Variable that stands for the input of a body and has no value; perhaps a row or a slice of an `argument`."""
    cell = NdArray.of_spec(spec)
    cell.defer(_NoValue(owner, argument))
    return leaf_of(cell)


def stands_for(x: Variable) -> tuple[str, Variable] | None:
    """The owner and the argument of a placeholder that is a row or a slice of an argument; None for all others."""
    source = getattr(x.cell.held, "source", None)
    return (source.owner, source.argument) if isinstance(source, _NoValue) and source.argument is not None else None


class Captured(NamedTuple):
    """The body captured from a function of Variables, and the outer Variables that it needs."""

    body: Block
    """Its inputs are `variables`, `updated`, those of the function, and `keys`; its outputs are the new values of
    `updated`, then the function's results."""
    variables: tuple[Variable, ...]
    """The Variables that the function closes over, and those that it computes from them alone."""
    updated: tuple[Variable, ...]
    """Outer leaves that each run updates."""
    keys: tuple[Variable, ...]
    """Keys of random functions: leaves inside it that each run draws again."""


@contained
def captured(
    function: Callable[[list[Variable]], list[Variable]],
    inputs: Sequence[Spec],
    owner: str,
    written: Callable[..., Any],
    often: bool,
    updates: bool = False,
    arguments: Sequence[Variable | None] | None = None,
) -> Captured:
    """Capture `function` on Variables of these shapes and dtypes. Variables that existed before become inputs.

    Args:
        function: Lists of Variables in, and out.
        inputs: Shape and dtype of each input.
        owner: The name of the function that has the body, for messages.
        written: The user's function, for messages.
        often: Whether it runs often, so that functions which do not depend on its own inputs are hoisted out; otherwise
            it may not run at all.
        updates: Whether the caller gives the updated leaves their new values. If not, functions that update leaves are
            refused, except those that are hoisted out.
        arguments: For each input, the Variable of which it is a row or a slice, if it is.

    Raises:
        ValueError: A function in it updates a leaf although `updates` is False, or updates one of its own inputs.
    """
    since = next_serial()
    options = build_options()
    # Emitted functions cast nothing.
    precision = options.applying.precision if options.emitting.builder is None else None
    Switched(simplify=options.emitting.simplify, body=since, precision=precision).from_now_on(alone=True)
    watch(locate, *MADE).from_now_on()
    pairs = zip(inputs, arguments or [None] * len(inputs), strict=True)
    placeholders = [placeholder(spec, owner, x) for spec, x in pairs]
    try:
        outputs = function(placeholders)
    except Exception as error:
        error.add_note(f"in the body of {owner}{place_of_function(written)}")
        raise
    within_body = functools.partial(functions_of, through=lambda x: x.parent is None or x.parent.serial > since)
    functions = within_body(outputs)
    before = _alone(functions, placeholders) if often and not updates else frozenset[Function]()
    functions = [f for f in functions if f not in before]
    newest = _new_values(functions, placeholders, f"{owner}: ", f"in the body{place_of_function(written)}", updates)
    updated = tuple([leaf for leaf, _ in newest])
    results = [*[value for _, value in newest], *outputs]
    within = _within(within_body(results), [*updated, *placeholders], often, before)
    body_inputs = [*updated, *placeholders, *within.keys]
    derived = [y for f in within.functions for y in f.outputs if y.derived_by is not None]
    differentiated = [y for derivation in derivations_of(derived) for y in derivation.outputs] if derived else []
    more = within
    if differentiated:  # derivatives also need what these differentiated, and the leaves that only a loss reads
        more = _within(within_body([*results, *differentiated]), [*updated, *placeholders], often, before)
        if more.keys != within.keys or any([f.effects for f in more.functions]):
            more, differentiated = within, []
    inside = {id(x) for x in body_inputs} | {id(y) for f in more.functions for y in f.outputs}
    read = [x for f in more.functions for x in f.inputs] + results + differentiated
    variables = list({id(x): x for x in read if id(x) not in inside}.values())
    return Captured(close(results, [*variables, *body_inputs], len(variables)), tuple(variables), updated, within.keys)


def _alone(functions: Iterable[Function], placeholders: Sequence[Variable]) -> frozenset[Function]:
    """The functions among `functions`, given by ascending rank, that update leaves and depend neither on
    `placeholders`, the inputs of a body, nor on a key."""
    moving = {id(x) for x in placeholders}
    alone = []
    for f in functions:
        if any([id(x) in moving or x.key_source is not None for x in f.inputs]):
            moving |= {id(y) for y in f.outputs}
        elif f.effects:
            alone.append(f)
    return frozenset(alone)


def _new_values(
    functions: Iterable[Function], placeholders: Sequence[Variable], owner: str, place: str, allowed: bool
) -> list[tuple[Variable, Variable]]:
    """The leaves that functions, given by ascending rank, update, each with its last new value.

    If several update one leaf, each starts from the value computed by the previous one.
    """
    ids = {id(x) for x in placeholders}
    newest: dict[int, tuple[Variable, Variable]] = {}
    for f in functions:
        for leaf, _ in f.effects:
            if not allowed:
                raise ValueError(
                    f"{owner}{f.op.name} {place} updates a Variable, which is not possible there. Return the value "
                    "and update the Variable outside, or use a function that updates nothing (batch_stat=False)"
                )
            if id(leaf) in ids:
                raise ValueError(
                    f"{owner}{f.op.name} {place} updates an argument of the body, but only leaves can be updated; "
                    "return the new value as a carry for the next step"
                )
    for leaf, value, in_turn in updates_by(functions):
        before = newest.get(id(leaf))
        newest[id(leaf)] = leaf, value if before is None or in_turn else _with_leaf(value, leaf, before[1])
    return list(newest.values())


def _with_leaf(value: Variable, leaf: Variable, instead: Variable) -> Variable:
    """`value` recomputed with `instead` in place of a leaf."""
    replaced = {id(leaf): instead}
    for f in path_between([value], [leaf], of_values=True)[0]:
        outputs = create(f.op, tuple([replaced.get(id(x), x) for x in f.inputs]), f.arguments, order=f.order)
        replaced |= zip([id(y) for y in f.outputs], outputs if f.op.multiple_results else (outputs,), strict=True)
    return replaced.get(id(value), value)


def place_of_function(function: Callable[..., Any]) -> str:
    """The file and line at which a user's function is defined, for messages."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return "" if code is None else f" ({code.co_filename}:{code.co_firstlineno})"


class _Within(NamedTuple):
    functions: list[Function]
    """The functions that depend on the inputs of a body or on a key, or that update a leaf; and constants."""
    keys: tuple[Variable, ...]
    """The leaves drawn at each run."""


def _within(
    functions: Iterable[Function], placeholders: Sequence[Variable], often: bool, before: frozenset[Function]
) -> _Within:
    """The functions, of those given by ascending rank, that run each time a body with the inputs `placeholders` does;
    this includes those that update leaves, except the ones in `before`."""
    moving: set[int] = {id(x) for x in placeholders}
    constants: set[int] = set()
    keys: dict[int, Variable] = {}
    running = []
    for f in functions:
        keys |= {id(x): x for x in f.inputs if x.key_source is not None}
        updates = f.effects and f not in before
        if not f.effects and all([id(x) in constants for x in f.inputs]):
            constants |= {id(y) for y in f.outputs}
        elif updates or any([id(x) in moving or id(x) in keys for x in f.inputs]):
            moving |= {id(y) for y in f.outputs}
        elif often:
            continue
        running.append(f)
    return _Within(running, tuple(keys.values()))
