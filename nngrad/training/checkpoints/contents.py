"""The contents of a checkpoint: parameters, solvers, random state and other state, as arrays by name and facts, which
are restored all together or not at all."""

from __future__ import annotations

import base64
import json
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ...extend import NdArray, Value, Variable, leaf_of
from ...files.parameter_files import Change, _make
from ...files.storage import CODES, Arrays
from ...parameter import Scope, get_current_parameter_scope, get_parameters, parameter_scope, set_parameter
from ...random import get_draws, set_draws
from ...solvers import Solver
from ..modules import Module
from .storing import of_all_processes, whole_array

PARAMETERS = "parameters/"
"""The prefix of the names of parameters' arrays."""
_ARRAY, _BYTES = "nngrad.array", "nngrad.bytes"


class CheckpointContents:
    """The objects to save and restore: parameters by name (a Module's current ones, or all in the current scope and
    below), solvers by name, and the `accessors` of other objects with state, by name."""

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

    def snapshot(self) -> tuple[Arrays, dict[str, Any]]:
        """All arrays, of one moment, and the facts about them.

        Raises:
            ValueError: A solver trains something that is not among the parameters.
            TypeError: The state of an object cannot be saved.
        """
        with ExitStack() as stack:
            for solver in sorted(self.solvers.values(), key=id):  # in a fixed order, against deadlocks
                stack.enter_context(solver.updating)
            parameters = self.parameters()
            arrays: dict[str, Any] = dict(zip(
                [f"{PARAMETERS}{name}" for name in parameters],
                Value.read([p.data for p in parameters.values()]), strict=True,
            ))  # fmt: skip
            by_cell = {id(p.cell): name for name, p in parameters.items()}
            solvers = {}
            for key, solver in self.solvers.items():
                trained = {name: by_cell.get(id(p.cell)) for name, p in solver.get_parameters().items()}
                for name, known in trained.items():
                    if known is None:
                        raise ValueError(f"{key} trains {name!r}, which is not among the parameters here: pass "
                                         "parameters=, a Module or Variables by name, to nn.Checkpointer")
                states = solver.named_state() if trained else {}
                arrays |= {f"solvers/{key}/{name}": state for name, state in states.items()}
                solvers[key] = {"class": solver.name, "learning_rate": solver.learning_rate(),
                                "updates": solver.updates, "parameters": trained}
        of_holders = {}
        for key, (get, _) in self.holders.items():
            of_holders[key], of_state = packed(get(), key)
            arrays |= {f"states/{name}": array for name, array in of_state.items()}
        facts = {
            "need_grad": {name: bool(p.need_grad) for name, p in parameters.items()},
            "solvers": solvers,
            "processes": of_all_processes({"draws": get_draws(), "states": of_holders}),
        }
        return {name: whole_array(array) for name, array in arrays.items()}, facts

    def restore(self, path: Path, arrays: Arrays, facts: Mapping[str, Any], only: Collection[str] | None) -> None:
        """Restore a checkpoint, or the parts that `only` names: all of it, or nothing.

        Raises:
            ValueError: Something does not fit; the message lists all misfits.
        """
        parts = only if only is not None else {"parameters", "random", *self.solvers, *self.holders}
        solvers = {key: solver for key, solver in self.solvers.items() if key in parts}
        holders = {key: holder for key, holder in self.holders.items() if key in parts}
        parameters = self.parameters()
        saved = {name: arrays[f"{PARAMETERS}{name}"] for name in facts["need_grad"]}  # in their order
        misfits = []
        if "parameters" in parts:  # missing ones in a scope are created
            misfits += _misfits("parameter", saved, parameters, creates=self._scope is not None)
        for key, solver in solvers.items():
            misfits += _misfits_of_solver(key, solver, arrays, facts["solvers"], parts)
        processes = facts["processes"]
        misfits += [f"{key} is not in the checkpoint" for key in holders if key not in processes[0]["states"]]
        if only is None:
            misfits += [f"{key} is only in the checkpoint"
                        for key in [*facts["solvers"], *processes[0]["states"]] if key not in parts]
        of_process = processes[0]
        if len(processes) == jax.process_count():
            of_process = processes[jax.process_index()]
        elif any([process["states"] != of_process["states"] for process in processes]) and holders:
            misfits.append(f"it has other states in each of {len(processes)} processes, which {jax.process_count()} "
                           "cannot take over")
        if misfits:
            raise ValueError(f"the checkpoint {path} does not fit:\n  " + "\n  ".join(misfits)
                             + "\nTo restore parts of it, use restore(only=[...])")
        states = {key: unpacked(of_process["states"][key], _below("states/", arrays)) for key in holders}
        changes: list[Change] = []
        created: dict[str, Variable] = {}
        for name, array in saved.items() if "parameters" in parts else ():
            cell, need_grad = NdArray.of_host_array(array), facts["need_grad"][name]
            if name in parameters:
                param = parameters[name]
                changes += [(setattr, param.cell, "held", cell.held), (setattr, param.cell, "variable", None),
                            (setattr, param, "_need_grad", need_grad)]
            else:
                created[name] = leaf_of(cell, name)
                created[name].need_grad = need_grad
        for key, state in states.items():  # first, since users' code may raise
            holders[key][1](state)
        for key, solver in solvers.items():
            was = facts["solvers"][key]
            if was["parameters"]:
                if not solver.get_parameters():
                    named = {**parameters, **created}
                    solver.set_parameters({name: named[known] for name, known in was["parameters"].items()})
                solver.take_named(_below(f"solvers/{key}/", arrays), was["updates"])
            if not np.isnan(was["learning_rate"]) and not solver.has_schedule:
                solver.set_learning_rate(was["learning_rate"])
        if self._scope is not None:
            with parameter_scope("", self._scope):
                for name, variable in created.items():
                    set_parameter(name, variable)
        _make(changes)
        if "random" in parts:
            set_draws(of_process["draws"])


def _misfits(what: str, saved: Mapping[str, Any], here: Mapping[str, Any], creates: bool = False) -> list[str]:
    """The differences in names, shapes and dtypes between saved arrays and those here, in words. If it `creates` those
    that are missing here, they are none."""
    misfits = []
    for name in dict.fromkeys([*saved, *here]):
        if name not in saved:
            misfits.append(f"{what} {name!r} is not in the checkpoint")
        elif name not in here:
            misfits += [] if creates else [f"{what} {name!r} is only in the checkpoint"]
        elif (there := _described(saved[name])) != (present := _described(here[name])):
            misfits.append(f"{what} {name!r} is {there} in the checkpoint, but {present} here")
    return misfits


def _described(array: Any) -> str:
    return f"{np.dtype(array.dtype).name}{list(array.shape)}"


def _misfits_of_solver(
    key: str, solver: Solver, arrays: Arrays, saved: Mapping[str, Any], parts: Collection[str]
) -> list[str]:
    """The reasons why a saved solver does not fit the `solver` named `key`, in words; empty if it fits."""
    if key not in saved:
        return [f"{key} is not in the checkpoint"]
    if saved[key]["class"] != solver.name:
        return [f"{key}: is {saved[key]['class']} in the checkpoint, but {solver.name} here"]
    names, trained = saved[key]["parameters"], solver.get_parameters()
    if not names:
        return []
    if not trained:
        needs = "parameters" not in parts
        return [f"{key} has no parameters yet, so it cannot be restored without them"] if needs else []
    nothing = np.empty(0)
    misfits = _misfits(f"{key}: parameter", dict.fromkeys(names, nothing), dict.fromkeys(trained, nothing))
    return misfits or _misfits(f"{key}: state", _below(f"solvers/{key}/", arrays), solver.named_state())


def _below(prefix: str, named: Mapping[str, Any]) -> dict[str, Any]:
    return {name[len(prefix) :]: value for name, value in named.items() if name.startswith(prefix)}


# ---------------------------------------------------------------- states of other objects


def accessors(holder: Any, name: str) -> tuple[Callable[[], Any], Callable[[Any], object]]:
    """The functions that get and set the state of `holder`; a dict is changed in place.

    Raises:
        TypeError: It has none.
    """

    def refill(state: Any) -> None:
        holder.clear()
        holder.update(state)

    if isinstance(holder, dict):
        return holder.copy, refill
    for methods in (("get_state", "set_state"), ("get_states", "set_states")):
        get, put = [getattr(holder, method, None) for method in methods]
        if callable(get) and callable(put):
            return get, put
    raise TypeError(f"{name}: expected a dict, or an object with get_state() and set_state(state), "
                    f"got {type(holder).__name__}")


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

    def other(value: dict[str, Any]) -> Any:
        if value.keys() == {_ARRAY}:
            return arrays[value[_ARRAY]]
        if value.keys() == {_BYTES}:
            return base64.b85decode(value[_BYTES])
        return value

    return json.loads(text, object_hook=other)
