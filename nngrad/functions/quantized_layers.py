"""Affine functions and convolutions with quantised weights: signs, scaled signs, or powers of two.

nnabla writes the quantised weights in place at each forward pass. Here `forward()` writes them to the leaves that are
given for them.
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


def _same_shape(name: str, argument: str, value: Variable, weight: Variable) -> None:
    if value.shape != weight.shape:
        raise ValueError(f"{name}: {argument} of shape {value.shape} must have the shape of weight, {weight.shape}")


# ---------------------------------------------------------------- one bit


def _binary(name: str, weight: Variable, binary_weight: Variable, zero: float) -> Variable:
    """The signs of weights; they are written to `binary_weight`."""
    _same_shape(name, "binary_weight", binary_weight, weight)
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
        ...: As for `affine`.
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
        ...: As for `convolution` and `binary_connect_affine`.
    """
    signs = _binary("binary_connect_convolution", weight, binary_weight, quantize_zero_to)
    return convolution.body(x, signs, bias, base_axis, pad, stride, dilation, group)


# ---------------------------------------------------------------- one bit and a scale


def _scaled(
    name: str, weight: Variable, binary_weight: Variable, alpha: Variable, zero: float, axes: tuple[int, ...]
) -> Variable:
    """The signs of weights, times their mean size over `axes`, with the gradient of the weights."""
    _same_shape(name, "binary_weight", binary_weight, weight)
    sizes = reduction.mean(elementwise.abs(accurate(weight)), axis=axes, keepdims=True)
    if alpha.size != sizes.size:
        raise ValueError(f"{name}: alpha of shape {alpha.shape} must have {sizes.size} elements, one for each output")
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
        alpha: A leaf with an element for each output, to which it writes the mean sizes.
        ...: As for `binary_connect_affine`.
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
        alpha: A leaf with an element for each output channel, to which it writes the mean sizes.
        ...: As for `convolution` and `binary_connect_affine`.
    """
    axes = tuple(range(1, weight.ndim))
    scaled = _scaled("binary_weight_convolution", weight, binary_weight, alpha, quantize_zero_to, axes)
    return convolution.body(x, scaled, bias, base_axis, pad, stride, dilation, group)


# ---------------------------------------------------------------- powers of two, one half after the other

Algorithm: TypeAlias = Annotated[str, one_of("largest_abs", "random")]


@op(multiple_results=True)
def inq_quantize(
    weight: Floats, indicators: Array, kept_weight: Array, kept_indicators: Array, count: Array,
    coins: Array | None = None, /, num_bits: Annotated[int, between(2, MOST_BITS)] = 4, inq_iterations: Ints = (),
) -> tuple[jax.Array, jax.Array]:
    """One step of incremental network quantisation: `weight` with powers of two where it is fixed, and where that is.

    The gradient passes to `weight` everywhere.

    Args:
        indicators: 1 where a weight is fixed, else 0; of the shape of `weight`, as the next two are.
        kept_weight: What the step before has returned, which fixed weights go back to.
        kept_indicators: Where that step had fixed them.
        count: How many steps were before; of shape ().
        coins: 1 for each weight that is fixed if this is a step at which some are, else 0; None for the larger half.
        num_bits: Number of bits of a code, one of which is for 0.
        inq_iterations: The counts at which half of the weights that are left are fixed, and at the last one all.

    Returns:
        The weights, of the shape and dtype of `weight`, and the new indicators.

    Raises:
        TypeError: `weight` is not floating.
    """
    if not jnp.issubdtype(weight.dtype, jnp.floating):
        raise TypeError(f"weight must be floating, got {weight.dtype}")
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
    """Where the larger half is of those that are not fixed."""
    ranked = jnp.where(fixed, -1, sizes).ravel()
    ranks = jnp.argsort(jnp.argsort(-ranked))
    return (ranks < jnp.sum(~fixed) // 2).reshape(sizes.shape)


def _incremental(
    name: str, weight: Variable, indicators: Variable, num_bits: int, inq_iterations: Ints, algorithm: str, seed: int
) -> Variable:
    """The weights of a layer under incremental quantisation, with what its forward passes write."""
    _same_shape(name, "indicator_fixedweights", indicators, weight)
    iterations = as_ints(inq_iterations)
    # What is kept from one forward pass to the next belongs to this application, as in nnabla.
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

    Each `forward()` writes `weight` and `indicator_fixedweights`, where they are leaves, and so a weight that is fixed
    gets its power of two back whatever a solver has made of it. The gradient passes to `weight` as to that of
    `affine`. Each application counts for itself: build the graph once, since one that is built anew begins at 0.
    `nn.train_step` takes no parameters that a graph writes itself: train with `forward`, `backward` and `update`.

    Args:
        weight: As for `affine`; floating.
        indicator_fixedweights: 1 where a weight is fixed, else 0; of the shape of `weight`.
        num_bits: Number of bits of a code: 0 and `2^(num_bits - 2)` powers of two of both signs, from that nearest to
            the largest weight down.
        inq_iterations: At which calls of `forward()`, the first of which is number 0, half of the weights that are
            left are fixed; at the last of them all are.
        selection_algorithm: Which half: "largest_abs", or "random", where each of them is fixed with probability 1/2.
        seed: As for random functions, for "random".
        ...: As for `affine`.

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
    """`convolution`, whose weights are fixed at powers of two step by step, as those of `inq_affine` are.

    Args:
        weight: As for `convolution`; floating.
        ...: As for `convolution` and `inq_affine`.

    Raises:
        TypeError: `weight` is not floating.
    """
    name = "inq_convolution"
    w = _incremental(name, weight, indicator_fixedweights, num_bits, inq_iterations, selection_algorithm, seed)
    return convolution.body(x, w, bias, base_axis, pad, stride, dilation, group)
