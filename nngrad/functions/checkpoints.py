"""checkpoint: rematerialise part of a graph when gradients need it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

import jax

from ..graph import Variable, apply, as_variable
from ..graph.capture import captured
from ..graph.leaf import common_floating
from ..graph.spec import DType
from .bodies.alternatives import checkpoint_of_body

P = ParamSpec("P")
R = TypeVar("R")


def arguments_among(
    args: tuple[Any, ...], kwargs: dict[str, Any], owner: str
) -> tuple[list[Variable], DType | None, Callable[[list[Variable]], tuple[tuple[Any, ...], dict[str, Any]]]]:
    """The Variables and arrays among the arguments of a function of pytrees, as Variables; the dtype of those that are
    floating; and a function that returns the arguments with others in place of these. `owner` is for messages."""
    leaves, tree = jax.tree.flatten((args, kwargs), is_leaf=lambda x: x is None)
    places = [
        i for i, x in enumerate(leaves) if isinstance(x, Variable) or (hasattr(x, "shape") and hasattr(x, "dtype"))
    ]
    floating = common_floating(leaves)

    def with_values(values: list[Variable]) -> Any:
        filled = list(leaves)
        for i, x in zip(places, values, strict=True):
            filled[i] = x
        return jax.tree.unflatten(tree, filled)

    return [as_variable(leaves[i], f"argument {i}", owner, floating) for i in places], floating, with_values


def checkpoint(fun: Callable[P, R]) -> Callable[P, R]:
    """`fun`, whose gradients recompute inner values and store only its arguments.

        for w in weights:
            h = nn.checkpoint(layer)(h, w)

    As `jax.checkpoint`. It applies to gradients of every order, and to forward mode. Checkpoints may be nested, and may
    be called in the body of a loop: a scan of checkpointed scans takes memory for the square root of the number of
    steps. Random functions in it draw once for each `forward()`, and a recomputation sees the same draws.

    Args:
        fun: A function of pytrees with Variables that returns a pytree of Variables. It runs once in each call, on
            Variables without values; arguments that are not Variables or arrays are passed unchanged. Gradients also
            reach the Variables that it reads from outside.

    Returns:
        A function with the arguments and results of `fun`.

    Raises:
        TypeError: `fun` cannot be called.
        ValueError: When it is called: a function in it updates a Variable.
    """
    if not callable(fun):
        raise TypeError(f"checkpoint: fun must be a function of Variables, got {fun!r}")

    @functools.wraps(fun)
    def checkpointed(*args: P.args, **kwargs: P.kwargs) -> R:
        inputs, floating, with_values = arguments_among(args, kwargs, "checkpoint")
        structure: Any = None

        def flat(variables: list[Variable]) -> list[Variable]:
            nonlocal structure
            own_args, own_kwargs = with_values(variables)
            results, structure = jax.tree.flatten(fun(*own_args, **own_kwargs))
            return [as_variable(y, f"result {i}", "checkpoint", floating) for i, y in enumerate(results)]

        outputs = applied_checkpoint(lambda variables: (flat(variables), []), inputs, fun)
        result: R = jax.tree.unflatten(structure, outputs)
        return result

    return checkpointed


def applied_checkpoint(
    function: Callable[[list[Variable]], tuple[list[Variable], list[Variable]]], inputs: Sequence[Variable],
    written: Callable[..., Any],
) -> Sequence[Variable]:  # fmt: skip
    """The results of a checkpoint of `function`, which returns the results and the inner values to keep for gradients;
    `written` is the user's own function."""
    count = 0

    def flat(variables: list[Variable]) -> list[Variable]:
        nonlocal count
        results, stored = function(variables)
        count = len(results)
        return [*results, *stored]

    recorded = captured(flat, [x.spec for x in inputs], "checkpoint", written, often=False)
    numbers = recorded.body.outputs
    if not count:
        return ()
    stored = tuple(dict.fromkeys([n for n in numbers[count:] if n < 0 and n not in numbers[:count]]))
    body = recorded.body.with_outputs(numbers[:count])
    operands = (*recorded.variables, *inputs, *recorded.keys)
    outputs: Sequence[Variable] = apply(checkpoint_of_body, operands, (body, stored))
    return outputs[:count]
