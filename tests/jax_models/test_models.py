"""Models of Flax, Equinox and optax: the equations that are opened, values and derivatives to order 3 against JAX's.

All are opened; every few are computed, and all by `python -m tests.jax_models`.
"""

from __future__ import annotations

import pytest

from nngrad.jax.report import Opened

from .agreement import check
from .families import FAMILIES, groups, made, report_of, share_opened

EVERY = 4
GROUPS = groups(EVERY)

OPAQUE = {"safe_softmax_cross_entropy", "multiclass_sparsemax_loss", "messages", "attention of edges"}
"""Those in which something may stay opaque: derivatives that optax's authors set, and the greatest of a segment."""


@pytest.mark.slow
def test_nearly_all_equations_are_opened() -> None:
    reports: dict[str, Opened] = {}
    for family, models in FAMILIES.items():
        reports |= {f"{family} {name}": report_of(model) for name, model in made(family, models).items()}
    assert share_opened(reports.values()) >= 0.99
    opaque = {name.split(" ", 1)[1] for name, report in reports.items() if report.opaque}
    assert opaque <= OPAQUE


@pytest.mark.slow
@pytest.mark.parametrize("family, names", GROUPS, ids=[f"{f} from {n[0]}" for f, n in GROUPS])
def test_models_are_what_jax_gives(family: str, names: list[str]) -> None:
    check(made(family, names))
