"""scan, fori_loop and map: loops as functions of the graph.

The step is a body (`graph/block.py`), a static argument of one op. So a loop is one function of the graph, however many
steps it takes, and its gradient is a loop over the gradient of its body.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import numpy as np

from ..graph import Array, Variable, as_variable, build_options, op, spec_of
from ..graph.arguments import as_int, checked_count, coerced
from ..graph.capture import captured, place_of_function
from ..graph.leaf import common_floating
from ..graph.signatures import explained_by_name
from .bodies.carries import Carried
from .bodies.loop import AT_ONCE
from .bodies.scans import looped
from .stochastic import typed_key

T = TypeVar("T")


@op
def step_keys(key: Array, /, length: int) -> jax.Array:
    """Keys for the steps of a loop, uint32[length, 2], derived from `key`."""
    return jax.random.key_data(jax.random.split(typed_key(key), length))


# ---------------------------------------------------------------- public functions


@explained_by_name
def scan(
    body: Callable[[Any, Any], tuple[Any, Any]], init: Any, xs: Any = None, length: int | None = None,
    reverse: bool = False, unroll: int = 1,
) -> tuple[Any, Any]:
    """A loop that carries values from step to step and stacks the outputs of each step.

        last, ys = F.scan(lambda h, x: (F.tanh(h @ w + x),) * 2, h0, xs)

    As `jax.lax.scan`: `body` gets the carry and a slice of `xs`, and returns the carry for the next step and an output,
    which is stacked. It is called once, on Variables without values, to record the computation of a step. Gradients of
    any order reach `init`, `xs` and all that the body reads from outside. Random functions in it draw at each step, and
    gradients see the same draws. A leaf that it updates, as batch normalisation does, is updated at each step.

    Args:
        body: `body(carry, x)` returns `(carry, y)`, pytrees of Variables, arrays and numbers. The new carry has the
            structure, shapes and dtypes of the old one; `y` may be None.
        init: The first carry, a pytree.
        xs: A pytree of the arrays to scan along their first axes. The body gets slices without that axis. None for no
            arrays; then `length` must be given.
        length: The number of steps; by default, the length of the first axes.
        reverse: Whether to go through `xs` from its end. Slice i still gives entry i of the stacks.
        unroll: How many steps the compiler unrolls: more take longer to compile, and may run faster.

    Returns:
        The last carry, and the stacks, each with the steps along its first axis.

    Raises:
        TypeError: An argument has a wrong type, or the body does not return a pair, or a carry of another structure or
            dtype.
        ValueError: The lengths do not fit, a carry changes its shape, or the body updates one of its arguments.
    """
    checked_count(unroll, "scan: unroll")
    return scanned(check_body(body, "body", "scan"), init, xs, length, reverse, unroll, "scan", body)


def scanned(
    body: Callable[[Any, Any], Any], init: Any, xs: Any, length: int | None, reverse: bool, unroll: int, owner: str,
    written: Callable[..., Any],
) -> tuple[Any, Any]:  # fmt: skip
    """The result of `scan` under the name of this function; `written` is the body as the user wrote it."""
    leaves, tree = jax.tree.flatten((init, xs))
    floating = common_floating(leaves)
    inputs = [as_variable(leaf, name, owner, floating) for leaf, name in zip(leaves, _names(init, xs), strict=True)]
    carries = len(jax.tree.leaves(init))
    try:
        count = _checked_length(inputs[carries:], _names(init, xs)[carries:], length, owner)
    except ValueError as error:
        error.add_note(f"for the body of {owner}{place_of_function(written)}")
        raise
    if not isinstance(reverse, bool | np.bool_):
        raise TypeError(f"{owner}: reverse must be True or False, got {reverse!r}")
    results: Any = None

    def flat(operands: list[Variable]) -> list[Variable]:
        nonlocal results
        carry, x = jax.tree.unflatten(tree, operands)
        pair = body(carry, x)
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise TypeError(f"{owner}: the body must return a pair (carry, outputs to stack), got {_short(pair)}")
        results = jax.tree.structure(tuple(pair))
        stacked = [
            as_variable(leaf, f"what the body returns as {name}", owner, floating)
            for leaf, name in zip(jax.tree.leaves(pair[1]), _names(pair[1], of=("y",)), strict=True)
        ]
        return [*checked_carry(carry, pair[0], owner), *stacked]

    slices = [spec_of(x.shape[1:], x.dtype) for x in inputs[carries:]]
    specs = [*[x.spec for x in inputs[:carries]], *slices]
    arguments = [*[None] * carries, *inputs[carries:]]
    recorded = captured(flat, specs, owner, written, often=True, updates=True, arguments=arguments)
    keys = [step_keys(key, length=count) for key in recorded.keys]
    carried = Carried(recorded.body, len(recorded.variables), len(recorded.updated) + carries)
    operands = (*recorded.variables, *recorded.updated, *inputs, *keys)
    outputs = looped(carried, operands, recorded.updated, count, bool(reverse), min(unroll, max(count, 1)))
    last: tuple[Any, Any] = jax.tree.unflatten(results, outputs)
    return last


@explained_by_name
def fori_loop(lower: int, upper: int, body: Callable[[Variable, T], T], init: T) -> T:
    """A loop over the integers from `lower` to `upper`, which is excluded.

    As `jax.lax.fori_loop` with constant bounds: `body(i, carry)` returns the carry for the next step. The documentation
    of `scan` applies too.

    Args:
        lower: The first number.
        upper: The upper bound, which is excluded; if it is not above `lower`, `init` is returned.
        body: Gets the number, an int32 Variable of shape (), and the carry, a pytree.
        init: The first carry.

    Returns:
        The last carry.

    Raises:
        TypeError: A bound is not an int, or the carry changes its structure or a dtype.
        ValueError: A carry changes its shape.
    """
    first, end = coerced(as_int, lower, "fori_loop: lower"), coerced(as_int, upper, "fori_loop: upper")
    numbers = np.arange(first, max(first, end), dtype=np.int32)
    check_body(body, "body", "fori_loop")
    result: T = scanned(
        lambda carry, i: (body(i, carry), None), init, numbers, None, False, 1, "fori_loop", body
    )[0]
    return result


@explained_by_name
def map(function: Callable[[Any], Any], xs: Any) -> Any:  # noqa: A001 - as jax.lax.map
    """`function` applied to each slice of `xs` along the first axes, one after another; the results are stacked.

    As `jax.lax.map`: it needs the memory of one slice at a time.

    Args:
        function: A function of a pytree of Variables that returns another.
        xs: A pytree of the arrays to slice along their first axes.

    Returns:
        The stacks.

    Raises:
        ValueError: The lengths do not fit.
    """
    check_body(function, "function", "map")
    return scanned(lambda _, x: (None, function(x)), None, xs, None, False, 1, "map", function)[1]


def each(function: Callable[[Any], Any], xs: Any) -> Any:
    """`map` of a function that keeps a CPU busy: on other platforms it is applied to all slices at once."""
    return scanned(lambda _, x: (None, function(x)), None, xs, None, False, AT_ONCE, "each", function)[1]


def _names(*trees: Any, of: Sequence[str] = ("init", "xs")) -> list[str]:
    """Names of the leaves of pytrees, for messages."""
    return [
        name + jax.tree_util.keystr(path)
        for name, tree in zip(of, trees, strict=True)
        for path, _ in jax.tree_util.tree_flatten_with_path(tree)[0]
    ]


def _checked_length(scanned: Sequence[Variable], names: Sequence[str], length: int | None, owner: str) -> int:
    """The number of steps."""
    for x, name in zip(scanned, names, strict=True):
        if not x.shape:
            raise ValueError(f"{owner}: {name} must have an axis to loop over. Let the body read scalars directly")
    if length is None:
        if not scanned:
            raise ValueError(f"{owner}: xs contains no array, so length, the number of steps, is required")
        length = scanned[0].shape[0]
        wanted = f"like {names[0]}"
    else:
        checked_count(length, f"{owner}: length", 0)
        wanted = "as given by length"
    for x, name in zip(scanned, names, strict=True):
        if x.shape[0] != length:
            raise ValueError(f"{owner}: {name} must have {length} slices along axis 0, {wanted}, got {x.shape[0]}")
    return int(length)


def check_body(function: Any, name: str, owner: str) -> Callable[..., Any]:
    """The argument `name` of `owner`, checked to be callable."""
    if not callable(function) or isinstance(function, Variable):
        raise TypeError(f"{owner}: {name} must be a function of Variables, got {_short(function)}")
    checked: Callable[..., Any] = function
    return checked


def checked_carry(before: Any, after: Any, owner: str) -> list[Variable]:
    """The Variables of a carry, after checking that a step of `owner` kept its structure, shapes and dtypes."""
    expected, structure = jax.tree.structure(before), jax.tree.structure(after)
    if str(expected) != str(structure):
        raise TypeError(f"{owner}: the body must keep the structure of the carry, {expected}, got {structure}")
    outputs = []
    names = _names(before, of=("carry",))
    policy = build_options().applying.precision
    for name, x, leaf in zip(names, jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        y = as_variable(leaf, f"what the body returns as {name}", owner, x.dtype)
        if policy is not None:
            y = policy.like(y, x.dtype)
        if x.spec is not y.spec:
            kind = TypeError if x.shape == y.shape else ValueError
            raise kind(f"{owner}: the body must keep the type of {name}, {x.spec}, got {y.spec}")
        outputs.append(y)
    return outputs


def _short(value: Any) -> str:
    """A value, shortened for a message."""
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    return repr(value)
