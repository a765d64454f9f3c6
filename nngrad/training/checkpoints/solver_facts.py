"""The facts that a checkpoint records about a solver, and their comparison with another solver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...solvers import DynamicLossScale, Solver


def facts_of_solver(solver: Solver, by_cell: Mapping[int, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Facts of a solver as JSON values, and the arrays of its state by name. `by_cell` maps the identity of a
    parameter's cell to its name. The caller holds the solver's lock."""
    states: dict[str, Any] = solver.named_state() if solver.get_parameters() else {}
    facts = {
        "class": solver.name,
        "settings": settings_of(solver),
        "learning_rate": solver.learning_rate(),
        "updates": solver.updates,
        "parameters": {name: by_cell.get(id(p.cell)) for name, p in solver.get_parameters().items()},
        "state": list(states),
    }
    return facts, states


def settings_of(solver: Solver) -> dict[str, Any]:
    """The constructor arguments of a solver, as far as JSON can represent them."""
    scaling = solver.scaling
    settings = {name.lstrip("_"): value for name, value in solver.settings().items() if isinstance(value, _SIMPLE)}
    settings.pop("initial_lr")  # the current learning rate is saved separately
    settings["loss_scaling"] = repr(scaling) if isinstance(scaling, DynamicLossScale) else scaling
    return settings


def different_settings(facts: Mapping[str, Any], solver: Solver) -> list[str]:
    """The differences between a solver's settings and the recorded ones, in words."""
    now, then = settings_of(solver), facts["settings"]
    return [
        f"{name} has changed from {then.get(name)!r} to {now.get(name)!r}"
        for name in sorted(now.keys() | then.keys())
        if now.get(name) != then.get(name)
    ]


def misfits(facts: Mapping[str, Any], specs: Mapping[str, Any], solver: Solver, key: str) -> list[str]:
    """The reasons why a saved solver (its facts, and its arrays' shapes and dtypes) does not fit the `solver` named
    `key`, in words; empty if it fits."""
    if facts["class"] != solver.name:
        return [f"{key}: is {facts['class']} in the checkpoint, but {solver.name} here"]
    parameters = solver.get_parameters()
    if not parameters:
        return []
    found = names_in_one_only(facts["parameters"], parameters, f"{key}: parameter")
    if found or not facts["parameters"]:
        return found
    if solver.has_schedule and "updates" not in facts:
        return [f"{key}: its learning rate follows a schedule, but the checkpoint does not record the number of "
                "updates; load it into a solver with a constant rate, and call set_updates and set_learning_rate"]
    states = solver.named_state()
    saved = {solver.present_name(name): specs[f"solvers/{key}/{name}"] for name in facts["state"]}
    found = names_in_one_only(saved, states, f"{key}: state")
    for name, spec in saved.items():
        if name in states:
            found += other_spec(spec, states[name], f"{key}: state {name!r}")
    return found


def names_in_one_only(saved: Any, present: Any, what: str) -> list[str]:
    """The names that only one of two collections has, in words."""
    found = [f"{what} {name!r} is only in the checkpoint" for name in saved if name not in present]
    return found + [f"{what} {name!r} is not in the checkpoint" for name in present if name not in saved]


def other_spec(saved: list[Any], present: Any, what: str) -> list[str]:
    """A sentence if the shape or the dtype differs."""
    shape, dtype = saved
    if tuple(shape) == tuple(present.shape) and dtype == np.dtype(present.dtype).name:
        return []
    return [f"{what} is {dtype}{list(shape)} in the checkpoint, but {np.dtype(present.dtype).name}"
            f"{list(present.shape)} here"]


_SIMPLE = (bool, int, float, str, type(None))
