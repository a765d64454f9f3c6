"""Functions for JAX, computed op by op: by NumPy where it has the op, so that little is compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import Jaxpr, Literal

from nngrad.functions.traced.jaxprs import called_function, counts_of_scan


def evaluated(f: Callable[..., Any]) -> Callable[..., Any]:
    """`f`, traced at once and then computed op by op; loops and branches are Python's."""

    def run(*args: Any) -> Any:
        closed, shape = jax.make_jaxpr(f, return_shape=True)(*args)
        results = values(closed.jaxpr, closed.consts, jax.tree.leaves(args))
        return jax.tree.unflatten(jax.tree.structure(shape), results)

    return run


def values(jaxpr: Jaxpr, constants: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
    """The results of a jaxpr for arrays."""
    known = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*constants, *inputs], strict=True))
    read = lambda v: v.val if isinstance(v, Literal) else known[v]  # noqa: E731
    for equation in jaxpr.eqns:
        given = [read(v) for v in equation.invars]
        made = LOOPS.get(equation.primitive.name, applied)(equation, given)
        known.update(zip(equation.outvars, made, strict=True))
    return [read(v) for v in jaxpr.outvars]


def applied(equation: Any, given: list[Any]) -> list[Any]:
    """What an equation gives that is no loop."""
    closed = called_function(equation)
    if equation.primitive.name == "nngrad_call":
        (call,) = equation.params["held"].consts
        closed = jax.make_jaxpr(lambda *arrays: call.graph.run(*arrays))(*given)
    if closed is not None:
        return values(closed.jaxpr, closed.consts, given)
    if (name := equation.primitive.name) in BY_NUMPY:
        made = BY_NUMPY[name](*map(np.asarray, given), **equation.params)
        return [np.asarray(made, equation.outvars[0].aval.dtype)]
    made = equation.primitive.bind(*given, **equation.params)
    return list(made) if equation.primitive.multiple_results else [made]


def scanned(equation: Any, given: list[Any]) -> list[Any]:
    """The last carry, and the results of all steps."""
    body, length = equation.params["jaxpr"], equation.params["length"]
    fixed, carried = counts_of_scan(equation.params)
    constants, carry, xs = given[:fixed], given[fixed : fixed + carried], given[fixed + carried :]
    rows: dict[int, list[Any]] = {}
    for i in sorted(range(length), reverse=equation.params["reverse"]):
        made = values(body.jaxpr, body.consts, [*constants, *carry, *[x[i] for x in xs]])
        carry, rows[i] = made[:carried], made[carried:]
    return [*carry, *[np.stack(column) for column in zip(*[rows[i] for i in range(length)], strict=True)]]


def looped(equation: Any, given: list[Any]) -> list[Any]:
    """What a loop ends with."""
    goes_on, body = equation.params["cond_jaxpr"], equation.params["body_jaxpr"]
    first, second = equation.params["cond_nconsts"], equation.params["body_nconsts"]
    asked, fixed, carry = given[:first], given[first : first + second], given[first + second :]
    while np.any(going := np.asarray(values(goes_on.jaxpr, goes_on.consts, [*asked, *carry])[0])):
        made = values(body.jaxpr, body.consts, [*fixed, *carry])
        mapped = [going.reshape(going.shape + (1,) * (np.ndim(x) - going.ndim)) for x in made]
        carry = [np.where(rows, new, old) for rows, new, old in zip(mapped, made, carry, strict=True)]
    return carry


def branched(equation: Any, given: list[Any]) -> list[Any]:
    """What the branch gives that is taken."""
    branches = equation.params["branches"]
    taken = branches[min(max(int(given[0]), 0), len(branches) - 1)]
    return values(taken.jaxpr, taken.consts, given[1:])


LOOPS: dict[str, Callable[[Any, list[Any]], list[Any]]] = {"scan": scanned, "while": looped, "cond": branched}


def broadcast(x: Any, shape: Any, broadcast_dimensions: Any, sharding: Any = None) -> Any:
    """`x`, whose axes become those that are named."""
    sizes = [1] * len(shape)
    for axis, size in zip(broadcast_dimensions, x.shape, strict=True):
        sizes[axis] = size
    return np.broadcast_to(x.reshape(sizes), shape)


def selected(which: Any, *cases: Any) -> Any:
    """Elements of the cases."""
    return np.choose(which.astype(int), cases)


BY_NUMPY: dict[str, Callable[..., Any]] = {
    **{
        name: lambda *xs, ufunc=ufunc, **_: getattr(np, ufunc)(*xs)
        for name, ufunc in {
            "add": "add", "add_any": "add", "sub": "subtract", "mul": "multiply", "neg": "negative", "max": "maximum",
            "min": "minimum", "sin": "sin", "cos": "cos", "tanh": "tanh", "exp": "exp", "log": "log", "sqrt": "sqrt",
            "log1p": "log1p", "expm1": "expm1", "abs": "absolute", "sign": "sign", "floor": "floor", "square": "square",
            "gt": "greater", "lt": "less", "ge": "greater_equal", "le": "less_equal", "eq": "equal", "ne": "not_equal",
            "atan2": "arctan2", "sinh": "sinh", "cosh": "cosh", "pow": "power", "copy": "array", "copy_p": "array",
        }.items()
    },
    "div": lambda x, y, **_: x / y if np.issubdtype(x.dtype, np.inexact) else np.trunc(x / y),
    "rsqrt": lambda x, **_: 1 / np.sqrt(x),
    "logistic": lambda x, **_: 1 / (1 + np.exp(-x)),
    "integer_pow": lambda x, y, **_: x**y if y >= 0 else 1 / x**-y,
    "select_n": selected,
    "stop_gradient": lambda x, **_: x,
    "convert_element_type": lambda x, **_: x,
    "broadcast_in_dim": broadcast,
    "reshape": lambda x, new_sizes, dimensions, **_: np.transpose(x, dimensions or [*range(x.ndim)]).reshape(new_sizes),
    "squeeze": lambda x, dimensions: np.squeeze(x, tuple(dimensions)),
    "transpose": lambda x, permutation: np.transpose(x, permutation),
    "reduce_sum": lambda x, axes, **_: np.sum(x, tuple(axes)),
    "reduce_max": lambda x, axes, **_: np.max(x, tuple(axes)),
    "concatenate": lambda *xs, dimension: np.concatenate(xs, dimension),
    "rev": lambda x, dimensions: np.flip(x, dimensions),
    "slice": lambda x, start_indices, limit_indices, strides: x[
        tuple(map(slice, start_indices, limit_indices, strides or [1] * x.ndim))
    ],
}  # fmt: skip
