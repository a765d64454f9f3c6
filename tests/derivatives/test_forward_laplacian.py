"""What a Laplacian costs, where each direction reaches a part alone, and that it is right nevertheless."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import nngrad as nn
import nngrad.functions as F
import nngrad.jax as nj
from nngrad import Variable
from tests.exact import exactly
from tests.oracle import runner

RNG = np.random.default_rng(0)
ROWS, PARTICLES, D, WIDTH = 2, 3, 2, 4
X = RNG.standard_normal((ROWS, PARTICLES, D))
Steps = dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]]
"""For each step the function of Variables, and that of JAX arrays of one row."""


def weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).standard_normal(shape) / np.sqrt(shape[0])


def by(w: np.ndarray) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """The product with a matrix."""
    return lambda h: F.batch_matmul(h, Variable.from_numpy_array(w)), lambda h: h @ w


def attended(h: Any) -> Any:
    scores = F.softmax(F.batch_matmul(h, h, transpose_b=True), axis=-1)
    return F.batch_matmul(scores, h)


def gathered(h: Any) -> Any:
    return F.concatenate(h[:, :1] * 2, h[:, 1:], axis=1)


PAIRS = weights(2 * WIDTH + 1, WIDTH)
FIRST, SECOND = np.triu_indices(PARTICLES, 1)


def features_of_pairs(h: Any) -> Any:
    """What a network reads of two particles: where they are from each other, how far, and the second one."""
    lines, columns = F.reshape(h, shape=(ROWS, PARTICLES, 1, WIDTH)), F.reshape(h, shape=(ROWS, 1, PARTICLES, WIDTH))
    apart = lines - columns
    distance = F.sqrt(F.sum(apart**2, axis=3, keepdims=True) + 0.5)
    features = F.concatenate(apart, distance, F.broadcast(columns, shape=apart.shape), axis=3)
    of_pairs = F.tanh(F.matmul(features, Variable.from_numpy_array(PAIRS)))
    return F.sum(of_pairs * F.exp(-distance), axis=2)


def features_of_pairs_in_jax(h: Any) -> Any:
    apart = h[:, None] - h[None]
    distance = jnp.sqrt(jnp.sum(apart**2, -1, keepdims=True) + 0.5)
    features = jnp.concatenate([apart, distance, jnp.broadcast_to(h[None], apart.shape)], -1)
    return jnp.sum(jnp.tanh(features @ PAIRS) * jnp.exp(-distance), 1)


def chosen_pairs(h: Any) -> Any:
    """Each pair once, and what they give to one of the two."""
    first, second = [F.gather(h, Variable.from_numpy_array(i), axis=1) for i in (FIRST, SECOND)]
    return h + F.sum(F.sin(first - second), axis=1, keepdims=True)


STEPS: Steps = {
    "matrix": by(weights(WIDTH, WIDTH)),
    "tanh": (F.tanh, jnp.tanh),
    "silu": (lambda h: h * F.sigmoid(h), jax.nn.silu),
    "elu": (F.elu, jax.nn.elu),
    "square plus": (lambda h: h * h + F.sin(h), lambda h: h * h + jnp.sin(h)),
    "softmax of features": (lambda h: F.softmax(h, axis=2), lambda h: jax.nn.softmax(h, axis=1)),
    "mean of particles": (lambda h: F.mean(h, axis=1, keepdims=True) + h, lambda h: jnp.mean(h, 0, keepdims=True) + h),
    "sum of particles": (lambda h: F.tanh(F.sum(h, axis=1, keepdims=True)) * h,
                         lambda h: jnp.tanh(jnp.sum(h, 0, keepdims=True)) * h),
    "attention": (attended, lambda h: jax.nn.softmax(h @ h.T, axis=-1) @ h),
    "pairs": (lambda h: F.sum(F.tanh(F.reshape(h, shape=(ROWS, PARTICLES, 1, WIDTH))
                                     - F.reshape(h, shape=(ROWS, 1, PARTICLES, WIDTH))), axis=2),
              lambda h: jnp.sum(jnp.tanh(h[:, None] - h[None]), axis=1)),
    "features of pairs": (features_of_pairs, features_of_pairs_in_jax),
    "chosen pairs": (chosen_pairs, lambda h: h + jnp.sum(jnp.sin(h[FIRST] - h[SECOND]), 0, keepdims=True)),
    "products of pairs": (lambda h: F.mean(F.tanh(F.reshape(h, shape=(ROWS, PARTICLES, 1, WIDTH))
                                                  * F.reshape(h, shape=(ROWS, 1, PARTICLES, WIDTH))), axis=1),
                          lambda h: jnp.mean(jnp.tanh(h[:, None] * h[None]), axis=0)),
    "turned around": (lambda h: F.concatenate(h[:, 1:], h[:, :1], axis=1) - F.flip(h, axes=1) * F.tanh(h),
                      lambda h: jnp.roll(h, -1, 0) - h[::-1] * jnp.tanh(h)),
    "turned": (lambda h: F.transpose(F.tanh(F.transpose(h, axes=(0, 2, 1))), axes=(0, 2, 1)), jnp.tanh),
    "parts": (gathered, lambda h: jnp.concatenate([h[:1] * 2, h[1:]])),
    "stopped": (lambda h: h * F.unlink(h), lambda h: h * jax.lax.stop_gradient(h)),
}

ENDS: Steps = {
    "sum": (lambda h: F.sum(h, axis=(1, 2)), jnp.sum),
    "product of sums": (lambda h: F.prod(F.sum(h, axis=1), axis=-1), lambda h: jnp.prod(jnp.sum(h, 0))),
    "determinant": (lambda h: F.batch_logdet(F.batch_matmul(h, h, transpose_b=True) + np.eye(PARTICLES)),
                    lambda h: jnp.linalg.slogdet(h @ h.T + np.eye(PARTICLES))[1]),
}


def network(steps: list[str], end: str, flat: bool) -> tuple[Variable, Variable, Callable[[Any], Any]]:
    """A function of particles as a Variable, its input, and the function of one row in JAX.

    Args:
        steps: Names of what is done one after another.
        end: How numbers are made of the features.
        flat: Whether the input has one axis for the coordinates of all particles.
    """
    first, first_in_jax = by(weights(D, WIDTH))
    x = Variable.from_numpy_array(X.reshape(ROWS, -1) if flat else X, need_grad=True)
    h = first(F.reshape(x, shape=X.shape) if flat else x)
    for name in steps:
        h = STEPS[name][0](h)

    def in_jax(row: Any) -> Any:
        h = first_in_jax(row.reshape(PARTICLES, D))
        for name in steps:
            h = STEPS[name][1](h)
        return ENDS[end][1](h)

    return ENDS[end][0](h), x, in_jax


@pytest.mark.slow
@settings(max_examples=3, deadline=None)
@example(["square plus", "attention", "mean of particles"], "determinant", True)
@example(["silu", "sum of particles", "pairs"], "product of sums", False)
@example(["features of pairs", "chosen pairs"], "sum", True)
@example(["products of pairs", "turned around"], "determinant", False)
@given(st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=3), st.sampled_from(sorted(ENDS)), st.booleans())
def test_laplacians_of_networks_of_particles(steps: list[str], end: str, flat: bool) -> None:
    y, x, in_jax = network(steps, end, flat)
    wanted = exactly(jax.vmap(jax.hessian(in_jax)), X.reshape(ROWS, -1))
    (found,) = runner([[nn.laplacian(y, x), nn.hessian_diagonal(y, x)]], [])([])
    laplacian, diagonal = found
    scale = np.abs(wanted).max() + 1
    np.testing.assert_allclose(laplacian / scale, np.trace(wanted, axis1=1, axis2=2) / scale, rtol=0, atol=1e-11)
    expected = np.diagonal(wanted, axis1=1, axis2=2).reshape(diagonal.shape)
    np.testing.assert_allclose(diagonal / scale, expected / scale, rtol=0, atol=1e-11)


# ---------------------------------------------------------------- what it costs


def test_what_cancels_where_two_particles_are_one_does_so_exactly() -> None:
    """r_i - r_i does not move, however steep what is made of it may be."""
    x = Variable.from_numpy_array(X, need_grad=True)
    apart = F.reshape(x, shape=(ROWS, PARTICLES, 1, D)) - F.reshape(x, shape=(ROWS, 1, PARTICLES, D))
    y = F.sum(F.sqrt(F.sum(apart**2, axis=3) + 1e-12), axis=(1, 2))

    def distances(row: Any) -> Any:
        return 2 * sum([jnp.linalg.norm(row[i] - row[j]) for i, j in zip(FIRST, SECOND, strict=True)])

    hessians = exactly(jax.vmap(jax.hessian(distances)), X).reshape(ROWS, X[0].size, X[0].size)
    exact = np.trace(hessians, axis1=1, axis2=2)
    np.testing.assert_allclose(nn.laplacian(y, x).d, exact, rtol=1e-9)


def local_energy(first: Any, second: Any) -> Any:
    """-1/2 (laplacian of psi) / psi for psi = exp(a + ib), from gradients and Laplacians of a and b: its two parts."""
    real = second[0] + first[0] @ first[0] - first[1] @ first[1]
    return -0.5 * real, -0.5 * (second[1] + 2 * first[0] @ first[1])


@pytest.mark.parametrize("batched", [False, True])
def test_value_gradient_and_laplacian_of_a_jax_function(batched: bool) -> None:
    w = weights(D, WIDTH)

    def f(row: Any) -> Any:
        return jnp.sum(jnp.tanh(row @ w) ** 2)

    def three(row: Any) -> Any:
        return f(row), jax.grad(f)(row), jnp.trace(jax.hessian(f)(row).reshape(D * PARTICLES, -1))

    ours = nj.laplacian(jax.vmap(f) if batched else f, batched=batched, with_gradient=True)
    with jax.enable_x64(True):
        found = ours(X) if batched else jax.vmap(ours)(X)
        for a, b in zip(found, jax.vmap(three)(X), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-11)


@pytest.mark.parametrize("batched", [False, True])
def test_local_energy_of_a_complex_wave_function(batched: bool) -> None:
    w, v = weights(D, WIDTH), weights(WIDTH, 2)

    def log_of_psi(row: Any) -> Any:
        modulus, phase = jnp.sum(jnp.tanh(row @ w) @ v, axis=0)
        return modulus + 1j * jnp.sin(phase)

    def local_energy(laplacian: Any, row: Any) -> Any:
        _, gradient, second = laplacian(row)
        return -0.5 * (second + jnp.sum(gradient**2))

    def by_jax(row: Any) -> Any:
        parts = [lambda row, part=part: part(log_of_psi(row)) for part in (jnp.real, jnp.imag)]
        gradients = [jax.grad(part)(row) for part in parts]
        traces = [jnp.trace(jax.hessian(part)(row).reshape(D * PARTICLES, -1)) for part in parts]
        return log_of_psi(row), gradients[0] + 1j * gradients[1], traces[0] + 1j * traces[1]

    with jax.enable_x64(True):
        if batched:
            value, gradient, second = nj.laplacian(jax.vmap(log_of_psi), batched=True, with_gradient=True)(X)
            found = jax.vmap(lambda *given: local_energy(lambda _: given, None))(value, gradient, second)
        else:
            found = jax.jit(jax.vmap(lambda row: local_energy(nj.laplacian(log_of_psi, with_gradient=True), row)))(X)
        assert found.dtype == np.complex128
        np.testing.assert_allclose(found, jax.vmap(lambda row: local_energy(by_jax, row))(X), rtol=1e-11)


def test_axis_of_size_one_is_repeated_by_broadcasting() -> None:
    others = np.random.default_rng(7).standard_normal((4, 3))

    def of_one(x: Any) -> Any:
        return jnp.sum(jnp.cumsum(x * others, axis=0) ** 3)

    for shape in ((1, 3), (4, 1), (1, 1)):
        points = np.random.default_rng(8).standard_normal((ROWS, *shape))
        x = Variable.from_numpy_array(points, need_grad=True)
        y = F.sum(F.cumsum(x * Variable.from_numpy_array(others), axis=1) ** 3, axis=(1, 2))
        laplacian, found = nn.laplacian(y, x), nn.hessian(y, x, batched=True)
        nn.forward_all([laplacian, found])
        size = points[0].size
        hessians = exactly(jax.vmap(jax.hessian(of_one)), points).reshape(ROWS, size, size)
        np.testing.assert_allclose(laplacian.d, np.trace(hessians, axis1=1, axis2=2), rtol=1e-9)
        np.testing.assert_allclose(found.d.reshape(hessians.shape), hessians, rtol=1e-9, atol=1e-9)
