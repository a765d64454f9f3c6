"""Random functions: numbers are drawn once per forward and shared by every gradient.

Each consists of an op, which is a deterministic function of a key, and a leaf that holds the key and draws a new one at
every `forward()`. With `seed=-1` the keys come from the stream that `nngrad.seed` starts; any other seed gives the call
its own stream.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..graph import Array, Floats, Variable, composite, op
from ..graph.arguments import DTypeName, Probability, Scalar, Shape, Share, Size
from ..graph.leaf import drawn_leaf
from ..graph.spec import FLOAT32, spec_of
from ..random import key_source
from . import elementwise

_KEY = spec_of((2,), np.dtype(np.uint32))
_INT32 = np.iinfo(np.int32)
_FLOAT32_MAX = float(np.finfo(np.float32).max)


def key_leaf(seed: int, function: str) -> Variable:
    """A leaf that draws a new key at every `forward()`."""
    if seed < -1:
        raise ValueError(f"{function}: seed must be at least 0, or -1 for the stream of nngrad.seed, got {seed}")
    return drawn_leaf(_KEY, key_source(seed), f"{function}/key")


def typed_key(key: Any) -> Any:
    """JAX's typed key for the raw data `uint32[2]`."""
    if key.shape != (2,) or key.dtype != jnp.uint32:
        raise TypeError(f"key must be uint32[2], the data of a threefry key, got {key.dtype}{list(key.shape)}")
    return jax.random.wrap_key_data(key, impl="threefry2x32")


# ---------------------------------------------------------------- functions of a key
# Samples are drawn in 32 bits whatever their final dtype, so that a key gives the same values with and without JAX's
# x64 mode.


@op
def bernoulli(key: Array, /, p: Probability = 0.5, shape: Shape = (), dtype: DTypeName = FLOAT32) -> jax.Array:
    """Samples that are 1 with probability `p`, else 0, determined by `key`.

    Args:
        p: Probability of 1, from 0 to 1.
    """
    hit = lax.lt(jax.random.uniform(typed_key(key), shape, jnp.float32), lax.full(shape, p, jnp.float32))
    return lax.convert_element_type(hit, dtype)


def _uniform(key: Variable, low: Any, high: Any, shape: Shape) -> Variable:
    y: Variable = low + (high - low) * uniform(key, shape=shape)
    return y


@op(of_variables=_uniform)
def uniform(key: Array, /, low: Scalar = 0, high: Scalar = 1, shape: Shape = ()) -> jax.Array:
    """float32 samples, uniform in [low, high), determined by `key`.

    Args:
        low: Smallest value.
        high: Upper bound, excluded unless it is `low`.

    Raises:
        ValueError: `low` is above `high`, or the range is not finite in float32.
    """
    if not low <= high or not max(abs(low), abs(high), high - low) <= _FLOAT32_MAX:
        raise ValueError(f"low must not exceed high, and both must be finite in float32, got low={low}, high={high}")
    y = jax.random.uniform(typed_key(key), shape, jnp.float32)
    y = y * np.float32(high - low) + np.float32(low)
    # Rounding may reach `high`, which is excluded.
    last = np.nextafter(np.float32(high), np.float32(low))
    return lax.clamp(np.float32(low), y, last)


def _normal(key: Variable, mu: Any, sigma: Any, shape: Shape) -> Variable:
    y: Variable = mu + sigma * normal(key, shape=shape)
    return y


@op(of_variables=_normal)
def normal(key: Array, /, mu: Scalar = 0, sigma: Scalar = 1, shape: Shape = ()) -> jax.Array:
    """float32 samples, normal with mean `mu` and standard deviation `sigma`, determined by `key`.

    Args:
        mu: Mean.
        sigma: Standard deviation, not negative.

    Raises:
        ValueError: `sigma` is negative, or `mu` or `sigma` is not finite in float32.
    """
    if not sigma >= 0 or not max(abs(mu), sigma) <= _FLOAT32_MAX:
        raise ValueError(f"mu and sigma >= 0 must be finite in float32, got mu={mu}, sigma={sigma}")
    return jax.random.normal(typed_key(key), shape, jnp.float32) * np.float32(sigma) + np.float32(mu)


@op
def integers(key: Array, /, low: int = 0, high: int = 1, shape: Shape = ()) -> jax.Array:
    """int32 samples, uniform in [low, high), determined by `key`.

    Args:
        low: Smallest value.
        high: Upper bound, excluded.

    Raises:
        ValueError: `low` is not below `high`, or one of them does not fit int32.
    """
    if not _INT32.min <= low < high <= _INT32.max:
        raise ValueError(f"low must be below high, and both must fit into int32, got low={low}, high={high}")
    return jax.random.randint(typed_key(key), shape, np.int32(low), np.int32(high), jnp.int32)


@op
def distinct_integers(key: Array, /, count: int, high: int) -> jax.Array:
    """`count` integers from 0 to `high - 1`, sampled without replacement, determined by `key`.

    The number of steps is `count` (Floyd's algorithm: Bentley and Floyd, 1987, "A sample of brilliance"); memory is one
    byte for each of the `high` numbers.

    Args:
        count: The number of integers, from 0 to `high`.
        high: Their upper bound, excluded; at least 1.

    Returns:
        int32 `(count,)`; every sequence of distinct numbers is equally likely.

    Raises:
        ValueError: `count` is not from 0 to `high`, or `high` is not positive or does not fit int32.
    """
    if not 1 <= high <= _INT32.max:
        raise ValueError(f"high must be at least 1 and fit into int32, got {high}")
    if not 0 <= count <= high:
        raise ValueError(f"count must be between 0 and high={high}, got {count}")
    of_set, of_order = jax.random.split(typed_key(key))
    if not count:
        return jnp.zeros(0, jnp.int32)
    last = jnp.arange(high - count, high, dtype=jnp.int32)
    drawn = jax.random.randint(of_set, (count,), np.int32(0), last + 1, jnp.int32)

    def step(i: Any, state: tuple[Any, Any]) -> tuple[Any, Any]:
        """If the number was drawn before, take the last one of the range, which could not be drawn before."""
        taken, chosen = state
        number = lax.select(taken[drawn[i]], last[i], drawn[i])
        return taken.at[number].set(True), chosen.at[i].set(number)

    chosen = lax.fori_loop(0, count, step, (jnp.zeros(high, bool), jnp.zeros(count, jnp.int32)))[1]
    return jax.random.permutation(of_order, chosen)  # the set is uniform, but not its order


@op
def subkey(key: Array, /, index: Size) -> jax.Array:
    """One of the keys derived from `key`, for a function that draws several times.

    Args:
        key: uint32[2].
        index: The index of the key, not negative.

    Returns:
        uint32[2].
    """
    return jax.random.key_data(jax.random.fold_in(typed_key(key), np.uint32(index)))


# ---------------------------------------------------------------- functions that draw their key


@composite
def dropout(x: Floats, /, p: Share = 0.5, seed: int = -1) -> Variable:
    """`x * mask / (1 - p)`, with a mask that is 0 with probability `p` and 1 otherwise (Srivastava et al., 2014).

    The mask is drawn once per `forward()`; `x`'s gradients of every order share it.

    Args:
        p: Probability of dropping an element: 0 <= p < 1.
        seed: -1 for the stream that `nn.seed` starts, or the seed of a separate stream of masks.

    Raises:
        ValueError: `p` or `seed` is out of range.
    """
    key = key_leaf(seed, "dropout")
    if p == 0:
        return elementwise.identity(x)
    dtype = x.dtype if x.spec.differentiable else FLOAT32
    y: Variable = x * bernoulli(key, p=1 - p, shape=x.shape, dtype=dtype) * (1 / (1 - p))
    return y


@composite
def rand(low: Scalar = 0, high: Scalar = 1, shape: Shape = (), seed: int = -1) -> Variable:
    """float32 samples, uniform in [low, high), drawn anew at every `forward()`.

    Args:
        ...: As in `uniform`.
    """
    return uniform(key_leaf(seed, "rand"), low=low, high=high, shape=shape)


@composite
def randn(mu: Scalar = 0, sigma: Scalar = 1, shape: Shape = (), seed: int = -1) -> Variable:
    """float32 samples, normal with mean `mu` and standard deviation `sigma`, drawn anew at every `forward()`.

    Args:
        ...: As in `normal`.
    """
    return normal(key_leaf(seed, "randn"), mu=mu, sigma=sigma, shape=shape)


@composite
def randint(low: int = 0, high: int = 1, shape: Shape = (), seed: int = -1) -> Variable:
    """int32 samples, uniform in [low, high), drawn anew at every `forward()`.

    Args:
        ...: As in `integers`.
    """
    return integers(key_leaf(seed, "randint"), low=low, high=high, shape=shape)
