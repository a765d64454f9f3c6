"""Operators from random directions: exact on average, drawn anew by each step, the same draw in a gradient."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nngrad as nn
import nngrad.functions as F
import nngrad.jax as nj
from nngrad.derivatives.vectorize import vectorize
from nngrad.graph import Variable, functions_of
from tests.rematerialising import in_chunks

ROWS, SIZE = 2, 4
RNG = np.random.default_rng(3)
POINTS = RNG.standard_normal((ROWS, SIZE))
WEIGHT = RNG.standard_normal((SIZE, 3))


def leaves() -> tuple[Variable, Variable]:
    return Variable.from_numpy_array(POINTS), Variable.from_numpy_array(WEIGHT, need_grad=True)


def function(x: Variable, w: Variable) -> Variable:
    """A network with a factor that depends on all of x; `(B,)`."""
    return F.sum(F.tanh(x @ w), axis=1) * (1 + F.sum(x**2, axis=1))


def field(x: Variable, w: Variable) -> Variable:
    """`(B, D)`."""
    return F.tanh(x @ w) @ F.transpose(w) * x


def in_jax(x: Any) -> Any:
    """The function at one point."""
    return jnp.sum(jnp.tanh(x @ WEIGHT)) * (1 + jnp.sum(x**2))


@pytest.fixture(scope="module")
def known() -> dict[str, np.ndarray]:
    """Derivatives of order 2, 3 and 4 of the function, and of the field, by nested forward mode."""
    with jax.enable_x64(True):
        second = jax.jacfwd(jax.jacfwd(in_jax))
        third = jax.jacfwd(second)
        slope = jax.jacfwd(lambda x: jnp.tanh(x @ WEIGHT) @ WEIGHT.T * x)
        parts = {"second": second, "third": third, "fourth": jax.jacfwd(third), "slope": slope}
        found = jax.jit(jax.vmap(lambda x: {name: part(x) for name, part in parts.items()}))(POINTS)
    arrays = {name: np.asarray(value) for name, value in found.items()}
    return {
        **arrays,
        "laplacian": np.einsum("bii->b", arrays["second"]),
        "bilaplacian": np.einsum("biijj->b", arrays["fourth"]),
        "divergence": np.einsum("bii->b", arrays["slope"]),
    }


def drawn(y: Variable, op: str) -> list[Variable]:
    """What the draws of one kind give, in the order in which they are in the graph."""
    return [f.outputs[0] for f in functions_of([y]) if f.op.name == op]


def for_each(y: Variable, draws: dict[Variable, Sequence[Any]]) -> np.ndarray:
    """The estimate for each of the values that draws may have."""
    values = {x: Variable.from_numpy_array(np.asarray(v, x.dtype)) for x, v in draws.items()}
    return np.asarray(vectorize([y], values)[0].d)


def estimate(name: str, directions: int, kind: str, **more: Any) -> Variable:
    x, w = leaves()
    y = field(x, w) if name == "divergence" else function(x, w)
    found: Variable = getattr(nn, name)(y, x, directions=directions, kind=kind, **more)
    return found


# ---------------------------------------------------------------- no bias, by enumeration


@pytest.mark.parametrize("name", ["laplacian", "divergence"])
def test_the_mean_over_all_subsets_is_exact(name: str, known: dict[str, np.ndarray]) -> None:
    y = estimate(name, 2, "sparse")
    (chosen,) = drawn(y, "distinct_integers")
    subsets = list(itertools.combinations(range(SIZE), 2))
    values = for_each(y, {chosen: subsets})
    np.testing.assert_allclose(values.mean(axis=0), known[name], rtol=1e-12)
    diagonals = np.einsum("bii->bi", known["second" if name == "laplacian" else "slope"])
    for value, subset in zip(values, subsets, strict=True):
        np.testing.assert_allclose(value, SIZE / 2 * diagonals[:, subset].sum(axis=1), rtol=1e-12)
    assert values.std(axis=0).min() > 0.1


def test_bilaplacian_is_exact_over_all_pairs(known: dict[str, np.ndarray]) -> None:
    y = estimate("bilaplacian", 1, "sparse")
    first, second = drawn(y, "distinct_integers")
    pairs = np.reshape(list(itertools.product(range(SIZE), repeat=2)), (-1, 2, 1))
    values = for_each(y, {first: pairs[:, 0], second: pairs[:, 1]})
    np.testing.assert_allclose(values.mean(axis=0), known["bilaplacian"], rtol=1e-11)


def test_moments_of_a_gaussian_give_the_bilaplacian(known: dict[str, np.ndarray]) -> None:
    """By a quadrature of Gauss and Hermite, which is exact for the polynomial of degree four in each element."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(3)
    y = estimate("bilaplacian", 1, "gaussian")
    (normal,) = drawn(y, "normal")
    places = np.reshape(list(itertools.product(nodes, repeat=SIZE)), (-1, *normal.shape))
    chances = np.prod(list(itertools.product(weights / weights.sum(), repeat=SIZE)), axis=1)
    values = for_each(y, {normal: places})
    np.testing.assert_allclose(chances @ values, known["bilaplacian"], rtol=1e-5)  # samples are float32


def test_products_of_two_estimates_have_no_bias(known: dict[str, np.ndarray]) -> None:
    """The mean over all that may be drawn, each estimate for itself, is the square of the exact residual."""
    x, w = leaves()
    u = function(x, w)
    residuals = [nn.laplacian(u, x, directions=2, seed=seed) - 1 for seed in (1, 2)]
    loss = F.mean(residuals[0] * residuals[1])
    chosen = [drawn(r, "distinct_integers")[0] for r in residuals]
    assert len({*chosen}) == 2
    (gradient,) = nn.grad(loss, w)
    subsets = list(itertools.combinations(range(SIZE), 2))
    each = np.array(list(itertools.product(subsets, repeat=2)))
    places = {one: each[:, i] for i, one in enumerate(chosen)}
    exact_loss = np.mean((known["laplacian"] - 1) ** 2)
    np.testing.assert_allclose(for_each(loss, places).mean(), exact_loss, rtol=1e-11)
    # its gradient has none either
    (exact,) = nn.grad(F.mean((nn.laplacian(u, x) - 1) ** 2), w)
    np.testing.assert_allclose(for_each(gradient, places).mean(axis=0), exact.d, rtol=1e-10)
    # the square of one estimate has one: its variance
    assert for_each(F.mean(residuals[0] ** 2), {chosen[0]: subsets}).mean() > 1.01 * exact_loss


@given(count=st.integers(1, SIZE), chunk=st.none() | st.integers(1, SIZE))
@settings(max_examples=3, deadline=None)
def test_all_coordinates_are_exact_and_chunks_are_the_same(count: int, chunk: int | None) -> None:
    whole = estimate("laplacian", count, "sparse", seed=5)
    with in_chunks():
        parts = estimate("laplacian", count, "sparse", seed=5, chunk=chunk)
    key = Variable.from_numpy_array(np.array([1, 2], np.uint32))
    given_key = [estimate("laplacian", count, "sparse", seed=key, chunk=c) for c in (None, chunk)]
    np.testing.assert_allclose(parts.d, whole.d, rtol=1e-12)
    np.testing.assert_allclose(given_key[0].d, given_key[1].d, rtol=1e-12)
    if count == SIZE:
        np.testing.assert_allclose(whole.d, estimate("laplacian", SIZE, "sparse").d, rtol=1e-12)


# ---------------------------------------------------------------- draws


def test_each_forward_draws_anew_and_gradients_share_the_draw(known: dict[str, np.ndarray]) -> None:
    x, w = leaves()
    y = nn.laplacian(function(x, w), x, directions=2)
    (chosen,) = drawn(y, "distinct_integers")
    (gradient,) = nn.grad(F.sum(y), w)
    diagonals = np.einsum("bii->bi", known["second"])
    seen = set()
    for _ in range(12):
        nn.forward_all([y, gradient, chosen])
        now = chosen.d.tolist()
        seen.add(tuple(sorted(now)))
        np.testing.assert_allclose(y.d, SIZE / 2 * diagonals[:, now].sum(axis=1), rtol=1e-12)
        exact = [jax_gradient(i) for i in now]
        np.testing.assert_allclose(gradient.d, SIZE / 2 * sum(exact), rtol=1e-11)
    assert len(seen) > 2


GRADIENTS: dict[int, np.ndarray] = {}


def jax_gradient(i: int) -> np.ndarray:
    """The gradient by the weight of the second derivatives along a coordinate."""
    if not GRADIENTS:
        with jax.enable_x64(True):

            def diagonal(w: Any, x: Any) -> Any:
                def u(x: Any) -> Any:
                    return jnp.sum(jnp.tanh(x @ w)) * (1 + jnp.sum(x**2))

                return jnp.diag(jax.hessian(u)(x))

            found = jax.jit(jax.jacrev(lambda w: jnp.sum(jax.vmap(diagonal, (None, 0))(w, POINTS), 0)))(WEIGHT)
        GRADIENTS.update(enumerate(np.asarray(found)))
    return GRADIENTS[i]


@given(high=st.integers(1, 9), data=st.data())
@settings(max_examples=3, deadline=None)
def test_numbers_of_an_urn_are_different(high: int, data: Any) -> None:
    count = data.draw(st.integers(0, high))
    key = Variable.from_numpy_array(np.array([high, count], np.uint32))
    numbers = F.distinct_integers(key, count=count, high=high).d.tolist()
    assert len(set(numbers)) == count
    assert set(numbers) <= set(range(high))


# ---------------------------------------------------------------- JAX functions


def test_functions_of_jax_take_a_key(known: dict[str, np.ndarray]) -> None:
    with jax.enable_x64(True):
        key = jax.random.key(1)
        exact = nj.laplacian(in_jax, directions=SIZE)
        np.testing.assert_allclose(jax.vmap(exact, (None, 0))(key, POINTS), known["laplacian"], rtol=1e-11)
        estimated = nj.laplacian(in_jax, directions=2)
        keys = jax.random.split(key, ROWS)
        each = [float(estimated(k, x)) for k, x in zip(keys, POINTS, strict=True)]
        np.testing.assert_allclose(jax.jit(jax.vmap(estimated))(keys, POINTS), each, rtol=1e-11)
        assert len({float(estimated(k, POINTS[0])) for k in jax.random.split(key, 8)}) > 1
        for wrong in (("key", POINTS[0]), (POINTS[0],), (0, POINTS[0]), (jax.random.key(0, impl="rbg"), POINTS[0])):
            with pytest.raises(TypeError, match="first argument must be a key"):
                estimated(*wrong)


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    "more, error, message",
    [
        ({"directions": SIZE + 1}, ValueError, "directions must be at most 4, the number of coordinates of x"),
        ({"kind": "dense"}, ValueError, "kind must be one of 'sparse', 'rademacher', 'gaussian'"),
        ({"directions": 2, "seed": np.array(1.5)}, TypeError, "seed must be an int, or a Variable that holds a key"),
    ],
)
def test_arguments_are_checked(more: dict[str, Any], error: type[Exception], message: str) -> None:
    x, w = leaves()
    with pytest.raises(error, match=message):
        nn.laplacian(function(x, w), x, **more)
