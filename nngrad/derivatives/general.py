"""General linear differential operators: second-order ones with a matrix, and sums of mixed partial derivatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import nngrad.functions as F

from ..graph import Variable
from ..graph.arguments import checked_count
from ..graph.spec import array_of, spec_of
from .directions import Vectors
from .drawn import checked_draw, direction_leaf, part, sum_over, unit_vectors_along
from .parts import built, checked, pushed
from .stochastic import twice
from .vectorize import vectorize

Factor = Variable | np.ndarray[Any, Any] | Callable[[Variable], Variable]


def diffusion(
    y: Variable, x: Variable, factor: Factor, batched: bool = True, chunk: int | None = None,
    directions: int | None = None, kind: str = "sparse", seed: int | Variable = -1,
) -> Variable:  # fmt: skip
    """The trace of a matrix times the Hessian, with the matrix given by a factor: the second-order term in the
    Fokker-Planck, Kolmogorov and Black-Scholes equations.

        result[b, k] = sum_ij A[b, i, j] d^2 y[b, k] / (dx[b, i] dx[b, j]),   A = factor factor'

    It is the sum of the second derivatives of y along the columns of the factor. With `directions` it is an unbiased
    estimate from the second derivatives along factor v, for that many random vectors v.

    Args:
        y: `(B,)`, `(B, 1)` or `(B, *m)`; of any shape with `batched=False`.
        x: `(B, d)`; `(d,)` with `batched=False`.
        factor: A matrix `(d, r)`, or one for each row `(B, d, r)`, in the dtype of `x`; it may depend on `x`, but is
            not differentiated. Or a function that multiplies the d by d matrix by vectors shaped as `x`.
        batched: Whether rows are independent; see `nngrad.derivatives`.
        chunk: The number of directions to propagate at once, to bound the memory; None for all.
        directions: The number of random directions of an estimate; None for the exact result.
        kind: "sparse" (different columns of the factor), "rademacher" (signs) or "gaussian".
        seed: As for `laplacian`.

    Returns:
        In the shape of `y`.

    Raises:
        TypeError, ValueError, MissingRule: As for `laplacian`; ValueError also if the factor's shape does not fit.
    """
    lead = checked("diffusion", y, x, batched, chunk)
    _check_vectors("diffusion", x, lead)
    times, rank = _multiplication(factor, x, lead)
    v = direction_leaf(spec_of((*x.shape[:lead], rank), x.dtype))
    draw = checked_draw("diffusion", rank, directions, kind, seed, "the factor")

    def build() -> Variable:
        along = times(v)
        if not isinstance(along, Variable) or along.spec is not x.spec:
            shown = along.spec if isinstance(along, Variable) else repr(along)
            raise ValueError(f"diffusion: factor must return vectors of {x.spec}, got {shown}")
        t = direction_leaf(x.spec)
        if draw is None:
            count, drawn = rank, _columns(np.arange(rank, dtype=np.int32), None, v, lead)
        else:
            count, drawn = draw.directions, draw.vectors(0, v.spec, lead)
        values: Vectors = lambda first, n: vectorize([along], {v: drawn(first, n)})[0]  # noqa: E731
        total = sum_over(twice(y, x, t, lead), [(t, values)], count, chunk)
        scale = 1 if draw is None else (rank if draw.kind == "sparse" else 1) / draw.directions
        return F.mul_scalar(total, val=scale)

    return built([y, x], lambda: [build()])[0]


def differential_operator(
    y: Variable, x: Variable, indices: Sequence[Sequence[int]] | np.ndarray[Any, Any], coefficients: Any = 1.0,
    batched: bool = True, chunk: int | None = None, directions: int | None = None, seed: int | Variable = -1,
) -> Variable:  # fmt: skip
    """A weighted sum of partial derivatives of one order.

        result[b, k] = sum_t coefficients[t] d^n y[b, k] / (dx[b, i_t1] ... dx[b, i_tn])

    With `directions` that many terms are drawn without replacement, and their sum is scaled by the number of terms over
    `directions`: an unbiased estimate, at a cost that does not grow with the number of terms.

    Args:
        y: `(B,)`, `(B, 1)` or `(B, *m)`; of any shape with `batched=False`.
        x: `(B, d)`; `(d,)` with `batched=False`.
        indices: The terms `(T, n)`: for each, the n elements of x to differentiate by, in any order. For an operator
            with terms of several orders, add one result for each order.
        coefficients: A number, or one for each term `(T,)`, or for each row and term `(B, T)`; a Variable or an array.
            They are not differentiated by x.
        batched: Whether rows are independent; see `nngrad.derivatives`.
        chunk: The number of terms to propagate at once, to bound the memory; None for all.
        directions: The number of terms to draw; None for all, which is exact.
        seed: As for `laplacian`.

    Returns:
        In the shape of `y`.

    Raises:
        TypeError, ValueError: As for `laplacian`; ValueError also if `indices` or `coefficients` have another shape, an
            index is out of range, or there are fewer terms than `directions`.
        MissingRule, NoForwardMode: An op on the path has no backward rule, or one that cannot be used in forward mode.
    """
    name = "differential_operator"
    lead = checked(name, y, x, batched, chunk)
    _check_vectors(name, x, lead)
    terms = _terms(indices, x.shape[-1])
    count, order = terms.shape
    factors = _coefficients(coefficients, y, count, lead)
    if directions is not None and checked_count(directions, f"{name}: directions", others=" or None") > count:
        raise ValueError(f"{name}: directions must be at most {count}, the number of terms, got {directions}")
    draw = checked_draw(name, count, directions, "sparse", seed, "the sum")

    def build() -> Variable:
        c = direction_leaf(spec_of((*factors.shape[1:], *(1,) * (y.ndim - lead)), y.dtype))
        ts = [direction_leaf(x.spec) for _ in range(order)]
        along = y
        for t in ts:
            (along,) = pushed([along], [x], [t])
        chosen = None if draw is None else draw.coordinates(0, count)
        values = [(t, _columns(terms[:, i], chosen, x, lead)) for i, t in enumerate(ts)]
        of_terms = factors if chosen is None else F.embed(chosen, factors)
        of_terms = F.reshape(of_terms, shape=(of_terms.shape[0], *c.shape))
        values.append((c, lambda first, n: part(of_terms, first, n)))
        drawn = count if draw is None else draw.directions
        return F.mul_scalar(sum_over(along * c, values, drawn, chunk), val=count / drawn)

    return built([y, x], lambda: [build()])[0]


def _check_vectors(operator: str, x: Variable, lead: int) -> None:
    if x.ndim != lead + 1:
        raise ValueError(f"{operator}: x must have shape {'(B, d)' if lead else '(d,)'}, got {x.shape}")


def _multiplication(factor: Factor, x: Variable, lead: int) -> tuple[Callable[[Variable], Variable], int]:
    """A function that multiplies vectors `(*batch, r)` by the factor, and r."""
    if callable(factor) and not isinstance(factor, Variable):
        return factor, x.shape[-1]
    matrix = _as_variable(factor, x, "diffusion: factor")
    fits = matrix.ndim > 1 and matrix.shape[:-1] in ((x.shape[-1],), x.shape) and matrix.shape[-1]
    if not fits or matrix.dtype != x.dtype:
        own = "(d, r) or (B, d, r)" if lead else "(d, r)"
        raise ValueError(f"diffusion: factor must be {x.dtype.name} of shape {own} for x {x.shape}, got {matrix.spec}")
    if matrix.ndim == 2:
        wide = (lambda v: v) if lead else (lambda v: F.reshape(v, shape=(1, *v.shape)))
        return lambda v: F.reshape(F.batch_matmul(wide(v), matrix, transpose_b=True), shape=x.shape), matrix.shape[-1]

    def by_rows(v: Variable) -> Variable:
        return F.reshape(F.batch_matmul(matrix, F.reshape(v, shape=(*v.shape, 1))), shape=x.shape)

    return by_rows, matrix.shape[-1]


def _columns(indices: np.ndarray[Any, Any], chosen: Variable | None, x: Variable, lead: int) -> Vectors:
    """Unit vectors of `x` along `indices`, or along the `chosen` ones of them."""
    numbers = Variable.from_numpy_array(indices)
    if chosen is not None:
        numbers = F.embed(chosen, numbers)
    return lambda first, n: unit_vectors_along(part(numbers, first, n), x.spec, lead)


def _terms(indices: Any, size: int) -> np.ndarray[Any, Any]:
    name = "differential_operator: indices"
    try:
        terms = np.asarray(indices)
    except ValueError:
        raise ValueError(f"{name}: all terms must have the same order; add up operators of several orders") from None
    if terms.ndim != 2 or not terms.size or terms.dtype.kind not in "iu":
        raise ValueError(f"{name} must be integers (T, n): for each term, the elements of x to differentiate by")
    if terms.min() < 0 or terms.max() >= size:
        raise ValueError(f"{name} must be between 0 and {size - 1}, got {terms.min()} to {terms.max()}")
    return terms.astype(np.int32)


def _as_variable(given: Any, like: Variable, name: str) -> Variable:
    """The given Variable, or the given array in the dtype of `like`."""
    if isinstance(given, Variable):
        return given
    array = array_of(given, name)
    return Variable.from_numpy_array(array if array.dtype == like.dtype else array.astype(like.dtype))


def _coefficients(given: Any, y: Variable, count: int, lead: int) -> Variable:
    """The coefficients `(T,)` or `(T, B)`, in the dtype of `y`."""
    c = _as_variable(given, y, "differential_operator: coefficients")
    if c.dtype != y.dtype:
        c = F.cast(c, dtype=y.dtype)
    if c.shape == ():
        return F.broadcast(F.reshape(c, shape=(1,)), shape=(count,))
    if c.shape == (count,):
        return c
    if lead and c.shape == (y.shape[0], count):
        return F.transpose(c)
    rows = f", or for each row and term {(y.shape[0], count)}" if lead else ""
    raise ValueError(
        f"differential_operator: coefficients must be a number, or one for each term ({count},){rows}, got {c.shape}"
    )
