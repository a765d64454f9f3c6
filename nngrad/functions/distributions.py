"""Samples of the binomial, gamma and beta distributions, and weighted random choices.

Samples of the gamma distribution are differentiated with respect to its shape by implicit reparameterisation (Figurnov,
Mohamed and Mnih, 2018): as the shape moves, a sample moves so that as much of the distribution stays below it. This
works to any order, since that derivative is made of integrals whose derivatives are of the same kind.
"""

from __future__ import annotations

import functools
import math
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from ..graph import Array, Variable, as_variable, composite, op
from ..graph.arguments import PositiveScalar, Probability, Shape, Size, between
from ..graph.leaf import common_floating
from . import activation, elementwise, movement, slicing
from .arithmetic import broadcast_pair, check_same_shape, floating, widened
from .indexing import along
from .operands import repeated
from .stochastic import key_leaf, typed_key

# ---------------------------------------------------------------- functions of a key


@op
def binomial(
    key: Array, /, n: Annotated[int, between(0, 1 << 24)] = 1, p: Probability = 0.5, shape: Shape = ()
) -> jax.Array:
    """float32 counts of successes in `n` trials, each with probability `p`, determined by `key`.

    Args:
        n: Number of trials, not negative.
        p: Probability of a success, from 0 to 1.

    Raises:
        ValueError: `n` is negative or too large for float32, or `p` is not from 0 to 1.
    """
    return jax.random.binomial(typed_key(key), np.float32(n), np.float32(p), shape=shape, dtype=jnp.float32)


@op
def log_gamma_sample(key: Array, k: Array, /) -> jax.Array:
    """The logarithm of samples of the gamma distribution with shape `k` and scale 1, determined by `key`.

    The logarithm is accurate even where the sample itself underflows. Its derivative with respect to `k` moves the
    sample so that as much of the distribution stays below it.

    Args:
        k: The shape of each sample's distribution, positive; where it is not, the sample is NaN.

    Returns:
        An array of the shape and the floating dtype of `k`.
    """
    k = floating(k)
    wide = widened(k)
    positive = lax.gt(wide, lax.full_like(wide, 0))
    shapes = lax.select(positive, wide, lax.full_like(wide, 1))
    y = jax.random.loggamma(typed_key(key), lax.stop_gradient(shapes), dtype=shapes.dtype)
    drawn = _MOVED.bind(shapes, lax.stop_gradient(y))
    return lax.convert_element_type(lax.select(positive, drawn, lax.full_like(drawn, np.nan)), k.dtype)


_MOVED = Primitive("moved_with_the_shape")
"""Samples, with their derivative with respect to the shapes for when JAX differentiates the emitted function: its own
derivative of them has no further ones. Not a `custom_jvp`: JAX loses those when it differentiates a loop twice."""


def _gamma_tangent(along: Any, y: Any, k: Any, _: Any) -> Any:
    z = lax.exp(y)
    return along * ((y - lax.digamma(k)) * gamma_moment.forward(k, z) + gamma_moment.forward(k, z, order=1))


_MOVED.def_impl(lambda k, y: y)
_MOVED.def_abstract_eval(lambda k, y: y)
ad.defjvp2(_MOVED, _gamma_tangent, None)
batching.defbroadcasting(_MOVED)
mlir.register_lowering(_MOVED, mlir.lower_fun(lambda k, y: y, multiple_results=False))


_NODES = {4: 48, 8: 96}
"""The number of nodes, by the bytes of the dtype, that makes the integral exact, or almost, up to rounding."""


@functools.cache
def quadrature(dtype: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Nodes and weights in float32 or float64 for an integral over [0, inf) of a function that decays exponentially:
    the double exponential formula, with x = exp(t - exp(-t)) (Takahasi and Mori, 1974)."""
    t = np.linspace(-3.5, 5.2, _NODES[dtype.itemsize])
    x = np.exp(t - np.exp(-t))
    return x.astype(dtype), ((t[1] - t[0]) * x * (1 + np.exp(-t))).astype(dtype)


@op(elementwise=True, diagonal=True, broadcasts=True, unbounded=True)
def gamma_moment(k: Array, z: Array, /, order: Size = 0, power: Size = 0) -> jax.Array:
    """The integral of w^order (exp(w) - 1)^power exp(k w - z (exp(w) - 1)), over positive or over negative w.

    It is part of an integral over the gamma distribution with shape `k`, in the variable w = log(t / z). Where `z` is
    at least `k`, w is positive; elsewhere w is negative, and the integral has the opposite sign.

    Args:
        k: The shape, positive.
        z: The point, not negative, of a shape that broadcasts with that of `k`.
        order: The power of w.
        power: The power of exp(w) - 1.
    """
    k, z = broadcast_pair(floating(k), floating(z))
    dtype = k.dtype
    k, z = widened(k), widened(z)
    below = z < k
    # One over the rough extent of the integrand: it decays exponentially, in -w below and in exp(w) - 1 above.
    rate = lax.abs(k - z) + lax.sqrt(z / 2)
    near = 1 / rate
    scale = jnp.where(below, jnp.where(near > 1, lax.max(near, 1 / k), near), jnp.where(z > 1, near, 1 / z))
    scale = lax.stop_gradient(scale)  # if JAX differentiates this: the integral does not depend on it
    places, weights = quadrature(k.dtype)
    k, z, below, scale = (lax.expand_dims(term, (term.ndim,)) for term in (k, z, below, scale))
    along = scale * places
    w = jnp.where(below, -along, lax.log1p(along))
    growth = jnp.where(below, lax.expm1(w), along)
    # Where w is positive, dw = d(exp(w) - 1) / exp(w).
    terms = lax.exp(jnp.where(below, k, k - 1) * w - z * growth)
    terms = terms * lax.integer_pow(w, order) * lax.integer_pow(growth, power)
    total = jnp.sum(terms * (weights * scale), axis=-1)
    return lax.convert_element_type(jnp.where(below[..., 0], -total, total), dtype)


@op
def weighted_choice(key: Array, w: Array, /, count: int, replace: bool = True) -> jax.Array:
    """Random indices into the last axis of `w`, with probabilities proportional to `w`, determined by `key`.

    Args:
        w: Weights, `(..., n)`; one that is not positive is never chosen while there are others.
        count: The number of indices in each row.
        replace: Whether to sample with replacement.

    Returns:
        int32 `(..., count)`.

    Raises:
        ValueError: `w` has no elements along its last axis, or fewer than `count` without `replace`.
    """
    if not w.ndim or not w.shape[-1]:
        raise ValueError(f"w must have at least one weight along its last axis, got shape {w.shape}")
    if not replace and count > w.shape[-1]:
        raise ValueError(f"cannot choose {count} of {w.shape[-1]} elements without replacement. Pass replace=True")
    wide = lax.convert_element_type(w, jnp.float32)
    logits = lax.log(lax.max(wide, lax.full_like(wide, 0)))
    # With Gumbel noise on the logits, the largest is a choice by weights, and the k largest are k choices without
    # replacement (Yellott, 1977).
    if replace:
        drawn = jax.random.categorical(typed_key(key), logits, axis=-1, shape=(count, *w.shape[:-1]))
        return lax.convert_element_type(jnp.moveaxis(drawn, 0, -1), jnp.int32)
    noisy = logits + jax.random.gumbel(typed_key(key), w.shape, jnp.float32)
    return lax.convert_element_type(lax.top_k(noisy, count)[1], jnp.int32)


# ---------------------------------------------------------------- functions that draw their key


@composite
def rand_binomial(n: int = 1, p: float = 0.5, shape: Shape = (), seed: int = -1) -> Variable:
    """float32 counts of successes in `n` trials, drawn anew at every `forward()`.

    Args:
        ...: As in `binomial`.
    """
    return binomial(key_leaf(seed, "rand_binomial"), n=n, p=p, shape=shape)


@composite
def rand_gamma(k: PositiveScalar = 0.5, theta: PositiveScalar = 1, shape: Shape = (), seed: int = -1) -> Variable:
    """Samples of the gamma distribution, drawn anew at every `forward()`.

    They are differentiated with respect to `k` and `theta`, to any order, where these are Variables: as these change, a
    sample moves so that as much of the distribution stays below it.

    Args:
        k: Shape of the distribution, positive: a number or a Variable.
        theta: Scale of the distribution, positive: a number or a Variable.
        shape: Shape of the result; those of `k` and `theta` broadcast with it.

    Returns:
        An array in the common dtype of `k` and `theta`; float32 where both are numbers.

    Raises:
        TypeError: `k` or `theta` is neither a number nor a Variable.
        ValueError: A number is not positive, the shapes do not broadcast, or `seed` is below -1.
    """
    (k, theta), shape = _parameters("rand_gamma", {"k": k, "theta": theta}, shape)
    y: Variable = elementwise.exp(log_gamma_sample(key_leaf(seed, "rand_gamma"), repeated(k, shape))) * theta
    return y


@composite
def rand_beta(alpha: PositiveScalar = 0.5, beta: PositiveScalar = 0.5, shape: Shape = (), seed: int = -1) -> Variable:
    """Samples of the beta distribution, drawn anew at every `forward()`.

    They are g / (g + h) with samples g and h of gamma distributions. Where `alpha` and `beta` are Variables, they have
    derivatives with respect to them, to any order.

    Args:
        alpha: First shape of the distribution, positive: a number or a Variable.
        beta: Second shape of the distribution, positive: a number or a Variable.
        shape: Shape of the result; those of `alpha` and `beta` broadcast with it.

    Returns:
        An array in the common dtype of `alpha` and `beta`; float32 where both are numbers.

    Raises:
        TypeError: `alpha` or `beta` is neither a number nor a Variable.
        ValueError: A number is not positive, the shapes do not broadcast, or `seed` is below -1.
    """
    (alpha, beta), shape = _parameters("rand_beta", {"alpha": alpha, "beta": beta}, shape)
    # One key for both: with a given seed, two calls would draw the same samples.
    both = movement.stack(repeated(alpha, shape), repeated(beta, shape), axis=0)
    first, second = movement.split(log_gamma_sample(key_leaf(seed, "rand_beta"), both), axis=0)
    return activation.sigmoid(first - second)


def _parameters(name: str, values: dict[str, Any], shape: Shape) -> tuple[list[Variable], tuple[int, ...]]:
    """The parameters of a distribution as Variables, and the shape of the samples."""
    for argument, value in values.items():
        if not isinstance(value, Variable) and value == math.inf:
            raise ValueError(f"{name}: {argument} must be finite, got {value}")
    dtype = common_floating(values.values())
    parameters = [v if isinstance(v, Variable) else as_variable(float(v), n, name, dtype) for n, v in values.items()]
    try:
        return parameters, np.broadcast_shapes(tuple(shape), *[x.shape for x in parameters])
    except ValueError:
        shapes = ", ".join([f"{n} {x.shape}" for n, x in zip(values, parameters, strict=True)])
        raise ValueError(f"{name}: shape {shape} does not broadcast with {shapes}") from None


@composite
def random_choice(x: Array, w: Array, /, shape: Shape = (), replace: bool = True, seed: int = -1) -> Variable:
    """Random elements of the last axis of `x`, with probabilities proportional to `w`.

    They are drawn anew at every `forward()`. The gradient goes to the elements that were chosen; that with respect to
    the weights is 0, since a choice does not move with them.

    Args:
        x: `(..., n)`.
        w: Weights, of the shape of `x`; one that is not positive is never chosen while there are others.
        shape: The shape of the choices from each row; () stands for (1,), as in nnabla.
        replace: Whether to sample with replacement.

    Returns:
        `(..., *shape)`.

    Raises:
        ValueError: The shapes differ, there are no elements, or too few without `replace`; or `seed` is below -1.
    """
    check_same_shape(x=x, w=w)
    shape = shape or (1,)
    index = weighted_choice(key_leaf(seed, "random_choice"), w, count=math.prod(shape), replace=replace)
    points, rows = along(index, x.ndim - 1)
    y = slicing.take_points(x, points, axes=(x.ndim - 1,), rows=rows)
    return movement.reshape(y, shape=(*x.shape[:-1], *shape))
