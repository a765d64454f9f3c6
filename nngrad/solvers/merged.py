"""Updates that are one executable with the backward that they wait for.

In a loop of forward, zero_grad, backward and update nobody looks at gradients in between, as a rule, and to call two
executables in place of one takes tens of microseconds: half of the step of a small network. So when a structure has
been updated from many times, forward, backward and update are compiled as one, in the background, and run as one from
then on, wherever the backward still waits. A barrier keeps the compiler from mixing the two parts, so that numbers are
those of two executables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax

from ..autodiff.pending import PendingBackward
from ..execution import background
from ..execution.compiled import BoundedCache
from ..execution.fingerprint import digest_of, structure_of
from ..execution.lower import whole
from ..graph import build_options
from ..graph.value import Value
from .in_place import InPlaceUpdate, Results

if TYPE_CHECKING:
    from .solver import Solver

OFTEN = 1000
"""After so many updates from a structure the time that is saved in as many more is worth a compilation."""

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

    __slots__ = ("__weakref__", "_count", "_function", "_given", "_places", "_program", "_solver", "_update")

    def __init__(self, solver: Solver, pending: PendingBackward, places: tuple[int, ...]) -> None:
        self._solver = solver
        self._program = pending.program
        self._places = places
        self._count = 0
        self._function: Callable[..., Any] | None = None
        self._given: Any = None
        self._update: InPlaceUpdate | None = None

    def run(self, pending: PendingBackward) -> bool:
        """Run what waits and the update as one, if that is compiled; returns whether it was. Hold the solver's lock."""
        update = self._update
        if update is None:
            self._count += 1
            if self._count == OFTEN:
                self._given = self._described(pending.arrays)
                background.request(self)
            return False
        results = update(tuple(map(type, pending.arrays)), (self._solver._rate, pending.arrays))
        update.drop_result()
        pending.keep(results)
        return True

    def work(self) -> None:
        """Compile, in the background. If that fails, all goes on as it was."""
        program, solver = self._program, self._solver
        self._function = whole(program)
        update = InPlaceUpdate(
            self._all, solver, [], program.needs_x64, taken=(1,), structure=self._structure,
        )
        update.compile_in_background(self._given)
        self._given, self._update = None, update

    def _all(self, params: Any, state: Any, arguments: tuple[Any, tuple[Any, ...]]) -> Results:
        lr, arrays = arguments
        assert self._function is not None
        results = jax.lax.optimization_barrier(self._function(*arrays))
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

    def run(self, pending: PendingBackward, gradients: Sequence[Value]) -> bool:
        """Update along gradients, together with the backward that the first of them waits for; returns False where that
        is not to be, or not yet. Hold the solver's lock."""
        places, program = pending.places_of(gradients), pending.program
        if places is None or build_options().deterministic or self._solver.opaque or program.device is not None:
            return False
        if len(program.steps) > MOST_FUNCTIONS:
            return False
        merged: Merged = self._by_structure.get(
            (pending.executable, places), lambda: Merged(self._solver, pending, places)
        )
        return merged.run(pending)
