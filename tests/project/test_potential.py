"""The energies of the benchmark of potentials, with F and as an Equinox model: their derivatives agree with JAX's."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import numpy as np
import pytest

import nngrad as nn
import nngrad.jax as nj
from benchmarks import potential
from tests.oracle import by_jax


def small() -> tuple[potential.Crystal, list[np.ndarray]]:
    """Eight atoms, some edges that are not there, and a network with one layer of messages, in 64 bits."""
    rng = np.random.default_rng(0)
    at = potential.crystal(rng, (2, 1, 1), 160)
    assert 0 < at.edges.exists.sum() < len(at.edges.exists)
    arrays = at, potential.weights(rng, 3, 1)
    found: Any = jax.tree.map(lambda a: a.astype(np.float64) if a.dtype == np.float32 else a, arrays)
    return found


def written(lib: Any, at: potential.Crystal, *given: Any) -> Any:
    """Forces of the Equinox model, and the loss of all derivatives with the gradients of all weights."""
    f = partial(potential.model_of(list(given[5:])), potential.Edges(*given[:4]))
    energy, slope, stress, column = potential.derivatives(lib, f, at, given[4])
    return energy, -slope, stress, column, potential.with_equinox(lib, at)(*given)


@pytest.mark.parametrize("parts", [
    pytest.param(potential.AT_ONCE, id="at_once"),
    pytest.param(potential.IN_CHUNKS, id="in_chunks", marks=pytest.mark.slow),
])
def test_training_on_forces_stress_and_hessian_columns(parts: potential.Parts) -> None:
    at, ws = small()
    given = [*at.edges, at.positions, *ws]
    expected = by_jax(partial(written, jax, at), *given)
    loss, *gradients = nn.compile(*potential.ours(at, ws, parts))(*given)
    for a, b in zip([loss, *gradients], jax.tree.leaves(expected[-1]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_equinox_model_through_the_drop_in() -> None:
    at, ws = small()
    given = [*at.edges, at.positions, *ws]
    expected, found = [by_jax(partial(written, lib, at), *given) for lib in (jax, nj)]
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)

    def moved(step: float, x: Any, *given: Any) -> Any:
        return potential.model_of(list(given[4:]))(potential.Edges(*given[:4]), x + step * at.along, np.zeros((3, 3)))

    h = 1e-5
    ends = [by_jax(partial(moved, step), at.positions, *at.edges, *ws) for step in (h, -h)]
    np.testing.assert_allclose(np.sum(found[1] * at.along), -(ends[0] - ends[1]) / (2 * h), rtol=1e-6)


def test_forces_with_f() -> None:
    at, ws = small()
    own, edges, x = jax.tree.map(nn.Variable.from_numpy_array, (ws, at.edges, at.positions))
    strain = nn.Variable.from_numpy_array(np.zeros((3, 3)))
    slope, stress = nn.grad(potential.energy(potential.WITH_F, potential.AT_ONCE, own, edges, x, strain), [x, strain])
    expected = by_jax(partial(written, jax, at), *at.edges, at.positions, *ws)
    np.testing.assert_allclose(-slope.d, expected[1], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(stress.d, expected[2], rtol=1e-9, atol=1e-12)
