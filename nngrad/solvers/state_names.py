"""nnabla's names of the arrays in solvers' states, and the names that earlier versions wrote to files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_AVERAGES = {"0.mu": "mean", "0.nu": "var", "0.count": "t"}
_LARGEST = {"mu": "m", "nu": "v", "nu_max": "v_hat", "count": "t"}

_NAMES: Mapping[str, Mapping[str, str]] = {
    "Momentum": {"1.trace": "m"},
    "Nesterov": {"1.trace": "m"},
    "SgdW": {"1.trace": "m"},
    "Adam": _AVERAGES,
    "Adamax": {"0.mu": "m", "0.nu": "u", "0.count": "t"},
    "AMSGRAD": {f"0.{place}": name for place, name in _LARGEST.items()},
    "AdaBound": {"mu": "mean", "nu": "var", "count": "t"},
    "AMSBound": _LARGEST,
    "Lion": {"0.mu": "m", "0.count": "t"},
    "Adagrad": {"0.total": "v"},
    "Adadelta": {"0.e_g": "e_sqr_grad", "0.e_x": "e_sqr_delta"},
    "RMSprop": {"0.nu": "v"},
    "RMSpropGraves": {"0.nu": "n", "0.mu": "g", "2.trace": "d"},
    "Lars": {"2.trace": "v"},
    "Lamb": _AVERAGES,
}
"""By the names of classes, whose subclasses inherit them: names by places in the state of optax. 't' counts updates."""

_NEGATED = {("Nesterov", "1.trace"), ("RMSpropGraves", "2.trace")}
"""What earlier versions kept with the other sign."""


def _own_classes(kind: type) -> list[type]:
    """Those of nngrad among a class and its bases."""
    return [each for each in kind.__mro__ if each.__module__.startswith("nngrad.solvers.")]


def names_by_place(kind: type) -> Mapping[str, str]:
    """The names for a class of solvers; none for transformations that nnabla has no solver for."""
    return next((_NAMES[each.__name__] for each in _own_classes(kind) if each.__name__ in _NAMES), {})


def present_name(kind: type, name: str) -> str:
    """The name of an array in the state of such a solver that a file has under `name`: earlier versions wrote its
    place, as '0.mu:conv/W' for 'mean:conv/W'."""
    place, colon, parameter = name.partition(":")
    return names_by_place(kind).get(place, place) + colon + parameter


def by_present_names(kind: type, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """The arrays that a file has of the state of such a solver, as this version names and keeps them."""
    negated = {place for each in _own_classes(kind) for name, place in _NEGATED if name == each.__name__}
    return {
        present_name(kind, name): -array if name.partition(":")[0] in negated else array
        for name, array in arrays.items()
    }
