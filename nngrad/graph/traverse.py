"""Graph traversals, all of them iterative: a chain of 100,000 functions is ordinary."""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable
from operator import attrgetter
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from .function import Function
    from .variable import Variable


T = TypeVar("T", bound=Hashable)

by_rank = attrgetter("rank")
"""The key that sorts functions, or Variables, topologically."""
by_serial = attrgetter("serial")
"""The key that sorts functions by the order in which they were made."""


def functions_of(
    outputs: Iterable[Variable], through: Callable[[Variable], bool] | None = None
) -> list[Function]:
    """Every function that `outputs` depend on, in topological order (by ascending rank).

    Args:
        outputs: Where to start.
        through: If given, the traversal passes only Variables for which it is true.
    """
    reached = dict.fromkeys([
        y.parent for y in outputs if y.parent is not None and (through is None or through(y))
    ])
    stack = list(reached)
    while stack:
        for x in stack.pop().inputs:
            f = x.parent
            if f is not None and f not in reached and (through is None or through(x)):
                reached[f] = None
                stack.append(f)
    return sorted(reached, key=by_rank)


def as_made(functions: Iterable[Function]) -> list[Function]:
    """Functions, given in topological order, in the order of their creation: the user's in program order, then
    gradients. Where links were changed (`rewire_on`), a function comes after those that it now depends on."""
    turns: dict[Function | None, int] = {None: 0}
    for f in functions:
        turns[f] = max([f.serial, *[turns.get(x.parent, 0) for x in f.inputs]])
    return sorted(functions, key=turns.__getitem__)


def updates_by(functions: Iterable[Function]) -> list[tuple[Variable, Variable, bool]]:
    """The updates of leaves by functions, in the order of the calls that made them: the leaf, its new value, and
    whether that was computed from the leaf in its turn (`F.control.in_turn`), and not from what it held at first."""
    updating = sorted([f for f in functions if f.effects], key=by_serial)
    turning = {id(x) for f in updating for x in taken_in_turn(f)}
    return [(leaf, f.outputs[index], id(leaf) in turning) for f in updating for leaf, index in f.effects]


def taken_in_turn(f: Function) -> list[Variable]:
    """The inputs of `f` that are leaves which it updates: it takes them as the update before, in the order of the
    calls, leaves them."""
    return [x for x in f.inputs if any([x is leaf for leaf, _ in f.effects])] if f.effects else []


def before_their_turns(functions: Iterable[Function]) -> list[tuple[Function, Function]]:
    """Pairs of functions of which the first updates a leaf, and the second is the next that takes it in turn."""
    newest: dict[Variable, Function] = {}
    pairs = []
    for f in sorted([f for f in functions if f.effects], key=by_serial):
        pairs += [(newest[x], f) for x in taken_in_turn(f) if x in newest]
        newest |= {leaf: f for leaf, _ in f.effects}
    return pairs


def needs_gradient(x: Variable) -> bool:
    """True if a leaf above `x` needs a gradient that can reach it. The traversal ends at the first one."""
    if x._need_grad is not None:
        return x._need_grad
    stack: list[Function] = [] if x.parent is None else [x.parent]
    seen = set(stack)
    while stack:
        for y in stack.pop().inputs:
            if y._need_grad:
                return True
            f = y.parent
            if f is not None and y._need_grad is None and f not in seen:
                seen.add(f)
                stack.append(f)
    return False


def leaves_of(outputs: Iterable[Variable]) -> list[Variable]:
    """The leaves that `outputs` depend on, each once, in order of first use."""
    outputs = list(outputs)
    leaves: dict[int, Variable] = {id(y): y for y in outputs if y.parent is None}
    for f in functions_of(outputs):
        for x in f.inputs:
            if x.parent is None:
                leaves.setdefault(id(x), x)
    return list(leaves.values())


def path_between(
    outputs: Iterable[Variable], inputs: Iterable[Variable], of_values: bool = False, stop_ids: Container[int] = ()
) -> tuple[list[Function], set[int], list[Function]]:
    """The functions and Variables on paths from `inputs` to `outputs` that gradients can take.

    Args:
        outputs: Where gradients start.
        inputs: Where they end.
        of_values: Whether to follow values rather than gradients, which stop where `need_grad` is False and at
            ops whose outputs count as constants.
        stop_ids: Ids of other Variables that stop them.

    Returns:
        The functions on some path, by ascending rank; the ids of the Variables on some path, `inputs`
        included; and all functions that `outputs` depend on. No path leads through a Variable that stops
        gradients, though it may end there.
    """
    functions = functions_of(outputs)
    path, active = among(functions, inputs, of_values, stop_ids)
    return path, active, functions


def among(
    functions: Iterable[Function],
    inputs: Iterable[Variable],
    of_values: bool = False,
    stop_ids: Container[int] = (),
) -> tuple[list[Function], set[int]]:
    """The functions among `functions`, given in topological order, that depend on `inputs`, and the ids of the
    Variables on these paths; see `path_between`."""
    active = {id(x) for x in inputs}
    path = []
    for f in functions:
        for x in f.inputs:
            if id(x) in active:
                break
        else:
            continue
        if not of_values and f.op.constant:
            continue
        path.append(f)
        for ref in r if (r := f._output).__class__ is tuple else (r,):
            y = ref()
            if y is not None and (of_values or y._need_grad is not False) and id(y) not in stop_ids:
                active.add(id(y))
    return path, active


def operands_first(roots: Iterable[T], operands: Callable[[T], Iterable[T]]) -> list[T]:
    """`roots` and what they depend on, each after its operands: depth first, in the order given."""
    entered: set[T] = set()
    listed: dict[T, None] = {}
    stack = [*roots][::-1]
    while stack:
        node = stack[-1]
        if node in entered:
            stack.pop()
            listed.setdefault(node)
        else:
            entered.add(node)
            stack += [p for p in [*operands(node)][::-1] if p not in entered]
    return list(listed)
