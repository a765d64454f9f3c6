"""cond and switch: branches of which only the selected one runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from ..graph import Variable, apply, as_variable, build_options
from ..graph.block import Block
from ..graph.capture import Captured, captured, place_of_function
from ..graph.leaf import common_floating
from ..graph.signatures import explained_by_name
from . import array, comparison
from .bodies.alternatives import switch_of_bodies
from .bodies.derived_bodies import saving
from .loops import check_body


@explained_by_name
def switch(index: Any, branches: Sequence[Callable[..., Any]], *operands: Any) -> Any:
    """The result of the selected function: `branches[index](*operands)`.

    As `jax.lax.switch`: the index is a Variable, and only the selected branch runs. Gradients of any order reach the
    operands and all that the branches read from outside, and come from the selected branch alone. So do the new values
    of leaves that functions in the branches update.

    Args:
        index: An integer of shape (); values out of range are clamped.
        branches: Functions of the operands, which return pytrees of the same structure, shapes and dtypes. Each is run
            once, on Variables without values.
        operands: Pytrees of Variables, arrays and numbers.

    Returns:
        The result of the branch.

    Raises:
        TypeError: The index is not an integer, or the branches return different structures or dtypes.
        ValueError: There is no branch, the index has axes, the branches return different shapes, or one of them updates
            an operand.
    """
    which = as_variable(index, "index", "switch")
    if which.dtype.kind not in "iu":
        raise TypeError(f"switch: index must be an integer, got {which.spec}. For a condition, use F.cond")
    if not isinstance(branches, list | tuple):
        raise TypeError(f"switch: branches must be a list of functions, got {branches!r}")
    if not branches:
        raise ValueError("switch: branches must not be empty")
    return _switched(which, [(f"branches[{i}]", branch) for i, branch in enumerate(branches)], operands, "switch")


@explained_by_name
def cond(pred: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any], *operands: Any) -> Any:
    """`true_fun(*operands)` if `pred` is not 0, else `false_fun(*operands)`; only that one runs.

    As `jax.lax.cond`; the documentation of `switch` applies too. If both sides are cheap, `F.where` is faster.

    Args:
        pred: The condition, a bool or a number of shape ().
        true_fun: The function applied if it holds.
        false_fun: The function applied if it does not.
        operands: The arguments of both functions.

    Returns:
        The result of the function.

    Raises:
        TypeError: The functions return different structures or dtypes.
        ValueError: `pred` has axes, the functions return different shapes, or one of them updates an operand.
    """
    condition = as_variable(pred, "pred", "cond")
    which = array.cast(comparison.not_equal_scalar(condition, 0), dtype="int32")
    return _switched(which, [("false_fun", false_fun), ("true_fun", true_fun)], operands, "cond")


def _switched(which: Variable, branches: list[tuple[str, Callable[..., Any]]], operands: Any, owner: str) -> Any:
    """The result of one of several branches, each with its name for messages."""
    if which.shape:
        name = "index" if owner == "switch" else "pred"
        raise ValueError(f"{owner}: {name} must be a scalar, got shape {which.shape}. For arrays, use F.where")
    leaves, tree = jax.tree.flatten(operands)
    floating = common_floating(leaves)
    inputs = [as_variable(leaf, f"operand {i}", owner, floating) for i, leaf in enumerate(leaves)]
    results: list[Any] = []

    def run(branch: Callable[..., Any], name: str) -> Captured:
        def flat(arguments: list[Variable]) -> list[Variable]:
            returned, structure = jax.tree.flatten(branch(*jax.tree.unflatten(tree, arguments)))
            results.append(structure)
            variables = [as_variable(y, f"what {name} returns", owner, floating) for y in returned]
            policy = build_options().applying.precision
            return variables if policy is None else [policy.settled(y) for y in variables]

        return captured(flat, [x.spec for x in inputs], owner, branch, often=False, updates=True)

    for name, branch in branches:
        check_body(branch, name, owner)
    captures = [run(branch, name) for name, branch in branches]
    try:
        _check_alike([name for name, _ in branches], results, captures, owner)
    except (TypeError, ValueError) as error:
        error.add_note("; ".join([f"{name} of {owner}{place_of_function(branch)}" for name, branch in branches]))
        raise
    updated = tuple({id(x): x for capture in captures for x in capture.updated}.values())
    read = [(*capture.variables, *capture.updated, *inputs, *capture.keys) for capture in captures]
    variables = {id(x): x for arguments in read for x in arguments}
    place = {i: k for k, i in enumerate(variables)}
    specs = tuple([x.spec for x in variables.values()])

    def arranged(capture: Captured, arguments: tuple[Variable, ...]) -> Block:
        """A branch that takes the inputs of all, and first returns the new values of all updated leaves."""
        body = capture.body.with_inputs(specs, [place[id(x)] for x in arguments])
        new = {id(x): number for x, number in zip(capture.updated, body.outputs, strict=False)}
        after = [new.get(id(x), place[id(x)]) for x in updated]
        outputs = (*after, *body.outputs[len(new) :])
        return Block(body.inputs, body.steps, body.orders, outputs, body.stop_gradients, body.places)

    bodies, saved = saving(tuple(map(arranged, captures, read)))
    effects = tuple([(leaf, k) for k, leaf in enumerate(updated)])
    outputs = apply(switch_of_bodies, (which, *variables.values()), (bodies, saved), effects)
    return jax.tree.unflatten(results[0], outputs[len(updated) : len(outputs) - saved])


def _check_alike(names: list[str], results: list[Any], captures: list[Captured], owner: str) -> None:
    """Raise an error unless all branches return the same structure, shapes and dtypes."""
    bodies = [(capture.body, len(capture.updated)) for capture in captures]
    first, *_ = of_branches = [[body.spec(n) for n in body.outputs[updated:]] for body, updated in bodies]
    for name, structure, specs in zip(names, results, of_branches, strict=True):
        if str(structure) != str(results[0]):
            raise TypeError(f"{owner}: results of {names[0]} and {name} must agree, got {results[0]} and {structure}")
        for i, (a, b) in enumerate(zip(first, specs, strict=True)):
            if a is not b:
                kind = TypeError if a.shape == b.shape else ValueError
                raise kind(f"{owner}: result {i} of {names[0]} and {name} must agree, got {a} and {b}")
