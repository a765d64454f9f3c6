"""Atomic in-place updates of parameters and solver state, and their placement on a mesh."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
from jax.sharding import NamedSharding

from ..extend import Executable, Value, Variable, check_process, x64_if
from ..parallel.devices.grid import Mesh, mesh_of
from .donation import InPlace, InPlaceValue, copied_together, donated, exchange, from_host
from .gradients import Arrays
from .state import names_by_place, names_of_state

if TYPE_CHECKING:
    from .solver import Solver


Shardings = tuple[NamedSharding, ...]


class Placements(NamedTuple):
    """Where the inputs of an update lie on a mesh. Its outputs lie there too, so that nothing is recompiled."""

    mesh: Mesh
    leaves: Shardings
    """Those of the other updated leaves."""
    parameters: Shardings
    state: Shardings

    @property
    def of_results(self) -> tuple[None, Shardings, Shardings, Shardings]:
        """The placements of the results, of which the function's own may lie anywhere."""
        return None, self.leaves, self.parameters, self.state


class Placed(NamedTuple):
    """The inputs of an update, placed on a mesh."""

    placements: Placements
    arrays: tuple[jax.Array, ...]
    """The arrays of the parameters, followed by those of other updated leaves."""
    state: tuple[jax.Array, ...]


def placed_on(mesh: Mesh, solver: Solver, updated: list[Variable], arrays: list[Any]) -> Placed:
    """Place the inputs of an update on a mesh: parameters as `nn.shard` says, state arrays of a parameter's shape
    beside it, and everything else replicated. `arrays` holds those of the parameters, followed by those of other
    updated leaves.

    Raises:
        ValueError: A parameter cannot be divided as requested.
    """
    named = solver.get_parameters()
    places = {
        name: mesh.sharding(mesh.resolved(p.cell.axes or (), p.shape, f"parameter {name!r}"))
        for name, p in named.items()
    }
    others = [mesh.sharding(() if x.cell.axes is None else mesh.axes_of(x)) for x in updated]
    names = [*[f"parameter {name!r}" for name in named], *[f"leaf {x.name!r}" for x in updated]]
    wanted = [*places.values(), *others]
    moved = tuple([mesh.put(*each) for each in zip(arrays, wanted, names, strict=True)])
    init, parameters = solver._init(), moved[: len(places)]
    before = solver._state
    tree = jax.eval_shape(init, parameters) if before is None else jax.tree.unflatten(solver._structure, before.raw())
    owners = names_of_state(init, tree, tuple(named), names_by_place(type(solver)))
    beside = tuple([
        _beside(name.partition(":")[2], array.shape, places, named, mesh)
        for name, array in zip(owners, jax.tree.leaves(tree), strict=True)
    ])
    if before is None:  # made on the mesh: it may not fit on one device
        made = jax.jit(lambda given: tuple(jax.tree.leaves(init(given))), out_shardings=beside)(parameters)
        solver.state = jax.tree.unflatten(jax.tree.structure(tree), mesh.finished(made))
    state = tuple([
        mesh.put(array, place, f"state {name!r}")
        for array, place, name in zip(solver._flat_state(), beside, owners, strict=True)
    ])
    return Placed(Placements(mesh, tuple(others), tuple(places.values()), beside), moved, state)


def _beside(
    owner: str, shape: tuple[int, ...], places: Mapping[str, NamedSharding], named: Mapping[str, Variable], mesh: Mesh
) -> NamedSharding:
    """The placement of a state array that belongs to the parameter `owner`, or to none."""
    return places[owner] if owner in places and named[owner].shape == shape else mesh.sharding()


Results = tuple[Any, Any, Any, Any]
"""The results of an update: the function's own, and the new arrays of other leaves, parameters and state."""

_LEAVES, _PARAMETERS, _STATE, _UPDATES = 1, 2, 3, 4
_COLD = 2
"""The first calls with arguments of one kind, this many, return through Python, where an interrupt may come before
their results are stored. They donate copies."""


STEP_TO_TRACE = "the to_jax() of a training step"
"""The name of a function that JAX may trace in place of an update."""


class StateValue(Value):
    """The arrays of a solver's state, and the number of updates they have seen."""

    __slots__ = ("updates",)

    def __init__(self, arrays: tuple[Any, ...], updates: int) -> None:
        super().__init__(arrays)
        self.updates = updates


class InPlaceState(Value):
    """The same, in place. The number is stored with the arrays, by the same call in C."""

    __slots__ = ("owner",)

    def __init__(self, owner: InPlace) -> None:
        super().__init__(None)
        self.owner = owner

    def raw(self) -> tuple[Any, ...]:
        """The arrays."""
        with self.owner.lock:
            return (*self.owner.held[-1][_STATE],)

    @property
    def updates(self) -> int:
        with self.owner.lock:
            count: int = self.owner.held[-1][_UPDATES]
            return count


class InPlaceUpdate:
    """An executable that updates parameters and state in their own memory (donated), atomically.

    Errors, interrupts, signal handlers and other threads find everything as it was before or as it is afterwards.
    Threads that call updates of one solver take turns. If somebody writes to a parameter meanwhile, it keeps that
    value. Nothing is donated where the user's functions run on the host, since these may raise.

    Args:
        function: `function(parameters, state, arguments)` on arrays, to be compiled; returns `Results`.
        solver: The solver of these parameters and this state.
        updated: Other leaves that it updates.
        needs_x64: Whether it has 64-bit values besides the parameters.
        opaque: Whether it contains the user's code.
        taken: The donated arguments: 0 for the parameters, 1 for the state.
        compiled: Called with the seconds that each compilation took; None if nobody wants to know.
        mesh: The devices it runs on, if there are several. Even without it parameters may lie on a mesh, and stay
            there.
    """

    def __init__(
        self,
        function: Callable[..., Results],
        solver: Solver,
        updated: list[Variable],
        needs_x64: bool = False,
        device: jax.Device | None = None,
        opaque: bool = False,
        taken: tuple[int, ...] = (0, 1),
        compiled: Callable[[float], None] | None = None,
        mesh: Mesh | None = None,
    ) -> None:
        self._mesh = mesh
        self._placements: Placements | None = None
        self._taken = () if opaque else taken
        self._function = function
        self._opaque = opaque
        self._device = device
        self._compiled = compiled
        self._compile()
        self._solver = solver
        self._updated = updated
        self._needs_x64 = needs_x64
        self._owner: InPlace | None = None
        self._values: list[InPlaceValue] = []
        self._state: InPlaceState | None = None

    def _compile(self) -> None:
        # A new function each time, since JAX identifies functions by identity.
        placements, function = self._placements, functools.partial(self._function)
        how: dict[str, Any] = {} if placements is None else {"out_shardings": placements.of_results}
        self._executable = Executable(
            jax.jit(function, donate_argnums=self._taken, **how), opaque=self._opaque,
            divided=None if placements is None else placements.mesh, compiled=self._compiled,
        )
        self._calls: dict[Any, int] = {}

    @property
    def updated(self) -> list[Variable]:
        """The leaves that it updates besides the parameters."""
        return self._updated

    def __call__(self, kind: Any, arguments: tuple[Any, ...]) -> Any:
        """Update, and return the function's own result; `kind` is equal for arguments of equal classes and dtypes. The
        caller holds the solver's lock, and JAX must not be tracing."""
        check_process()
        if self._device is None and not self._needs_x64 and not self._solver._needs_x64:
            return self._run(kind, arguments)
        with x64_if(self._needs_x64 or self._solver._needs_x64):
            if self._device is None:
                return self._run(kind, arguments)
            with jax.default_device(self._device):
                return self._run(kind, jax.device_put(arguments, self._device))

    def leave(self) -> None:
        """Release the parameters and state, which another update has taken over."""
        self._owner, self._values, self._state = None, [], None

    def _run(self, kind: Any, arguments: tuple[Any, ...]) -> Any:
        solver, owner = self._solver, self._owner
        cells: list[Any] = [p.cell for p in solver._variables]
        if self._updated:
            cells += [x.cell for x in self._updated]
        if not self._taken:
            return self._run_apart(cells, arguments)
        if owner is None or owner.left or solver._state is not self._state or Value.held_by(cells) != self._values:
            owner = self._gathered(cells)
        mesh = None if self._placements is None else self._placements.mesh
        with owner.lock, nullcontext() if mesh is None else mesh.turn():
            held = owner.held
            _, _, params, state, updates = held[-1]
            calls, executable = self._calls.get(kind, 0), self._executable
            if calls < _COLD:
                params, state = copied_together(params, state)
                try:
                    held.append((*executable(params, state, arguments), updates + 1))
                except BaseException:
                    self._compile()  # after a failed call JAX would always return through Python
                    raise
                self._calls[kind] = calls + 1
            else:
                params = donated(params) if 0 in self._taken else params
                state = donated(state)
                run: Any = executable.function  # in C
                held.extend(map(operator.add, map(run, (params,), (state,), (arguments,)), ((updates + 1,),)))
            del held[:-1]
            if mesh is not None:
                mesh.finished(held[-1][:_UPDATES])
            if owner.left:
                self._take_back(cells)
            return held[-1][0]

    def _run_apart(self, cells: list[Any], arguments: tuple[Any, ...]) -> Any:
        """Run an update that donates nothing."""
        solver = self._solver
        before, updates = Value.held_by(cells), solver.updates
        arrays, state = self._placed(Value.arrays_of(before))
        mesh = None if self._placements is None else self._placements.mesh
        params = tuple(arrays[: len(solver._variables)])
        with nullcontext() if mesh is None else mesh.turn():
            own, leaves, params, state = results = self._executable(params, state, arguments)
            if mesh is not None:
                mesh.finished(results)
        exchange(cells, before, list(map(Value, [*params, *leaves])), solver, StateValue(state, updates + 1))
        return own

    def _placed(self, arrays: list[Any]) -> tuple[Sequence[Any], Arrays]:
        """The arrays, and those of the state, placed on its own mesh, or else on that of the parameters. If the
        placements have changed, the update is recompiled."""
        mesh = mesh_of(arrays) if self._mesh is None and self._device is None else self._mesh
        placements, moved, state = (
            (None, arrays, self._solver._flat_state()) if mesh is None
            else placed_on(mesh, self._solver, self._updated, arrays)
        )
        if placements != self._placements:
            self._placements = placements
            self._compile()
        return moved, state

    def _take_back(self, cells: list[Any]) -> None:
        """Read again those values that a signal handler viewed during the update, since it saw the old ones."""
        for i, (cell, value) in enumerate(zip(cells, self._values, strict=True)):
            if value.array is not None and cell.held is value:
                cell.held = self._values[i] = value.again()

    def _gathered(self, cells: list[Any]) -> InPlace:
        """Move cells and state into one owner, whose values they read from now on."""
        solver = self._solver
        count = len(solver._variables)
        while True:
            before = Value.held_by(cells)
            if any([isinstance(v.array, jax.Array) for v in before]):
                self._calls.clear()  # these arrays may lie elsewhere, and so be of another kind
            arrays, state = self._placed(Value.arrays_of(before))
            if self._placements is None:
                arrays = tuple([a if isinstance(a, jax.Array) else from_host(a) for a in arrays])
                arrays = arrays if self._device is None else jax.device_put(arrays, self._device)
            owner = InPlace((None, arrays[count:], arrays[:count], state, solver.updates))
            values = [InPlaceValue(owner, _PARAMETERS, i) for i in range(count)]
            values += [InPlaceValue(owner, _LEAVES, i) for i in range(len(arrays) - count)]
            held = InPlaceState(owner)
            if exchange(cells, before, values, solver, held):
                self._owner, self._values, self._state = owner, values, held
                before_this, solver.holder = solver.holder, self
                if before_this is not None and before_this is not self:
                    before_this.leave()
                return owner
