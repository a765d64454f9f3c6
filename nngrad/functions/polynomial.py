"""Monomials and linear combinations, in which emitted gradients are written."""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
from jax import lax

from ..graph import Array, op
from ..graph.arguments import IntsEach, Number, NumbersEach
from .arithmetic import alike, broadcast_pair, floating, raised


@op(elementwise=True, diagonal=True, broadcasts=True, powers=lambda f: f.args["powers"], unbounded=True)
def monomial(*x: Array, powers: IntsEach) -> jax.Array:
    """`x[0] ** powers[0] * x[1] ** powers[1] * ...`, broadcast together; integers become float32.

    Args:
        x: One or more factors, of any shapes that broadcast.
        powers: One whole number for each of `x`, which may be negative. A factor with the power 0 counts as 1.

    Raises:
        ValueError: The shapes do not broadcast, or there is not one power for each of `x`.
    """
    xs = in_common_form(x)
    if max(map(abs, powers)) > _MOST_FACTORS:
        return functools.reduce(lax.mul, [raised(factor, power) for factor, power in zip(xs, powers, strict=True)])
    factors = [
        (factor if power > 0 or power == -1 else raised(factor, -1), power)
        for factor, power in sorted(zip(xs, powers, strict=True), key=lambda pair: pair[1] < 0)
        if power
    ]
    product = None
    # Multiply by each factor once, then by those with a higher power again, and so on: x ** 2 alone might overflow
    # where exp(-x) * x * x is 0.
    for count in range(max([abs(p) for p in powers])):
        for factor, power in factors:
            if product is None:
                product = raised(factor, -1) if power == -1 else factor
            elif abs(power) > count:
                product = lax.div(product, factor) if power == -1 else lax.mul(product, factor)
    return lax.full_like(xs[0], 1) if product is None else product


_MOST_FACTORS = 64
"""Up to this power, the factors of a monomial are multiplied in turn."""


def _weighted_part(arguments: tuple[Any, ...], start: int, stop: int, count: int) -> tuple[Any, ...]:
    """The arguments for part of a weighted sum: the sum before it has weight 1, and the last part has the constant."""
    coefficients, constant = arguments
    return ((1,) if start else ()) + coefficients[start:stop], constant if stop == count else 0


@op(
    elementwise=True, diagonal=True, broadcasts=True, linear="together", weights="coefficients", offset="constant",
    fold=_weighted_part, numbers=("coefficients", "constant"),
)  # fmt: skip
def linear_combination(*x: Array, coefficients: NumbersEach, constant: Number = 0) -> jax.Array:
    """`coefficients[0] * x[0] + coefficients[1] * x[1] + ... + constant`, broadcast together.

    Args:
        x: One or more terms, of any shapes that broadcast; integers are taken as float32.
        coefficients: One number for each of `x`; a `fractions.Fraction` stays exact until it is used.
        constant: A number that is added.

    Raises:
        ValueError: The shapes do not broadcast, or there is not one coefficient for each of `x`.
    """
    total: jax.Array | None = None
    for x_k, coefficient in zip(in_common_form(x), coefficients, strict=True):
        if isinstance(coefficient, jax.Array):  # an input of the program
            term, negative = lax.mul(x_k, lax.full_like(x_k, coefficient)), False
        else:
            size = abs(float(coefficient))
            term = x_k if size == 1 else lax.mul(x_k, lax.full_like(x_k, size))
            negative = math.copysign(1.0, coefficient) < 0
        if total is None:
            total = lax.neg(term) if negative else term
        else:
            total = (lax.sub if negative else lax.add)(total, term)
    assert total is not None  # there is at least one term
    if isinstance(constant, jax.Array):
        return lax.add(total, lax.full_like(total, constant))
    return lax.add(total, lax.full_like(total, float(constant))) if constant else total


def in_common_form(xs: tuple[jax.Array, ...]) -> list[jax.Array]:
    """The arrays, cast to their common floating dtype and broadcast to their common shape."""
    same = alike(*map(floating, xs))
    if all([x.shape == same[0].shape for x in same]):
        return same
    common = functools.reduce(lambda a, b: broadcast_pair(a, b)[0], same)
    return [broadcast_pair(x, common)[0] for x in same]
