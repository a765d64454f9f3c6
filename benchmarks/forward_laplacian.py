"""Laplacians beside folx, of functions in JAX: each of one point, and the same of a batch of points."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import nngrad.jax as nj

from .harness import Case, Way, in_jax

Function = Callable[[Any], Any]
Layer = tuple[Any, Any]
PARTICLES = 8


class Wanted(NamedTuple):
    """A function of one point, and where."""

    name: str
    of_point: Function
    of_batch: Function
    points: Any
    energy: bool = False
    """Whether the kinetic part of a local energy is wanted, which reads the gradient too."""


def layers(rng: np.random.Generator, *widths: int) -> list[Layer]:
    """Weights and biases of dense layers."""
    return [
        (jnp.asarray(rng.normal(size=(m, n)) / np.sqrt(m), "f"), jnp.asarray(rng.normal(size=n) * 0.1, "f"))
        for m, n in pairwise(widths)
    ]


def dense(parameters: list[Layer], activation: Function) -> Function:
    """A network of dense layers; the last has one feature, and no activation."""

    def network(x: Any) -> Any:
        for w, b in parameters[:-1]:
            x = activation(x @ w + b)
        w, b = parameters[-1]
        return (x @ w + b)[..., 0]

    return network


def each_by_itself(parameters: list[Layer]) -> Function:
    """The sum over particles, the last axis but one, of a network that is applied to each: folx's example."""
    network = dense(parameters, jax.nn.silu)
    return lambda x: jnp.sum(network(x), axis=-1)


def determinant(rng: np.random.Generator, width: int, waves: bool = False) -> Function:
    """The logarithm of a determinant of orbitals, whose features know of all particles by a mean; of a complex one,
    with plane `waves`."""
    (w, b), (inner, offset) = layers(rng, 3, width, width)
    ((mean, _),) = layers(rng, width, width)
    ((orbitals, _),) = layers(rng, width, PARTICLES)

    def logarithm(x: Any) -> Any:
        h = jnp.tanh(jnp.reshape(x, (*x.shape[:-1], PARTICLES, 3)) @ w + b)
        h = jnp.tanh(h @ inner + offset + jnp.mean(h, axis=-2, keepdims=True) @ mean)
        matrix = h @ orbitals + 0.1 * jnp.eye(PARTICLES, dtype=h.dtype)
        if waves:
            matrix = matrix * jnp.exp(1j * (jnp.reshape(x, (*x.shape[:-1], PARTICLES, 3)) @ w[:, :PARTICLES]))
        return jnp.linalg.slogdet(matrix)[1]

    return logarithm


def attention(rng: np.random.Generator, width: int) -> Function:
    """The logarithm of a determinant of orbitals behind a layer of attention."""
    (w, b), (inner, offset) = layers(rng, 3, width, width)
    queries, keys, values = [w for _ in range(3) for w, _ in layers(rng, width, width)]
    ((orbitals, _),) = layers(rng, width, PARTICLES)

    def logarithm(x: Any) -> Any:
        h = jnp.tanh(jnp.reshape(x, (*x.shape[:-1], PARTICLES, 3)) @ w + b)
        scores = jnp.einsum("...id,...jd->...ij", h @ queries, h @ keys) / np.sqrt(width)
        h = h + jnp.einsum("...ij,...jd->...id", jax.nn.softmax(scores, axis=-1), h @ values)
        h = h + jnp.tanh(h @ inner + offset)
        return jnp.linalg.slogdet(h @ orbitals)[1]

    return logarithm


def pairs(rng: np.random.Generator, width: int) -> Function:
    """A sum over pairs of particles, and over particles that know of their pairs, as in fermionic networks: of
    differences and distances features are made, by layers of their own."""
    of_pairs, ((w, b),) = layers(rng, 4, width, width), layers(rng, 3, width)
    ((last, _),) = layers(rng, width, 1)

    def function(x: Any) -> Any:
        r = jnp.reshape(x, (*x.shape[:-1], PARTICLES, 3))
        apart = r[..., :, None, :] - r[..., None, :, :]
        distance = jnp.sqrt(jnp.sum(apart**2, axis=-1, keepdims=True) + 0.1)
        h = jnp.concatenate([apart, distance], axis=-1)
        for inner, offset in of_pairs:
            h = jnp.tanh(h @ inner + offset)
        h = jnp.sum(h, axis=-2) / PARTICLES
        return jnp.sum(jnp.tanh(r @ w + b + h) @ last, axis=(-2, -1))

    return function


def functions(smoke: bool) -> list[Wanted]:
    """Tiny where `smoke`."""
    rng = np.random.default_rng(0)
    width, small, batch = (8, 8, 2) if smoke else (128, 64, 256)
    particles, depth, of_readme = (3, 1, 8) if smoke else (100, 10, 100)

    def points(*shape: int) -> Any:
        return jnp.asarray(rng.normal(size=shape), "f")

    tanh = dense(layers(rng, 30, width, width, width, 1), jnp.tanh)
    silu = dense(layers(rng, 30, width, width, 1), jax.nn.silu)
    readme = each_by_itself(layers(rng, 4, *[of_readme] * depth, 1))
    of_pairs = pairs(np.random.default_rng(1), small)
    of_determinant, of_attention = determinant(rng, width), attention(rng, small)
    electrons = points(batch // 4 or 1, 3 * PARTICLES)
    return [
        Wanted(f"tanh MLP 30-{width}-{width}-{width}-1", tanh, tanh, points(batch, 30)),
        Wanted(f"silu MLP 30-{width}-{width}-1", silu, silu, points(batch, 30)),
        Wanted(f"log-determinant of {PARTICLES} electrons, width {width}", of_determinant, of_determinant,
             points(batch, 3 * PARTICLES)),
        Wanted(f"attention and log-determinant, width {small}", of_attention, of_attention,
             points(batch // 4 or 1, 3 * PARTICLES)),
        Wanted(f"features of pairs of {PARTICLES} electrons, width {small}", of_pairs, of_pairs,
             points(batch // 4 or 1, 3 * PARTICLES)),
        Wanted(f"local energy of the log-determinant, width {width}", of_determinant, of_determinant, electrons, True),
        Wanted(f"local energy of attention and log-determinant, width {small}", of_attention, of_attention, electrons,
             True),
        Wanted(f"local energy of a complex log-determinant, width {width}", *[determinant(rng, width, True)] * 2,
               electrons, True),
        Wanted(f"folx's README: silu MLP of {depth} layers, {particles} particles", readme, readme,
             points(batch if smoke else 20, particles, 4)),
    ]


# ---------------------------------------------------------------- the ways

OURS = ("nngrad, vmap", "nngrad, batched")
MOST_DENSE = 64
"""Up to how many directions folx is asked for dense Jacobians: with 400 it would take gigabytes."""
MOST_SPARSE = 6
"""What folx's authors recommend as the threshold of sparsity."""


def kinetic(gradient: Any, laplacian: Any) -> Any:
    """-2 times the kinetic part of a local energy, of the logarithm of a wave function at one point."""
    return laplacian + jnp.sum(gradient**2)


def laplacians(case: Wanted) -> dict[str, Function]:
    """The contenders."""
    of_point, of_batch = nj.laplacian(case.of_point), nj.laplacian(case.of_batch, batched=True)
    if case.energy:
        point = nj.laplacian(case.of_point, with_gradient=True)
        batch = nj.laplacian(case.of_batch, batched=True, with_gradient=True)
        of_point = lambda x: kinetic(*point(x)[1:])  # noqa: E731
        of_batch = lambda x: jax.vmap(kinetic)(*batch(x)[1:])  # noqa: E731
    found: dict[str, Function] = {OURS[0]: jax.vmap(of_point), OURS[1]: of_batch}
    if importlib.util.find_spec("folx") is None:
        return {**found, "trace of jax.hessian": jax.vmap(partial(by_jax, case))}
    import folx

    def by_folx(threshold: int) -> Function:
        operator = folx.ForwardLaplacianOperator(threshold)(case.of_point)
        return jax.vmap(lambda x: kinetic(*operator(x)[::-1]) if case.energy else operator(x)[0])

    found["folx, sparse"] = by_folx(MOST_SPARSE)
    if case.points[0].size <= MOST_DENSE:
        found["folx, dense"] = by_folx(0)
    return found


def by_jax(case: Wanted, x: Any) -> Any:
    """The trace of the Hessian at one point, or the kinetic part."""
    laplacian = jnp.trace(jax.hessian(lambda flat: case.of_point(flat.reshape(x.shape)))(x.ravel()))
    return kinetic(jax.grad(case.of_point)(x), laplacian) if case.energy else laplacian


def cases(smoke: bool) -> Iterable[Case]:
    """nngrad, one point vmapped and a batch at once, beside folx, sparse and dense."""
    for wanted in functions(smoke)[:: 3 if smoke else 1]:
        ways: dict[str, Way] = {n: partial(in_jax, f, wanted.points) for n, f in laplacians(wanted).items()}
        pairs = [(ours, peer) for ours in OURS for peer in list(ways)[2:]]
        yield Case(wanted.name, ways, pairs, ("time", "first result", "tracing", "arithmetic", "temporaries"))
