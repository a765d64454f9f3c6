"""Affine functions and convolutions with quantised weights: signs, scaled signs, or powers of two.

nnabla writes the quantised weights in place at each forward pass. Here `forward()` writes them to the leaves given for
them.
"""

from __future__ import annotations

import math
from typing import Annotated, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..graph import Array, Floats, NdArray, Variable, composite, op
from ..graph.arguments import Ints, as_ints, between, one_of
from ..graph.variable import leaf_of
from . import array, elementwise, movement, reduction, stochastic
from .arithmetic import widened
from .convolution import convolution
from .linear import affine
from .moments import accurate
from .quantization import MOST_BITS, nearest_power, straight_through, written


def _check_same_shape(name: str, argument: str, value: Variable, weight: Variable) -> None:
    if value.shape != weight.shape:
        raise ValueError(f"{name}: {argument} must have the shape of weight, {weight.shape}, got {value.shape}")


# ---------------------------------------------------------------- one bit


def _binary(name: str, weight: Variable, binary_weight: Variable, zero: float) -> Variable:
    """The signs of the weights, which `forward()` also writes to `binary_weight`."""
    _check_same_shape(name, "binary_weight", binary_weight, weight)
    signs = elementwise.sign(weight, alpha=zero)
    return written(signs, {binary_weight: signs})


@composite
def binary_connect_affine(
    x: Array, weight: Array, binary_weight: Array, bias: Array | None = None, /, base_axis: int = 1,
    quantize_zero_to: float = 1.0,
) -> Variable:
    """`affine` with the signs of `weight`; the gradient passes to `weight` itself (Courbariaux and others, 2015).

    Args:
        binary_weight: A leaf of the shape of `weight`, to which each `forward()` writes the signs.
        quantize_zero_to: The sign of 0.
        ...: As in `affine`.
    """
    signs = _binary("binary_connect_affine", weight, binary_weight, quantize_zero_to)
    return affine.body(x, signs, bias, base_axis)


@composite
def binary_connect_convolution(
    x: Array, weight: Array, binary_weight: Array, bias: Array | None = None, /, base_axis: int = 1,
    pad: Ints | None = None, stride: Ints | None = None, dilation: Ints | None = None, group: int = 1,
    quantize_zero_to: float = 1.0,
) -> Variable:
    """`convolution` with the signs of `weight`; the gradient passes to `weight` itself (Courbariaux and others, 2015).

    Args:
        ...: As in `convolution` and `binary_connect_affine`.
    """
    signs = _binary("binary_connect_convolution", weight, binary_weight, quantize_zero_to)
    return convolution.body(x, signs, bias, base_axis, pad, stride, dilation, group)


# ---------------------------------------------------------------- one bit and a scale


def _scaled(
    name: str, weight: Variable, binary_weight: Variable, alpha: Variable, zero: float, axes: tuple[int, ...]
) -> Variable:
    """The signs of the weights times their mean magnitude over `axes`; the gradient passes to the weights."""
    _check_same_shape(name, "binary_weight", binary_weight, weight)
    sizes = reduction.mean(elementwise.abs(accurate(weight)), axis=axes, keepdims=True)
    if alpha.size != sizes.size:
        raise ValueError(f"{name}: alpha must have {sizes.size} elements, one for each output, got {alpha.shape}")
    signs = elementwise.sign(weight, alpha=zero)
    y = straight_through(signs * array.cast(sizes, weight.dtype), weight)
    return written(y, {binary_weight: signs, alpha: movement.reshape(sizes, shape=alpha.shape)})


@composite
def binary_weight_affine(
    x: Array, weight: Array, binary_weight: Array, alpha: Array, bias: Array | None = None, /, base_axis: int = 1,
    quantize_zero_to: float = 1.0,
) -> Variable:
    """`affine` with the signs of `weight` times each output's mean magnitude of weights (Rastegari and others, 2016).

    The gradient passes to `weight` as if it were neither rounded nor scaled.

    Args:
        alpha: A leaf with an element for each output, to which `forward()` writes the mean magnitudes.
        ...: As in `binary_connect_affine`.
    """
    scaled = _scaled("binary_weight_affine", weight, binary_weight, alpha, quantize_zero_to, (0,))
    return affine.body(x, scaled, bias, base_axis)


@composite
def binary_weight_convolution(
    x: Array, weight: Array, binary_weight: Array, alpha: Array, bias: Array | None = None, /, base_axis: int = 1,
    pad: Ints | None = None, stride: Ints | None = None, dilation: Ints | None = None, group: int = 1,
    quantize_zero_to: float = 1.0,
) -> Variable:
    """`convolution` with the signs of `weight` times the mean magnitude of each filter (Rastegari and others, 2016).

    The gradient passes to `weight` as if it were neither rounded nor scaled.

    Args:
        alpha: A leaf with an element for each output channel, to which `forward()` writes the mean magnitudes.
        ...: As in `convolution` and `binary_connect_affine`.
    """
    axes = tuple(range(1, weight.ndim))
    scaled = _scaled("binary_weight_convolution", weight, binary_weight, alpha, quantize_zero_to, axes)
    return convolution.body(x, scaled, bias, base_axis, pad, stride, dilation, group)


# ---------------------------------------------------------------- incremental quantisation to powers of two

Algorithm: TypeAlias = Annotated[str, one_of("largest_abs", "random")]


@op(multiple_results=True)
def inq_quantize(
    weight: Floats, indicators: Array, kept_weight: Array, kept_indicators: Array, count: Array,
    coins: Array | None = None, /, num_bits: Annotated[int, between(2, MOST_BITS)] = 4, inq_iterations: Ints = (),
) -> tuple[jax.Array, jax.Array]:
    """One step of incremental network quantisation: `weight` with fixed weights at powers of two, and the indicators.

    The gradient passes to `weight` everywhere.

    Args:
        indicators: 1 where a weight is fixed, else 0; of the shape of `weight`, as the next two are.
        kept_weight: The weights that the previous step returned; fixed weights return to them.
        kept_indicators: The indicators that the previous step returned.
        count: The number of previous steps; of shape ().
        coins: 1 for each weight to fix if this step fixes some, else 0; None for the larger half.
        num_bits: Number of bits of a code, one of which represents 0.
        inq_iterations: The counts at which half of the remaining weights are fixed; at the last one all are.

    Returns:
        The weights, of the shape and dtype of `weight`, and the new indicators.

    Raises:
        TypeError: `weight` is not floating.
    """
    if not jnp.issubdtype(weight.dtype, jnp.floating):
        raise TypeError(f"weight must have a floating dtype, got {weight.dtype}")
    iterations = as_ints(inq_iterations)
    fixed = indicators == 1
    before = jnp.where(fixed & (kept_indicators == 1), kept_weight.astype(weight.dtype), weight)
    sizes = lax.abs(widened(before))
    if iterations:
        now = jnp.any(count == np.array(iterations, np.int32))
        chosen = _larger_half(sizes, fixed) if coins is None else coins == 1
        fixed |= (now & chosen) | (count == iterations[-1])
    largest = nearest_power(jnp.max(sizes, initial=0), 1.5)
    largest = jnp.where(largest == 0, 1, largest).astype(sizes.dtype)
    least = largest * sizes.dtype.type(math.ldexp(1.0, 1 - 2 ** (num_bits - 2)))
    power = jnp.clip(nearest_power(sizes, 1.5), least, largest)
    power = jnp.where(sizes < least / 2, 0, lax.sign(widened(before)) * power)
    return jnp.where(fixed, power.astype(weight.dtype), before), fixed.astype(indicators.dtype)


def _larger_half(sizes: jax.Array, fixed: jax.Array) -> jax.Array:
    """A mask of the larger half of the weights that are not fixed."""
    ranked = jnp.where(fixed, -1, sizes).ravel()
    ranks = jnp.argsort(jnp.argsort(-ranked))
    return (ranks < jnp.sum(~fixed) // 2).reshape(sizes.shape)


def _incremental(
    name: str, weight: Variable, indicators: Variable, num_bits: int, inq_iterations: Ints, algorithm: str, seed: int
) -> Variable:
    """The weights of a layer under incremental quantisation, with the updates of its forward passes."""
    _check_same_shape(name, "indicator_fixedweights", indicators, weight)
    iterations = as_ints(inq_iterations)
    # The state between forward passes belongs to this application, as in nnabla.
    count, kept_weight, kept_indicators = [
        leaf_of(NdArray.from_numpy_array(np.zeros(shape, dtype)))
        for shape, dtype in (((), np.int32), (weight.shape, weight.dtype), (weight.shape, indicators.dtype))
    ]
    coins = None
    if algorithm == "random" and iterations:
        coins = stochastic.bernoulli(stochastic.key_leaf(seed, name), 0.5, weight.shape)
    y, fixed = inq_quantize(
        weight, indicators, kept_weight, kept_indicators, count, coins, num_bits=num_bits, inq_iterations=iterations
    )
    new = {weight: y, indicators: fixed, kept_weight: y, kept_indicators: fixed}
    return written(y, new | {count: count + 1} if iterations else new)


@composite
def inq_affine(
    x: Array, weight: Array, indicator_fixedweights: Array, bias: Array | None = None, /, base_axis: int = 1,
    num_bits: int = 4, inq_iterations: Ints = (), selection_algorithm: Algorithm = "largest_abs", seed: int = -1,
) -> Variable:
    """`affine`, whose weights are fixed at powers of two step by step as `forward()` is called (Zhou and others, 2017).

    Each `forward()` writes `weight` and `indicator_fixedweights` if they are leaves, so a fixed weight returns to its
    power of two after a solver's update. The gradient passes to `weight` as in `affine`. Each application counts its
    own steps: build the graph once, since a new one starts at 0. `nn.train_step` does not accept parameters that the
    graph itself writes: train with `forward`, `backward` and `update`.

    Args:
        weight: As in `affine`; floating.
        indicator_fixedweights: 1 where a weight is fixed, else 0; of the shape of `weight`.
        num_bits: Number of bits of a code: 0 and `2^(num_bits - 2)` powers of two of both signs, downwards from the one
            nearest to the largest weight.
        inq_iterations: The calls of `forward()`, counted from 0, at which half of the remaining weights are fixed; at
            the last one all are.
        selection_algorithm: Which half: "largest_abs", or "random", which fixes each weight with probability 1/2.
        seed: As in random functions, for "random".
        ...: As in `affine`.

    Raises:
        TypeError: `weight` is not floating.
    """
    name = "inq_affine"
    w = _incremental(name, weight, indicator_fixedweights, num_bits, inq_iterations, selection_algorithm, seed)
    return affine.body(x, w, bias, base_axis)


@composite
def inq_convolution(
    x: Array, weight: Array, indicator_fixedweights: Array, bias: Array | None = None, /, base_axis: int = 1,
    pad: Ints | None = None, stride: Ints | None = None, dilation: Ints | None = None, group: int = 1,
    num_bits: int = 4, inq_iterations: Ints = (), selection_algorithm: Algorithm = "largest_abs", seed: int = -1,
) -> Variable:
    """`convolution`, whose weights are fixed at powers of two step by step, as in `inq_affine`.

    Args:
        weight: As in `convolution`; floating.
        ...: As in `convolution` and `inq_affine`.

    Raises:
        TypeError: `weight` is not floating.
    """
    name = "inq_convolution"
    w = _incremental(name, weight, indicator_fixedweights, num_bits, inq_iterations, selection_algorithm, seed)
    return convolution.body(x, w, bias, base_axis, pad, stride, dilation, group)
