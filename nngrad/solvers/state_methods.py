"""What a solver says of its state, and takes for it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..files.storage import read_into, write_arrays
from ..graph import Variable
from ..graph.spec import x64_if
from .gradients import Arrays
from .in_place import InPlaceState, StateValue
from .loss_scale import LossScale
from .state import fitting_states, names_of_state


class StateMethods:
    """The methods of a `Solver` that copy its state, or replace it."""

    _params: OrderedDict[str, Variable]
    _needs_x64: bool
    _scaling: LossScale | None
    _state: StateValue | InPlaceState | None
    updating: threading.RLock
    state: Any
    _flat_state: Callable[[], Arrays]
    _init: Callable[[], Callable[[Arrays], Any]]

    def get_states(self) -> OrderedDict[str, np.ndarray[Any, Any]]:
        """A copy of the state: arrays by name, as 'mu:conv/W' for a parameter's own and 'count' for what is shared."""
        return OrderedDict((name, np.array(leaf)) for name, leaf in self.named_state().items())

    def set_states(self, states: Mapping[str, Any]) -> None:
        """Take over a state that `get_states` of a solver of this kind with these parameters gave: all or nothing.

        Raises:
            TypeError: `states` is no mapping of names to arrays.
            ValueError: Names, shapes or dtypes are others, a counter is negative, or the loss scale out of its bounds.
        """
        own = self.named_state()
        given = fitting_states(states, own, self._scaling)
        with self.updating, x64_if(self._needs_x64):
            self._state = StateValue(tuple([jnp.array(given[name]) for name in own]), self.updates)

    def save_states(self, path: str | Path) -> None:
        """Write the state to a safetensors file, which is replaced as a whole or not at all."""
        write_arrays(path, self.get_states(), {"solver": type(self).__name__})

    def load_states(self, path: str | Path) -> None:
        """Read the state from a file of `save_states`.

        Raises:
            ValueError: The file is damaged, or what is in it does not fit, as in `set_states`; nothing is changed then.
            OSError: It cannot be read.
        """
        read_into(path, self.set_states)

    @property
    def updates(self) -> int:
        """How many updates its state has seen, those among them that a loss scale or `on_nan` skipped: the number that
        a schedule of the learning rate is asked with."""
        state = self._state
        return 0 if state is None else state.updates

    def set_updates(self, count: int) -> None:
        """Let schedules go on as after so many updates; counters in the state stay as they are."""
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise ValueError(f"set_updates: count must be an int, 0 or more, got {count!r}")
        with self.updating:
            self._state = StateValue(self._flat_state(), count)

    def named_state(self) -> dict[str, jax.Array]:
        """The arrays of the state by name, as they are held."""
        state = self.state
        return dict(zip(names_of_state(self._init(), state, tuple(self._params)), jax.tree.leaves(state), strict=True))
