"""`nngrad.jax.unbiased_square`: the square of an estimate, without bias, for JAX functions of a key."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import jax

from ..graph.arguments import checked_count


def unbiased_square(estimate: Callable[..., Any], draws: int = 2) -> Callable[..., Any]:
    """An unbiased estimate of the square of an expectation, from independent estimates; see `nn.unbiased_square`.

    Args:
        estimate: A function of a key, and perhaps more, whose mean over keys is to be squared:
            `nj.laplacian(f, directions=4)`, or a residual that calls it. It returns an array, or a pytree of arrays.
        draws: The number of independent estimates, at least 2.

    Returns:
        A function of the same arguments, the key first.

    Raises:
        TypeError: `estimate` is no function; `draws` is no int.
        ValueError: `draws` is less than 2.
    """
    if not callable(estimate):
        raise TypeError(f"unbiased_square: estimate: expected a function of a key, got {estimate!r}")
    count = checked_count(draws, "unbiased_square: draws", 2)  # of one estimate the square has a bias

    def square(key: Any, *args: Any, **kwargs: Any) -> Any:
        found = [estimate(each, *args, **kwargs) for each in jax.random.split(key, count)]
        return jax.tree.map(_mean_of_products, *found)

    return square


def _mean_of_products(*values: jax.Array) -> jax.Array:
    """The mean of the products of two different values."""
    before, total = values[0], values[0] * values[1]
    for last, each in pairwise(values[1:]):
        before = before + last
        total = total + before * each
    return total * (2 / (len(values) * (len(values) - 1)))
