"""Layers with low-rank weights."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from .. import functions as F
from ..extend import Array, Ints, Variable
from ..initializer import Rng, host_generator
from .affine import affine as affine  # for its descriptions of arguments, as the next one
from .convolution import convolution as convolution
from .layer_arguments import Shapes, of_affine, of_convolution, size
from .layer_parameters import ZEROS, Init, initial, own_parameters, parameter

Matrix: TypeAlias = np.ndarray[Any, Any]
Factors = Callable[[], tuple[Matrix, ...]]


def _full(name: str, shapes: Shapes, init: Init) -> Matrix:
    """The weight to decompose."""
    init = initial(init, shapes.default)
    w = np.asarray(init(shapes.weight) if callable(init) else init, np.float64)
    if w.shape != shapes.weight:
        raise ValueError(f"{name} must have the shape of the weight, {shapes.weight}, got {w.shape}")
    return w


def _rank(r: int, most: int | None = None) -> int:
    rank = size(r, "r")
    if most is not None and rank > most:
        raise ValueError(f"r must be at most {most}, the smaller size of the decomposed matrix, got {r}")
    return rank


def _factors(shapes: Mapping[str, tuple[int, ...]], decomposed: Factors, fixed: bool) -> list[Variable]:
    """Parameters of these shapes, whose initial values are the factors, which are only computed when needed."""
    factors = functools.cache(decomposed)
    return [
        parameter(name, shape, None, lambda shape, i=i: factors()[i].reshape(shape), fixed)  # type: ignore[misc]
        for i, (name, shape) in enumerate(shapes.items())
    ]


@own_parameters("svd_affine")
def svd_affine(
    inp: Array, n_outmaps: Ints, r: int, base_axis: int = 1, uv_init: Init = None, b_init: Init = None,
    fix_parameters: bool = False, rng: Rng | None = None, with_bias: bool = True, name: str | None = None,
) -> Variable:
    """`affine` with a weight of rank `r`: `inp`, flattened from `base_axis` on, times U, times V, plus b.

    Parameters: U (size of the flattened axes, r) and V (r, *n_outmaps), whose product is the nearest one of rank `r` to
    a weight of `affine`; b (*n_outmaps), zeros.

    Args:
        r: The rank: at most the smaller of the numbers of inputs and outputs.
        uv_init: The weight that singular value decomposition splits into U and V, as `w_init` of `affine`.
        fix_parameters: Whether U, V and b are constants.
        rng: Generator for the default `uv_init`.
        ...: As in `affine`.
    """
    shapes = of_affine(inp, n_outmaps, base_axis, rng)
    inmaps, outmaps = shapes.weight[0], math.prod(shapes.bias)
    rank = _rank(r, min(inmaps, outmaps))

    def decomposed() -> tuple[Matrix, ...]:
        return truncated_svd(_full("uv_init", shapes, uv_init).reshape(inmaps, outmaps), rank)

    u, v = _factors({"U": (inmaps, rank), "V": (rank, *shapes.bias)}, decomposed, fix_parameters)
    b = parameter("b", shapes.bias, b_init, ZEROS, fix_parameters) if with_bias else None
    return F.affine(F.affine(inp, u, base_axis=shapes.base_axis), v, b, base_axis=shapes.base_axis)


@own_parameters("svd_conv")
def svd_convolution(
    inp: Array, outmaps: int, kernel: Ints, r: int, pad: Ints | None = None, stride: Ints | None = None,
    dilation: Ints | None = None, uv_init: Init = None, b_init: Init = None, base_axis: int = 1,
    fix_parameters: bool = False, rng: Rng | None = None, with_bias: bool = True, name: str | None = None,
) -> Variable:
    """`convolution` whose kernels are sums of `r` basis kernels per channel.

    It is a depthwise convolution with U, followed by one of kernel size 1 with V.

    Parameters: U (channels * r, *kernel) and V (outmaps, channels * r, 1, ...), whose product is, for each channel, the
    nearest one of rank `r` to the kernels of `convolution`; b (outmaps,), zeros.

    Args:
        r: The rank: at most the smaller of the size of a kernel and `outmaps`.
        uv_init: The weight that singular value decomposition splits into U and V, as `w_init` of `convolution`.
        fix_parameters: Whether U, V and b are constants.
        rng: Generator for the default `uv_init`.
        ...: As in `convolution`.
    """
    shapes = of_convolution(inp, outmaps, kernel, 1, False, base_axis, rng)
    count, channels, *extents = shapes.weight
    rank = _rank(r, min(math.prod(extents), count))

    def decomposed() -> tuple[Matrix, ...]:
        kernels = _full("uv_init", shapes, uv_init).reshape(count, channels, -1)
        u, v = truncated_svd(np.transpose(kernels, (1, 2, 0)), rank)
        return np.swapaxes(u, 1, 2), np.transpose(v, (2, 0, 1))

    of_factors = {"U": (channels * rank, *extents), "V": (count, channels * rank, *[1] * len(extents))}
    u, v = _factors(of_factors, decomposed, fix_parameters)
    b = parameter("b", shapes.bias, b_init, ZEROS, fix_parameters) if with_bias else None
    y = F.depthwise_convolution(
        inp, u, base_axis=shapes.base_axis, pad=pad, stride=stride, dilation=dilation, multiplier=rank
    )
    return F.convolution(y, v, b, base_axis=shapes.base_axis)


@own_parameters("cpd3_conv")
def cpd3_convolution(
    inp: Array, outmaps: int, kernel: Ints, r: int, pad: Ints | None = None, stride: Ints | None = None,
    dilation: Ints | None = None, oik_init: Init = None, b_init: Init = None, base_axis: int = 1,
    fix_parameters: bool = False, rng: Rng | None = None, with_bias: bool = True, max_iter: int = 500,
    stopping_criterion: float = 1e-5, lambda_reg: float = 0.0, name: str | None = None,
) -> Variable:
    """`convolution` whose weight is a sum of `r` outer products of an input filter, an output filter and a kernel.

    It is a convolution of kernel size 1 with I, a depthwise one with K, and one of kernel size 1 with O.

    Parameters: I (r, channels, 1, ...), K (r, *kernel) and O (outmaps, r, 1, ...), which approximate a weight of
    `convolution`, by alternating least squares; b (outmaps,), zeros.

    Args:
        r: Number of products.
        oik_init: The weight that is factored into O, I and K, as `w_init` of `convolution`.
        fix_parameters: Whether I, K, O and b are constants.
        rng: Generator for the default `oik_init`, and for the start of the least squares.
        max_iter: The largest number of iterations.
        stopping_criterion: The iteration stops once the explained share of the squared norm changes by less than this;
            never if it is negative.
        lambda_reg: Added to the diagonal of each linear problem.
        ...: As in `svd_convolution`.
    """
    shapes = of_convolution(inp, outmaps, kernel, 1, False, base_axis, rng)
    count, channels, *extents = shapes.weight
    rank = _rank(r)
    size(max_iter, "max_iter")
    if not lambda_reg >= 0:
        raise ValueError(f"lambda_reg must not be negative, got {lambda_reg}")

    def decomposed() -> tuple[Matrix, ...]:
        w = _full("oik_init", shapes, oik_init).reshape(count, channels, -1)
        o, i, k = canonical_polyadic(w, rank, max_iter, stopping_criterion, lambda_reg, rng or host_generator())
        return i.T, k.T, o

    ones = [1] * len(extents)
    of_factors = {"I": (rank, channels, *ones), "K": (rank, *extents), "O": (count, rank, *ones)}
    i, k, o = _factors(of_factors, decomposed, fix_parameters)
    b = parameter("b", shapes.bias, b_init, ZEROS, fix_parameters) if with_bias else None
    y = F.convolution(inp, i, base_axis=shapes.base_axis)
    y = F.depthwise_convolution(y, k, base_axis=shapes.base_axis, pad=pad, stride=stride, dilation=dilation)
    return F.convolution(y, o, b, base_axis=shapes.base_axis)


def truncated_svd(matrix: Matrix, rank: int) -> tuple[Matrix, Matrix]:
    """Factors (rows, rank) and (rank, columns) of the best approximation to `matrix` of that rank. The first one
    contains the singular values."""
    u, s, v = np.linalg.svd(matrix, full_matrices=False)
    return u[..., :rank] * s[..., None, :rank], v[..., :rank, :]


def canonical_polyadic(
    tensor: Matrix, rank: int, max_iter: int, stopping_criterion: float, lambda_reg: float, rng: Rng
) -> tuple[Matrix, Matrix, Matrix]:
    """Factors a, b and c that approximate a tensor with three axes by the sum over r of a[:, r] x b[:, r] x c[:, r].

    By alternating least squares: with two factors fixed, the third solves a linear problem, to whose diagonal
    `lambda_reg` is added (Carroll and Chang, 1970; Harshman, 1970). Initial factors are drawn between 0 and 1. The
    iteration stops once the explained share of the squared norm changes by less than the criterion; never if that is
    negative. The columns of b and c have length 1.
    """
    factors = [rng.uniform(0, 1, (n, rank)) for n in tensor.shape]
    whole, explained = float(np.sum(tensor**2)), 0.0
    for _ in range(max_iter):
        for axis in range(3):
            first, second = [f for i, f in enumerate(factors) if i != axis]
            gram = (first.T @ first) * (second.T @ second) + lambda_reg * np.eye(rank)
            projected = np.einsum("abc,br,cr->ar", np.moveaxis(tensor, axis, 0), first, second)
            solved = projected @ np.linalg.pinv(gram)
            lengths = np.sqrt(np.sum(solved**2, axis=0))
            factors[axis] = solved / np.where(lengths == 0, 1, lengths)
        # The factors only give the tensor with the lengths of the last one, which was solved for.
        rest = tensor - np.einsum("ar,br,cr->abc", factors[0] * lengths, factors[1], factors[2])
        before, explained = explained, 1 - float(np.sum(rest**2)) / whole if whole else 1.0
        if abs(explained - before) < stopping_criterion:
            break
    return factors[0] * lengths, factors[1], factors[2]
