"""Samples of the family `solves`."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from . import Sample, matrix, real, sample


def swap(x):
    return jnp.swapaxes(x, -1, -2)


def steep(*shape):
    """Matrices of which both triangles are well conditioned."""
    return lambda rng: 0.5 * rng.standard_normal(shape) + 2.0 * np.eye(shape[-1])


def exchanging(rng):
    """A matrix whose first pivot is not where it begins."""
    return np.array([[0.0, 2.0, 0.3], [1.0, 0.1, 0.0], [0.2, 0.5, 3.0]]) + 0.1 * rng.standard_normal((3, 3))


SAMPLES: list[Sample] = [
    sample("batch_solve", matrix(2, 3, 3), real(2, 3, 2), ref=jnp.linalg.solve),
    sample("batch_solve", exchanging, real(3, 2), note="rows exchanged", ref=jnp.linalg.solve),
    sample("batch_solve", exchanging, real(3, 1), note="rows exchanged", transposed=True,
           ref=lambda a, b: jnp.linalg.solve(a.T, b)),
    sample("batch_solve", matrix(2, 2), real(2), note="vector", ref=jnp.linalg.solve),
    sample("batch_solve", matrix(2, 2, 2), real(2), note="one vector", ref=lambda a, b: jnp.linalg.inv(a) @ b),
    sample("batch_solve", matrix(2, 2), real(3, 2, 1), note="one matrix", ref=lambda a, b: jnp.linalg.inv(a) @ b),
    sample("batch_solve", matrix(2, 1, 2, 2), real(3, 2, 1), note="broadcast", transposed=True,
           ref=lambda a, b: swap(jnp.linalg.inv(a)) @ b),
    *[
        sample("triangular_solve", steep(3, 3), real(3, 2), lower=lower, transposed=transposed, unit_diagonal=unit,
               ref=lambda a, b, lower=lower, transposed=transposed, unit=unit: jnp.linalg.solve(
                   (swap if transposed else jnp.asarray)(
                       (jnp.tril if lower else jnp.triu)(a * (1 - unit * jnp.eye(3)) + unit * jnp.eye(3))), b))
        for lower in (True, False) for transposed in (False, True) for unit in (False, True)
    ],
    sample("triangular_solve", steep(2, 2, 2), real(2), note="one vector",
           ref=lambda a, b: jnp.linalg.inv(jnp.tril(a)) @ b),
    sample("triangular_solve", steep(2, 2), real(2, 2, 1), note="one matrix",
           ref=lambda a, b: jnp.linalg.inv(jnp.tril(a)) @ b),
]
