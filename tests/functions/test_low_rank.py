"""Layers of low rank: what they start from, by NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
from nngrad.graph import Variable
from nngrad.parametric_functions.low_rank import canonical_polyadic, truncated_svd
from tests.refusals import refused


@pytest.fixture(autouse=True)
def _empty() -> None:
    nn.clear_parameters()
    nn.seed(0)


def drawn(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


X, IMAGES = Variable.from_numpy_array(drawn(2, 3, 4)), Variable.from_numpy_array(drawn(2, 4, 6, 6))
MATRIX, KERNELS = drawn(12, 2, 3, seed=1), drawn(5, 4, 3, 2, seed=2)


# ---------------------------------------------------------------- decompositions


def test_what_a_truncated_decomposition_leaves_is_the_least() -> None:
    a = drawn(2, 5, 4)
    for rank in range(1, 5):
        u, v = truncated_svd(a, rank)
        assert u.shape == (2, 5, rank)
        left = np.sqrt((np.linalg.svd(a, compute_uv=False)[:, rank:] ** 2).sum(1))
        np.testing.assert_allclose(np.linalg.norm(a - u @ v, axis=(1, 2)), left, rtol=1e-4, atol=1e-5)


def test_a_tensor_of_low_rank_is_found_again() -> None:
    given = [drawn(n, 2, seed=n).astype(float) for n in (5, 4, 6)]
    tensor = np.einsum("ar,br,cr->abc", *given)
    a, b, c = canonical_polyadic(tensor, 2, 2000, 1e-12, 0.0, np.random.default_rng(0))
    np.testing.assert_allclose(np.einsum("ar,br,cr->abc", a, b, c), tensor, atol=1e-3)
    for factor in (b, c):
        np.testing.assert_allclose(np.linalg.norm(factor, axis=0), 1)


def test_each_round_of_least_squares_comes_nearer() -> None:
    tensor = drawn(5, 4, 6).astype(float)

    def left(rounds: int, criterion: float = -1.0) -> float:
        factors = canonical_polyadic(tensor, 3, rounds, criterion, 0.0, np.random.RandomState(0))
        return float(np.linalg.norm(tensor - np.einsum("ar,br,cr->abc", *factors)))

    errors = [left(rounds) for rounds in (1, 2, 3, 5, 10, 100)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < left(100, criterion=0.01) < errors[0]


# ---------------------------------------------------------------- layers


def test_of_full_rank_they_are_the_full_layer() -> None:
    for y, expected in [
        (PF.svd_affine(X, (2, 3), 6, uv_init=MATRIX), F.affine(X, MATRIX)),
        (PF.svd_affine(X, 3, 3, base_axis=-1, uv_init=drawn(4, 3), name="b"), F.affine(X, drawn(4, 3), base_axis=2)),
        (PF.svd_convolution(IMAGES, 5, (3, 2), 5, pad=1, stride=2, uv_init=KERNELS),
         F.convolution(IMAGES, KERNELS, pad=1, stride=2)),
        (PF.cpd3_convolution(IMAGES, 5, (3, 2), 20, pad=1, dilation=2, oik_init=KERNELS, stopping_criterion=1e-12),
         F.convolution(IMAGES, KERNELS, pad=1, dilation=2)),
    ]:
        np.testing.assert_allclose(y.d, expected.d, rtol=1e-3, atol=1e-3)


def test_of_lower_rank_they_are_the_layer_of_the_nearest_weight() -> None:
    y = PF.svd_affine(X, (2, 3), 2, uv_init=MATRIX)
    u, s, v = np.linalg.svd(MATRIX.reshape(12, 6), full_matrices=False)
    nearest = (u[:, :2] * s[:2]) @ v[:2]
    np.testing.assert_allclose(y.d, F.affine(X, nearest.reshape(12, 2, 3)).d, rtol=1e-3, atol=1e-4)
    y = PF.svd_convolution(IMAGES, 5, (3, 2), 2, uv_init=KERNELS)
    nearest = np.empty_like(KERNELS)
    for i in range(4):
        u, s, v = np.linalg.svd(KERNELS[:, i].reshape(5, 6), full_matrices=False)
        nearest[:, i] = ((u[:, :2] * s[:2]) @ v[:2]).reshape(5, 3, 2)
    np.testing.assert_allclose(y.d, F.convolution(IMAGES, nearest).d, rtol=1e-3, atol=1e-4)


# ---------------------------------------------------------------- what is refused

FAILING: list[tuple[str, Callable[[], Any]]] = [
    ("svd_affine: r must be at most 5, the smaller.*got 6", lambda: PF.svd_affine(X, 5, 6)),
    ("svd_convolution: r must be at most 6", lambda: PF.svd_convolution(IMAGES, 9, (3, 2), 7)),
    ("cpd3_convolution: r must be 1 or more", lambda: PF.cpd3_convolution(IMAGES, 5, (3, 3), -1)),
]  # fmt: skip


test_errors = refused(FAILING, after=lambda: not nn.get_parameters(grad_only=False))
