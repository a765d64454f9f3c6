"""Backward rules of eigenvalues and singular values and their vectors.

Both rules divide by differences of values. Where two values are equal, and the function does not depend on the choice
of their vectors, the numerator is 0 for all vectors; so it is the difference times a smooth factor. That factor is the
limit, and by l'Hopital's rule the numerator's slope as the values move apart, over that of the difference. Where two
values are so close that the numerator is little more than rounding, its Taylor series takes the quotient's place too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp

import nngrad.functions as F
from nngrad.functions.array import filled_like, zeros_like
from nngrad.functions.factors import differentiated_if
from nngrad.functions.spectra import arbitrary, eigh, over_gaps, svd, unknown_after, vanishing
from nngrad.graph import Function, Variable, functions_of

from .linear import per_matrix, product, transposed
from .rules import backward, backward_with_limits, gradients, non_differentiable

gradients(
    over_gaps, "y = x0 / x1: gx0 = gy / x1, gx1 = -y gx0",
    lambda gy, x1, y: (over_gaps(gy, x1), -y * over_gaps(gy, x1)),
)  # fmt: skip
non_differentiable(arbitrary)
gradients(vanishing, "y = x0 x1: gx0 = gy x1, gx1 = gy x0", lambda gy, x0, x1: (gy * x1, vanishing(x0, gy)))


@backward(unknown_after)
def unknown_after_backward(f: Function, gy: Variable) -> tuple[Variable, None]:
    """Unknown after one order less; then NaN"""
    (x, where), (orders,) = f.inputs, f.arguments
    nan = F.where(where, filled_like(x, math.nan), zeros_like(x))
    return gy * (unknown_after(x, where, orders=orders - 1) if orders else nan), None


def column(x: Variable) -> Variable:
    """The vectors of all matrices as columns."""
    return F.reshape(x, shape=(*x.shape, 1))


def row(x: Variable) -> Variable:
    """The vectors of all matrices as rows."""
    return F.reshape(x, shape=(*x.shape[:-1], 1, x.shape[-1]))


def rounding(values: Variable) -> Variable:
    """The size of differences of `values` that rounding explains, for each row."""
    return F.max(F.abs(values), axis=-1, keepdims=True) * float(8 * values.shape[-1] * jnp.finfo(values.dtype).eps)


def added(*terms: Variable | None) -> Any:
    """The sum of the terms that are not None; None if all are."""
    summands = [x for x in terms if x is not None]
    return sum(summands[1:], summands[0]) if summands else None


def turning(a: Variable | None, b: Variable, is_left: bool = True) -> Variable | None:
    """The derivative as the vectors in the columns of `b` (or in the rows, if not `is_left`) turn in the plane of each
    two of them, if `a` is the gradient at the vectors."""
    if a is None:
        return None
    y = product(b, a, True, False) if is_left else product(b, a, False, True)
    return y - transposed(y)


def are_last(gys: Sequence[Variable | None]) -> bool:
    """True if further derivatives of the gradients are unknown."""
    functions = functions_of([g for g in gys if g is not None])
    return any([f.op is unknown_after and f.args["orders"] == 0 for f in functions])


def differences(values: Variable) -> Variable:
    """`values[j] - values[i]`; infinity on the diagonal, where no quotient is wanted."""
    gaps = row(values) - column(values)
    one = F.constant(val=1, shape=values.shape, dtype=values.dtype)
    return F.where(F.matrix_diag(one), filled_like(gaps, math.inf), gaps)


def sums(values: Variable) -> Variable:
    """`values[i] + values[j]`"""
    return row(values) + column(values)


class Quotients:
    """Quotients of what depends on the gradients at values and vectors by differences or sums of these values.

    Args:
        f: The decomposition.
        gys: The gradients at its outputs, None for zero.
        near: How they depend on the outputs; None if that is not known.
        values: Which output has the values.
        across: For each output with vectors, the axis of their elements, from the end; None for the values.
    """

    def __init__(
        self, f: Function, gys: Sequence[Variable | None], near: Any, values: int, across: Sequence[int | None]
    ) -> None:
        self.values = f.outputs[values]
        n = self.values.shape[-1]
        self.tolerance = rounding(self.values)
        self.is_open = near is None or near.is_open
        speeds = F.arange(1.0, n + 1.0, dtype=self.values.dtype.name)
        self.speeds = F.broadcast(speeds, shape=self.values.shape)
        """How the values move apart: at distinct speeds of one sign, so that no difference or sum of two stays."""
        at_vectors = [(g, axis) for g, axis in zip(gys, across, strict=True) if g is not None and axis is not None]
        self.sizes = added(*[F.sum(F.abs(g), axis=axis) for g, axis in at_vectors])
        """The sizes of the gradients at the vectors of each value."""
        self.orders = [[None if axis is None else g for g, axis in zip(gys, across, strict=True)]]
        """The gradients at the vectors, and their first and second derivatives as the values move and the vectors stay.
        """
        while near is not None and len(self.orders) < 3 and not are_last(self.orders[-1]):
            self.orders.append([None if g is None else near.along(g, values, self.speeds) for g in self.orders[-1]])

    def over(self, gap: Callable[[Variable], Variable], numerator: Callable[..., Variable | None]) -> Any:
        """The quotient of `numerator(*gradients)` and `gap(values)`, which is linear.

        Where the gap is 0, or close to it, it is `n1 - gap n2 / 2`, from the first and second derivative of the
        numerator, each over as many slopes of the gap: its value and its first derivatives are right. What third
        derivatives depend on is missing, and they are NaN. So is everything at a gap of 0 where the numerator is not 0,
        in comparison with the gradients: the function depends on the choice of vectors there, or has no derivative.
        Where `near` does not see all that the gradients depend on, this holds unless they are 0.
        """
        n0, n1, n2 = [*[numerator(*order) for order in self.orders], None, None][:3]
        if n0 is None or self.sizes is None:
            return None
        zeros = zeros_like(n0)
        gaps, slopes = [F.broadcast(gap(x), shape=n0.shape) for x in (self.values, self.speeds)]
        tied = F.less_equal(F.abs(gaps), per_matrix(self.tolerance, n0))
        near, limit = tied, zeros
        largest = F.max(self.sizes, axis=-1, keepdims=True)
        if n1 is not None or n2 is not None:
            first = zeros if n1 is None else n1 / slopes
            second = zeros if n2 is None else 0.5 * n2 / (slopes * slopes)
            if len(self.orders) == 3:
                near = F.logical_or(tied, self.is_close(n0, gaps, gaps * (first - gaps * second), largest))
            limit = F.where(near, first, zeros) - vanishing(gaps, F.where(tied, second, zeros))
            if near is not tied:
                limit = limit - gaps * F.where(tied, zeros, F.where(near, second, zeros))
        if n2 is not None or len(self.orders) < 3:
            limit = limit + unknown_after(gaps, near, orders=len(self.orders) - 2)
        if self.is_open:
            size = F.broadcast((row if gap is row else sums)(self.sizes), shape=n0.shape)
            vanishes = F.less_equal(size, zeros)
        else:
            size = largest * float(jnp.finfo(n0.dtype).eps) ** 0.5
            vanishes = F.less_equal(F.abs(n0), per_matrix(size, n0))
        has_limit = F.logical_or(vanishes, F.logical_not(tied))
        y = F.where(near, limit, over_gaps(n0, F.where(near, filled_like(n0, 1), gaps)))
        return y + n0 * F.where(has_limit, zeros, filled_like(n0, math.nan))

    def is_close(self, n0: Variable, gaps: Variable, expected: Variable, largest: Variable) -> Variable:
        """Where a gap is so small that rounding costs the quotient more than the limit's formula neglects, and the
        numerator is as expected from the limit, up to rounding: it vanishes with the gap."""
        eps = float(jnp.finfo(n0.dtype).eps)
        band = F.max(F.abs(self.values), axis=-1, keepdims=True) * (0.5 * eps ** (1 / 3))
        is_expected = F.less_equal(F.abs(n0 - expected), per_matrix(largest * (2 * eps), n0))
        return F.logical_and(F.less_equal(F.abs(gaps), per_matrix(band, n0)), is_expected)

    def guarded(self, gx: Variable) -> Variable:
        """`gx`, the gradient, whose derivatives are NaN for each matrix with a tie if it cannot be known how the
        gradients at the outputs depend on the values."""
        if not self.is_open:
            return gx
        gaps = [F.abs(differences(self.values)), F.abs(sums(self.values))]
        smallest = F.reshape(F.min(F.minimum2(*gaps), axis=(-2, -1)), shape=self.tolerance.shape)
        tied = F.less_equal(smallest, self.tolerance)
        factor = F.where(tied, filled_like(self.tolerance, math.nan), filled_like(self.tolerance, 1))
        return differentiated_if(gx, per_matrix(factor, gx))


@backward_with_limits(eigh, axes=(-1, -1))
def eigh_backward(f: Function, gys: Sequence[Variable | None], near: Any) -> Variable:
    """x = v diag(w) v': gx = v (diag(gw) + a / (w_j - w_i) / 2) v' with a = v' gv - gv' v"""
    (_, v), (gw, _) = f.outputs, gys
    if not v.size:
        return zeros_like(v)
    quotients = Quotients(f, gys, near, 0, (None, -2))
    of_vectors = quotients.over(differences, lambda _, gv: turning(gv, v))
    gx = added(
        None if gw is None else product(v * row(gw), v, False, True),
        None if of_vectors is None else product(product(v, 0.5 * of_vectors), v, False, True),
    )
    return quotients.guarded(0.5 * (gx + transposed(gx)))


@backward_with_limits(svd, axes=(-1, -1, -2))
def svd_backward(f: Function, gys: Sequence[Variable | None], near: Any) -> Variable:
    """x = u s v': gx = u (diag(gs) + (a + b) / (s_j - s_i) / 2 + (a - b) / (s_j + s_i) / 2) v' with a = u' gu - gu' u
    and b = v' gv - gv' v; where x is not square, also what is orthogonal to u of gu inv(s) v', or to v of u inv(s) gv'
    """
    (u, _, vh), (_, gs, _), x = f.outputs, gys, f.inputs[0]
    if not x.size:
        return zeros_like(x)
    quotients = Quotients(f, gys, near, 1, (-2, None, -1))

    def turns(gu: Variable | None, gvh: Variable | None, sign: float) -> Any:
        b = turning(gvh, vh, False)
        return added(turning(gu, u), None if b is None else sign * b)

    together = quotients.over(differences, lambda gu, _, gvh: turns(gu, gvh, 1))
    against = quotients.over(sums, lambda gu, _, gvh: turns(gu, gvh, -1))
    inner = added(together, against)
    gx = added(
        None if gs is None else product(u * row(gs), vh),
        None if inner is None else product(product(u, 0.5 * inner), vh),
    )
    m, n = x.shape[-2:]
    if m > n and gys[0] is not None:
        beside = quotients.over(row, lambda gu, _, __: None if gu is None else gu - product(u, product(u, gu, True)))
        gx = added(gx, product(beside, vh))
    if n > m and gys[2] is not None:
        beside = quotients.over(row, lambda _, __, gvh: None if gvh is None else transposed(
            gvh - product(product(gvh, vh, False, True), vh)
        ))  # fmt: skip
        gx = added(gx, product(u, beside, False, True))
    return quotients.guarded(gx)

