"""The contents of a checkpoint: parameters, solvers, random state and other state, saved as arrays and facts, and
restored all together or not at all."""

from __future__ import annotations

import base64
import json
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import jax
import numpy as np

from ...extend import NdArray, Value, Variable, arrays_in, build_options, leaf_of, x64_if
from ...files.parameter_files import Change, _make
from ...files.storage import CODES
from ...parameter import (
    Scope,
    get_current_parameter_scope,
    get_parameters,
    parameter_scope,
    pop_parameter,
    set_parameter,
)
from ...random import get_draws, set_draws
from ...solvers import Solver
from ..modules import Module
from .storing import CheckpointStore, of_all_processes

Arrays = dict[str, Any]
_PARAMETERS, _OWN = "parameters/", "solver parameters/"
"""The prefixes of arrays of parameters, and of those that only a solver has."""
_ARRAY, _BYTES = "nngrad.array", "nngrad.bytes"


class CheckpointContents:
    """The objects to save and restore: parameters by name (a Module's current ones, or all in the current scope and
    below), solvers by name, and other objects with state, by name."""

    def __init__(
        self,
        parameters: Mapping[str, Variable] | Module | None,
        solvers: Mapping[str, Solver],
        holders: Mapping[str, Any],
    ) -> None:
        self._scope: Scope | None = None  # in which parameters are found and created; None if they were given
        self._given: Mapping[str, Variable] = {}
        self._module: Module | None = None
        if isinstance(parameters, Mapping):
            self._given = dict(parameters)
        elif isinstance(parameters, Module):
            self.hold_module(parameters)
        else:
            self._scope = get_current_parameter_scope()
        self.solvers = dict(solvers)
        self.holders = dict(holders)

    def hold_module(self, module: Module) -> None:
        """Hold the parameters of a module."""
        self._module, self._scope = module, module.parameter_scope

    def parameters(self) -> OrderedDict[str, Variable]:
        """All parameters by name, including untrained ones."""
        if self._module is not None:
            return self._module.get_parameters(grad_only=False)
        if self._scope is None:
            return OrderedDict(self._given)
        with parameter_scope("", self._scope):
            return get_parameters(grad_only=False)

    def _own_parameters(self, known: Mapping[str, Variable]) -> dict[str, Variable]:
        """Parameters that only a solver has, by the solver's name and their own."""
        cells = {id(p.cell) for p in known.values()}
        return {
            f"{key}/{name}": p
            for key, solver in self.solvers.items()
            for name, p in solver.get_parameters().items()
            if id(p.cell) not in cells
        }

    def snapshot(self) -> tuple[Arrays, dict[str, Any], list[str]]:
        """A snapshot of all arrays, by descriptive names, and of the facts about them.

        Returns:
            The arrays, the facts, and the names of those arrays that must be finite.
        """
        with ExitStack() as stack:
            for solver in sorted(self.solvers.values(), key=id):  # in a fixed order, against deadlocks
                stack.enter_context(solver.updating)
            parameters = self.parameters()
            variables = {f"{_PARAMETERS}{name}": p for name, p in parameters.items()}
            variables |= {f"{_OWN}{name}": p for name, p in self._own_parameters(parameters).items()}
            arrays: Arrays = dict(zip(variables, arrays_in([p.data for p in variables.values()]), strict=True))
            by_cell = {id(p.cell): name for name, p in parameters.items()}
            solvers = {}
            for key, solver in self.solvers.items():
                states: dict[str, Any] = solver.named_state() if solver.get_parameters() else {}
                arrays |= {f"solvers/{key}/{name}": array for name, array in states.items()}
                solvers[key] = {
                    "class": solver.name,
                    "learning_rate": solver.learning_rate(),
                    "updates": solver.updates,
                    "parameters": {name: by_cell.get(id(p.cell)) for name, p in solver.get_parameters().items()},
                    "state": list(states),
                }
        must_be_finite = [name for name, p in variables.items() if p.spec.differentiable]
        states_of_holders = {}
        for key, holder in self.holders.items():
            state = holder if isinstance(holder, dict) else getattr(holder, _methods_of(holder)[0])()
            states_of_holders[key], held = packed(state, key)
            arrays |= {f"states/{name}": array for name, array in held.items()}
        facts = {
            "need_grad": {name: bool(p.need_grad) for name, p in parameters.items()},
            "solvers": solvers,
            "arrays": {name: [list(array.shape), np.dtype(array.dtype).name] for name, array in arrays.items()},
            "processes": of_all_processes({"draws": get_draws(), "states": states_of_holders}),
        }
        return arrays, facts, must_be_finite

    # ---------------------------------------------------------------- restoring

    def restore(self, store: CheckpointStore, step: int, only: Collection[str] | None) -> None:
        """Restore a checkpoint, or the parts that `only` names: all of it, or nothing.

        Raises:
            ValueError: Something does not fit, and the message lists all misfits; or the checkpoint is damaged.
        """
        checkpoint = store.read(step)
        facts = checkpoint.facts
        parts = only if only is not None else {"parameters", "random", *self.solvers, *self.holders}
        solvers = {key: solver for key, solver in self.solvers.items() if key in parts}
        holders = {key: holder for key, holder in self.holders.items() if key in parts}
        parameters = self.parameters() if "parameters" in parts else {}
        own = self._own_parameters(self.parameters()) if "parameters" in parts else {}
        found = self._misfits(facts, parameters, own) if "parameters" in parts else []
        found += [misfit for key, solver in solvers.items() for misfit in _misfits_of(solver, key, facts, parts)]
        saved = facts["processes"][0]["states"]
        found += [f"{key} is not in the checkpoint" for key in holders if key not in saved]
        if only is None:
            found += [f"{key} is only in the checkpoint" for key in facts["solvers"] if key not in solvers]
            found += [f"{key} is only in the checkpoint" for key in saved if key not in holders]
        if found:
            raise ValueError(f"the checkpoint {checkpoint.directory} does not fit:\n  " + "\n  ".join(found)
                             + "\nTo restore parts of it, use restore(only=[...])")
        process = _facts_of_process(facts, holders)
        shardings = _shardings(facts, parts, parameters, own, solvers)
        with x64_if(any([dtype in ("float64", "int64", "uint64") for _, dtype in facts["arrays"].values()])):
            arrays = {name: checkpoint.array(name, sharding) for name, sharding in shardings.items()}
        states = {key: unpacked(process["states"][key], _below("states/", arrays)) for key in holders}
        changes: list[Change] = []
        made: dict[str, Variable] = {}
        for name, array in _below(_PARAMETERS, arrays).items():
            need_grad = facts["need_grad"][name]
            if name in parameters:
                changes += [*_taken_over(parameters[name], array), (setattr, parameters[name], "_need_grad", need_grad)]
            else:
                made[name] = leaf_of(NdArray.of_host_array(array), name)
                made[name].need_grad = need_grad
        for name, array in _below(_OWN, arrays).items():
            changes += _taken_over(own[name], array)
        for key, state in states.items():  # first, since users' code may raise
            _restore_state(holders[key], state)
        for key, solver in solvers.items():
            _restore_solver(solver, facts["solvers"][key], _below(f"solvers/{key}/", arrays), {**parameters, **made})
        self._create(made)
        _make(changes)
        if "random" in parts:
            set_draws(process["draws"])

    def _misfits(
        self, facts: Mapping[str, Any], parameters: Mapping[str, Variable], own: Mapping[str, Variable]
    ) -> list[str]:
        saved = _below(_PARAMETERS, facts["arrays"])
        # Missing parameters in a scope are created.
        found = _in_one_only([n for n in saved if self._scope is None or n in parameters], parameters, "parameter")
        for those, specs in ((parameters, saved), (own, _below(_OWN, facts["arrays"]))):
            for name in [name for name in those if name in specs]:
                found += _other_spec(specs[name], those[name], f"parameter {name!r}")
        return found

    def _create(self, made: Mapping[str, Variable]) -> None:
        if self._scope is None:
            return
        put: list[str] = []
        with parameter_scope("", self._scope):
            try:
                for name, variable in made.items():
                    put.append(name)
                    set_parameter(name, variable)
            except BaseException:
                for name in put:
                    pop_parameter(name)
                raise


def _misfits_of(solver: Solver, key: str, facts: Mapping[str, Any], parts: Collection[str]) -> list[str]:
    """The reasons why a saved solver does not fit the `solver` named `key`, in words; empty if it fits."""
    if key not in facts["solvers"]:
        return [f"{key} is not in the checkpoint"]
    saved, parameters = facts["solvers"][key], solver.get_parameters()
    if saved["class"] != solver.name:
        return [f"{key}: is {saved['class']} in the checkpoint, but {solver.name} here"]
    if not parameters and "parameters" not in parts:
        return [f"{key} has no parameters yet, so it cannot be restored without them"]
    if not parameters:
        return [f"{key} trains {name!r}, which is not among the parameters here: pass parameters=, a Module or "
                "Variables by name, to nn.Checkpointer, or call the solver's set_parameters first"
                for name, registered in saved["parameters"].items() if registered is None]
    found = _in_one_only(saved["parameters"], parameters, f"{key}: parameter")
    if found or not saved["parameters"]:
        return found
    states = solver.named_state()
    found = _in_one_only(saved["state"], states, f"{key}: state")
    for name in [name for name in states if name in saved["state"]]:
        found += _other_spec(facts["arrays"][f"solvers/{key}/{name}"], states[name], f"{key}: state {name!r}")
    return found


def _in_one_only(saved: Collection[str], present: Collection[str], what: str) -> list[str]:
    """The names that only one of two collections has, in words."""
    found = [f"{what} {name!r} is only in the checkpoint" for name in saved if name not in present]
    return found + [f"{what} {name!r} is not in the checkpoint" for name in present if name not in saved]


def _other_spec(saved: list[Any], present: Any, what: str) -> list[str]:
    """A sentence if the shape or the dtype differs."""
    (shape, dtype), here = saved, np.dtype(present.dtype).name
    if tuple(shape) == tuple(present.shape) and dtype == here:
        return []
    return [f"{what} is {dtype}{list(shape)} in the checkpoint, but {here}{list(present.shape)} here"]


def _facts_of_process(facts: Mapping[str, Any], holders: Collection[str]) -> dict[str, Any]:
    processes: list[dict[str, Any]] = facts["processes"]
    if len(processes) == jax.process_count():
        return processes[jax.process_index()]
    first = processes[0]
    different = [key for key in holders if any([p["states"][key] != first["states"][key] for p in processes])]
    if different:
        raise ValueError(f"the checkpoint has a state for each of {len(processes)} processes in "
                         f"{', '.join(different)}, which {jax.process_count()} cannot take over; restore the rest "
                         "with restore(only=[...])")
    return first


def _shardings(
    facts: Mapping[str, Any], parts: Collection[str], parameters: Mapping[str, Variable],
    own: Mapping[str, Variable], solvers: Mapping[str, Solver],
) -> dict[str, jax.sharding.Sharding | None]:  # fmt: skip
    """The arrays to restore, with their shardings in the current run if it has several devices, else None."""
    found: dict[str, jax.sharding.Sharding | None] = {}
    for name in facts["arrays"]:
        part, _, rest = name.partition("/")
        if part == "parameters" and "parameters" in parts:
            found[name] = _sharding_of(parameters[rest]) if rest in parameters else None
        elif part == "solver parameters" and rest in own:
            found[name] = _sharding_of(own[rest])
        elif part in ("solvers", "states") and rest.partition("/")[0] in parts:
            found[name] = None
    for key, solver in solvers.items():
        trained = solver.get_parameters()
        states = solver.named_state() if trained else {}
        for name, state in states.items():
            owner = trained.get(name.partition(":")[2])
            found[f"solvers/{key}/{name}"] = (
                _present_sharding(state) if owner is None or owner.shape != state.shape else _sharding_of(owner)
            )
    return found


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
    return array.sharding if isinstance(array, jax.Array) and len(array.sharding.device_set) > 1 else None


def _taken_over(param: Variable, array: Any) -> Iterator[Change]:
    """The changes by which a parameter takes over an array."""
    value = NdArray.of_host_array(array).held if _present_sharding(array) is None else Value(array)
    yield setattr, param.cell, "held", value
    yield setattr, param.cell, "variable", None


def _restore_solver(
    solver: Solver, facts: Mapping[str, Any], arrays: Mapping[str, Any], parameters: Mapping[str, Variable]
) -> None:
    if facts["parameters"]:
        if not solver.get_parameters():
            solver.set_parameters({name: parameters[known] for name, known in facts["parameters"].items()})
        solver.take_named(arrays, facts["updates"])
    if not np.isnan(facts["learning_rate"]) and not solver.has_schedule:
        solver.set_learning_rate(facts["learning_rate"])


def _below(prefix: str, named: Mapping[str, Any]) -> dict[str, Any]:
    return {name[len(prefix) :]: value for name, value in named.items() if name.startswith(prefix)}


# ---------------------------------------------------------------- states of other objects


def check_holder(holder: Any, name: str) -> None:
    """Raise a TypeError unless the state of `holder` can be read and replaced."""
    if not isinstance(holder, dict) and not _methods_of(holder):
        raise TypeError(f"{name}: expected a dict, or an object with get_state() and set_state(state), "
                        f"got {type(holder).__name__}")


def _methods_of(holder: Any) -> tuple[str, ...]:
    """The names of the methods that get and set the state of `holder`; empty unless it has both."""
    for methods in (("get_state", "set_state"), ("get_states", "set_states")):
        if all([callable(getattr(holder, method, None)) for method in methods]):
            return methods
    return ()


def _restore_state(holder: Any, state: Any) -> None:
    """Give `holder` a saved state; a dict is changed in place."""
    if isinstance(holder, dict):
        holder.clear()
        holder.update(state)
    else:
        getattr(holder, _methods_of(holder)[1])(state)


def packed(state: Any, name: str) -> tuple[str, dict[str, Any]]:
    """A state as JSON text, and its arrays by names that start with `name`.

    Args:
        state: None, bools, numbers, strings, bytes and arrays, in lists and in dicts with strings as keys. Tuples
            become lists, and NumPy scalars arrays.
        name: Its name in errors, and in the names of arrays.

    Raises:
        TypeError: The state contains anything else.
    """
    arrays: dict[str, Any] = {}

    def other(value: Any) -> dict[str, Any]:
        if isinstance(value, bytes):
            return {_BYTES: base64.b85encode(value).decode()}
        if isinstance(value, Variable | NdArray):
            value = (value.data if isinstance(value, Variable) else value).raw()
        elif isinstance(value, np.ndarray | np.generic):
            value = np.asarray(value, value.dtype.newbyteorder("="))
        if not isinstance(value, np.ndarray | jax.Array) or value.dtype not in CODES.values():
            raise TypeError(f"{name}: a state may contain real arrays, bytes and JSON values, got "
                            f"{getattr(value, 'dtype', type(value).__name__)}")
        key = f"{name}/{len(arrays)}"
        arrays[key] = value
        return {_ARRAY: key}

    left = [state]
    while left:
        item = left.pop()
        if isinstance(item, Mapping):
            for key in item:
                if not isinstance(key, str):
                    raise TypeError(f"{name}: the keys of a state must be strings, got {key!r}")
            left += item.values()
        elif isinstance(item, list | tuple):
            left += item
    return json.dumps(state, default=other), arrays


def unpacked(text: str, arrays: Mapping[str, Any]) -> Any:
    """The state that `packed` turned into text and arrays."""

    def other(found: dict[str, Any]) -> Any:
        if found.keys() == {_ARRAY}:
            return arrays[found[_ARRAY]]
        if found.keys() == {_BYTES}:
            return base64.b85decode(found[_BYTES])
        return found

    return json.loads(text, object_hook=other)
