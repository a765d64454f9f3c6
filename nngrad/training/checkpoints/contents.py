"""The contents of a checkpoint: parameters, solvers, random state and other state, as text and arrays; and the facts
that it records about a solver, compared with another solver."""

from __future__ import annotations

import base64
import json
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from ...graph import NdArray, Variable
from ...graph.leaf import arrays_in
from ...parameter import Scope, get_current_parameter_scope, get_parameters, parameter_scope
from ...random import get_draws
from ...solvers import DynamicLossScale, Solver
from ..modules import Module
from .storing import dtype_named

_ARRAY, _BYTES = "nngrad.array", "nngrad.bytes"


def state_of(holder: Any) -> Any:
    """The state of `holder`: the result of its `get_state()` or `get_states()`, or the dict itself."""
    return holder if isinstance(holder, dict) else getattr(holder, _methods_of(holder)[0])()


def _methods_of(holder: Any) -> tuple[str, ...]:
    """The names of the methods that get and set the state of `holder`; empty unless it has both."""
    for methods in (("get_state", "set_state"), ("get_states", "set_states")):
        if all([callable(getattr(holder, method, None)) for method in methods]):
            return methods
    return ()


def check_holder(holder: Any, name: str) -> None:
    """Raise a TypeError unless the state of `holder` can be read and replaced."""
    if not isinstance(holder, dict) and not _methods_of(holder):
        raise TypeError(f"{name}: expected a dict, or an object with get_state() and set_state(state), "
                        f"got {type(holder).__name__}")


def restore_state(holder: Any, state: Any) -> None:
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
            value = np.array(value)  # a copy, since the original may change while it is written
        if not isinstance(value, np.ndarray | jax.Array) or not _has_name(value.dtype):
            raise TypeError(f"{name}: a state may contain arrays, bytes and JSON values, got {type(value).__name__}")
        key = f"{name}/{len(arrays)}"
        arrays[key] = value
        return {_ARRAY: key}

    _check_keys(state, name)
    return json.dumps(state, default=other), arrays


def _has_name(dtype: np.dtype[Any]) -> bool:
    """Whether arrays of this dtype are numbers that can be read again from its name."""
    with suppress(TypeError):
        return dtype.kind != "O" and dtype_named(dtype.name) == dtype.newbyteorder("=")
    return False


def _check_keys(state: Any, name: str) -> None:
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


def unpacked(text: str, arrays: Mapping[str, Any]) -> Any:
    """The state that `packed` turned into text and arrays."""

    def other(found: dict[str, Any]) -> Any:
        if found.keys() == {_ARRAY}:
            return arrays[found[_ARRAY]]
        if found.keys() == {_BYTES}:
            return base64.b85decode(found[_BYTES])
        return found

    return json.loads(text, object_hook=other)


Arrays = dict[str, Any]


class CheckpointContents:
    """The objects to save and restore: parameters by name (a Module's current ones, or all in the current scope and
    below), solvers by name, and other objects with state, by name."""

    def __init__(
        self,
        parameters: Mapping[str, Variable] | Module | None,
        solvers: Mapping[str, Solver],
        holders: Mapping[str, Any],
    ) -> None:
        self.scope: Scope | None = None
        """The scope in which parameters are found and created; None if they were given."""
        self._given: Mapping[str, Variable] = {}
        self._module: Module | None = None
        if isinstance(parameters, Mapping):
            self._given = dict(parameters)
        elif isinstance(parameters, Module):
            self.hold_module(parameters)
        else:
            self.scope = get_current_parameter_scope()
        self.solvers = dict(solvers)
        self.holders = dict(holders)

    def hold_module(self, module: Module) -> None:
        """Hold the parameters of a module."""
        self._module, self.scope = module, module.parameter_scope

    def parameters(self) -> OrderedDict[str, Variable]:
        """All parameters by name, including untrained ones."""
        if self._module is not None:
            return self._module.get_parameters(grad_only=False)
        if self.scope is None:
            return OrderedDict(self._given)
        with parameter_scope("", self.scope):
            return get_parameters(grad_only=False)

    def own_parameters(self) -> OrderedDict[str, Variable]:
        """Parameters that only a solver has, by the solver's name and their own."""
        known = {id(p.cell) for p in self.parameters().values()}
        return OrderedDict(
            (f"{key}/{name}", p)
            for key, solver in self.solvers.items()
            for name, p in solver.get_parameters().items()
            if id(p.cell) not in known
        )

    def snapshot(self) -> tuple[Arrays, dict[str, Any], list[str]]:
        """A snapshot of all arrays, by descriptive names, and of the facts about them.

        The arrays are not copied: while they are held here, a step that would update them in place copies them first.

        Returns:
            The arrays, the facts, and the names of those arrays that must be finite.
        """
        with ExitStack() as stack:
            for solver in sorted(self.solvers.values(), key=id):  # in a fixed order, against deadlocks
                stack.enter_context(solver.updating)
            parameters, own = self.parameters(), self.own_parameters()
            variables = {f"parameters/{name}": p for name, p in parameters.items()}
            variables |= {f"solver parameters/{name}": p for name, p in own.items()}
            arrays: Arrays = dict(zip(variables, arrays_in([p.data for p in variables.values()]), strict=True))
            by_cell = {id(p.cell): name for name, p in parameters.items()}
            solvers = {}
            for key, solver in self.solvers.items():
                facts, states = facts_of_solver(solver, by_cell)
                arrays |= {f"solvers/{key}/{name}": array for name, array in states.items()}
                solvers[key] = facts
        must_be_finite = [name for name, p in variables.items() if p.spec.differentiable]
        states_of_holders = {}
        for key, holder in self.holders.items():
            states_of_holders[key], held = packed(state_of(holder), key)
            arrays |= {f"states/{name}": array for name, array in held.items()}
        facts = {
            "need_grad": {name: bool(p.need_grad) for name, p in parameters.items()},
            "solvers": solvers,
            "arrays": {name: [list(array.shape), np.dtype(array.dtype).name] for name, array in arrays.items()},
            "processes": _of_all_processes({"draws": get_draws(), "states": states_of_holders}),
        }
        return {name: array for name, array in arrays.items() if 0 not in array.shape}, facts, must_be_finite


def _of_all_processes(facts: dict[str, Any]) -> list[dict[str, Any]]:
    """The facts of every process."""
    if jax.process_count() == 1:
        return [facts]
    text = np.frombuffer(json.dumps(facts).encode(), np.uint8)
    sizes = multihost_utils.process_allgather(np.int32(text.size))
    padded = np.zeros(int(sizes.max()), np.uint8)
    padded[: text.size] = text
    texts = multihost_utils.process_allgather(padded)
    return [json.loads(row[:size].tobytes()) for row, size in zip(texts, sizes, strict=True)]

# ---------------------------------------------------------------- facts about solvers


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
