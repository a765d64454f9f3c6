"""Sparse Jacobians and Hessians: as many directions as colours, and not as many as columns.

Sets of colours are whole numbers, bit c for colour c.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp
import numpy as np

import nngrad.functions as F

from ..autodiff.vectorize import vectorize
from ..graph import NdArray, Variable
from ..graph.variable import leaf_of
from .parts import built, forward_or_reverse, gradients_at, one_floating, pushed
from .patterns import Sparsity, hessian_sparsity, scipy_csr, sparsity

if TYPE_CHECKING:
    import jax.experimental.sparse


class SparseMatrix(NamedTuple):
    """A matrix of which some elements are computed, and all others are zero."""

    values: Variable
    """`(nnz,)`: the elements, in the order of the pattern's rows and columns. They can be used in a loss, compiled and
    differentiated again."""
    pattern: Sparsity
    directions: int
    """How many products with vectors it was computed by."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.pattern.shape

    def to_dense(self) -> Variable:
        """All elements, as a Variable of `shape`."""
        places = np.stack([self.pattern.rows, self.pattern.columns], axis=1)
        dense: Variable = F.put_points(self.values, places, axes=(0, 1), shape=self.shape)
        return dense

    def to_scipy(self) -> Any:
        """Its present numbers as a `scipy.sparse.csr_array`."""
        return scipy_csr(self.values.d, self.pattern)

    def to_bcoo(self) -> jax.experimental.sparse.BCOO:
        """Its present numbers as a `jax.experimental.sparse.BCOO`."""
        from jax.experimental.sparse import BCOO

        places = jnp.stack([self.pattern.rows, self.pattern.columns], axis=1)
        numbers = jnp.asarray(self.values.data.data)
        return BCOO((numbers, places), shape=self.shape, indices_sorted=True, unique_indices=True)

    def __repr__(self) -> str:
        return f"SparseMatrix, {self.pattern}, by {self.directions} directions"


def sparse_jacobian(y: Variable, x: Variable) -> SparseMatrix:
    """The Jacobian of `y` with respect to `x`, computed where the graph shows that it may be other than zero.

    Columns without a row in common are computed by one product with a vector, forward; or so are rows, backward, where
    that takes fewer products. An optimal control problem of 10,000 variables takes about ten.

    Args:
        y: Of a floating dtype and any shape.
        x: Likewise.

    Returns:
        A `SparseMatrix` of shape `(y.size, x.size)`. Its `values` are a Variable. Its pattern is that of `nn.sparsity`,
        for the indices that gathers and scatters have now: where these change, ask anew.

    Raises:
        TypeError: Something is not a Variable, or not of a floating dtype.
        MissingRule: An op on the way has no backward rule.
    """
    y, x = one_floating(y, "sparse_jacobian: y"), one_floating(x, "sparse_jacobian: x")
    pattern = sparsity(y, x)
    by_column = column_colors(pattern.rows, pattern.columns, pattern.shape)
    by_row = column_colors(pattern.columns, pattern.rows, pattern.shape[::-1])
    columns = Directions(x, by_column, pattern.columns, pattern.rows)
    rows = Directions(y, by_row, pattern.rows, pattern.columns)

    def backward() -> Variable:
        return rows.read(lambda t: gradients_at([y], [x], [t])[0])

    def build() -> Variable:
        if rows.count < columns.count:
            return backward()
        return forward_or_reverse(lambda: columns.read(lambda t: pushed([y], [x], [t])[0]), backward)

    (values,) = built([y, x], lambda: [build()])
    return SparseMatrix(values, pattern, min(rows.count, columns.count))


def sparse_hessian(y: Variable, x: Variable) -> SparseMatrix:
    """The Hessian of the sum of `y` with respect to `x`, computed where the graph shows that it may be other than zero.

    Since it is symmetric, each element can be read in two places, and a star colouring of the pattern gives the
    products with vectors, forward over reverse, that show all of them.

    Args:
        y: Of a floating dtype; an energy, or a loss.
        x: Of a floating dtype and any shape.

    Returns:
        A `SparseMatrix` of shape `(x.size, x.size)`, as that of `sparse_jacobian`.

    Raises:
        TypeError, MissingRule: As for `sparse_jacobian`.
    """
    y, x = one_floating(y, "sparse_hessian: y"), one_floating(x, "sparse_hessian: x")
    pattern = hessian_sparsity(y, x)
    colors = star_colors(pattern.rows, pattern.columns, x.size)
    alone = _alone(pattern, colors)
    rows = np.where(alone, pattern.rows, pattern.columns)
    columns = np.where(alone, pattern.columns, pattern.rows)
    directions = Directions(x, colors, columns, rows)

    def build() -> Variable:
        (gx,) = gradients_at([y], [x], [None])
        return forward_or_reverse(
            lambda: directions.read(lambda t: pushed([gx], [x], [t])[0]),
            lambda: directions.read(lambda t: gradients_at([gx], [x], [t])[0]),
        )

    (values,) = built([y, x], lambda: [build()])
    return SparseMatrix(values, pattern, directions.count)


def _alone(pattern: Sparsity, colors: Indices) -> Any:
    """For each element (i, j) whether no other column with the colour of j has an element in row i."""
    pairs = pattern.rows * (1 + colors.max(initial=0)) + colors[pattern.columns]
    _, places, counts = np.unique(pairs, return_inverse=True, return_counts=True)
    return counts[places] == 1


@dataclass(frozen=True, eq=False)
class Directions:
    """The products with vectors that show the elements of a matrix."""

    v: Variable
    """What the vectors have the shape and dtype of."""
    colors: Indices
    """For each element of `v`: the vector of a colour has ones at the elements that have it."""
    moved: Indices
    """For each element of the matrix the element of `v` along which it is a derivative."""
    places: Indices
    """For each element of the matrix where it is in the product."""

    @property
    def count(self) -> int:
        """The number of products."""
        return 1 + int(self.colors.max(initial=-1)) if len(self.moved) else 0

    def read(self, along: Callable[[Variable], Variable]) -> Variable:
        """The elements of the matrix: `along` builds the product with a vector."""
        t = leaf_of(NdArray.of_spec(self.v.spec))
        product = along(t)
        if not self.count:
            return F.constant(val=0, shape=(0,), dtype=product.dtype)
        vectors = self.colors == np.arange(self.count)[:, None]
        given = Variable.from_numpy_array(vectors.reshape(self.count, *self.v.shape).astype(self.v.dtype))
        (products,) = vectorize([product], {t: given})
        found = self.colors[self.moved] * product.size + self.places
        return F.gather(F.reshape(products, shape=(-1,)), Variable.from_numpy_array(found))


Indices = np.ndarray[Any, np.dtype[np.int64]]


def column_colors(rows: Indices, columns: Indices, shape: tuple[int, int]) -> Indices:
    """Colours such that no two columns of one colour have an element in the same row (Curtis, Powell and Reid 1974).

    Greedy, in two orders, of which the one with fewer colours is taken: as the columns come, and longest columns first.
    """
    of_column = _lists(columns, rows, shape[1])

    def colored(order: list[int]) -> list[int]:
        colors, used = [0] * shape[1], [0] * shape[0]
        for j in order:
            taken = 0
            for i in of_column[j]:
                taken |= used[i]
            colors[j] = _first_free(taken)
            for i in of_column[j]:
                used[i] |= 1 << colors[j]
        return colors

    return _fewest(colored, of_column)


def star_colors(rows: Indices, columns: Indices, count: int) -> Indices:
    """Colours of a symmetric matrix such that element (i, j) can be read in row i of the product for the colour of j,
    or in row j of that for the colour of i: neighbours differ, and each path of four vertices has three colours or more
    (star colouring: Coleman and Moré 1984; greedily, as Gebremedhin, Tarafdar, Manne and Pothen 2007).

    The edges between two colours form stars. A vertex may not take the colour of the centre of a star of which its
    neighbour is a tip, and where it has two neighbours of one colour, none that these have beside them.
    """
    beside = [[j for j in js if j != i] for i, js in enumerate(_lists(rows, columns, count))]

    def colored(order: list[int]) -> list[int]:
        colors = [-1] * count
        around = [0] * count  # the colours beside a vertex
        one_of: list[dict[int, int]] = [{} for _ in range(count)]  # for each of these colours a neighbour that has it
        centres = [0] * count  # the colours of the centres of those stars of which a vertex is a tip
        for v in order:
            taken, first = 0, dict[int, int]()
            for w in beside[v]:
                if colors[w] >= 0:
                    q = first.setdefault(colors[w], w)
                    taken |= 1 << colors[w] | (centres[w] if q == w else around[q] | around[w])
            color = colors[v] = _first_free(taken)
            for w in beside[v]:
                if colors[w] >= 0:
                    if color in one_of[w]:
                        centres[v] |= 1 << colors[w]
                        centres[one_of[w][color]] |= 1 << colors[w]
                    elif first[colors[w]] != w:
                        centres[w] |= 1 << color
                        centres[first[colors[w]]] |= 1 << color
                one_of[w].setdefault(color, v)
                around[w] |= 1 << color
        return colors

    return _fewest(colored, beside)


def _lists(rows: Indices, columns: Indices, count: int) -> list[list[int]]:
    """For each of `count` rows its columns."""
    result: list[list[int]] = [[] for _ in range(count)]
    for i, j in zip(rows.tolist(), columns.tolist(), strict=True):
        result[i].append(j)
    return result


def _fewest(colored: Callable[[list[int]], list[int]], beside: list[list[int]]) -> Indices:
    as_they_come = list(range(len(beside)))
    found = [colored(order) for order in (as_they_come, sorted(as_they_come, key=lambda j: -len(beside[j])))]
    return np.array(min(found, key=lambda colors: max(colors, default=0)), np.int64)


def _first_free(taken: int) -> int:
    return (~taken & (taken + 1)).bit_length() - 1
