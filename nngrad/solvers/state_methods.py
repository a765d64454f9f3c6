"""Reading, replacing, saving and loading the state of a solver."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..files.nnabla_states import STATE_FILES, read_states, write_states
from ..files.storage import read_into, write_arrays
from ..graph import Variable
from ..graph.arguments import checked_count
from ..graph.spec import x64_if
from .gradients import Arrays
from .in_place import InPlaceState, StateValue
from .loss_scale import LossScale
from .state import (
    SolverState,
    by_present_names,
    fitting_states,
    named_of,
    names_by_place,
    names_of_state,
    present_name,
    states_of,
)


class StateMethods:
    """The methods of a `Solver` that copy, replace, save or load its state."""

    _params: OrderedDict[str, Variable]
    _needs_x64: bool
    _scaling: LossScale | None
    _state: StateValue | InPlaceState | None
    updating: threading.RLock
    state: Any
    _flat_state: Callable[[], Arrays]
    _init: Callable[[], Callable[[Arrays], Any]]

    def get_states(self) -> OrderedDict[str, SolverState]:
        """A copy of each parameter's state, by parameter name: Variables in `pstate`, and the number of updates in `t`.

        The name '' holds state that belongs to no parameter, if there is any: a dynamic loss scale, other state of
        optax's transformations, and, as `t`, the number of updates if some were skipped.
        """
        with self.updating:
            named, updates = self.named_state(), self.updates
        count = int(named.pop("t")) if self._counts(named) else updates
        return states_of(named, self._params, count, updates)

    def set_states(self, states: Mapping[str, SolverState]) -> None:
        """Replace the state by that of `get_states` of the same kind of solver with these parameters: all or nothing.

        Raises:
            TypeError: `states` is not a mapping of names to states.
            ValueError: Names, shapes or dtypes differ, a counter is negative or differs between parameters, or the loss
                scale is out of its bounds.
        """
        counts = self._counts(self.named_state())
        named, count, updates = named_of(states, counts)
        if counts and count is not None:
            named["t"] = np.int32(count)
        self.take_named(named, updates)

    def take_named(self, named: Mapping[str, Any], updates: int | None) -> None:
        """Take over arrays from `named_state`, of this or an earlier version, and the number of updates."""
        own = self.named_state()
        given = fitting_states(by_present_names(type(self), named), own, self._scaling)
        if updates is None:  # earlier versions did not write it
            updates = int(given["t"]) if self._counts(own) else self.updates
        with self.updating, x64_if(self._needs_x64):
            self._state = StateValue(tuple([jnp.array(given[name]) for name in own]), updates)

    def present_name(self, name: str) -> str:
        """The name in `named_state` of the array that a file stores as `name`."""
        return present_name(type(self), name)

    def save_states(self, path: str | Path) -> None:
        """Save the state to a file, which is replaced atomically.

        Args:
            path: The file name. '.h5' and '.protobuf' files are written as nnabla writes them, and any other name as a
                safetensors file.

        Raises:
            ImportError: '.h5' without the package h5py, or '.protobuf' without protobuf.
            ValueError: nnabla's files cannot hold it: the state of a transformation without a solver in nnabla, or a
                dynamic loss scale.
            OSError: The file cannot be written.
        """
        if Path(path).suffix in STATE_FILES:
            write_states(path, self.get_states())
        else:
            with self.updating:
                named, updates = self.named_state(), self.updates
            write_arrays(path, named, {"solver": type(self).__name__, "updates": updates})

    def load_states(self, path: str | Path) -> None:
        """Load the state from a file of `save_states`, or from nnabla's '.h5' or '.protobuf'.

        Raises:
            ImportError: '.h5' without the package h5py, or '.protobuf' without protobuf.
            ValueError: The file is damaged or does not fit, as in `set_states`; nothing is changed then.
            OSError: The file cannot be read.
        """
        if Path(path).suffix not in STATE_FILES:
            read_into(path, lambda arrays, facts: self.take_named(arrays, facts.get("updates")))
            return
        states = {name: SolverState(*state) for name, state in read_states(path).items()}
        own = self.named_state()
        for name, state in states.items():
            for what, array in state.pstate.items():
                if f"{what}:{name}" in own:
                    state.pstate[what] = array.astype(own[f"{what}:{name}"].dtype)
        try:
            self.set_states(states)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

    @property
    def updates(self) -> int:
        """The number of updates its state has seen, including those skipped by a loss scale or `on_nan`: the number
        passed to a learning rate schedule."""
        state = self._state
        return 0 if state is None else state.updates

    def set_updates(self, count: int) -> None:
        """Continue schedules as after this many updates; counters in the state stay as they are."""
        count = checked_count(count, "set_updates: count", 0)
        with self.updating:
            self._state = StateValue(self._flat_state(), count)

    def named_state(self) -> dict[str, jax.Array]:
        """The arrays of the state by name: 'mean:conv/W' for one of a parameter, 't' for the count."""
        state, names = self.state, names_by_place(type(self))
        named = names_of_state(self._init(), state, self._names_in_state, names)
        return dict(zip(named, jax.tree.leaves(state), strict=True))

    @property
    def _names_in_state(self) -> Any:
        """The names of the parameters, in the structure in which the transformation sees them."""
        return tuple(self._params)

    def _counts(self, named: Mapping[str, Any]) -> bool:
        """Whether it computes with the number of updates, which is then among the arrays of its state."""
        return "t" in named and "t" in names_by_place(type(self)).values()
