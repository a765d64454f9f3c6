"""while_loop: a loop with an unknown number of steps, optionally bounded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jax

from ..graph import Variable, apply, as_variable
from ..graph.arguments import checked_count
from ..graph.capture import Captured, captured
from ..graph.leaf import common_floating
from ..graph.signatures import explained_by_name
from . import comparison
from .bodies.while_loops import while_of_bodies
from .branches import cond
from .loops import check_body, checked_carry, scanned

T = TypeVar("T")


@explained_by_name
def while_loop(cond_fun: Callable[[T], Any], body_fun: Callable[[T], T], init: T, bound: int | None = None) -> T:
    """A loop that runs while a condition holds: `while cond_fun(carry): carry = body_fun(carry)`.

    As `jax.lax.while_loop`. The number of steps is not known before it runs, so nothing can be stored for a gradient:
    without a `bound` there is only forward mode (`nn.jvp`), of any order. With one it is a `scan` of that many steps,
    which computes nothing once the condition fails, and has gradients of any order.

    Args:
        cond_fun: A function of the carry that returns a bool or a number of shape ().
        body_fun: A function of the carry that returns the next one, with the same structure, shapes and dtypes.
        init: The first carry, a pytree of Variables, arrays and numbers.
        bound: The largest number of steps.

    Returns:
        The last carry.

    Raises:
        TypeError: The carry changes its structure or a dtype, or `bound` is not an int.
        ValueError: A carry changes its shape, the condition has axes, a function in it updates a Variable, or a
            function draws random numbers without a bound.
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
            raise ValueError(f"while_loop: cond_fun must return a scalar, got shape {condition.shape}")
        return condition

    def step(carry: T) -> T:
        after: T = jax.tree.unflatten(tree, checked_carry(carry, body_fun(carry), "while_loop"))
        return after

    specs = [x.spec for x in inputs]
    def condition_as_body(often: bool) -> Captured:
        return captured(lambda xs: [goes_on(jax.tree.unflatten(tree, xs))], specs, "while_loop", cond_fun, often)

    if bound is not None:
        condition_as_body(often=False)  # refuses functions that make no sense in a condition
        return _bounded(goes_on, step, carry, bound, body_fun)
    body = captured(
        lambda xs: jax.tree.leaves(step(jax.tree.unflatten(tree, xs))), specs, "while_loop", body_fun, often=True,
        updates=True,
    )  # fmt: skip
    condition = condition_as_body(often=not body.updated)  # it reads different values of these at each step
    if condition.keys or body.keys:
        raise ValueError("while_loop: random draws in the body need a bound, so that each step gets a key. Pass bound=")
    updated = {id(x): x for x in body.updated}
    read = {id(x): x for x in (*condition.variables, *body.variables) if id(x) not in updated}
    operands = (*read.values(), *updated.values(), *inputs)
    places = {i: k for k, i in enumerate([*read, *updated])}
    carried = range(len(places), len(operands))
    bodies = [
        part.body.with_inputs(
            tuple([x.spec for x in operands]), [*[places[id(x)] for x in (*part.variables, *part.updated)], *carried]
        )
        for part in (condition, body)
    ]
    effects = tuple([(leaf, k) for k, leaf in enumerate(body.updated)])
    outputs = apply(while_of_bodies, operands, (*bodies, len(read)), effects)
    return jax.tree.unflatten(tree, outputs[len(updated) :])  # type: ignore[no-any-return]


def _bounded(
    goes_on: Callable[[T], Variable], step: Callable[[T], T], carry: T, bound: int, written: Callable[[T], T]
) -> T:
    """The loop as a scan; `written` is the user's own body function."""
    length = checked_count(bound, "while_loop: bound", 0)

    def advance(carry: T) -> tuple[Variable, T]:
        after = step(carry)
        return comparison.not_equal_scalar(goes_on(after), 0), after

    def at_each(state: tuple[Variable, T], _: None) -> Any:
        runs, carry = state
        return cond(runs, advance, lambda carry: (runs, carry), carry), None

    start = comparison.not_equal_scalar(goes_on(carry), 0), carry
    last: T = scanned(at_each, start, None, length, False, 1, "while_loop", written)[0][1]
    return last
