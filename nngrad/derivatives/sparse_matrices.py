"""Sparse Jacobians and Hessians by colouring: one direction per colour instead of one per column.

A set of colours is an integer with bit c set for colour c.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp
import numpy as np

import nngrad.functions as F

from ..graph import Variable, as_variable
from ..graph.block import new_leaves
from .parts import built, forward_or_reverse, gradients_at, hessian_times, one_floating, pushed
from .patterns import Read, Sparsity, elements_read, hessian_sparsity, scipy_csr, sparsity
from .vectorize import vectorize

if TYPE_CHECKING:
    import jax.experimental.sparse


class SparseMatrix(NamedTuple):
    """A sparse matrix: the elements that were computed; all others are zero."""

    values: Variable
    """`(nnz,)`: the elements, in the order of the pattern's rows and columns. They can be used in a loss, compiled and
    differentiated again."""
    pattern: Sparsity
    directions: int
    """The number of matrix-vector products that computed it."""

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and columns."""
        return self.pattern.shape

    @property
    def nnz(self) -> int:
        """The number of elements."""
        return self.pattern.nnz

    def __matmul__(self, other: Any) -> Variable:
        """The product with a dense matrix or vector, as a Variable."""
        dense = as_variable(other, "other", "SparseMatrix @")
        vector = dense.ndim == 1
        matrix = F.CooMatrix(self.values, self.pattern.rows, self.pattern.columns, self.shape)
        y = F.sparse_matmul(matrix, F.expand_dims(dense, 1) if vector else dense)
        return F.squeeze(y, axis=1) if vector else y

    def to_dense(self) -> Variable:
        """The dense matrix, as a Variable of `shape`."""
        places = np.stack([self.pattern.rows, self.pattern.columns], axis=1)
        dense: Variable = F.put_points(self.values, places, axes=(0, 1), shape=self.shape)
        return dense

    def to_scipy(self) -> Any:
        """The matrix with its current values as a `scipy.sparse.csr_array`."""
        return scipy_csr(self.values.d, self.pattern)

    def to_bcoo(self) -> jax.experimental.sparse.BCOO:
        """The matrix with its current values as a `jax.experimental.sparse.BCOO`."""
        from jax.experimental.sparse import BCOO

        places = jnp.stack([self.pattern.rows, self.pattern.columns], axis=1)
        numbers = jnp.asarray(self.values.data.data)
        return BCOO((numbers, places), shape=self.shape, indices_sorted=True, unique_indices=True)

    def __repr__(self) -> str:
        return f"SparseMatrix, {self.pattern}, by {self.directions} directions"


def sparse_jacobian(y: Variable, x: Variable) -> SparseMatrix:
    """The Jacobian of `y` with respect to `x`, computed only where its sparsity pattern allows nonzeros.

    Columns without a common row share one Jacobian-vector product; or rows share vector-Jacobian products, if that
    takes fewer. An optimal control problem with 10,000 variables takes about ten.

    Args:
        y: Of a floating dtype and any shape.
        x: Likewise.

    Returns:
        A `SparseMatrix` of shape `(y.size, x.size)`. Its `values` are a Variable. Its pattern is that of `nn.sparsity`,
        for the current indices of gathers and scatters: call this again when they change.

    Raises:
        TypeError: Something is not a Variable, or not of a floating dtype.
        MissingRule: An op on the path has no backward rule.
    """
    y, x = one_floating(y, "sparse_jacobian: y"), one_floating(x, "sparse_jacobian: x")
    pattern = sparsity(y, x)
    by_row = column_colors(pattern.columns, pattern.rows, pattern.shape[::-1])
    rows = columns = Directions([y], by_row, pattern.rows, pattern.columns)
    if rows.count >= _longest(pattern.rows):  # else forward mode takes more products
        by_column = column_colors(pattern.rows, pattern.columns, pattern.shape)
        columns = Directions([x], by_column, pattern.columns, pattern.rows)

    def backward() -> Variable:
        return rows.elements(lambda ts: gradients_at([y], [x], ts))

    def build() -> Variable:
        if columns is rows or rows.count < columns.count:
            return backward()
        return forward_or_reverse(lambda: columns.elements(lambda ts: pushed([y], [x], ts)), backward)

    (values,) = built([y, x], lambda: [build()])
    return SparseMatrix(values, pattern, min(rows.count, columns.count))


def sparse_hessian(y: Variable, x: Variable) -> SparseMatrix:
    """The Hessian of the sum of `y` with respect to `x`, computed only where its sparsity pattern allows nonzeros.

    If `y` reads `x` in independent blocks, such as the nodes of finite elements taken by a gather, all blocks are
    computed at once and added up. This takes as many forward-over-reverse products as the largest block has elements.
    Otherwise the products follow from a star colouring of the pattern, by which each element can be read in one of its
    two places in the symmetric matrix.

    Args:
        y: Of a floating dtype; an energy, or a loss.
        x: Of a floating dtype and any shape.

    Returns:
        A `SparseMatrix` of shape `(x.size, x.size)`, as from `sparse_jacobian`.

    Raises:
        TypeError, MissingRule: As in `sparse_jacobian`.
    """
    y, x = one_floating(y, "sparse_hessian: y"), one_floating(x, "sparse_hessian: x")
    read = elements_read(y, x)
    if read.variables:
        blocks = _blocks(hessian_sparsity(y, read.variables), read.elements)
        if blocks is not None:
            return _sum_of_blocks(y, x, read, *blocks)
    pattern = hessian_sparsity(y, [x])
    colors = star_colors(pattern.rows, pattern.columns, x.size)
    alone = _alone(pattern, colors)
    rows = np.where(alone, pattern.rows, pattern.columns)
    columns = np.where(alone, pattern.columns, pattern.rows)
    directions = Directions([x], colors, columns, rows)
    (values,) = built([y, x], lambda: [directions.elements(functools.partial(hessian_times, [y], [x]))])
    return SparseMatrix(values, pattern, directions.count)


def _blocks(pattern: Sparsity, elements: Indices) -> tuple[Sparsity, Indices] | None:
    """Returns a symmetric pattern without the rows and columns of constants, and colours that differ within each block;
    None unless it consists of full blocks without repeated `elements`.

    The Hessian with respect to these elements contains each block, so no fewer products suffice.
    """
    count = pattern.shape[0]
    inside = (elements[pattern.rows] > 0) & (elements[pattern.columns] > 0)
    rows, columns = pattern.rows[inside], pattern.columns[inside]
    block = np.arange(count)
    np.minimum.at(block, rows, columns)
    sizes = np.bincount(block, minlength=count)
    beside = np.bincount(rows[rows != columns], minlength=count)
    if np.any(block[rows] != block[columns]) or np.any(beside != sizes[block] - 1):
        return None
    used = np.flatnonzero(beside + np.isin(np.arange(count), rows))
    if len(np.unique(block[used] * (1 + elements.max(initial=0)) + elements[used])) < len(used):
        return None
    order = np.argsort(block, kind="stable")
    colors = np.empty(count, np.int64)
    colors[order] = np.arange(count) - np.searchsorted(block[order], block[order])
    return Sparsity(rows, columns, pattern.shape), colors


def _sum_of_blocks(y: Variable, x: Variable, read: Read, blocks: Sparsity, colors: Indices) -> SparseMatrix:
    """The Hessian of `y` as a sum of blocks, each of which belongs to some elements of `x`. They are added up at
    the end, so no product needs a scatter or gather of its own."""
    directions = Directions(read.variables, colors, blocks.columns, blocks.rows)
    elements = read.elements - 1
    flat, places = np.unique(elements[blocks.rows] * x.size + elements[blocks.columns], return_inverse=True)
    pattern = Sparsity(flat // x.size, flat % x.size, (x.size, x.size))
    along = functools.partial(hessian_times, [y], read.variables)
    (values,) = built([y, x], lambda: [directions.sums(along, places, len(flat))])
    return SparseMatrix(values, pattern, directions.count)


def _alone(pattern: Sparsity, colors: Indices) -> Any:
    """For each element (i, j), whether no other column of j's colour has an element in row i."""
    pairs = pattern.rows * (1 + colors.max(initial=0)) + colors[pattern.columns]
    _, places, counts = np.unique(pairs, return_inverse=True, return_counts=True)
    return counts[places] == 1


Along = Callable[[list[Variable]], list[Variable]]
"""Builds the product of a matrix with a vector."""


@dataclass(frozen=True, eq=False)
class Directions:
    """The matrix-vector products that reveal the elements of a sparse matrix."""

    vs: list[Variable]
    """Variables with the shapes and dtypes of the parts of each vector."""
    colors: Indices
    """The colour of each element of `vs`: the vector of a colour has ones at its elements."""
    moved: Indices
    """For each element of the matrix, the element of `vs` by which it is a derivative."""
    places: Indices
    """For each element of the matrix, its position in the product."""

    @property
    def count(self) -> int:
        """The number of products."""
        return 1 + int(self.colors.max(initial=-1)) if len(self.moved) else 0

    def elements(self, along: Along) -> Variable:
        """The elements of the matrix, in the order of the pattern."""
        products = self._products(along)
        positions = self.colors[self.moved] * (products.size // max(self.count, 1)) + self.places
        return F.gather(products, Variable.from_numpy_array(positions.astype(np.int32)))

    def sums(self, along: Along, groups: Indices, count: int) -> Variable:
        """The sum of the matrix elements in each of `count` groups."""
        products = self._products(along)
        group_of = np.full((products.size, 1), count, np.int32)
        group_of[self.colors[self.moved] * (products.size // max(self.count, 1)) + self.places, 0] = groups
        totals: Variable = F.put_points(products, group_of, axes=(0,), shape=(count,))
        return totals

    def _products(self, along: Along) -> Variable:
        """All products, concatenated."""
        ts = new_leaves([v.spec for v in self.vs])
        products = along(ts)
        if not self.count:
            return F.constant(val=0, shape=(0,), dtype=products[0].dtype)
        parts = np.split(self.colors, np.cumsum([v.size for v in self.vs])[:-1])
        vectors = {t: self._vectors(part.reshape(t.shape), t) for t, part in zip(ts, parts, strict=True)}
        rows = [F.reshape(product, shape=(self.count, -1)) for product in vectorize(products, vectors)]
        return F.reshape(F.concatenate(*rows, axis=1) if len(rows) > 1 else rows[0], shape=(-1,))

    def _vectors(self, colors: Indices, v: Variable) -> Variable:
        """For each colour, the part of its vector with the shape of `v`; of size 1 along axes along which it
        repeats."""
        for a in range(colors.ndim):
            first = colors[(slice(None),) * a + (slice(1),)]
            colors = first if np.array_equal(colors, np.broadcast_to(first, colors.shape)) else colors
        numbers = np.arange(self.count, dtype=np.int32).reshape(-1, *(1,) * colors.ndim)
        # Computed where they are read: one number per element is less to read than the elements of all vectors.
        same = F.equal(*map(Variable.from_numpy_array, (colors[None].astype(np.int32), numbers)))
        vectors: Variable = F.cast(same, dtype=v.dtype)
        return vectors


Indices = np.ndarray[Any, np.dtype[np.int64]]


def column_colors(rows: Indices, columns: Indices, shape: tuple[int, int]) -> Indices:
    """Colours such that no two columns of one colour have an element in the same row (Curtis, Powell and Reid 1974).

    Greedy, in two orders, the given one and longest columns first; the one with fewer colours wins.
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

    return _fewest(colored, of_column, _longest(rows))


def star_colors(rows: Indices, columns: Indices, count: int) -> Indices:
    """Colours of a symmetric matrix such that element (i, j) can be read in row i of the product for j's colour, or in
    row j of that for i's colour: neighbours differ, and each path of four vertices has at least three colours (star
    colouring: Coleman and Moré 1984; greedily, as Gebremedhin, Tarafdar, Manne and Pothen 2007).

    The edges between two colours form stars. A vertex must not take the colour of the centre of a star whose tip is its
    neighbour. Where it has two neighbours of one colour, it must not take any colour next to these.
    """
    beside = [[j for j in js if j != i] for i, js in enumerate(_lists(rows, columns, count))]

    def colored(order: list[int]) -> list[int]:
        colors = [-1] * count
        around = [0] * count  # the colours of a vertex's neighbours
        one_of: list[dict[int, int]] = [{} for _ in range(count)]  # for each of these colours, a neighbour with it
        centres = [0] * count  # the colours of the centres of stars whose tip is the vertex
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

    return _fewest(colored, beside, 1)


def _lists(rows: Indices, columns: Indices, count: int) -> list[list[int]]:
    """The columns of each of `count` rows."""
    result: list[list[int]] = [[] for _ in range(count)]
    for i, j in zip(rows.tolist(), columns.tolist(), strict=True):
        result[i].append(j)
    return result


def _longest(rows: Indices) -> int:
    """The number of elements in the longest row: a lower bound for the number of column colours."""
    return int(np.bincount(rows).max(initial=0))


def _fewest(colored: Callable[[list[int]], list[int]], beside: list[list[int]], least: int) -> Indices:
    """The better colouring of two orders; the second is not tried if the first needs only the `least` number."""
    order = list(range(len(beside)))
    colors = colored(order)
    if max(colors, default=0) >= least:
        others = colored(sorted(order, key=lambda j: -len(beside[j])))
        colors = min(colors, others, key=max)
    return np.array(colors, np.int64)


def _first_free(taken: int) -> int:
    return (~taken & (taken + 1)).bit_length() - 1
