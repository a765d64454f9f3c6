"""Atomic updates of parameters and solver state in their own memory, and their placement on a mesh.

Donated arrays are deleted when the call returns, so its results must be held before anything can intervene. Therefore
extending a list makes the call, in C, and values are read from the list's last entry; readers wait meanwhile.
"""

from __future__ import annotations

import functools
import operator
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import compress
from sys import getrefcount
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding

from ..extend import Executable, Program, Value, Variable, cells_of, check_process, interrupt_safe, on_host, x64_if
from ..parallel.devices.grid import Mesh, mesh_of
from .gradients import Arrays
from .state import names_of_state

if TYPE_CHECKING:
    from .solver import Solver


Results = tuple[Any, Any, Any, Any]
"""The results of an update: the new arrays of state, parameters and other leaves, and the function's own results. JAX
gives each result the memory of the first donated argument of its kind that is left: so that a state gets its own, the
order is that of the arguments."""

STEP_TO_TRACE = "the to_jax() of a training step"
"""The name of a function that JAX may trace in place of an update."""

_STATE, _PARAMETERS, _LEAVES, _OWN, _UPDATES = range(5)
_COLD = 2
"""The first calls with arguments of one kind, this many, return through Python, where an interrupt may come before
their results are stored. They donate copies."""


class SolverArrays:
    """The arrays of a solver's state and the number of updates they have seen, and what an update returned with them.

    Args:
        state: The arrays of the state.
        updates: The number of updates.
        key: That of the InPlaceUpdate that replaces them, if the cells that it updates are read from here.
        parameters: The arrays of those of parameters.
        leaves: The arrays of the others.
    """

    __slots__ = ("held", "key", "left", "lock", "values")

    held: list[tuple[Any, ...]]
    """Its last entry is the last result: `Results`, and the number of updates. `map(executable, ...)` extends it."""
    left: bool
    """Whether some value is no longer read from here, because it has a writable host view."""
    values: list[InPlaceValue]
    """The Values of the updated cells."""

    def __init__(
        self, state: Arrays, updates: int, key: object = None, leaves: Arrays = (), parameters: Arrays = ()
    ) -> None:
        self.lock = threading.RLock()  # reentrant, for signal handlers
        self.left = False
        self.held = [(state, parameters, leaves, None, updates)]
        self.key = key
        self.values = [InPlaceValue(self, i) for i in range(len(parameters) + len(leaves))]

    def raw(self) -> Arrays:
        """The arrays of the state."""
        with self.lock:
            return (*self.held[-1][_STATE],)

    def owned(self) -> Arrays:
        """The arrays by the places of their values, as far as they are here; else None, as for the place -1. The caller
        holds the lock."""
        results = self.held[-1]
        arrays = *results[_PARAMETERS], *results[_LEAVES], None
        return (None,) * len(arrays) if self.left else arrays

    @property
    def updates(self) -> int:
        count: int = self.held[-1][_UPDATES]
        return count


class InPlaceValue(Value):
    """One of the arrays of parameters and other leaves in an executable's result.

    Once it has a writable host view, it behaves like any other Value.
    """

    __slots__ = ("owner", "place")

    def __init__(self, owner: SolverArrays, place: int) -> None:
        super().__init__(None)
        self.owner = owner
        self.place = place

    def raw(self) -> Any:
        """The array."""
        with self.owner.lock:
            if self.array is not None:
                return super().raw()
            results = self.owner.held[-1]
            after = self.place - len(results[_PARAMETERS])
            return results[_PARAMETERS][self.place] if after < 0 else results[_LEAVES][after]

    def writable_view(self) -> np.ndarray[Any, Any]:
        """A writable NumPy array; writing to it changes the value. Read-only if several processes share the array."""
        with self.owner.lock:
            if self.array is None:
                array = self.raw()
                if not array.is_fully_addressable:
                    return on_host(array)
                copy = np.array(on_host(array))
                self.owner.left = True
                self.has_view = True
                self.array = copy
            return super().writable_view()


def donated(arrays: Arrays) -> Arrays:
    """Arrays that may be donated: those that somebody else refers to are copied."""
    if max(map(getrefcount, arrays), default=0) <= Value.held_once:
        return arrays
    counts = list(map(getrefcount, arrays))
    return tuple([a if n <= Value.held_once else copies((a,))[0] for a, n in zip(arrays, counts, strict=True)])


def copies(arrays: Arrays) -> Arrays:
    """Copies with memory of their own. On a device a single program makes them, since compiling one per shape takes
    many times as long."""
    on_cpu = [a.is_fully_addressable and all([d.platform == "cpu" for d in a.devices()]) for a in arrays]
    copied: Arrays = jax.device_put(arrays, may_alias=False) if all(on_cpu) else _copied(arrays)  # compiles nothing
    return copied


@interrupt_safe
@jax.jit
def _copied(arrays: Arrays) -> Any:
    return jax.tree.map(jnp.copy, arrays)


# ---------------------------------------------------------------- on a mesh


Shardings = tuple[NamedSharding, ...]


class Placements(NamedTuple):
    """Where the inputs of an update lie on a mesh. Its outputs lie there too, so that nothing is recompiled."""

    mesh: Mesh
    state: Shardings
    parameters: Shardings
    leaves: Shardings
    """Those of the other updated leaves."""

    @property
    def of_results(self) -> tuple[Shardings, Shardings, Shardings, None]:
        """The placements of the results, of which the function's own may lie anywhere."""
        return self.state, self.parameters, self.leaves, None


def placed_on(
    mesh: Mesh, solver: Solver, updated: Sequence[Variable], arrays: Sequence[Any]
) -> tuple[Placements, Arrays, Arrays]:
    """Place the inputs of an update on a mesh: parameters as `nn.shard` says, state arrays of a parameter's shape
    beside it, and everything else replicated.

    Args:
        arrays: Those of the parameters, followed by those of other updated leaves.

    Returns:
        The placements, `arrays` placed, and the arrays of the state placed.

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
    moved = tuple([mesh.put(*row) for row in zip(arrays, wanted, names, strict=True)])
    init, parameters = solver._init(), moved[: len(places)]
    before = solver._state
    tree = jax.eval_shape(init, parameters) if before is None else jax.tree.unflatten(solver._structure, before.raw())
    owners = names_of_state(tree, named, solver._places)
    beside = tuple([
        _beside(name.partition(":")[2], array.shape, places, named, mesh)
        for name, array in zip(owners, jax.tree.leaves(tree), strict=True)
    ])
    if before is None:  # made on the mesh: it may not fit on one device
        first = jax.jit(lambda params: tuple(jax.tree.leaves(init(params))), out_shardings=beside)(parameters)
        solver.keep_state(jax.tree.unflatten(jax.tree.structure(tree), mesh.finished(first)))
    state = tuple([
        mesh.put(array, place, f"state {name!r}")
        for array, place, name in zip(solver._flat_state(), beside, owners, strict=True)
    ])
    return Placements(mesh, beside, tuple(places.values()), tuple(others)), moved, state


def _beside(
    owner: str, shape: tuple[int, ...], places: Mapping[str, NamedSharding], named: Mapping[str, Variable], mesh: Mesh
) -> NamedSharding:
    """The placement of a state array that belongs to the parameter `owner`, or to none."""
    return places[owner] if owner in places and named[owner].shape == shape else mesh.sharding()


# ---------------------------------------------------------------- updates


class InPlaceUpdate:
    """An executable that updates parameters and state in their own memory (donated), atomically.

    Errors, interrupts and other threads find everything as it was before or as it is afterwards. Threads that call
    updates of one solver take turns. If somebody writes to a parameter meanwhile, it keeps that value. Nothing is
    donated where the user's functions run on the host, since these may raise, and read what is updated.

    Args:
        function: `function(state, parameters, arguments)` on arrays, to be compiled; returns `Results`.
        solver: The solver of these parameters and this state.
        updated: Other leaves that it updates.
        program: The program that it contains, if there is one, which also tells where it runs. Even if that is no mesh,
            parameters may lie on one, and stay there.
        opaque: Whether it contains the user's code.
        taken: The donated arguments: 0 for the state, 1 for the parameters.
        among: For each array of `arguments[1]` which parameter it is, unless that has changed since, or None: these are
            passed only once, since each argument of a call takes 2 to 3 us.
    """

    def __init__(
        self,
        function: Callable[..., Results],
        solver: Solver,
        updated: Sequence[Variable],
        program: Program | None,
        opaque: bool = False,
        taken: tuple[int, ...] = (0, 1),
        among: Sequence[int | None] = (),
    ) -> None:
        self._device = None if program is None else program.device
        self._mesh: Any = None if program is None else program.mesh
        self._placements: Placements | None = None
        self._taken = () if opaque else taken
        self._function = function
        self._among = among
        self._numbers = [k for k in among if k is not None]
        self._are_parameters, self._are_others = [k is not None for k in among], [k is None for k in among]
        self._opaque = opaque
        self._program = program
        self._compile()
        self._solver = solver
        self.updated = tuple(updated)
        self._needs_x64 = program is not None and program.block.needs_x64
        self._key = object()

    def _compile(self) -> None:
        # A new function each time, since JAX identifies functions by identity.
        placements, function = self._placements, functools.partial(self._completed if self._among else self._function)
        how: dict[str, Any] = {} if placements is None else {"out_shardings": placements.of_results}
        self._executable = Executable(
            jax.jit(function, donate_argnums=self._taken, **how), opaque=self._opaque,
            divided=None if placements is None else placements.mesh, program=self._program,
        )
        self._calls: dict[Any, int] = {}

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

    def _run(self, kind: Any, arguments: tuple[Any, ...]) -> Any:
        variables, arrays, before = self._solver._variables + self.updated, self._solver._state, None
        if arrays is None or arrays.key is not self._key or arrays.left or Value.of(variables) != arrays.values:
            arrays, before = self._gathered(cells_of(variables))
        held, executable = arrays.held, self._executable
        mesh = None if self._placements is None else self._placements.mesh
        state, params, _, _, updates = held[-1]
        if self._among:
            kind, arguments = self._passed(arguments, before or params)
        # Without a mesh there is no turn to take: the solver's lock is held already, and cheaper than a nullcontext.
        with self._solver.updating if mesh is None else mesh.turn():
            if self._opaque:  # the lock stays free for functions on the host that read what is updated
                results: Any = executable(state, params, arguments)
                if mesh is not None:
                    mesh.finished(results)
            with arrays.lock:
                if self._opaque:
                    held.append((*results, updates + 1))
                elif self._calls.get(kind, 0) < _COLD:
                    state, params = [copies(a) if i in self._taken else a for i, a in enumerate((state, params))]
                    try:
                        held.append((*executable(state, params, arguments), updates + 1))
                    except BaseException:
                        self._compile()  # after a failed call JAX would always return through Python
                        raise
                    self._calls[kind] = self._calls.get(kind, 0) + 1
                else:
                    state = donated(state)
                    params = donated(params) if 1 in self._taken else params
                    run: Any = executable.function  # in C
                    held.extend(map(operator.add, map(run, (state,), (params,), (arguments,)), ((updates + 1,),)))
                del held[:-1]
                if mesh is not None and not self._opaque:
                    mesh.finished(held[-1][:_UPDATES])
                if arrays.left:  # somebody viewed old values meanwhile
                    for i, (cell, value) in enumerate(zip(cells_of(variables), arrays.values, strict=True)):
                        if value.array is not None and cell.held is value:
                            cell.held = arrays.values[i] = InPlaceValue(arrays, i)
                state, params, leaves, own, updates = held[-1]
                held[-1] = state, params, leaves, None, updates  # the function's own results are the caller's alone
                return own

    def _passed(self, arguments: tuple[Any, ...], params: Arrays) -> tuple[Any, tuple[Any, ...]]:
        """The arguments without those that are parameters, and their kind; nothing is left out if a parameter has
        changed."""
        first, arrays = arguments
        known = map(params.__getitem__, self._numbers)
        if all(map(operator.is_, compress(arrays, self._are_parameters), known)):
            arrays = tuple(compress(arrays, self._are_others))
        return tuple(map(type, arrays)), (first, arrays)

    def _completed(self, state: Arrays, params: Arrays, arguments: tuple[Any, ...]) -> Results:
        first, arrays = arguments
        if len(arrays) < len(self._among):
            others = iter(arrays)
            arrays = tuple([next(others) if k is None else params[k] for k in self._among])
        return self._function(state, params, (first, arrays))

    def _placed(self, arrays: Arrays) -> tuple[Arrays, Arrays]:
        """The arrays, and those of the state, placed on its own mesh, or else on that of the parameters. If the
        placements have changed, the update is recompiled."""
        mesh = mesh_of(arrays) if self._mesh is None and self._device is None else self._mesh
        placements, moved, state = (
            (None, arrays, self._solver._flat_state()) if mesh is None
            else placed_on(mesh, self._solver, self.updated, arrays)
        )
        if placements != self._placements:
            self._placements = placements
            self._compile()
        return moved, state

    def _gathered(self, cells: list[Any]) -> tuple[SolverArrays, Arrays]:
        """Move the arrays of cells and state to where they are updated, and from where cells are read from now on;
        return also the arrays that the cells held before."""
        solver = self._solver
        count = len(solver._variables)
        while True:
            before = Value.held_by(cells)
            if any([isinstance(v.array, jax.Array) for v in before]):
                self._calls.clear()  # these arrays may lie elsewhere, and so be of another kind
            read = tuple(Value.arrays_of(before))
            moved, state = self._placed(read)
            if self._placements is None:
                moved = tuple([a if isinstance(a, jax.Array) else jax.device_put(a, may_alias=False) for a in moved])
                moved = moved if self._device is None else jax.device_put(moved, self._device)
            old = solver._state
            arrays = SolverArrays(state, solver.updates, self._key, moved[count:], moved[:count])
            with Value.writing:
                if Value.held_by(cells) == before:  # nobody has written to a cell meanwhile
                    names = [*["held"] * len(cells), "_state"]
                    deque(map(setattr, [*cells, solver], names, [*arrays.values, arrays]), maxlen=0)
                    if old is not None:
                        old.values = []  # a cycle, which would keep its arrays until Python collects it
                    return arrays, read if self._placements is None else moved
