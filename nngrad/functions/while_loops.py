"""while_loop: a loop whose steps are counted by nobody, or up to a bound."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import numpy as np
from jax import lax

from ..graph import Array, Function, Op, Spec, Variable, apply, as_variable
from ..graph.arguments import Static
from ..graph.block import Block
from ..graph.capture import Captured, captured
from ..graph.leaf import common_floating
from ..graph.loop import depending_throughout
from ..graph.refusals import explained_by_name
from ..graph.within import InSteps, Steps, Within, outputs_of
from . import comparison
from .body_costs import operations_in
from .branches import cond
from .loops import check_body, checked_carry, scanned

T = TypeVar("T")


class WhileOfBodies(Op):
    """An op that knows the shapes of its outputs from its arguments."""

    def result_specs(self, given: tuple[Spec, ...], arguments: tuple[Any, ...]) -> tuple[Spec, ...]:
        """Shape and dtype of each output."""
        body: Block = arguments[1]
        return tuple([body.spec(number) for number in body.outputs])


def _cost(f: Function) -> int:
    """About how many operations one step takes; how many steps there are is not known."""
    return operations_in(f.arguments[1])


def _while_of_bodies(*x: Array, goes_on: Static, body: Static, fixed: int) -> tuple[jax.Array, ...]:
    """A loop over a body as long as a condition holds.

    Args:
        x: What is the same at each step, and the first carries.
        goes_on: A body of these, which gives a number: the loop goes on while it is not 0.
        body: A body of these, which gives the carries for the next step.
        fixed: How many of `x` are the same at each step.

    Returns:
        The last carries.
    """
    same, first = x[:fixed], x[fixed:]

    def outputs(of: Block, carry: tuple[Any, ...]) -> tuple[Any, ...]:
        given = (*same, *carry)
        values = of.run(given)
        return tuple([given[i] if i >= 0 else values[~i] for i in of.outputs])

    last: tuple[jax.Array, ...] = lax.while_loop(
        lambda carry: outputs(goes_on, carry)[0] != 0, lambda carry: outputs(body, carry), tuple(first)
    )
    return last


def _bodies(arguments: tuple[Any, ...], count: int) -> tuple[Within, ...]:
    """The condition and the body."""
    goes_on, body, fixed = arguments
    carries = [f"carry{i}" for i in range(count - fixed)]
    inputs, taken = (*[f"same{i}" for i in range(fixed)], *carries), tuple(range(count))
    return (
        Within("condition", goes_on, 1, inputs, ("goes on",), taken),
        Within("body", body, 1, inputs, tuple(carries), taken, tuple([("at the end", i) for i in body.outputs])),
    )


def _step_by_step(arguments: tuple[Any, ...], inputs: Sequence[Any], steps: Steps[Any]) -> list[Any]:
    """The same as the forward, with bodies that are looked at."""
    goes_on, body, fixed = arguments
    given = list(inputs)
    for number in itertools.count():
        (runs,) = outputs_of(goes_on, given, steps.run("condition", goes_on, given, number))
        if not np.asarray(steps.array(runs)).any():
            break
        given[fixed:] = outputs_of(body, given, steps.run("body", body, given, number))
    return given[fixed:]


def while_dependence(arguments: tuple[Any, ...], given: Sequence[bool]) -> list[bool]:
    """Which outputs of `while_of_bodies` depend on the inputs that are `given`."""
    goes_on, body, fixed = arguments
    carries = len(body.outputs)
    numbers = depending_throughout(body, fixed, carries, [i for i, is_given in enumerate(given) if is_given])
    inputs = [i for i in range(len(body.inputs)) if i in numbers]
    apart = goes_on.outputs[0] in goes_on.depending(inputs)
    return [apart or fixed + j in numbers for j in range(carries)]


_while_of_bodies.__name__ = "while_of_bodies"
while_of_bodies = WhileOfBodies(
    _while_of_bodies, type_name="While", multiple_results=True, cost=_cost, dependence=while_dependence,
    bodies=lambda arguments, read: arguments[:2], in_steps=InSteps(_bodies, _step_by_step),
)  # fmt: skip


@explained_by_name
def while_loop(
    cond_fun: Callable[[T], Any], body_fun: Callable[[T], T], init: T, bound: int | None = None
) -> T:
    """A loop that goes on as long as a condition holds: `while cond_fun(carry): carry = body_fun(carry)`.

    As `jax.lax.while_loop`. How many steps it will take is not known before it runs, so nothing can be kept for a
    gradient: without a `bound` there are derivatives forward alone (`nn.jvp`), of any order. With one it is a `scan` of
    so many steps, in which nothing is computed any more once the condition fails, and gradients of any order follow.

    Args:
        cond_fun: Gets the carry, and returns a bool or a number of shape ().
        body_fun: Gets the carry, and returns it for the next step, in the same structure, shapes and dtypes.
        init: The first carry, a pytree of Variables, arrays and numbers.
        bound: After so many steps the loop ends in any case.

    Returns:
        The last carry.

    Raises:
        TypeError: The carry changes its structure or a dtype, or `bound` is no int.
        ValueError: A carry changes its shape, the condition has axes, a function in it updates a Variable, or
            draws at random where there is no bound.
    """
    check_body(cond_fun, "cond_fun", "while_loop")
    check_body(body_fun, "body_fun", "while_loop")
    leaves, tree = jax.tree.flatten(init)
    floating = common_floating(leaves)
    inputs = [as_variable(leaf, f"init, leaf {i},", "while_loop", floating) for i, leaf in enumerate(leaves)]
    carry: T = jax.tree.unflatten(tree, inputs)

    def goes_on(carry: T) -> Variable:
        condition = as_variable(cond_fun(carry), "what cond_fun returns", "while_loop")
        if condition.shape:
            raise ValueError(f"while_loop: cond_fun must return one number, got one of shape {condition.shape}")
        return condition

    def step(carry: T) -> T:
        after: T = jax.tree.unflatten(tree, checked_carry(carry, body_fun(carry), "while_loop"))
        return after

    specs = [x.spec for x in inputs]
    def condition_as_body(often: bool) -> Captured:
        return captured(lambda xs: [goes_on(jax.tree.unflatten(tree, xs))], specs, "while_loop", cond_fun, often)

    if bound is not None:
        condition_as_body(often=False)  # refuses what has no meaning in a condition
        return _bounded(goes_on, step, carry, bound, body_fun)
    body = captured(
        lambda xs: jax.tree.leaves(step(jax.tree.unflatten(tree, xs))), specs, "while_loop", body_fun, often=True,
        updates=True,
    )  # fmt: skip
    condition = condition_as_body(often=not body.updated)  # what it reads of these is another value at each step
    if condition.keys or body.keys:
        raise ValueError("while_loop: it draws at random at each step; give a bound, so that keys can be made for each")
    updated = {id(x): x for x in body.updated}
    read = {id(x): x for x in (*condition.variables, *body.variables) if id(x) not in updated}
    given = (*read.values(), *updated.values(), *inputs)
    places = {i: k for k, i in enumerate([*read, *updated])}
    own = range(len(places), len(given))
    bodies = [
        each.body.with_inputs(
            tuple([x.spec for x in given]), [*[places[id(x)] for x in (*each.variables, *each.updated)], *own]
        )
        for each in (condition, body)
    ]
    effects = tuple([(leaf, k) for k, leaf in enumerate(body.updated)])
    outputs = apply(while_of_bodies, given, (*bodies, len(read)), effects)
    return jax.tree.unflatten(tree, outputs[len(updated) :])  # type: ignore[no-any-return]


def _bounded(
    goes_on: Callable[[T], Variable], step: Callable[[T], T], carry: T, bound: int, written: Callable[[T], T]
) -> T:
    """The loop as a scan; `written` is what the user has written as its body."""
    try:
        length = operator.index(bound)
    except TypeError:
        raise TypeError(f"while_loop: bound must be an int, got {bound!r}") from None

    def advance(carry: T) -> tuple[Variable, T]:
        after = step(carry)
        return comparison.not_equal_scalar(goes_on(after), 0), after

    def at_each(state: tuple[Variable, T], _: None) -> Any:
        runs, carry = state
        return cond(runs, advance, lambda carry: (runs, carry), carry), None

    if isinstance(bound, bool) or length < 0:
        raise ValueError(f"while_loop: bound must be an int that is not negative, got {bound!r}")
    start = comparison.not_equal_scalar(goes_on(carry), 0), carry
    last: T = scanned(at_each, start, None, length, False, 1, "while_loop", written)[0][1]
    return last
