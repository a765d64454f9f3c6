"""Restoring a checkpoint: everything that was requested, or nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import jax
import numpy as np

from ...files.parameter_files import Change, _make
from ...graph import NdArray, Variable, build_options
from ...graph.messages import warn_user
from ...graph.spec import x64_if
from ...graph.value import Value
from ...graph.variable import leaf_of
from ...parameter import parameter_scope, pop_parameter, set_parameter
from ...random import set_draws
from ...solvers import Solver
from .contents import (
    CheckpointContents,
    different_settings,
    misfits,
    names_in_one_only,
    other_spec,
    restore_state,
    unpacked,
)
from .storing import CheckpointStore, dtype_named


class Restoring:
    """The restoration of one checkpoint, or of the parts that `only` names."""

    def __init__(
        self, contents: CheckpointContents, store: CheckpointStore, step: int, only: Collection[str] | None
    ) -> None:
        self._contents = contents
        self._store = store
        self._step = step
        self._only = only
        self._facts = store.facts(step)
        self._specs: dict[str, Any] = self._facts["arrays"]
        self._solvers = {key: solver for key, solver in contents.solvers.items() if self._wants(key)}
        self._holders = {key: holder for key, holder in contents.holders.items() if self._wants(key)}
        self._parameters = contents.parameters()
        self._own = contents.own_parameters()
        self._changes: list[Change] = []

    def _wants(self, part: str) -> bool:
        return self._only is None or part in self._only

    def run(self) -> None:
        """Restore.

        Raises:
            ValueError: Something does not fit; the message lists all misfits, and nothing is changed.
        """
        self._check()
        arrays = self._arrays()
        process = self._facts_of_process()
        states = {key: unpacked(process["states"][key], _below("states/", arrays)) for key in self._holders}
        made = self._made(arrays)
        for key, state in states.items():  # first, since users' code may raise
            restore_state(self._holders[key], state)
        for key, solver in self._solvers.items():
            self._restore_solver(key, solver, arrays, made)
        put: list[str] = []
        if self._contents.scope is not None:
            with parameter_scope("", self._contents.scope):
                try:
                    for name, variable in made.items():
                        put.append(name)
                        set_parameter(name, variable)
                except BaseException:
                    for name in put:
                        pop_parameter(name)
                    raise
        _make(self._changes)
        if self._wants("random"):
            set_draws(process["draws"])

    # ---------------------------------------------------------------- checks

    def _check(self) -> None:
        found = self._misfits_of_parameters() if self._wants("parameters") else []
        for key, solver in self._solvers.items():
            if key not in self._facts["solvers"]:
                found.append(f"{key} is not in the checkpoint")
                continue
            facts = self._facts["solvers"][key]
            found += misfits(facts, self._specs, solver, key)
            if not solver.get_parameters():
                found += self._misfits_of_empty(key, facts)
        saved = self._facts["processes"][0]["states"]
        found += [f"{key} is not in the checkpoint" for key in self._holders if key not in saved]
        if self._only is None:
            found += [f"{key} is only in the checkpoint" for key in self._facts["solvers"]
                      if key not in self._solvers]
            found += [f"{key} is only in the checkpoint" for key in saved if key not in self._holders]
        if found:
            raise ValueError(f"the checkpoint {self._store.path / str(self._step)} does not fit:\n  "
                             + "\n  ".join(found) + "\nTo restore parts of it, use restore(only=[...])")
        for key, solver in self._solvers.items():
            for difference in different_settings(self._facts["solvers"][key], solver):
                warn_user(f"{key}: {difference} since the checkpoint of step {self._step}; the current value holds")

    def _misfits_of_parameters(self) -> list[str]:
        saved = _below("parameters/", self._specs)
        # Missing parameters in a scope are created.
        there = [name for name in saved if self._contents.scope is None or name in self._parameters]
        found = names_in_one_only(there, self._parameters, "parameter")
        for name, spec in saved.items():
            if name in self._parameters:
                found += other_spec(spec, self._parameters[name], f"parameter {name!r}")
        own = _below("solver parameters/", self._specs)
        for name, p in self._own.items():
            if name in own:
                found += other_spec(own[name], p, f"parameter {name!r}")
        return found

    def _misfits_of_empty(self, key: str, facts: Mapping[str, Any]) -> list[str]:
        """The reasons why a solver without parameters cannot take over those of the saved one."""
        if not self._wants("parameters"):
            return [f"{key} has no parameters yet, so it cannot be restored without them"]
        return [
            f"{key} trains {name!r}, which is not among the parameters here: pass parameters=, a Module or Variables "
            "by name, to nn.Checkpointer, or call the solver's set_parameters first"
            for name, registered in facts["parameters"].items()
            if registered is None
        ]

    # ---------------------------------------------------------------- arrays

    def _arrays(self) -> dict[str, Any]:
        """The requested arrays, sharded as in the current run if it has several devices."""
        present = self._present_shardings()
        shardings = {}
        arrays: dict[str, Any] = {}
        for name, (shape, dtype) in self._specs.items():
            part, _, rest = name.partition("/")
            owner = rest.partition("/")[0]
            if not self._wants("parameters" if part in ("parameters", "solver parameters") else owner):
                continue
            if part == "solver parameters" and rest not in self._own:
                continue
            if 0 in shape:
                arrays[name] = np.zeros(shape, dtype_named(dtype))
            else:
                shardings[name] = present.get(name)
        with x64_if(any([dtype_named(self._specs[name][1]).itemsize == 8 for name in shardings])):
            arrays |= self._store.arrays(self._step, shardings)
        return {name: arrays[name] for name in self._specs if name in arrays}

    def _present_shardings(self) -> dict[str, jax.sharding.Sharding]:
        """The shardings of arrays in the current run that are, or will be, on several devices."""
        found: dict[str, jax.sharding.Sharding | None] = {}
        if self._wants("parameters"):
            found |= {f"parameters/{name}": _sharding_of(p) for name, p in self._parameters.items()}
            found |= {f"solver parameters/{name}": _sharding_of(p) for name, p in self._own.items()}
        for key, solver in self._solvers.items():
            parameters = solver.get_parameters()
            states = solver.named_state() if parameters else {}
            for name in self._facts["solvers"][key]["state"] if parameters else []:
                state, owner = states[solver.present_name(name)], parameters.get(name.partition(":")[2])
                found[f"solvers/{key}/{name}"] = (
                    _present_sharding(state) if owner is None or owner.shape != state.shape else _sharding_of(owner)
                )
        return {name: sharding for name, sharding in found.items() if sharding is not None}

    def _facts_of_process(self) -> dict[str, Any]:
        processes: list[dict[str, Any]] = self._facts["processes"]
        if len(processes) == jax.process_count():
            return processes[jax.process_index()]
        first = processes[0]
        different = [key for key in self._holders if any([p["states"][key] != first["states"][key] for p in processes])]
        if different:
            raise ValueError(f"the checkpoint has a state for each of {len(processes)} processes in "
                             f"{', '.join(different)}, which {jax.process_count()} cannot take over; restore the rest "
                             "with restore(only=[...])")
        return first

    # ---------------------------------------------------------------- changes

    def _made(self, arrays: Mapping[str, Any]) -> dict[str, Variable]:
        """Plan the changes to existing parameters, and create and return the missing ones."""
        made: dict[str, Variable] = {}
        if not self._wants("parameters"):
            return made
        flags = self._facts["need_grad"]
        for name, array in _below("parameters/", arrays).items():
            if name in self._parameters:
                param = self._parameters[name]
                self._take_over(param, array)
                self._changes.append((setattr, param, "_need_grad", flags[name]))
            else:
                made[name] = leaf_of(NdArray.of_host_array(array), name)
                made[name].need_grad = flags[name]
        for name, array in _below("solver parameters/", arrays).items():
            self._take_over(self._own[name], array)
        return made

    def _take_over(self, param: Variable, array: Any) -> None:
        cell = param.cell
        value = Value(array) if _is_placed(array) else NdArray.of_host_array(array)._value
        self._changes += [(setattr, cell, "_value", value), (setattr, cell, "variable", None)]

    def _restore_solver(
        self, key: str, solver: Solver, arrays: Mapping[str, Any], made: Mapping[str, Variable]
    ) -> None:
        facts = self._facts["solvers"][key]
        if facts["parameters"] and not solver.get_parameters():
            known = {**self._parameters, **made}
            solver.set_parameters({name: known[registered] for name, registered in facts["parameters"].items()})
        if facts["parameters"]:
            solver.take_named(_below(f"solvers/{key}/", arrays), facts.get("updates", 0))
        if not np.isnan(facts["learning_rate"]) and not solver.has_schedule:
            solver.set_learning_rate(facts["learning_rate"])


def _below(prefix: str, named: Mapping[str, Any]) -> dict[str, Any]:
    return {name[len(prefix) :]: value for name, value in named.items() if name.startswith(prefix)}


def _sharding_of(param: Variable) -> jax.sharding.Sharding | None:
    """The sharding of a parameter on the current mesh, or else its present one; None if it is on one device."""
    mesh = build_options().running.mesh
    if mesh is None:
        return _present_sharding(param.data.raw())
    sharding: jax.sharding.Sharding = mesh.sharding(
        mesh.resolved(param.cell.axes or (), param.shape, f"parameter {param.name!r}")
    )
    return sharding


def _present_sharding(array: Any) -> jax.sharding.Sharding | None:
    return array.sharding if _is_placed(array) else None


def _is_placed(array: Any) -> bool:
    return isinstance(array, jax.Array) and len(array.sharding.device_set) > 1

