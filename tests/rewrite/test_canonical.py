"""Canonical form of emitted graphs: monomials, linear combinations with exact coefficients, numbers moved outward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
from nngrad.graph import Variable, functions_of
from nngrad.rewrite.builder import emitting
from tests.together import Test, at_once


def leaf(*shape: int) -> Variable:
    return Variable.from_numpy_array(np.random.default_rng(len(shape)).uniform(0.5, 1.5, shape))


def emitted(build: Callable[[], Any]) -> Any:
    """What `build` makes within one builder."""
    with emitting([], 1):
        return build()


def names(y: Variable) -> list[str]:
    return [f.name for f in functions_of([y])]


A, B, C = leaf(3), leaf(3), leaf(3)


@at_once
@pytest.mark.parametrize(("first", "second"), [
    (lambda: A * B, lambda: B * A),
    (lambda: A * A, lambda: A**2),
    (lambda: A**2 * A, lambda: A**3),
    (lambda: A / B, lambda: A * B**-1),
    (lambda: 1 / B, lambda: B**-1),
    (lambda: (2 * A) * (3 * B), lambda: 6 * (B * A)),
    (lambda: A + B + C, lambda: C + (B + A)),
    (lambda: A - B, lambda: -(B - A)),
    (lambda: 2 * A + 4 * B, lambda: 2 * (2 * B + A)),
    (lambda: A + A, lambda: 2 * A),
    (lambda: A * B + B * A, lambda: 2 * A * B),
    (lambda: A + B - A, lambda: B),
    (lambda: A**2 * A**-1, lambda: A),
    (lambda: (1 - A * A) + A**2, lambda: F.constant(1, (3,), np.float64)),
    (lambda: A * (A + B) - (A + B) * A, lambda: F.constant(0, (3,), np.float64)),
    (lambda: F.mul_n(A, B, A), lambda: A**2 * B),
    (lambda: F.square(A) / A, lambda: A),
    (lambda: A * F.reciprocal(B), lambda: A / B),
    (lambda: F.monomial(A, B, powers=(2, -1)), lambda: A * A / B),
    (lambda: F.linear_combination(A, B, coefficients=(1, -1)), lambda: A - B),
    (lambda: F.where(A, 2 * B, 2 * C), lambda: 2 * F.where(A, B, C)),
    (lambda: F.where(A, B, B), lambda: B),
])  # fmt: skip
def test_equal_expressions_are_one_function(first: Callable[[], Variable], second: Callable[[], Variable]) -> Test:
    x, y = emitted(lambda: (first(), second()))
    assert x is y
    np.testing.assert_allclose(*(yield x, first()), rtol=1e-14)


def test_random_functions_are_not_merged() -> None:
    x = leaf(5)
    a, b = emitted(lambda: (F.dropout(x, p=0.5), F.dropout(x, p=0.5)))
    assert a is not b and a.parent is not b.parent


def test_in_sixteen_bits_numbers_stay_inside_of_linear_functions() -> None:
    x = Variable.from_numpy_array(np.ones((2, 2), np.float16))
    y = emitted(lambda: F.sum(1024.0 * x))
    assert names(y) == ["mul_scalar", "sum"]


def test_what_is_zero_keeps_its_sign() -> None:
    first, second = emitted(lambda: (A - 1, 1 - A))
    assert second.parent.op is F.r_sub_scalar  # -(A - 1) is -0 where A is 1
    x = Variable.from_numpy_array([1.0])
    assert nn.grad(F.acosh(x), x)[0].d == np.inf
    assert first is not second
