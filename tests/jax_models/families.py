"""All models, by the library that they are of, and what became of the equations of many."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import jax

import nngrad.jax as nj
from nngrad.jax.report import Opened

from . import equinox_layers, linen, losses, networks, nnx
from .agreement import Model, number

FAMILIES: dict[str, Mapping[str, Callable[[], Model]]] = {
    "flax.linen": linen.MODELS, "flax.nnx": nnx.MODELS, "equinox": equinox_layers.MODELS, "optax": losses.MODELS,
    "networks": networks.MODELS,
}  # fmt: skip

AT_ONCE = 12
"""So many are compiled together."""


def groups(every: int = 1) -> list[tuple[str, list[str]]]:
    """The models of each family, or every so many of them, in groups that are compiled together."""
    chosen = [(family, list(models)[::every]) for family, models in FAMILIES.items()]
    return [(family, names[i : i + AT_ONCE]) for family, names in chosen for i in range(0, len(names), AT_ONCE)]


def made(family: str, names: Iterable[str]) -> dict[str, Model]:
    """Models of a family, in float64."""
    with jax.enable_x64(True):
        return {name: FAMILIES[family][name]() for name in names}


def report_of(model: Model) -> Opened:
    """What becomes of a model's equations, without computing anything."""
    with jax.enable_x64(True):
        gradient = nj.grad(number(model))
        jax.eval_shape(gradient, model.tree)
        found: Opened = gradient.report()
    return found


def share_opened(reports: Iterable[Opened]) -> float:
    """How many equations were opened, as a share of all, those that no gradient passes too."""
    found = list(reports)
    opened = sum([r.opened.total() for r in found])
    return opened / (opened + sum([r.opaque.total() for r in found]))
