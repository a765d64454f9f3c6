"""A training step as work grows: over width, batch, depth, order, numbers of parameters and of devices.

A critic with a gradient penalty, 64-256-256-1 and batch 64 where these do not grow; a physics-informed network with an
nth derivative; a sum of parameters of one number each; and, by the compiler's counts that `scaling` keeps, devices that
share a batch. `python -m benchmarks.growth` draws the kept figures again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from . import classifier, critic, physics, scaling
from .drawing import draw
from .experiment import QUANTITIES, Experiment, Measured, Quantity
from .harness import Row, Way, figures_of, installed, row
from .report import ROOT, load

OURS, CLASSIC = "nngrad", "nngrad, classic loop"
PICTURE = ROOT / "docs" / "images" / "growth.png"
UNITS = {"µs": 1e-6, "ms": 1e-3, "s": 1.0}


class Growing(NamedTuple):
    """What grows."""

    axis: str
    sizes: Sequence[int]
    ways: Callable[[int], dict[str, Way]]


def of_critic(smoke: bool, width: int = 256, batch: int = 64, layers: int = 2) -> dict[str, Way]:
    """The critic's step."""
    ways = critic.ways(critic.dense(smoke, width, batch, layers))
    return {OURS: ways["nngrad"], "JAX": ways["jax.grad"], "PyTorch": ways["PyTorch eager"]}


def of_equation(smoke: bool, order: int) -> dict[str, Way]:
    """A step on u_t + d^n u / dx^n."""
    equation = physics.Equation("", order, lambda u, t, *by_x: t + by_x[-1])
    ways = physics.ways(equation, physics.arrays(smoke))
    return {OURS: ways["nested nn.grad"], "JAX": ways["nested jax.jvp"]}  # up to order 6 sooner than Taylor mode


def of_numbers(count: int) -> dict[str, Way]:
    """A step of next to nothing, on so many parameters."""
    ours, jax, classic = classifier.ways(classifier.summed, classifier.summed, classifier.numbers(count)).values()
    return {OURS: ours, "JAX": jax, CLASSIC: classic}


def growing(smoke: bool) -> dict[str, Growing]:
    """By what is computed."""
    of = partial(of_critic, smoke)
    return {
        "critic's step over width": Growing("units of a layer", (32, 128, 512, 1024), lambda n: of(width=n)),
        "critic's step over batch": Growing("samples", (16, 128, 1024, 4096), lambda n: of(batch=n)),
        "critic's step over depth": Growing("layers", (1, 2, 4, 8, 16), lambda n: of(layers=n)),
        "step on an equation over order": Growing("order of the derivative", (1, 2, 4, 6), partial(of_equation, smoke)),
        "host's part of a step": Growing("parameters", (1, 10, 100, 300), of_numbers),
    }


def rows(smoke: bool) -> Iterable[Row]:
    """Each size, all in this process: what is compiled for others is forgotten."""
    found = []
    for what, grows in growing(smoke).items():
        for n in grows.sizes[: 2 if smoke else None]:
            ways = {name: way for name, way in grows.ways(n).items() if installed(name)}
            figures = figures_of(ways, None, smoke, ("time",))
            found += [
                row(f"{what}: {n:,}", "time", figures, ours, peer)
                for ours in figures if ours.startswith(OURS) for peer in figures if not peer.startswith(OURS)
            ]  # fmt: skip
            print(f"{found[-1].what}: {found[-1].ours}, {found[-1].peer}", flush=True)
    return found


def kept() -> list[Measured]:
    """The times of the kept rows, and the compiler's counts for the program of one device of several."""
    axes, found = growing(False), []
    for each in load("growth")["rows"]:
        what, _, size = each["what"].rpartition(": ")
        for side in ("ours", "peer"):
            method, _, text = each[side].rpartition(": ")
            value, unit = text.split()
            where = what, axes[what].axis, int(size.replace(",", ""))
            found.append(Measured(*where, method, "time", float(value) * UNITS[unit]))
    for f in scaling.kept():
        if f["model"] == "PINN" and f["way"] == "strong":
            where = "step on an equation over devices", "devices", f["devices"]
            found.append(Measured(*where, f["by"], "accessed", f["accessed"]))
    return list(dict.fromkeys(found))


GROWTH = Experiment(
    "Cost as work grows", OURS, lambda smoke: (), ("time", "accessed"),
    QUANTITIES | {"accessed": Quantity("bytes accessed by each", 1e-6, "MB")}, growing=True,
)  # fmt: skip


def save() -> None:
    """Draw the kept figures."""
    draw(GROWTH, kept(), PICTURE)


if __name__ == "__main__":
    save()
