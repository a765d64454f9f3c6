"""Force matching: a potential learned from the forces on the atoms of a small cluster, without any energy.

The network gives an energy; forces are minus its gradient with respect to the positions, and the loss is made of them.
So a training step differentiates a gradient. The data are clusters of six atoms with Morse's pair potential, shaken by
Langevin dynamics. The network is a sum over pairs as well, so what it learned can be drawn beside Morse's curve.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import script

import nngrad as nn
import nngrad.functions as F
import nngrad.solvers as S

ATOMS = 6
PAIRS = np.array(list(combinations(range(ATOMS), 2)))
STIFFNESS = 4.0
"""Of Morse's potential, in which lengths are in bond lengths and energies in depths of the well."""
TEMPERATURE = 0.15
CLUSTERS, HELD_OUT, BATCH = 2000, 500, 64
STEPS = 4000
BOUND = 1e-2

Array = np.ndarray[Any, Any]


def morse(r: Array) -> Array:
    """The energy of a pair at distance r."""
    e = np.exp(-STIFFNESS * (r - 1))
    return e**2 - 2 * e


def morse_slope(r: Array) -> Array:
    """Its derivative."""
    e = np.exp(-STIFFNESS * (r - 1))
    return -2 * STIFFNESS * (e**2 - e)


def true_energy_and_forces(positions: Array) -> tuple[Array, Array]:
    """Energies of shape (n,) and forces of shape (n, atoms, 3) of clusters of shape (n, atoms, 3)."""
    i, j = PAIRS.T
    d = positions[:, i] - positions[:, j]
    r = np.linalg.norm(d, axis=-1)
    pull = -(morse_slope(r) / r)[..., None] * d
    forces = np.zeros_like(positions)
    np.add.at(forces, (slice(None), i), pull)
    np.add.at(forces, (slice(None), j), -pull)
    return morse(r).sum(axis=1), forces


def clusters(count: int, rng: np.random.Generator) -> Array:
    """Clusters of shape (count, atoms, 3) at equilibrium: overdamped Langevin dynamics, from an octahedron."""
    octahedron = np.concatenate([np.eye(3), -np.eye(3)]) / np.sqrt(2)
    positions = np.repeat(octahedron[None], count, axis=0)
    step = 5e-4
    for _ in range(1000):
        _, forces = true_energy_and_forces(positions)
        noise = rng.standard_normal(positions.shape)
        positions = positions + step * forces + np.sqrt(2 * step * TEMPERATURE) * noise
    return positions


def pair_energy(r: nn.Variable) -> nn.Variable:
    """The network: the energy of each pair, for distances of shape (n, 1)."""
    return script.tanh_mlp(3 * (r - 1), width=32, hidden=2)


def energy(positions: nn.Variable) -> nn.Variable:
    """Energies of shape (n,) of clusters of shape (n, atoms, 3): invariant under motions and exchanges of atoms."""
    i, j = PAIRS.T
    d = positions[:, i] - positions[:, j]
    r = F.sum(d**2, axis=2) ** 0.5
    return F.sum(F.reshape(pair_energy(F.reshape(r, (r.size, 1))), r.shape), axis=1)


def forces_of(energies: nn.Variable, positions: nn.Variable) -> nn.Variable:
    """The forces on all atoms, of the shape of the positions."""
    (slope,) = nn.grad([energies], [positions])
    return -slope


def solve(steps: int, out: Path) -> script.Result:
    """The error is that of the forces on clusters that were not seen in training, relative to them in the L2 norm."""
    rng = np.random.default_rng(0)
    nn.seed(0)
    seen, unseen = np.split(clusters(CLUSTERS + HELD_OUT, rng).astype(np.float32), [CLUSTERS])
    _, forces = true_energy_and_forces(seen)
    with nn.parameter_scope("potential", scope=OrderedDict()):
        x, wanted = nn.Variable((BATCH, ATOMS, 3)), nn.Variable((BATCH, ATOMS, 3))
        loss = F.mean((forces_of(energy(x), x) - wanted) ** 2)
        solver = S.Adam()
        parameters = nn.get_parameters()
        del parameters["out/affine/b"]  # a constant in the energy makes no force
        step = nn.train_step(loss, parameters, solver, inputs=(x, wanted))

        def on_a_batch() -> Any:
            chosen = rng.integers(0, CLUSTERS, BATCH)
            return step(seen[chosen], forces[chosen].astype(np.float32))

        losses = script.train(on_a_batch, solver, 5e-3, steps)
        x = nn.Variable.from_numpy_array(unseen)
        found_energy = energy(x)
        found = found_energy, forces_of(found_energy, x)
        nn.forward_all(found)
        distances = np.linspace(0.75, 2.2, 200, dtype=np.float32)
        curve = pair_energy(nn.Variable.from_numpy_array(distances.reshape(-1, 1))).d[:, 0]
    found_energies, found_forces = (v.d for v in found)
    energies, forces = true_energy_and_forces(unseen)
    # Forces say nothing of the energy's constant.
    found_energies = found_energies - np.mean(found_energies - energies)
    energy_error = np.sqrt(np.mean((found_energies - energies) ** 2)) / np.std(energies)
    error = np.linalg.norm(found_forces - forces) / np.linalg.norm(forces)
    print(f"on {HELD_OUT} clusters held out: forces to {error:.2%}, energy differences to {energy_error:.2%}")
    draw(unseen, distances, curve, (forces, found_forces), (energies, found_energies), out / "force_matching.png")
    return script.Result(losses, float(max(error, energy_error)))


def draw(
    positions: Array,
    distances: Array,
    curve: Array,
    forces: tuple[Array, Array],
    energies: tuple[Array, Array],
    path: Path,
) -> None:
    """True forces and energies, and those that were learned; and the potential of a pair."""
    figure = script.figure(11, 3.5)
    left, middle, right = figure.subplots(1, 3)
    for axes, (true, found), title in (left, forces, "components of forces"), (middle, energies, "energies"):
        axes.plot(true.ravel(), found.ravel(), ".", color=script.BLUE, markersize=2, alpha=0.5, rasterized=True)
        ends = [true.min(), true.max()]
        axes.plot(ends, ends, color=script.GREY, linewidth=0.8)
        axes.set(title=f"{title}, held out", xlabel="true", ylabel="learned")
    i, j = PAIRS.T
    seen = np.linalg.norm(positions[:, i] - positions[:, j], axis=-1).ravel()
    near = np.argmin(np.abs(distances - 1))
    right.plot(distances, morse(distances), color=script.GREY, linewidth=4, alpha=0.5, label="Morse")
    curve = curve - curve[near] + morse(distances[near])
    right.plot(distances, curve, color=script.BLUE, linewidth=1.2, label="learned")
    right.hist(seen, bins=80, weights=np.full(len(seen), 6 / len(seen)), bottom=-1.5, color=script.ORANGE, alpha=0.5,
               label="distances in the data")
    right.set(title="energy of a pair", xlabel="distance", ylim=(-1.5, 2.5))
    right.legend(frameon=False)
    for axes in (left, middle, right):
        axes.spines[["top", "right"]].set_visible(False)
    script.save(figure, path)


if __name__ == "__main__":
    sys.exit(script.main(solve, __doc__, STEPS, BOUND))
