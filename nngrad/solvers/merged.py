"""Updates that are one executable with the backward that they wait for.

In a loop of forward, zero_grad, backward and update nobody looks at gradients in between, as a rule, and to call two
executables in place of one takes tens of microseconds: half of the step of a small network. So when a structure has
been updated from many times, forward, backward and update are compiled as one, in the background. After as many updates
more they run as one, wherever the backward still waits. What differs is rounding, from a step on that is the same in
every run; where not even that may be, as in reproducible mode, there are two executables.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax

from ..autodiff.pending import PendingBackward, pending_of
from ..execution import background
from ..execution.compiled import BoundedCache
from ..execution.fingerprint import digest_of, structure_of
from ..execution.lower import whole
from ..execution.tiers import settings_of_now
from ..graph import build_options
from ..graph.value import Value
from .in_place import InPlaceUpdate, Results

if TYPE_CHECKING:
    from .solver import Solver

OFTEN = 1000
"""After so many updates from a structure one executable is compiled, and after twice as many it takes over."""

MOST_FUNCTIONS = 200
"""In a step of more functions a call more is little."""

_MOST_STRUCTURES = 8


class Merged:
    """Forward, backward and update of one structure.

    Args:
        solver: Whose update it is.
        pending: A backward of the structure.
        places: Which of its results are the gradients of the solver's parameters.
    """

    __slots__ = ("__weakref__", "_count", "_failed", "_function", "_given", "_lock", "_places", "_program", "_solver",
                 "_update")

    def __init__(self, solver: Solver, pending: PendingBackward, places: tuple[int, ...]) -> None:
        self._solver = solver
        self._program = pending.program
        self._places = places
        self._count = 0
        self._function = whole(pending.program)
        self._given: Any = None
        self._lock = threading.RLock()  # a signal's handler may come back to it
        self._update: InPlaceUpdate | None = None
        self._failed = False

    @property
    def has_taken_over(self) -> bool:
        """Whether forward, backward and update are one executable."""
        return self._count > 2 * OFTEN and not self._failed

    def run(self, pending: PendingBackward) -> bool:
        """Run what waits and the update as one, if it is time for that; returns whether it was. Hold the solver's lock.
        """
        if not self._count > 2 * OFTEN:
            self._count += 1
            if self._count == OFTEN:
                self._given = self._described(pending.arrays)
                background.request(self)
        if not self.has_taken_over:
            return False
        if self._update is None:
            self.work()
        update = self._update
        if update is None:
            return False
        results = update(tuple(map(type, pending.arrays)), (self._solver._rate, pending.arrays))
        update.drop_result()
        pending.keep(results)
        return True

    def work(self) -> None:
        """Compile, in the background. If that fails, there are two executables as before."""
        with self._lock:
            if self._update is not None or self._failed:
                return
            update = InPlaceUpdate(
                self._all, self._solver, [], self._program.block.needs_x64, taken=(1,), structure=self._structure
            )
            try:
                update.compile_in_background(self._given)
            except Exception:
                self._failed = True
            else:
                self._update = update
            self._given = None

    def _all(self, params: Any, state: Any, arguments: tuple[Any, tuple[Any, ...]]) -> Results:
        lr, arrays = arguments
        results = self._function(*arrays)
        gradients = [results[i] for i in self._places]
        _, _, new, after = self._solver._flat_update(params, state, (lr, gradients))
        return results, (), new, after

    def _structure(self) -> bytes | None:
        program, update = structure_of(self._program), self._solver.structure("update")
        return None if program is None or update is None else digest_of(program, update, str(self._places).encode())

    def _described(self, arrays: tuple[Any, ...]) -> Any:
        solver = self._solver
        params = tuple([p.cell.raw() for p in solver._variables])
        return jax.tree.map(_described, (params, solver._flat_state(), (solver._rate, arrays)))


def _described(array: Any) -> jax.ShapeDtypeStruct:
    """What is to be known of an array before there is an executable for it."""
    if isinstance(array, jax.Array):
        sharding = array.sharding if array.committed else None
        return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=sharding, weak_type=array.weak_type)
    return jax.ShapeDtypeStruct(array.shape, array.dtype)


class MergedUpdates:
    """Those of one solver.

    Args:
        solver: The solver.
    """

    def __init__(self, solver: Solver) -> None:
        self._solver = solver
        self._by_structure = BoundedCache(_MOST_STRUCTURES)

    def run(self, gradients: Sequence[Value]) -> bool:
        """Update along gradients, together with the backward that they wait for; returns False where there is none, or
        that is not to be, or not yet. Hold the solver's lock."""
        pending = pending_of(gradients)
        if pending is None:
            return False
        places, program = pending.places_of(gradients), pending.program
        if places is None or build_options().deterministic or self._solver.opaque or program.device is not None:
            return False
        if program.mesh is not None:  # it would be compiled before it is known where parameters are to lie
            return False
        if len(program.block.steps) > MOST_FUNCTIONS or pending.settings != settings_of_now():
            return False
        merged: Merged = self._by_structure.get(
            (pending.executable, places, pending.settings), lambda: Merged(self._solver, pending, places)
        )
        return merged.run(pending)
