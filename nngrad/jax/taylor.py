"""Taylor mode: a function's derivatives along a curve that is given by its derivatives."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import functions as F
from ..derivatives.products import jvp as jvp_of
from ..extend import Variable
from . import builds
from .authors_rules import by_their_rules
from .linear import dtype_of_leaf
from .rows import RowAxes
from .surroundings import is_whole, like
from .transformed import Build, Transformed
from .values import is_pair


def jet(
    fun: Callable[..., Any], primals: Sequence[Any], series: Sequence[Sequence[Any]], factorial_scaled: bool = True
) -> tuple[Any, Any]:
    """A function's value and its higher derivatives along a curve, as `jax.experimental.jet.jet`.

        y, (y1, y2) = nj.jet(f, (x,), ((x1, x2),))      # the curve is x + x1 t + x2 t^2/2

    Each order is the derivative of the previous one along the curve, taken on one graph, so it adds a constant number
    of matrix products. It supports everything that `nj.jvp` does: loops, branches, and custom derivative rules, which
    JAX's jet ignores.

    Args:
        fun: A function of floating arrays.
        primals: Its arguments, which may be pytrees.
        series: For each argument, the list of the curve's derivatives at t = 0, from the first one on, each in the
            structure of the argument. All lists have the same length, the order.
        factorial_scaled: Whether the nth terms, given and returned, are nth derivatives; if not, they are Taylor
            coefficients, which are nth derivatives divided by n!.

    Returns:
        The value, and in its structure lists of its derivatives along the curve.

    Raises:
        ValueError: `series` does not fit `primals`: in length, structure or shape.
        TypeError: An argument is not floating.
    """
    for name, value in {"primals": primals, "series": series}.items():
        if not isinstance(value, tuple | list):
            raise TypeError(f"jet: {name} must be a tuple with an entry for each argument of fun, got {value!r}")
    if len(primals) != len(series):
        raise ValueError(f"jet: series must have an entry for each of the {len(primals)} primals, got {len(series)}")
    lengths = [len(terms) for terms in series]
    if len({*lengths}) != 1:
        raise ValueError(f"jet: series must have equally many terms for each argument, at least one, got {lengths}")
    every = [_terms(i, x, terms) for i, (x, terms) in enumerate(zip(primals, series, strict=True))]
    along = tuple(zip(*every, strict=True))
    build = Build(taylor, (len(along), bool(factorial_scaled)), builds.of_primals)
    result: tuple[Any, Any] = Transformed(fun, build, "jet")(tuple(primals), along)
    return result


def _terms(i: int, x: Any, terms: Sequence[Any]) -> list[Any]:
    """The terms of an argument, cast to its dtypes."""
    for leaf in jax.tree.leaves(x):
        if not jnp.issubdtype(dtype_of_leaf(leaf), jnp.inexact):
            raise TypeError(f"jet: argument {i} must be floating, got {leaf!r}; cast it, or let fun close over it")

    def cast(k: int, leaf: Any, t: Any) -> Any:
        if np.shape(t) != np.shape(leaf):
            raise ValueError(
                f"jet: term {k} of argument {i} must have the argument's shape {np.shape(leaf)}, got {np.shape(t)}"
            )
        return t if isinstance(t, Variable) else jnp.asarray(t, dtype_of_leaf(leaf))

    for k, term in enumerate(terms, start=1):
        builds.check_alike("jet", f"term {k} of argument {i}", jax.tree.structure(x), term, ValueError)
    return [jax.tree.map(functools.partial(cast, k), x, term) for k, term in enumerate(terms, start=1)]


def taylor(
    fun: Callable[..., Any], args: Any, kwargs: Any, rows: RowAxes, order: int, factorial_scaled: bool
) -> tuple[Any, Any]:
    """The value, and its derivatives along a curve. Each is the tangent of the previous one, where the point moves
    along the curve's first derivative, that along the second, and so on.

    In canonical form order n adds L products to a network of L layers, where JAX's `jet` adds L (n + 1).
    """
    primals, along = args
    results, tree = jax.tree.flatten(fun(*primals))
    curve = [jax.tree.leaves(primals)]
    for n, terms in enumerate(along, start=1):
        of_order = [rows.along(x, t) for x, t in zip(curve[0], jax.tree.leaves(terms), strict=True)]
        curve.append(of_order if factorial_scaled else [F.mul_scalar(t, val=math.factorial(n)) for t in of_order])
    moving = [r for r in results if not is_whole(r)]
    orders = [moving]
    for n in range(order):
        points = [x for level in curve[: n + 1] for x in level]
        directions = [t for level in curve[1 : n + 2] for t in level]
        last = orders[-1]
        moved = jvp_of(last, points, directions) if last and points else [*map(F.zeros_like, last)]
        before = [y for level in orders for y in level]
        again = iter(by_their_rules(last, points, [*before, *like(last, moved)]))
        orders = [[next(again) for _ in moving] for _ in range(n + 2)]
    of_orders = []
    for n, of_order in enumerate(orders):
        scaled = iter(of_order if factorial_scaled else [F.mul_scalar(t, val=1 / math.factorial(n)) for t in of_order])
        fixed = iter([_zeros(r, factorial_scaled) if n else r for r in results if is_whole(r)])
        of_orders.append(jax.tree.unflatten(tree, [next(fixed if is_whole(r) else scaled) for r in results]))
    value, *terms = of_orders
    return value, jax.tree.map(lambda _, *of_order: [*of_order], value, *terms, is_leaf=is_pair)


def _zeros(y: Variable, factorial_scaled: bool) -> Variable:
    """The derivatives of integers, in JAX's dtype for them."""
    return F.constant(val=0, shape=y.shape, dtype=jnp.result_type(float) if factorial_scaled else y.dtype)
