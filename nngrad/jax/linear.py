"""Derivatives at a point as functions of tangents or cotangents, for `linearize` and `vjp`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..extend import Variable
from .builds import check_alike
from .calls import GraphCall
from .transformed import Transformed
from .values import parted


@dataclass(frozen=True)
class Vectors:
    """The expected pytree of tangents or cotangents: the shapes and dtypes of the primals, float0 for integers."""

    name: str
    """The name of the function that takes them."""
    what: str
    """Their name: tangents or cotangents."""
    tree: Any
    """The structure of the primals or results they belong to."""
    described: tuple[tuple[tuple[int, ...], Any], ...]
    """The shape and dtype of each leaf of these."""

    @classmethod
    def like(cls, name: str, what: str, others: Any) -> Vectors:
        """The tangents or cotangents that belong to a pytree of primals or results."""
        leaves, tree = jax.tree.flatten(others)
        return cls(name, what, tree, tuple([(tuple(np.shape(leaf)), dtype_of_leaf(leaf)) for leaf in leaves]))

    def moving(self, vectors: Any, of_dtype: type[Exception] = ValueError) -> tuple[Any, ...]:
        """The vectors of floating leaves, in order.

        Raises:
            TypeError: The structure differs; for vjp a ValueError, as in JAX.
            ValueError: A shape differs.
            of_dtype: A dtype differs.
        """
        check_alike(self.name, self.what, self.tree, vectors, ValueError if self.name == "vjp" else TypeError)
        leaves = []
        for i, (leaf, (shape, dtype)) in enumerate(zip(jax.tree.leaves(vectors), self.described, strict=True)):
            floating = jnp.issubdtype(dtype, jnp.inexact)
            if isinstance(leaf, float | complex) and floating:
                leaf = np.asarray(leaf, dtype)
            expected = dtype if floating else jax.dtypes.float0
            of_leaf = tuple(np.shape(leaf)), dtype_of_leaf(leaf)
            free = isinstance(leaf, Variable) or (self.name == "vjp" and not floating)  # as in JAX, where it is unused
            if of_leaf[0] != shape or (of_leaf[1] != expected and not free):
                raise (of_dtype if of_leaf[0] == shape else ValueError)(
                    f"{self.name}: leaf {i} of the {self.what} must be {_name(expected)}{list(shape)} for a value of "
                    f"{_name(dtype)}{list(shape)}, got {_name(of_leaf[1])}{list(of_leaf[0])}"
                )
            if floating:
                leaves.append(leaf)
        return tuple(leaves)


@dataclass(frozen=True)
class LinearFunction:
    """The derivative of a function at a point, as a function of the arrays it is computed from and of vectors."""

    call: GraphCall
    """The graph that computes it."""
    takes: Vectors
    """The structure of its vectors."""
    is_one: bool
    """True if it takes one pytree of vectors, rather than one for each argument."""

    def __call__(self, at: Sequence[Any], around: Sequence[Any], *vectors: Any) -> Any:
        """The derivative; the arrays `at` come before the vectors among the inputs of the graph, `around` after."""
        graph, owner = self.call.graph, self.call.owner
        moving = self.takes.moving(_argument(vectors) if self.is_one else vectors)
        along = [leaf if isinstance(leaf, jax.Array) else jnp.asarray(leaf) for leaf in jax.tree.leaves(parted(moving))]
        return graph.called(owner, [*at, *along, *around])


def linear_function(
    transformed: Transformed, primals: tuple[Any, ...], vectors: Sequence[Any], takes: Vectors, is_one: bool
) -> Any:
    """Fix the primals of a transformed function of primals and vectors, which leaves a function of vectors. It is a
    pytree of the arrays it is computed from, so `jax.jit` can return it and take it as an argument.

    Args:
        transformed: The function of primals and of the floating vectors.
        primals: Its first argument.
        vectors: Examples of the floating vectors.
        takes: The structure of the result's arguments.
        is_one: As in `LinearFunction`.
    """
    if any([isinstance(leaf, Variable) for leaf in jax.tree.leaves(primals)]):
        return lambda *along: transformed(primals, takes.moving(_argument(along) if is_one else along))
    graph, arrays = transformed.graph_of(primals, tuple(vectors))
    around = len(graph.surroundings.tracers)
    before = len(arrays) - len(jax.tree.leaves(parted(tuple(vectors)))) - around
    linear = LinearFunction(GraphCall(graph, transformed.computation), takes, is_one)
    return jax.tree_util.Partial(linear, tuple(arrays[:before]), tuple(arrays[len(arrays) - around :]))


def floating(tree: Any) -> list[Any]:
    """The floating leaves of a pytree."""
    return [leaf for leaf in jax.tree.leaves(tree) if jnp.issubdtype(dtype_of_leaf(leaf), jnp.inexact)]


def _argument(vectors: tuple[Any, ...]) -> Any:
    if len(vectors) != 1:
        raise TypeError(f"vjp: expected 1 argument, the cotangents of the result, got {len(vectors)}")
    return vectors[0]


def _name(dtype: Any) -> str:
    return "float0" if dtype == jax.dtypes.float0 else str(dtype)


def dtype_of_leaf(leaf: Any) -> Any:
    """The dtype that JAX gives a leaf of a pytree, including random keys and float0."""
    dtype = getattr(leaf, "dtype", None)
    if dtype is None:
        return jnp.result_type(leaf)
    has_one = dtype == jax.dtypes.float0 or isinstance(leaf, Variable) or jnp.issubdtype(dtype, jax.dtypes.extended)
    return dtype if has_one else jax.dtypes.canonicalize_dtype(dtype)
