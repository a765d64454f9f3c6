"""Jacobians, Hessians, and diagonals of Hessians."""

from __future__ import annotations

import math
from typing import Any, overload

import nngrad.functions as F

from ..autodiff.request import variables
from ..graph import Variable
from .directions import over_directions, several_over_directions
from .parts import (
    after_batch,
    as_list,
    built,
    checked,
    forward_or_reverse,
    gradients_at,
    pushed,
    second,
)

Variables = list[Variable] | tuple[Variable, ...]
Row = tuple[Variable, ...]


@overload
def jacobian(y: Variable, x: Variable, batched: bool = True, chunk: int | None = None) -> Variable: ...
@overload
def jacobian(y: Variable, x: Variables, batched: bool = True, chunk: int | None = None) -> Row: ...
@overload
def jacobian(y: Variables, x: Variable, batched: bool = True, chunk: int | None = None) -> Row: ...
@overload
def jacobian(y: Variables, x: Variables, batched: bool = True, chunk: int | None = None) -> tuple[Row, ...]: ...
def jacobian(
    y: Variable | Variables, x: Variable | Variables, batched: bool = True, chunk: int | None = None
) -> Variable | Row | tuple[Row, ...]:
    """All first derivatives of `y`.

    Args:
        y: `(B, *m)`, or of any shape with `batched=False`; or a list of such Variables.
        x: `(B, *d)`, likewise.
        batched: Whether rows are independent, and the Jacobian of each is wanted; see `nngrad.derivatives`.
        chunk: The number of directions to compute at once, to bound the memory; None for all.

    Returns:
        `(B, *m, *d)`: J[b, i, j] = dy[b, i] / dx[b, j]. With `batched=False` `(*y.shape, *x.shape)`.
        By forward or reverse mode, whichever has fewer directions; by reverse if there is no forward mode.
        For a list of x, a tuple with one block for each; for a list of y, a tuple with one entry for each; for both,
        block `[i][j]` is that of y[i] and x[j]. Blocks share passes: in reverse mode there is one for each y, in
        forward mode one for each x.

    Raises:
        TypeError: Something is not a Variable, or not of a floating dtype.
        ValueError: Rows cannot be shown to be independent, `chunk` is not positive, or a list is empty.
        MissingRule: An op on the path has no backward rule.
    """
    ys, xs = as_list(y, "jacobian: y"), as_list(x, "jacobian: x")
    lead = max([checked("jacobian", v, u, batched, chunk) for v in ys for u in xs])
    ins, outs = (sum([math.prod(v.shape[lead:]) for v in vs]) for vs in (xs, ys))

    def by_columns() -> list[Variable]:
        blocks = [_columns(ys, u, lead, chunk) for u in xs]
        return [
            _from_columns(columns, ys[i], xs[j], lead)
            for i, row in enumerate(zip(*blocks, strict=True))
            for j, columns in enumerate(row)
        ]

    def by_rows() -> list[Variable]:
        return [
            _from_rows(rows, v, u, lead)
            for v in ys
            for u, rows in zip(xs, _rows(v, xs, lead, chunk), strict=True)
        ]

    blocks = built([*ys, *xs], lambda: forward_or_reverse(by_columns, by_rows) if ins <= outs else by_rows())
    arranged: Variable | Row | tuple[Row, ...] = _arranged(
        blocks, y if isinstance(y, Variable) else ys, x if isinstance(x, Variable) else xs
    )
    return arranged


def first_derivatives(y: Variable, x: Variable, lead: int, chunk: int | None) -> Variable:
    """The Jacobian of one Variable with respect to another, in forward mode if possible, whatever their sizes."""
    return forward_or_reverse(
        lambda: _from_columns(_columns([y], x, lead, chunk)[0], y, x, lead),
        lambda: _from_rows(_rows(y, [x], lead, chunk)[0], y, x, lead),
    )


@overload
def hessian(y: Variable, x: Variable, batched: bool = True, chunk: int | None = None) -> Variable: ...
@overload
def hessian(y: Variable, x: Variables, batched: bool = True, chunk: int | None = None) -> tuple[Row, ...]: ...
def hessian(
    y: Variable, x: Variable | Variables, batched: bool = True, chunk: int | None = None
) -> Variable | tuple[Row, ...]:
    """All second derivatives of a scalar, by forward over reverse.

    Args:
        y: `(B,)` or `(B, 1)`: a number for each row. With `batched=False` one number, of any shape.
        x: `(B, *d)`, or of any shape with `batched=False`; or several such Variables, as in `nn.grad`.
        batched: Whether rows are independent, and the Hessian of each is wanted; see `nngrad.derivatives`.
        chunk: The number of rows of the Hessian to compute at once, to bound the memory; None for all.

    Returns:
        `(B, *d, *d)`: H[b, i, j] = d^2 y[b] / (dx[b, i] dx[b, j]). With `batched=False` `(*x.shape, *x.shape)`.
        For a list of x, a tuple of tuples of blocks: `[i][j]` has the derivatives by x[i] and x[j]. They share one
        gradient, and one forward pass for each x[i].

    Raises:
        TypeError, ValueError, MissingRule: As in `jacobian`; ValueError also if y is not a scalar.
    """
    xs = as_list(x, "hessian: x")
    lead = max([checked("hessian", y, u, batched, chunk, scalar=True) for u in xs])

    def build() -> list[Variable]:
        gxs = gradients_at([y], xs, [None])
        blocks = forward_or_reverse(
            lambda: [_columns(gxs, u, lead, chunk) for u in xs],
            lambda: [_rows(gx, xs, lead, chunk) for gx in gxs],
        )
        return [
            _from_rows(rows, u, v, lead)
            for u, row in zip(xs, blocks, strict=True)
            for v, rows in zip(xs, row, strict=True)
        ]

    blocks = built([y, *xs], build)
    arranged: tuple[Row, ...] = _arranged(blocks, xs, xs)
    return arranged[0][0] if isinstance(x, Variable) else arranged


def _columns(ys: list[Variable], x: Variable, lead: int, chunk: int | None) -> list[Variable]:
    """The derivative of each of `ys` along each unit vector of `x`: one forward pass for all of `ys`."""
    return several_over_directions(lambda t: pushed(ys, [x], [t]), x, lead, chunk)


def _from_columns(columns: Variable, y: Variable, x: Variable, lead: int) -> Variable:
    moved = F.transpose(columns, axes=(*range(1, columns.ndim), 0))
    jacobian: Variable = F.reshape(moved, shape=(*y.shape, *x.shape[lead:]))
    return jacobian


def _from_rows(rows: Variable, y: Variable, x: Variable, lead: int) -> Variable:
    jacobian: Variable = F.reshape(after_batch(rows, lead), shape=(*y.shape, *x.shape[lead:]))
    return jacobian


def _rows(y: Variable, xs: list[Variable], lead: int, chunk: int | None) -> list[Variable]:
    """The gradient of each element of `y` with respect to each of `xs`: one reverse pass for all of `xs`."""
    return several_over_directions(lambda u: gradients_at([y], xs, [u]), y, lead, chunk)


def _arranged(blocks: list[Variable], y: Variable | Variables, x: Variable | Variables) -> Any:
    """Row-major blocks as a Variable, a tuple or a tuple of tuples, as `y` and `x` are given as Variables or lists."""
    if isinstance(y, Variable):
        return blocks[0] if isinstance(x, Variable) else tuple(blocks)
    if isinstance(x, Variable):
        return tuple(blocks)
    return tuple([tuple(blocks[i * len(x) : (i + 1) * len(x)]) for i in range(len(y))])


@overload
def hessian_diagonal(y: Variable, x: Variable, batched: bool = True, chunk: int | None = None) -> Variable: ...
@overload
def hessian_diagonal(y: Variable, x: Any, batched: bool = True, chunk: int | None = None) -> list[Variable]: ...
def hessian_diagonal(
    y: Variable, x: Any, batched: bool = True, chunk: int | None = None
) -> Variable | list[Variable]:
    """The second derivative of a scalar by each element of `x`, by forward over forward.

    Args:
        y: `(B,)` or `(B, 1)`: a number for each row. With `batched=False` one number, of any shape.
        x: `(B, *d)`, or of any shape with `batched=False`; or several such Variables, as in `nn.grad`.
        batched: Whether rows are independent; see `nngrad.derivatives`.
        chunk: How many elements are processed at once, to bound the memory; None for all.

    Returns:
        In the shape of `x`: d^2 y[b] / dx[b, i]^2. For several x a list.

    Raises:
        TypeError, ValueError, MissingRule: As in `hessian`.
    """
    if not isinstance(x, Variable):
        several = variables(as_list(x, "hessian_diagonal: x"), "hessian_diagonal: x")
        return [hessian_diagonal(y, u, batched, chunk) for u in several]
    lead = checked("hessian_diagonal", y, x, batched, chunk, scalar=True)

    def build() -> Variable:
        columns = over_directions(lambda t: second(y, x, t, lead), x, lead, chunk)
        flat = F.reshape(columns, shape=(columns.shape[0], *x.shape[:lead]))
        return F.reshape(after_batch(flat, lead), shape=x.shape)

    return built([y, x], lambda: [build()])[0]
