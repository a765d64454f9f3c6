"""The same graphs on an accelerator and on the CPU."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(jax.devices()[0].platform == "cpu", reason="JAX sees no accelerator; `-m gpu` asks for one"),
]


def penalty_and_gradients(context: nn.Context) -> list[np.ndarray]:
    """A gradient penalty on a small convolutional critic, and its gradients, on one device."""
    rng = np.random.default_rng(0)
    with nn.context_scope(context):
        x = nn.Variable.from_numpy_array(rng.standard_normal((4, 3, 8, 8)).astype(np.float32), need_grad=True)
        w = nn.Variable.from_numpy_array(rng.standard_normal((5, 3, 3, 3)).astype(np.float32), need_grad=True)
        v = nn.Variable.from_numpy_array(rng.standard_normal((180, 1)).astype(np.float32), need_grad=True)
        y = F.affine(F.tanh(F.convolution(x, w)), v)
        (slope,) = nn.grad([y], [x])
        penalty = F.mean((F.sum(slope**2, axis=(1, 2, 3)) ** 0.5 - 1) ** 2)
        penalty.forward()
        penalty.backward()
    assert penalty.data.array.devices() == {context.jax_device}
    return [penalty.d, x.g, w.g, v.g]


def test_gradient_penalty_is_the_same_on_both_devices() -> None:
    on_gpu = penalty_and_gradients(nn.get_extension_context("cudnn"))
    on_cpu = penalty_and_gradients(nn.get_extension_context("cpu"))
    for a, b in zip(on_gpu, on_cpu, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-2, atol=2e-3 * np.abs(b).max())  # TF32 products have 10 bits


def test_random_draws_are_the_same_on_both_devices() -> None:
    draws = []
    for name in ("cudnn", "cpu"):
        nn.seed(3)
        with nn.context_scope(nn.get_extension_context(name)):
            draws.append(F.rand(0, 1, (1000,)).d)
    np.testing.assert_array_equal(*draws)


def test_eager_mode_runs_on_the_accelerator() -> None:
    context = nn.get_extension_context("cuda")
    with nn.context_scope(context), nn.auto_forward():
        y = F.exp(nn.Variable.from_numpy_array([0.0, 1.0]))
    assert y.data.array.devices() == {context.jax_device}


@pytest.mark.parametrize("n", [1, 2, 5])
def test_a_matrix_of_nan_gives_nan(n: int) -> None:
    """CUDA's elimination takes NaN for 0."""
    with nn.context_scope(nn.get_extension_context("cuda")):
        a = nn.Variable.from_numpy_array(np.full((n, n), np.nan), need_grad=True)
        x = F.batch_solve(a, nn.Variable.from_numpy_array(np.ones((n, 1))))
        for y in (x, F.batch_det(a), F.batch_logdet(a), F.batch_inv(a), *nn.grad(F.sum(x), [a])):
            assert np.isnan(y.d).all()
