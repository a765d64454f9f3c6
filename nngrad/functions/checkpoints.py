"""checkpoint: a part of a graph that gradients compute again."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

import jax

from ..graph import Array, Function, Op, Spec, Variable, apply, as_variable
from ..graph.arguments import Static
from ..graph.block import Block
from ..graph.capture import captured
from ..graph.leaf import common_floating
from ..graph.within import InSteps, Steps, Within
from ..graph.within import outputs_of as results_of
from .body_costs import operations_in

P = ParamSpec("P")
R = TypeVar("R")


class OpOfBody(Op):
    """An op that is just a body, and knows the shapes of its outputs from that."""

    def result_specs(self, given: tuple[Spec, ...], arguments: tuple[Any, ...]) -> tuple[Spec, ...]:
        """Shape and dtype of each output."""
        body: Block = arguments[0]
        return tuple([body.spec(number) for number in body.outputs])


def cost_of_body(f: Function) -> int:
    """About how many operations the body takes."""
    return operations_in(f.arguments[0])


def body_of(body: Block, *_: Any) -> Block:
    """The body that stands for an application with these arguments."""
    return body


def outputs_of(body: Block, x: tuple[Any, ...]) -> tuple[jax.Array, ...]:
    """What a body gives for some arrays."""
    values = body.run(x)
    return tuple([x[i] if i >= 0 else values[~i] for i in body.outputs])


def _bodies(arguments: tuple[Any, ...], count: int) -> tuple[Within, ...]:
    """The one that it is."""
    body: Block = arguments[0]
    inputs = tuple([f"input{i}" for i in range(count)])
    outputs = tuple([f"result{i}" for i in range(len(body.outputs))])
    gives = tuple([("", number) for number in body.outputs])
    return (Within("body", body, 1, inputs, outputs, tuple(range(count)), gives),)


def _step_by_step(arguments: tuple[Any, ...], inputs: Sequence[Any], steps: Steps[Any]) -> list[Any]:
    """The same as the forward, with a body that is looked at."""
    return results_of(arguments[0], inputs, steps.run("body", arguments[0], inputs))


def dependence(arguments: tuple[Any, ...], given: Sequence[bool]) -> list[bool]:
    """Which outputs depend on the inputs that are `given`."""
    body: Block = arguments[0]
    numbers = body.depending([i for i, is_given in enumerate(given) if is_given])
    return [number in numbers for number in body.outputs]


in_steps = InSteps(_bodies, _step_by_step)


def _checkpoint_of_body(*x: Array, body: Static) -> tuple[jax.Array, ...]:
    """A body, of which gradients compute again what they need.

    Args:
        x: What it is applied to.
        body: The body.
    """
    return outputs_of(body, x)


_checkpoint_of_body.__name__ = "checkpoint_of_body"
checkpoint_of_body = OpOfBody(
    _checkpoint_of_body, type_name="Checkpoint", multiple_results=True, cost=cost_of_body, inlines_to=body_of,
    dependence=dependence, in_steps=in_steps,
)  # fmt: skip


def is_array(value: Any) -> bool:
    """Whether an argument of a function of Variables is a Variable or an array, and not a setting."""
    return isinstance(value, Variable) or (hasattr(value, "shape") and hasattr(value, "dtype"))


def checkpoint(fun: Callable[P, R]) -> Callable[P, R]:
    """`fun`, of which gradients compute again what they need, and keep nothing but what it was given.

        for w in weights:
            h = nn.checkpoint(layer)(h, w)

    As `jax.checkpoint`. It holds for gradients of every order, and of forward mode. Functions within may be checkpoints
    too, and it may be called in the body of a loop: a scan of checkpointed scans takes the memory of the square root of
    the steps. Random functions in it draw once for each `forward()`, and what is computed again draws the same.

    Args:
        fun: A function of pytrees with Variables, which returns a pytree of Variables. It is run once in each call, on
            Variables without values; arguments that are no Variables or arrays reach it as they are. What it reads from
            outside is differentiated as well.

    Returns:
        A function that is called as `fun` is, and returns what that returns.

    Raises:
        TypeError: `fun` cannot be called.
        ValueError: When it is called: a function in it updates a Variable.
    """
    if not callable(fun):
        raise TypeError(f"checkpoint: fun must be a function of Variables, got {fun!r}")

    @functools.wraps(fun)
    def checkpointed(*args: P.args, **kwargs: P.kwargs) -> R:
        leaves, tree = jax.tree.flatten((args, kwargs), is_leaf=lambda x: x is None)
        places = [i for i, leaf in enumerate(leaves) if is_array(leaf)]
        floating = common_floating(leaves)
        inputs = [as_variable(leaves[i], f"argument {i}", "checkpoint", floating) for i in places]
        structure: Any = None

        def flat(given: list[Variable]) -> list[Variable]:
            nonlocal structure
            filled = list(leaves)
            for i, x in zip(places, given, strict=True):
                filled[i] = x
            own_args, own_kwargs = jax.tree.unflatten(tree, filled)
            results, structure = jax.tree.flatten(fun(*own_args, **own_kwargs))
            return [as_variable(y, f"result {i}", "checkpoint", floating) for i, y in enumerate(results)]

        found = captured(flat, [x.spec for x in inputs], "checkpoint", fun, often=False)
        outputs = ()
        if found.body.outputs:
            outputs = apply(checkpoint_of_body, (*found.variables, *inputs, *found.keys), (found.body,))
        result: R = jax.tree.unflatten(structure, outputs)
        return result

    return checkpointed
