"""Matrix products and convolutions; matrix factorisations and triangular solves."""

from __future__ import annotations

import itertools

from jax import lax

from ... import functions as F
from ...extend import Variable
from ...functions.factors import lu_decomposition
from .movement import reshaped_once, transposed_once
from .registry import JaxprEquation, opens, opens_each, require, require_floating


@opens("dot_general")
def _dot_general(equation: JaxprEquation, a: Variable, b: Variable) -> Variable:
    (contracted, batch) = equation.params["dimension_numbers"]
    contracted_a, contracted_b = [tuple(map(int, axes)) for axes in contracted]
    batch_a, batch_b = [tuple(map(int, axes)) for axes in batch]
    if not equation.is_floating:
        require(a.dtype == b.dtype == equation.dtype, "its inputs are integers of several dtypes")
    elif a.dtype != equation.dtype or b.dtype != equation.dtype:
        a, b = F.cast(a, dtype=equation.dtype), F.cast(b, dtype=equation.dtype)
    n, how = len(batch_a), _precision_of(equation)
    leading = batch_a == batch_b == tuple(range(n))
    if leading and len(contracted_a) == 1 and a.ndim == b.ndim == n + 2:
        return F.batch_matmul(a, b, contracted_a[0] == n, contracted_b[0] == n + 1, how)
    if n == 0 and len(contracted_a) == 1 and b.ndim == 2 and contracted_a[0] == a.ndim - 1 and a.ndim > 2:
        return F.batch_matmul(a, b, False, contracted_b[0] == 1, how)
    if n == 0 and len(contracted_a) == 1 and sorted((a.ndim, b.ndim)) == [1, 2]:
        vector, matrix, axis = (a, b, contracted_b[0]) if a.ndim == 1 else (b, a, contracted_a[0])
        row = reshaped_once(vector, (1, vector.shape[0]))
        return reshaped_once(F.batch_matmul(row, matrix, False, axis == 1, how), equation.shape)
    return _contraction(a, b, (contracted_a, contracted_b), (batch_a, batch_b), how)


def _precision_of(equation: JaxprEquation) -> str | None:
    """The precision of the product; if each operand has its own, the higher of the two."""
    precision = equation.params["precision"]
    if isinstance(precision, tuple):
        precision = max(precision, key=lambda of_factor: of_factor.value)
    if isinstance(precision, lax.Precision):
        return precision.name.lower()
    if precision is not None:
        require(isinstance(precision, lax.DotAlgorithmPreset), "it sets a custom algorithm")
    return None if precision is None else str(precision.name)


def _contraction(
    a: Variable, b: Variable, contracted: tuple[tuple[int, ...], ...], batch: tuple[tuple[int, ...], ...],
    how: str | None,
) -> Variable:
    """A product whose axes are the batch axes, the free axes of `a`, and the free axes of `b`."""
    numbers = itertools.count()
    of_a, of_b = [-1] * a.ndim, [-1] * b.ndim
    for i, j in (*zip(*batch, strict=True), *zip(*contracted, strict=True)):
        of_a[i] = of_b[j] = next(numbers)
    of_a = [next(numbers) if k < 0 else k for k in of_a]
    of_b = [next(numbers) if k < 0 else k for k in of_b]
    output = (
        *[of_a[i] for i in batch[0]],
        *[k for i, k in enumerate(of_a) if i not in (*batch[0], *contracted[0])],
        *[k for i, k in enumerate(of_b) if i not in (*batch[1], *contracted[1])],
    )
    return F.contraction(a, b, terms=(tuple(of_a), tuple(of_b)), output=output, matmul_precision=how)


@opens("conv_general_dilated")
def _conv_general_dilated(equation: JaxprEquation, x: Variable, w: Variable) -> Variable:
    require_floating(equation)
    p, numbers = equation.params, equation.params["dimension_numbers"]
    groups, batch_groups = int(p["feature_group_count"]), int(p["batch_group_count"])
    count = x.ndim - 2
    require(count >= 1, "it has no spatial axes")
    if x.dtype != equation.dtype or w.dtype != equation.dtype:
        x, w = F.cast(x, dtype=equation.dtype), F.cast(w, dtype=equation.dtype)
    last = tuple(numbers.lhs_spec) == (0, count + 1, *range(1, count + 1)) == tuple(numbers.out_spec)
    if batch_groups > 1:
        last = False
    order = (numbers.rhs_spec[0], *numbers.rhs_spec[2:], numbers.rhs_spec[1]) if last else numbers.rhs_spec
    w = transposed_once(w, tuple(order))
    x = x if last else transposed_once(x, tuple(numbers.lhs_spec))
    first = 1 if last else 2  # spatial axis
    x = _spread_and_padded(x, first, p["lhs_dilation"], p["padding"])
    pads = (0,) * count
    symmetric = all([low == high >= 0 for low, high in p["padding"]])
    if symmetric:
        pads = tuple([int(low) for low, _ in p["padding"]])
    if batch_groups > 1:
        # Group g of the batch meets group g of the filters, as adjacent groups of channels.
        n, c = x.shape[:2]
        x = reshaped_once(x, (batch_groups, n // batch_groups, c, *x.shape[2:]))
        x = transposed_once(x, (1, 0, 2, *range(3, x.ndim)))
        x = reshaped_once(x, (n // batch_groups, batch_groups * c, *x.shape[3:]))
        groups = batch_groups
    y = F.convolve(
        x, w, pad=pads, stride=tuple(map(int, p["window_strides"])), dilation=tuple(map(int, p["rhs_dilation"])),
        group=groups, channel_last=last, matmul_precision=_precision_of(equation),
    )  # fmt: skip
    return y if last else transposed_once(y, tuple([list(numbers.out_spec).index(i) for i in range(count + 2)]))


def _spread_and_padded(
    x: Variable, first: int, dilation: tuple[int, ...], padding: tuple[tuple[int, int], ...]
) -> Variable:
    """`x` dilated and padded with zeros, except for padding that is equal on both sides."""
    if any([d != 1 for d in dilation]):
        steps = [dilation[a - first] if first <= a < first + len(dilation) else 1 for a in range(x.ndim)]
        key = tuple([(0, n, step) for n, step in zip(x.shape, steps, strict=True)])
        x = F.put_slices(x, key=key, shape=tuple([(n - 1) * s + 1 for n, s in zip(x.shape, steps, strict=True)]))
    if all([low == high >= 0 for low, high in padding]):
        return x
    cut, widths = [(0, n, 1) for n in x.shape], [0] * (2 * x.ndim)
    for a, (low, high) in enumerate(padding, start=first):
        cut[a] = (max(-low, 0), x.shape[a] - max(-low, 0) - max(-high, 0), 1)
        widths[2 * a : 2 * a + 2] = [max(low, 0), max(high, 0)]
    require(all([n > 0 for _, n, _ in cut]), "its padding removes all elements")
    x = F.take_slices(x, key=tuple(cut)) if any([low < 0 or high < 0 for low, high in padding]) else x
    return F.pad(x, pad_width=tuple(widths)) if any(widths) else x


# ---------------------------------------------------------------- factorisations and solves


opens_each({"cholesky": F.batch_cholesky, "lu": lambda x: list(lu_decomposition(x))})


@opens("triangular_solve")
def _triangular_solve(equation: JaxprEquation, a: Variable, b: Variable) -> Variable:
    p = equation.params
    require(not p["conjugate_a"], "it conjugates the matrix")
    transposed = bool(p["transpose_a"])
    if p["left_side"]:
        return F.triangular_solve(
            a, b, lower=bool(p["lower"]), transposed=transposed, unit_diagonal=bool(p["unit_diagonal"])
        )
    swapped = F.triangular_solve(
        a,
        F.swapaxes(b, -1, -2),
        lower=bool(p["lower"]),
        transposed=not transposed,
        unit_diagonal=bool(p["unit_diagonal"]),
    )
    return F.swapaxes(swapped, -1, -2)


@opens("eigh")
def _eigh(equation: JaxprEquation, x: Variable) -> list[Variable]:
    require(equation.params.get("subset_by_index") in (None, (0, x.shape[-1])), "it computes only some eigenvalues")
    values, vectors = F.batch_eigh(x)
    return [vectors, values]


@opens("svd")
def _svd(equation: JaxprEquation, x: Variable) -> list[Variable]:
    p = equation.params
    require(not p["compute_uv"] or not p.get("full_matrices") or x.shape[-1] == x.shape[-2], "its matrices are full")
    require(p.get("subset_by_index") in (None, (0, min(x.shape[-2:]))), "it computes only some singular values")
    u, s, vh = F.batch_svd(x)
    return [s, u, vh] if p["compute_uv"] else [s]


@opens("qr")
def _qr(equation: JaxprEquation, x: Variable) -> list[Variable]:
    p = equation.params
    require(not p.get("pivoting"), "it pivots")
    require(not p["full_matrices"] or x.shape[-2] <= x.shape[-1], "its matrices are full")
    return list(F.batch_qr(x))
