"""A force field is learned from energies and forces: a small message-passing network, as SchNet (Schuett et al., 2017).

The network gives an energy; the forces are minus its gradient with respect to the positions, and the loss is made of
them, so a step of training differentiates a gradient. The data are clusters of atoms with Lennard-Jones' pair potential
and Axilrod and Teller's of triples, shaken by Langevin dynamics; the forces in them are gradients of a graph, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, permutations
from typing import Any

import numpy as np

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
from nngrad.command.recipes.configuration import key
from nngrad.command.recipes.pictures import BLUE, GREY, figure
from nngrad.command.recipes.recipe import Array, Recipe
from nngrad.command.recipes.settings import RecipeSettings, SolverSettings

BOND = 2 ** (1 / 6)
"""Where the pair potential is deepest. Lengths are in its diameter, energies in its depth."""
REACH = 3.5
"""Distances, in the same unit, that the network tells apart."""
LANGEVIN_STEPS, LANGEVIN_STEP = 500, 1e-4


@dataclass(frozen=True, kw_only=True)
class ClusterData:
    """The clusters, and what holds them together."""

    atoms: int = key(7, "atoms of a cluster", least=3, most=20)
    seen: int = key(4000, "clusters for training", least=1)
    unseen: int = key(500, "clusters for the metrics", least=2)
    temperature: float = key(0.25, "of the clusters, in depths of the pair potential", above=0)
    triples: float = key(0.5, "strength of the potential of triples; 0: pairs alone", least=0)


@dataclass(frozen=True, kw_only=True)
class ForcesModel:
    """The size of the network."""

    width: int = key(32, "features of an atom", least=1)
    distances: int = key(24, "Gaussians that a distance is told by", least=2)
    layers: int = key(3, "rounds of messages", least=1)
    energies: float = key(0.1, "weight of energies in the loss, beside forces", least=0)


@dataclass(frozen=True, kw_only=True)
class ForcesConfiguration(RecipeSettings):
    """The configuration of this recipe."""

    recipe: str = key("forces", "what is trained", choices=("forces",))
    steps: int = key(20000, "steps of training", least=1)
    batch: int = key(32, "clusters in a step", least=1)
    data: ClusterData = ClusterData()
    model: ForcesModel = ForcesModel()
    solver: SolverSettings = SolverSettings(rate=1e-2)


def distances(positions: nn.Variable, i: Array, j: Array) -> nn.Variable:
    """Between atoms i and j, of shape (n, pairs), for positions of shape (n, atoms, 3)."""
    return F.sum((positions[:, i] - positions[:, j]) ** 2, axis=2) ** 0.5


def true_energy(positions: nn.Variable, triples: float) -> nn.Variable:
    """Energies of shape (n,): the sums of the potentials of pairs and of triples."""
    i, j = np.array(list(combinations(range(positions.shape[1]), 2))).T
    attraction = distances(positions, i, j) ** -6
    energy = F.sum(4 * (attraction**2 - attraction), axis=1)
    a, b, c = np.array(list(combinations(range(positions.shape[1]), 3))).T
    r, s, t = (distances(positions, *pair) for pair in ((a, b), (b, c), (c, a)))
    # Cosines of the three angles, by the law of cosines.
    cosines = (r**2 + s**2 - t**2) * (s**2 + t**2 - r**2) * (t**2 + r**2 - s**2) / (8 * (r * s * t) ** 2)
    return energy + triples * F.sum((1 + 3 * cosines) / (r * s * t) ** 3, axis=1)


def two_layers(x: nn.Variable, outputs: int, width: int, name: str) -> nn.Variable:
    """A network with one hidden layer, which is smooth: from shape (n, inputs) to (n, outputs)."""
    with nn.parameter_scope(name):
        return PF.affine(F.swish(PF.affine(x, width, name="hidden")), outputs, name="out")


def energy(positions: nn.Variable, model: ForcesModel) -> nn.Variable:
    """The network: energies of shape (n,), which motions and exchanges of atoms leave as they are."""
    n, atoms, _ = positions.shape
    i, j = np.array(list(permutations(range(atoms), 2))).T
    r = F.reshape(distances(positions, i, j), (n * len(i), 1))
    centres = np.linspace(0.8, REACH, model.distances, dtype=np.float32)
    told = F.exp(-(((r - centres) / (centres[1] - centres[0])) ** 2) / 2)
    h = F.constant(1.0, (n, atoms, model.width))  # atoms are all of one kind
    for k in range(model.layers):
        with nn.parameter_scope(f"round{k + 1}"):
            weights = two_layers(told, model.width, model.width, "weights")
            sent = F.reshape(h[:, j], (n * len(i), model.width)) * weights
            heard = F.sum(F.reshape(sent, (n, atoms, atoms - 1, model.width)), axis=2)
            update = two_layers(F.reshape(heard, (n * atoms, model.width)), model.width, model.width, "update")
            h = h + F.reshape(update, h.shape)
    parts = two_layers(F.reshape(h, (n * atoms, model.width)), 1, model.width, "energy")
    return F.sum(F.reshape(parts, (n, atoms)), axis=1)


def forces_of(energies: nn.Variable, positions: nn.Variable) -> nn.Variable:
    """The forces on all atoms, of the shape of the positions."""
    (slope,) = nn.grad([energies], [positions])
    return -slope


def clusters(data: ClusterData, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """Positions of shape (n, atoms, 3), energies of shape (n,) and forces of clusters: overdamped Langevin dynamics.

    Each begins as a spiral on a sphere, of which atoms are about a bond's length apart.
    """
    count = data.seen + data.unseen
    place = (np.arange(data.atoms) + 0.5) / data.atoms
    height, turn = 1 - 2 * place, np.pi * (1 + 5**0.5) * np.arange(data.atoms)
    around = np.sqrt(1 - height**2)
    sphere = np.stack([around * np.cos(turn), around * np.sin(turn), height], axis=1)
    nearest = min(np.linalg.norm(a - b) for a, b in combinations(sphere, 2))
    x = nn.Variable((count, data.atoms, 3))
    energies = true_energy(x, data.triples)
    energies_and_forces = nn.compile([energies, forces_of(energies, x)], [x])
    positions = np.repeat(sphere[None] * BOND / nearest, count, axis=0).astype(np.float32)
    for _ in range(LANGEVIN_STEPS):
        forces = np.asarray(energies_and_forces(positions)[1])
        noise = rng.standard_normal(positions.shape, dtype=np.float32)
        positions += LANGEVIN_STEP * forces + np.float32(2 * LANGEVIN_STEP * data.temperature) ** 0.5 * noise
    found, forces = map(np.asarray, energies_and_forces(positions))
    return positions, found, forces


class Forces(Recipe):
    """The recipe `forces`."""

    title = "A force field of small clusters: its loss is made of forces, the gradient of an energy."
    defaults = ForcesConfiguration()

    def __init__(self, configuration: ForcesConfiguration) -> None:
        super().__init__(configuration)
        self._batch, data, model = configuration.batch, configuration.data, configuration.model
        self._data = data
        positions, energies, forces = clusters(data, self.draws())
        energies = energies - energies[: data.seen].mean()  # forces say nothing of a constant
        self._seen, self._unseen = zip(
            *[np.split(a, [data.seen]) for a in (positions, energies, forces)], strict=True
        )
        x, wanted = nn.Variable((self.part, data.atoms, 3)), nn.Variable((self.part, data.atoms, 3))
        wanted_energy = nn.Variable((self.part,))
        with self.trained():
            found = energy(x, model)
            loss = F.mean((forces_of(found, x) - wanted) ** 2)
            loss += model.energies * F.mean((found - wanted_energy) ** 2)
        self._train = self.train_step("forces", loss, [x, wanted_energy, wanted])
        x = nn.Variable(self._unseen[0].shape)
        with self.copies():
            found = energy(x, model)
            self._evaluate = nn.compile([found, forces_of(found, x)], [x])

    def step(self, number: int) -> None:
        """A step with clusters that are drawn at random."""
        chosen = self.draws(number).integers(0, self._data.seen, self._batch)
        self._train(*[values[chosen] for values in self._seen])

    def _found(self) -> tuple[Array, Array]:
        """Energies and forces of the clusters that are not trained with."""
        found, forces = self._evaluate(self._unseen[0])
        return np.asarray(found), np.asarray(forces)

    def measured(self) -> dict[str, float]:
        """`force_error` and `energy_error`: root mean squares of the errors on clusters that were not trained with,
        relative to those of the forces, and of the energies' deviations from their mean."""
        energies, forces = self._found()
        _, true_energies, true_forces = self._unseen
        return {
            "force_error": float(np.linalg.norm(forces - true_forces) / np.linalg.norm(true_forces)),
            "energy_error": float(np.std(energies - true_energies) / np.std(true_energies)),
        }

    def drawn(self) -> Any:
        """Forces and energies of clusters that were not trained with, beside the true ones."""
        _, *true = self._unseen
        drawn = figure(7, 3.5)
        titles = "energies", "components of forces"
        for axes, title, known, found in zip(drawn.subplots(1, 2), titles, true, self._found(), strict=True):
            axes.plot(known.ravel(), found.ravel(), ".", color=BLUE, markersize=2, alpha=0.5, rasterized=True)
            ends = [known.min(), known.max()]
            axes.plot(ends, ends, color=GREY, linewidth=0.8)
            axes.set(title=title, xlabel="true", ylabel="learned")
            axes.spines[["top", "right"]].set_visible(False)
        return drawn


RECIPE = Forces
