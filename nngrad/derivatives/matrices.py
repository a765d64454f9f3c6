"""Jacobians and Hessians, and the diagonals of Hessians."""

from __future__ import annotations

import math

import nngrad.functions as F

from ..autodiff.directions import over_directions
from ..graph import Variable
from .parts import after_batch, built, checked, forward_or_reverse, gradients_of, pushed, second


def jacobian(y: Variable, x: Variable, batched: bool = True, chunk: int | None = None) -> Variable:
    """All first derivatives of `y`.

    Args:
        y: `(B, *m)`, or of any shape with `batched=False`.
        x: `(B, *d)`, likewise.
        batched: Whether rows are independent, and the Jacobian of each is wanted; see `nngrad.derivatives`.
        chunk: How many directions are computed at once, to bound the memory; None for all.

    Returns:
        `(B, *m, *d)`: J[b, i, j] = dy[b, i] / dx[b, j]. With `batched=False` `(*y.shape, *x.shape)`.
        Forward or reverse mode, whichever has fewer directions; reverse where there is no forward mode.

    Raises:
        TypeError: Something is not a Variable, or not of a floating dtype.
        ValueError: Rows cannot be shown to be independent, or `chunk` is not positive.
        MissingRule: An op on the way has no backward rule.
    """
    lead = checked("jacobian", y, x, batched, chunk)
    ins, outs = math.prod(x.shape[lead:]), math.prod(y.shape[lead:])

    def by_columns() -> Variable:
        columns = over_directions(lambda t: pushed([y], [x], [t])[0], x, lead, chunk)
        return F.reshape(F.transpose(columns, axes=(*range(1, columns.ndim), 0)), shape=(*y.shape, *x.shape[lead:]))

    def by_rows() -> Variable:
        rows = over_directions(lambda u: gradients_of([y], [x], [u])[0], y, lead, chunk)
        return F.reshape(after_batch(rows, lead), shape=(*y.shape, *x.shape[lead:]))

    return built([y, x], lambda: [forward_or_reverse(by_columns, by_rows) if ins <= outs else by_rows()])[0]


def hessian(y: Variable, x: Variable, batched: bool = True, chunk: int | None = None) -> Variable:
    """All second derivatives of a scalar, forward over reverse.

    Args:
        y: `(B,)` or `(B, 1)`: a number for each row. With `batched=False` one number, of any shape.
        x: `(B, *d)`, or of any shape with `batched=False`.
        batched: Whether rows are independent, and the Hessian of each is wanted; see `nngrad.derivatives`.
        chunk: How many of its rows are computed at once, to bound the memory; None for all.

    Returns:
        `(B, *d, *d)`: H[b, i, j] = d^2 y[b] / (dx[b, i] dx[b, j]). With `batched=False` `(*x.shape, *x.shape)`.

    Raises:
        TypeError, ValueError, MissingRule: As for `jacobian`; ValueError also where y is no scalar.
    """
    lead = checked("hessian", y, x, batched, chunk, scalar=True)

    def build() -> Variable:
        (gx,) = gradients_of([y], [x], [None])
        rows = forward_or_reverse(
            lambda: over_directions(lambda t: pushed([gx], [x], [t])[0], x, lead, chunk),
            lambda: over_directions(lambda t: gradients_of([gx], [x], [t])[0], x, lead, chunk),
        )
        return F.reshape(after_batch(rows, lead), shape=(*x.shape, *x.shape[lead:]))

    return built([y, x], lambda: [build()])[0]


def hessian_diagonal(y: Variable, x: Variable, batched: bool = True, chunk: int | None = None) -> Variable:
    """The second derivative of a scalar by each element of `x`, forward over forward.

    Args:
        y: `(B,)` or `(B, 1)`: a number for each row. With `batched=False` one number, of any shape.
        x: `(B, *d)`, or of any shape with `batched=False`.
        batched: Whether rows are independent; see `nngrad.derivatives`.
        chunk: How many elements are differentiated by at once, to bound the memory; None for all.

    Returns:
        In the shape of `x`: d^2 y[b] / dx[b, i]^2.

    Raises:
        TypeError, ValueError, MissingRule: As for `hessian`.
    """
    lead = checked("hessian_diagonal", y, x, batched, chunk, scalar=True)

    def second_in_reverse(t: Variable) -> Variable:
        (gx,) = gradients_of([y], [x], [None])
        return F.sum(gradients_of([gx], [x], [t])[0] * t, axis=tuple(range(lead, x.ndim)))

    def build() -> Variable:
        columns = forward_or_reverse(
            lambda: over_directions(lambda t: second(y, x, t), x, lead, chunk),
            lambda: over_directions(second_in_reverse, x, lead, chunk),
        )
        flat = F.reshape(columns, shape=(columns.shape[0], *x.shape[:lead]))
        return F.reshape(after_batch(flat, lead), shape=x.shape)

    return built([y, x], lambda: [build()])[0]
