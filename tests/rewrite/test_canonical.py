"""Canonical form of emitted graphs: monomials, linear combinations with exact coefficients, numbers moved outward."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
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


@pytest.mark.parametrize("count", [3, 80], ids=["few terms", "many terms"])
def test_multiples_of_a_sum_share_it(count: int) -> None:
    xs = [leaf(3) for _ in range(count)]

    def build() -> list[Variable]:
        weighted = [2 * (k + 1) * x for k, x in enumerate(xs)]
        return [F.add_n(*weighted), F.add_n(*[-1.5 * x for x in weighted[::-1]]), F.add_n(*[1.01 * x for x in xs])]

    double, negative, other = emitted(build)
    assert [f.name for f in functions_of([double, negative])] == ["linear_combination", "mul_scalar", "mul_scalar"]
    nn.forward_all([double, negative, other])
    values = np.array([x.d for x in xs])
    expected = 2 * np.arange(1, count + 1) @ values
    np.testing.assert_allclose(double.d, expected, rtol=1e-12)
    np.testing.assert_allclose(negative.d, -1.5 * expected, rtol=1e-12)
    np.testing.assert_allclose(other.d, 1.01 * values.sum(axis=0), rtol=1e-12)


def test_coefficients_are_exact() -> None:
    third = Fraction(1, 3)
    y = emitted(lambda: F.linear_combination(A, B, coefficients=(third, 1)) * 3 - 3 * B)
    assert y is A
    assert emitted(lambda: (0.25 * A) * (4 * B) - A * B).parent.op is F.constant
    assert emitted(lambda: 0.1 * A + 0.2 * A).parent.args["val"] == 0.1 + 0.2


def test_a_product_is_not_distributed_over_a_sum() -> None:
    y = emitted(lambda: (1 - A * A) * B)
    assert names(y) == ["pow_scalar", "r_sub_scalar", "mul2"]


def test_what_the_user_built_is_not_looked_into() -> None:
    product, total = A * B, A + B
    y = emitted(lambda: product * A + total)
    assert product.parent in functions_of([y]) and total.parent in functions_of([y])
    assert emitted(lambda: A * B) is not product


W = leaf(3, 4)


@at_once
@pytest.mark.parametrize("build", [
    lambda x: F.batch_matmul(3 * x, W[:, :2]),
    lambda x: F.batch_matmul(W[:, :3], 3 * x, True, True),
    lambda x: F.where(x, 3 * x, 3 * F.exp(x)),
    lambda x: F.where(x, F.constant(0, (2, 3), "float64"), 3 * x),
    lambda x: F.sum(3 * x, axis=0),
    lambda x: F.mean(3 * x, axis=1, keepdims=True),
    lambda x: F.reshape(3 * x, shape=(3, 2)),
    lambda x: F.transpose(3 * x, axes=(1, 0)),
    lambda x: F.broadcast(3 * x, shape=(4, 2, 3)),
    lambda x: (3 * x)[1:],
    lambda x: F.flip(3 * x, axes=(0,)),
    lambda x: F.cumsum(3 * x, axis=1),
    lambda x: F.einsum(3 * x, W, equation="ij,jk->ki"),
    lambda x: F.convolution(F.reshape(3 * x, shape=(1, 2, 3)), leaf(1, 2, 2)),
])  # fmt: skip
def test_numbers_move_out_of_linear_functions(build: Callable[[Variable], Variable]) -> Test:
    x = leaf(2, 3)
    y = emitted(lambda: build(x))
    assert y.parent.op is F.mul_scalar and y.parent.args["val"] == 3.0
    np.testing.assert_allclose(*(yield y, build(x)), rtol=1e-14)


def test_numbers_stay_at_the_factor_that_is_smaller_than_the_product() -> None:
    x = leaf(2, 3)
    y = emitted(lambda: F.batch_matmul(3 * x, W))
    assert names(y) == ["mul_scalar", "batch_matmul"]
    np.testing.assert_allclose(y.d, 3 * x.d @ W.d, rtol=1e-14)


def test_movements_compose() -> None:
    x = leaf(2, 3, 4)
    turned = emitted(lambda: F.transpose(F.transpose(x, axes=(1, 2, 0)), axes=(2, 0, 1)))
    assert turned is x
    assert emitted(lambda: F.reshape(F.reshape(x, shape=(6, 4)), shape=(2, 3, 4))) is x
    wide = emitted(lambda: F.broadcast(F.broadcast(leaf(1, 3), shape=(2, 3)), shape=(4, 2, 3)))
    assert names(wide) == ["broadcast"]


@at_once
@pytest.mark.parametrize(("axis", "keepdims"), [(None, False), (0, False), ((0, 2), True), (1, False), ((1, 2), False)])
def test_a_sum_of_a_broadcast_is_folded(axis: Any, keepdims: bool) -> Test:
    x = leaf(2, 1)
    y = emitted(lambda: F.sum(F.broadcast(x, shape=(4, 2, 3)), axis=axis, keepdims=keepdims))
    reference = np.broadcast_to(x.d, (4, 2, 3)).sum(axis=axis, keepdims=keepdims)
    assert y.shape == reference.shape
    np.testing.assert_allclose(*(yield (y,)), reference, rtol=1e-14)
    repeated = [f for f in functions_of([y]) if f.name == "broadcast"]
    assert all(f.specs[0].size < 24 for f in repeated)


def test_a_transpose_is_part_of_a_product() -> None:
    x = leaf(4, 3)
    y = emitted(lambda: F.batch_matmul(F.transpose(x), W, False, True))
    assert names(y) == ["batch_matmul"]
    np.testing.assert_allclose(y.d, x.d.T @ W.d.T, rtol=1e-14)


def test_random_functions_are_not_merged() -> None:
    x = leaf(5)
    a, b = emitted(lambda: (F.dropout(x, p=0.5), F.dropout(x, p=0.5)))
    assert a is not b and a.parent is not b.parent


def test_in_sixteen_bits_numbers_stay_inside_of_linear_functions() -> None:
    x = Variable.from_numpy_array(np.ones((2, 2), np.float16))
    y = emitted(lambda: F.sum(1024.0 * x))
    assert names(y) == ["mul_scalar", "sum"]


def test_a_long_chain_of_products_and_sums_costs_what_it_did() -> None:
    x, ys = leaf(2), [leaf(2) for _ in range(300)]

    def chain() -> Variable:
        z = x
        for y in ys:
            z = F.tanh(y) + z * F.sin(y)
        return z

    z = emitted(chain)
    assert max(len(f.inputs) for f in functions_of([z])) == 2


def test_derivatives_of_tanh_grow_as_the_square_of_their_order() -> None:
    x = leaf(3, 1)
    w = [leaf(1, 4), leaf(4, 4), leaf(4, 1)]
    y = F.affine(F.tanh(F.affine(F.tanh(F.affine(x, w[0])), w[1])), w[2])
    counts = []
    for _ in range(10):
        (y,) = nn.grad(y, x)
        counts.append(len(functions_of([y])))
    steps = np.diff(counts)
    assert np.all(np.diff(steps) <= 4) and counts[-1] < 220


def test_what_is_zero_keeps_its_sign() -> None:
    first, second = emitted(lambda: (A - 1, 1 - A))
    assert second.parent.op is F.r_sub_scalar  # -(A - 1) is -0 where A is 1
    x = Variable.from_numpy_array([1.0])
    assert nn.grad(F.acosh(x), x)[0].d == np.inf
    assert first is not second
