"""A message-passing potential of a crystal, trained on energies, forces, stresses and products with Hessians.

Energies of atoms depend on their neighbours within a cutoff, in lists whose length changes from structure to structure:
they are filled up with edges of length 0 that count for nothing. Forces are minus the gradient by positions, the stress
is the derivative by a strain of the cell, and a Hessian-vector product says how forces change along a random direction,
so a training step with it takes third derivatives. The truth is Gupta's many-body potential of a metal (Cleri and
Rosato, 1993), whose derivatives are computed by the same function as the network's.
"""

from __future__ import annotations

import itertools
import sys
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import script

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
import nngrad.solvers as S

Array = np.ndarray[Any, Any]

REPEATS = 2
"""Cubic cells of 4 atoms along each axis. Lengths are in nearest distances of the crystal at rest."""
CUTOFF = 1.35
BATCH, STRUCTURES, HELD_OUT = 4, 400, 40
FEATURES, RADIAL, LAYERS = 24, 12, 2
STEPS = 3000
BOUND = 5e-2
WEIGHTS = {"energy": 1.0, "forces": 1.0, "stress": 10.0, "hessian": 1e-3}


class Structures(NamedTuple):
    """Some periodic structures of equally many atoms as one graph."""

    positions: Array
    """(structures * atoms, 3)"""
    offsets: Array
    """What is added to the difference of the positions of an edge's ends, (edges, 3): a vector of the lattice."""
    edges: Array
    """Numbers of the two atoms, (2, edges)."""
    exists: Array
    """Whether an edge is one, and not there to fill up, (edges, 1)."""
    along: Array
    """Directions for products with Hessians, like the positions."""


Leaves = Structures
"""The same as Variables."""


class Derivatives(NamedTuple):
    """What is trained on, of all structures."""

    energy: nn.Variable
    """(structures,)"""
    forces: nn.Variable
    stress: nn.Variable
    """Times the volume, (structures, 3, 3)."""
    hessian: nn.Variable
    """Products of the Hessians with `along`."""


Energy = Callable[[nn.Variable, nn.Variable, int], nn.Variable]
"""Energies of atoms (atoms,), from lengths of edges (edges, 1), what holds the edges, and the number of atoms."""


def structure(rng: np.random.Generator) -> tuple[Array, Array]:
    """Positions (atoms, 3) in a shaken crystal, and the vectors of its lattice (3, 3)."""
    basis = np.array([[0, 0, 0], [0, 1, 1], [1, 0, 1], [1, 1, 0]]) / 2
    cells = np.array(list(itertools.product(range(REPEATS), repeat=3)))
    strain = np.eye(3) + 0.03 * rng.standard_normal((3, 3))
    positions = np.sqrt(2) * (cells[:, None] + basis).reshape(-1, 3) @ strain
    return positions + 0.05 * rng.standard_normal(positions.shape), np.sqrt(2) * REPEATS * strain


def neighbours(positions: Array, lattice: Array) -> tuple[Array, Array]:
    """The edges (2, edges) shorter than the cutoff, and their offsets."""
    images = np.array(list(itertools.product((-1, 0, 1), repeat=3))) @ lattice
    apart = positions[None, :, None] - positions[:, None, None] + images
    lengths = np.linalg.norm(apart, axis=-1)
    i, j, image = np.nonzero((lengths < CUTOFF) & (lengths > 0))
    return np.stack([i, j]), images[image]


def together(each: list[tuple[Array, Array]], most: int, rng: np.random.Generator) -> Structures:
    """Structures as one, filled up to `most` edges each."""
    atoms = len(each[0][0])
    edges, offsets = np.zeros((2, len(each) * most), np.int32), np.zeros((len(each) * most, 3), np.float32)
    exists = np.zeros((len(each) * most, 1), bool)
    for k, (positions, lattice) in enumerate(each):
        found, shifts = neighbours(positions, lattice)
        count = found.shape[1]
        if count > most:
            raise ValueError(f"{count} edges; there is room for {most}")
        place = slice(k * most, k * most + count)
        edges[:, place], offsets[place], exists[place] = found + k * atoms, shifts, True
        edges[:, k * most + count : (k + 1) * most] = k * atoms
    positions = np.concatenate([p for p, _ in each]).astype(np.float32)
    return Structures(positions, offsets, edges, exists, rng.standard_normal(positions.shape).astype(np.float32))


def derivatives(energy_of: Energy, given: Leaves, structures: int) -> Derivatives:
    """Energies, and their derivatives by positions and strain."""
    x, atoms, edges = given.positions, given.positions.shape[0], given.edges.shape[1]
    strain = nn.Variable.from_numpy_array(np.zeros((structures, 3, 3), x.dtype))
    apart = F.gather(x, given.edges[1], axis=0) - F.gather(x, given.edges[0], axis=0) + given.offsets
    apart = F.reshape(apart, shape=(structures, edges // structures, 3))
    apart = F.reshape(apart + F.batch_matmul(apart, strain), shape=(edges, 3))
    squares = F.sum(apart**2, axis=1, keepdims=True)
    r = F.where(given.exists, squares, 1) ** 0.5  # where there is no edge, no root of 0 either
    energies = F.sum(F.reshape(energy_of(r, given, atoms), shape=(structures, -1)), axis=1)
    slope, stress = nn.grad([energies], [x, strain])
    (product,) = nn.hvp(energies, x, given.along)
    return Derivatives(energies, -slope, (stress + F.transpose(stress, axes=(0, 2, 1))) / 2, product)


def switched(y: nn.Variable, r: nn.Variable, given: Leaves) -> nn.Variable:
    """Goes to 0 at the cutoff, with three derivatives, and is 0 where there is no edge."""
    s = F.minimum_scalar(r / CUTOFF, 1.0)
    return F.where(F.broadcast(given.exists, shape=y.shape), y * (1 - s**2) ** 4, 0)


def summed(of_edges: nn.Variable, given: Leaves, atoms: int) -> nn.Variable:
    """Sums over the edges that begin at each atom."""
    return F.scatter_nd(of_edges, given.edges[:1], shape=(atoms, of_edges.shape[1]), add=True)


def gupta(r: nn.Variable, given: Leaves, atoms: int) -> nn.Variable:
    """Pairs repel; the bond is the root of a density, so it depends on all neighbours at once."""
    repulsion = summed(switched(0.8 * F.exp(-10 * (r - 1)), r, given), given, atoms)
    density = summed(switched(12 * F.exp(-5 * (r - 1)), r, given), given, atoms)
    return F.reshape(repulsion - density**0.5, shape=(atoms,))


def network(r: nn.Variable, given: Leaves, atoms: int) -> nn.Variable:
    """Messages along edges are weighted by filters of their length, as in SchNet (Schütt et al., 2017)."""
    centres = np.linspace(0.6, CUTOFF, RADIAL, dtype=np.float32).reshape(1, RADIAL)
    radial = switched(F.exp(-((RADIAL * (r - centres)) ** 2) / 2), r, given)
    h = summed(PF.affine(radial, FEATURES, name="first", with_bias=False), given, atoms)
    for i in range(LAYERS):
        filters = PF.affine(radial, FEATURES, name=f"filter{i}", with_bias=False)
        sent = PF.affine(F.swish(h), FEATURES, name=f"sent{i}")
        arrived = summed(filters * F.gather(sent, given.edges[1], axis=0), given, atoms)
        h = h + PF.affine(F.swish(PF.affine(arrived, FEATURES, name=f"inner{i}")), FEATURES, name=f"added{i}")
    return F.reshape(PF.affine(F.swish(PF.affine(h, FEATURES, name="last")), 1, name="out"), shape=(atoms,))


def squared_errors(found: Derivatives, wanted: Derivatives, atoms: int) -> dict[str, nn.Variable]:
    """Mean squared differences, energies and stresses for each atom."""
    scales = {"energy": atoms, "forces": 1, "stress": atoms, "hessian": 1}
    return {name: F.mean(((getattr(found, name) - getattr(wanted, name)) / n) ** 2) for name, n in scales.items()}


def solve(steps: int, out: Path) -> script.Result:
    """The error is that of forces and stresses of structures held out, the larger one, relative in the L2 norm."""
    rng = np.random.default_rng(0)
    nn.seed(0)
    every = [structure(rng) for _ in range(STRUCTURES + HELD_OUT)]
    most = max(neighbours(*each)[0].shape[1] for each in every)
    seen, unseen = every[:STRUCTURES], together(every[STRUCTURES:], most, rng)
    atoms = len(every[0][0])
    print(f"{atoms} atoms, {neighbours(*every[0])[0].shape[1]} edges in the first structure, {most} in the fullest")
    with nn.parameter_scope("potential", scope=OrderedDict()):
        batch = together(seen[:BATCH], most, rng)
        leaves = Leaves(*[nn.Variable(a.shape, dtype=a.dtype) for a in batch])
        errors = squared_errors(*[derivatives(e, leaves, BATCH) for e in (network, gupta)], atoms)
        loss = F.add_n(*[WEIGHTS[name] * error for name, error in errors.items()])
        solver = S.Adam()
        step = nn.train_step(loss, nn.get_parameters(), solver, inputs=list(leaves))

        def on_a_batch() -> Any:
            chosen = rng.choice(STRUCTURES, BATCH, replace=False)
            return step(*together([seen[k] for k in chosen], most, rng))

        losses = script.train(on_a_batch, solver, 3e-3, steps)
        leaves = Leaves(*[nn.Variable.from_numpy_array(a) for a in unseen])
        found, wanted = derivatives(network, leaves, HELD_OUT), derivatives(gupta, leaves, HELD_OUT)
        nn.forward_all([*found, *wanted])
    error = {name: float(np.linalg.norm(a.d - b.d) / np.linalg.norm(b.d))
             for name, a, b in zip(Derivatives._fields, found, wanted, strict=True)}  # fmt: skip
    print(f"on {HELD_OUT} structures held out: " + ", ".join([f"{name} to {e:.2%}" for name, e in error.items()]))
    _draw(found, wanted, losses, steps, atoms, out / "interatomic_potential.png")
    return script.Result(losses, max(error["forces"], error["stress"]))


def _draw(found: Derivatives, wanted: Derivatives, losses: list[float], steps: int, atoms: int, path: Path) -> None:
    """Learned against true, and the loss."""
    figure = script.figure(12, 3)
    *axes, last = figure.subplots(1, 4)
    for axis, name in zip(axes, ("forces", "stress", "hessian"), strict=True):
        true, learned = getattr(wanted, name).d.ravel(), getattr(found, name).d.ravel()
        if name == "stress":
            true, learned = true / atoms, learned / atoms
        axis.plot([true.min(), true.max()], [true.min(), true.max()], color=script.GREY, linewidth=0.8)
        axis.plot(true, learned, ".", color=script.BLUE, markersize=2, alpha=0.5, rasterized=True)
        title = {"forces": "forces", "stress": "stress for each atom", "hessian": "Hessian times a direction"}[name]
        axis.set(title=title, xlabel="true", ylabel="learned")
    last.semilogy(np.linspace(0, steps, len(losses)), losses, color=script.BLUE)
    last.set(title="loss", xlabel="step")
    script.save(figure, path)


if __name__ == "__main__":
    sys.exit(script.main(solve, __doc__, STEPS, BOUND))
