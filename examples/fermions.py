"""Variational Monte Carlo with a network of determinants: the local energy by the forward Laplacian.

Three fermions of one spin in two dimensions, in a harmonic trap and bound to one another by springs of the same
stiffness. Coordinates of their centre and relative ones part, so that the energy is known: 1 + 4 * 2 = 9. The network
is a determinant of orbitals that depend on all particles, as in FermiNet, with a Gaussian envelope; samples are by
Metropolis' rule.
"""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax_script
import numpy as np
import optax

import nngrad.jax as nj

STEPS = 400
BOUND = 1e-2
WALKERS = 256
WIDTH = 16
LAYERS = 2
DETERMINANTS = 2
MOVES = 10
"""Steps of Metropolis' rule between two energies."""
PARTICLES, DIMENSIONS, ENERGY = 3, 2, 9.0


def log_of_wave_function(params: Any, x: Any) -> Any:
    """log |psi| at one place, x of shape (particles * dimensions,)."""
    h = positions = x.reshape(PARTICLES, DIMENSIONS)
    for layer in params["layers"]:
        h = jnp.tanh(jnp.concatenate([h, jnp.broadcast_to(h.mean(0), h.shape)], axis=1) @ layer["w"] + layer["b"])
    orbitals = (h @ params["orbitals"]).reshape(PARTICLES, DETERMINANTS, PARTICLES)
    signs, logs = jnp.linalg.slogdet(orbitals.transpose(1, 0, 2))
    total, _ = jax.nn.logsumexp(logs, b=signs, return_sign=True)
    return total - jax.nn.softplus(params["width"]) * jnp.sum(positions**2)


def potential(x: Any) -> Any:
    """Of the trap, and of the springs."""
    positions = x.reshape(PARTICLES, DIMENSIONS)
    return 0.5 * jnp.sum(positions**2) + 0.25 * jnp.sum((positions[:, None] - positions[None]) ** 2)


def laplacian_by_jax(f: Callable[..., Any], argnums: int) -> Callable[..., Any]:
    """Value, gradient, and the trace of the Hessian: one product of the Hessian for each coordinate, all at once."""

    def of(*args: Any) -> Any:
        x = args[argnums]
        value, gradient = jax.value_and_grad(f, argnums)(*args)
        gradient_at = jax.grad(lambda x: f(*args[:argnums], x, *args[argnums + 1 :]))
        rows = jax.vmap(lambda v: jax.jvp(gradient_at, (x,), (v,))[1] @ v)
        return value, gradient, jnp.sum(rows(jnp.eye(x.size, dtype=x.dtype)))

    return of


OURS = functools.partial(nj.laplacian, with_gradient=True)  # the line that changes
THEIRS = laplacian_by_jax


def local_energy(laplacian: Callable[..., Any]) -> Callable[..., Any]:
    """The energy of a wave function at one place: of parameters and x."""

    def energy(params: Any, x: Any) -> Any:
        _, gradient, second = laplacian(log_of_wave_function, 1)(params, x)
        return potential(x) - 0.5 * (second + jnp.sum(gradient**2))

    return energy


def initial() -> Any:
    """Parameters of the network."""
    rng = np.random.default_rng(0)
    sizes = [DIMENSIONS, *[WIDTH] * LAYERS]

    def weights(rows: int, columns: int) -> Any:
        return jnp.asarray(rng.standard_normal((rows, columns)) / np.sqrt(rows), jnp.float32)

    layers = [{"w": weights(2 * n, m), "b": jnp.zeros(m)} for n, m in itertools.pairwise(sizes)]
    return {"layers": layers, "orbitals": weights(WIDTH, DETERMINANTS * PARTICLES), "width": jnp.float32(0)}


def moved(params: Any, walkers: Any, key: Any) -> Any:
    """Walkers after some steps of Metropolis' rule."""
    logs = jax.vmap(log_of_wave_function, (None, 0))

    def move(carry: Any, key: Any) -> Any:
        walkers, before = carry
        first, second = jax.random.split(key)
        proposed = walkers + 0.3 * jax.random.normal(first, walkers.shape)
        after = logs(params, proposed)
        accepted = jnp.log(jax.random.uniform(second, before.shape)) < 2 * (after - before)
        return (jnp.where(accepted[:, None], proposed, walkers), jnp.where(accepted, after, before)), None

    (walkers, _), _ = jax.lax.scan(move, (walkers, logs(params, walkers)), jax.random.split(key, MOVES))
    return walkers


def solve(steps: int, laplacian: Callable[..., Any]) -> jax_script.Result:
    """The error is that of the energy, the mean of the last fifth of the steps, relative."""
    params = initial()
    walkers = jax.random.normal(jax.random.key(0), (WALKERS, PARTICLES * DIMENSIONS))
    optimizer = optax.adam(optax.cosine_decay_schedule(2e-2, steps))
    energies = jax.vmap(local_energy(laplacian), (None, 0))

    @jax.jit
    def step(params: Any, state: Any, walkers: Any, key: Any) -> Any:
        walkers = moved(params, walkers, key)
        energy = energies(params, walkers)
        spread = jnp.mean(jnp.abs(energy - jnp.median(energy)))
        kept = jnp.clip(energy, jnp.median(energy) - 5 * spread, jnp.median(energy) + 5 * spread)

        def loss(params: Any) -> Any:  # its gradient is that of the mean energy
            return 2 * jnp.mean((kept - kept.mean()) * jax.vmap(log_of_wave_function, (None, 0))(params, walkers))

        updates, state = optimizer.update(jax.grad(loss)(params), state)
        return optax.apply_updates(params, updates), state, walkers, kept.mean()

    found: list[Any] = []

    def training() -> Iterator[Any]:
        nonlocal params, walkers
        state = optimizer.init(params)
        for key in jax.random.split(jax.random.key(1), steps):
            params, state, walkers, energy = step(params, state, walkers, key)
            found.append(energy)
            yield energy

    timing = jax_script.timed(training())
    mean = float(np.mean(found[-max(steps // 5, 1) :]))
    print(f"energy {mean:.4f}, known {ENERGY}")
    by_wave = functools.partial(draw, np.array(found), params)
    return jax_script.Result(abs(mean - ENERGY) / ENERGY, timing, by_wave)


def draw(energies: np.ndarray, params: Any, path: Path) -> None:
    """Energies at each step, and where the third particle is likely to be for two places of the others."""
    from script import BLUE, GREY, figure, save

    picture = figure(9, 3.3)
    left, right = picture.subplots(1, 2)
    left.plot(energies, color=BLUE, linewidth=0.8, label="mean local energy")
    left.axhline(ENERGY, color=GREY, linewidth=0.8, label="known")
    left.set(title="energy", xlabel="step")
    left.legend(frameon=False)
    left.spines[["top", "right"]].set_visible(False)
    side = np.linspace(-2.5, 2.5, 121, dtype=np.float32)
    others = np.array([[-0.8, 0], [0.8, 0]], np.float32)
    third = np.stack(np.meshgrid(side, side, indexing="ij"), axis=-1).reshape(-1, 1, 2)
    places = np.concatenate([np.broadcast_to(others, (len(third), 2, 2)), third], axis=1).reshape(len(third), -1)
    density = np.exp(2 * jax.vmap(log_of_wave_function, (None, 0))(params, places)).reshape(len(side), -1)
    right.pcolormesh(side, side, density.T, cmap="viridis", shading="gouraud", rasterized=True)
    right.plot(*others.T, "o", color="white", markersize=4)
    right.set(title="density of the third beside two", aspect="equal")
    save(picture, path)


if __name__ == "__main__":
    sys.exit(jax_script.main(solve, __doc__, STEPS, BOUND, OURS, THEIRS))
