"""vmap: apply a function of Variables to many values at once.

The function is captured as a body, the body is batched, and the result is put into the graph as ordinary functions,
which can be differentiated like any others.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax

import nngrad.functions as F

from ..functions.inlining import inlined
from ..functions.loops import step_keys
from ..graph import Variable, as_variable, build_options, spec_of
from ..graph.block import Block
from ..graph.capture import captured
from ..graph.leaf import common_floating
from ..graph.value import made_together


class _Leaf(NamedTuple):
    """A leaf of the function's arguments or results."""

    name: str
    value: Any
    axis: int | None
    """The axis of the rows, or None."""


def vmap(fun: Callable[..., Any], in_axes: Any = 0, out_axes: Any = 0) -> Callable[..., Any]:
    """Vectorise `fun` over rows along an axis of its inputs, as `jax.vmap` does.

        each = nn.vmap(lambda x, t: nn.grad(loss(x, t), [w])[0])(xs, ts)        # the gradient of each sample

    `fun` runs once, on Variables without values and without that axis; its computation is then done for all rows
    together. Gradients of any order reach its arguments and the Variables it closes over. Random functions in it draw
    for each row. `nn.grad` may be called in it, and it may be mapped again.

    Args:
        fun: Pytrees of Variables in, a pytree of Variables, arrays and numbers out.
        in_axes: The axis of the rows in its arguments: an int for all of them, or a tuple with an int, None or a pytree
            of these for each; None is for an argument that all rows share. Keyword arguments are mapped along their
            first axes.
        out_axes: The axis of the rows in its results: an int, or a pytree of these; None for a result that is the same
            for all rows.

    Returns:
        A function of pytrees of Variables, arrays and numbers that returns a pytree of Variables.

    Raises:
        TypeError: `fun` is not a function, or an axis is not an int. The returned function also raises it, if an
            argument or result of `fun` does not fit a Variable.
        ValueError: (from the returned function) Axes do not fit the arguments, the sizes along them differ, there is no
            axis, or a function in `fun` updates a Variable to a value that depends on the row; or `nn.grad` in `fun`
            differentiates a row of an argument by a row of another, from which the former was computed outside.
    """
    if not callable(fun):
        raise TypeError(f"vmap: fun: expected a function, got {fun!r}")
    if isinstance(in_axes, list):
        raise TypeError(f"vmap: in_axes must be an int, None or a tuple with one for each argument, got {in_axes!r}")

    @functools.wraps(fun)
    def mapped_over_rows(*args: Any, **kwargs: Any) -> Any:
        return _mapped(fun, in_axes, out_axes, args, kwargs)

    return mapped_over_rows


def _mapped(fun: Callable[..., Any], in_axes: Any, out_axes: Any, args: Any, kwargs: Any) -> Any:
    """The results of a function for all rows of its arguments."""
    leaves = _with_axes(args, in_axes, "in_axes", "argument ") + _with_axes(kwargs, 0, "in_axes", "argument ")
    floating = common_floating([leaf.value for leaf in leaves])
    inputs = [as_variable(leaf.value, leaf.name, "vmap", floating) for leaf in leaves]
    axes = [_place(leaf.axis, x.ndim, leaf.name, x.shape) for leaf, x in zip(leaves, inputs, strict=True)]
    count = _count(leaves, inputs, axes)
    rows = [x if axis is None else F.moveaxis(x, axis, 0) for x, axis in zip(inputs, axes, strict=True)]
    tree = jax.tree.structure((args, kwargs))
    results: list[Any] = []

    def flat(placeholders: list[Variable]) -> list[Variable]:
        positional, named = jax.tree.unflatten(tree, placeholders)
        returned = fun(*positional, **named)
        results.append(jax.tree.structure(returned))
        results.extend(_with_axes(returned, out_axes, "out_axes", "the result"))
        return [as_variable(leaf.value, leaf.name, "vmap", floating) for leaf in results[1:]]

    specs = [x.spec if axis is None else spec_of(x.shape[1:], x.dtype) for x, axis in zip(rows, axes, strict=True)]
    capture = captured(flat, specs, "vmap", fun, often=True, arguments=inputs)
    keys = [step_keys(key, length=count) for key in capture.keys]
    leading = (*[False] * len(capture.variables), *[axis is not None for axis in axes], *[True] * len(keys))
    structure, *returned = results
    body = capture.body
    depending = body.depending([i for i, has_lead in enumerate(leading) if has_lead])
    for leaf, number in zip(returned, body.outputs, strict=True):
        if leaf.axis is None and number in depending:
            raise ValueError(f"vmap: {leaf.name} differs between rows, so out_axes must be an axis for it, not None")
    given_as = tuple(["each" if has_lead else "" for has_lead in leading])
    wanted_as = tuple(["" if leaf.axis is None else "each" for leaf in returned])
    batched = body.batched(given_as, count, body.outputs, wanted_as)
    ys = _inlined(batched, [*capture.variables, *rows, *keys])
    outputs = [
        y if leaf.axis is None else F.moveaxis(y, 0, _place(leaf.axis, y.ndim, leaf.name, y.shape) or 0)
        for leaf, y in zip(returned, ys, strict=True)
    ]
    made_together(outputs)
    return jax.tree.unflatten(structure, outputs)


def _inlined(body: Block, inputs: list[Variable]) -> list[Variable]:
    """Apply a body to inputs, as functions of the graph."""
    if build_options().emitting.builder is not None:
        return inlined(body, inputs)
    return body.placed(inputs)


def _with_axes(tree: Any, axes: Any, argument: str, name: str) -> list[_Leaf]:
    """The leaves of a pytree, each with its axis.

    Args:
        tree: The pytree.
        axes: An axis, or a pytree prefix of axes.
        argument: The argument that has the axes, for messages.
        name: The name of the leaves in messages.
    """
    listed = jax.tree_util.tree_flatten_with_path(tree)[0]
    try:
        nested = jax.tree.map(
            lambda axis, below: [_Axis(axis)] * len(jax.tree.leaves(below)), axes, tree, is_leaf=lambda x: x is None
        )
    except ValueError as error:
        raise ValueError(f"vmap: {argument} {axes!r} does not match {name.strip()}: {error}") from None
    axis_of = [leaf.axis for leaf in jax.tree.leaves(nested)]
    for axis in axis_of:
        if axis is not None and (isinstance(axis, bool) or not hasattr(axis, "__index__")):
            raise TypeError(f"vmap: {argument} must be ints or None, got {axis!r}")
    return [
        _Leaf(f"{name}{jax.tree_util.keystr(path)}", value, None if axis is None else operator.index(axis))
        for (path, value), axis in zip(listed, axis_of, strict=True)
    ]


class _Axis:
    """An axis, or None, as a leaf of a pytree."""

    def __init__(self, axis: Any) -> None:
        self.axis = axis


def _place(axis: int | None, ndim: int, name: str, shape: tuple[int, ...]) -> int | None:
    """An axis as a non-negative number."""
    if axis is not None and not -ndim <= axis < ndim:
        raise ValueError(
            f"vmap: {name}, of shape {shape}, has no axis {axis}; use None for an argument that all rows share"
        )
    return None if axis is None else axis % ndim


def _count(leaves: Sequence[_Leaf], inputs: Sequence[Variable], axes: Sequence[int | None]) -> int:
    """The number of rows."""
    sizes = {leaf.name: x.shape[a] for leaf, x, a in zip(leaves, inputs, axes, strict=True) if a is not None}
    if not sizes:
        raise ValueError("vmap: in_axes must be an axis, not None, for at least one argument")
    if len(set(sizes.values())) > 1:
        listed = ", ".join([f"{name} has {size}" for name, size in sizes.items()])
        raise ValueError(f"vmap: all arguments must have the same number of rows, but {listed}")
    return next(iter(sizes.values()))
