"""Where parameters and a solver's state lie on a mesh, before an update and after it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
from jax.sharding import NamedSharding

from ..graph import Variable
from ..graph.mesh import Mesh
from ..graph.spec import Shape
from .state import names_of_state
from .state_names import names_by_place

if TYPE_CHECKING:
    from .solver import Solver

Shardings = tuple[NamedSharding, ...]


class Placements(NamedTuple):
    """Where what an update takes lies on a mesh. What it returns lies there too, so that nothing is compiled again."""

    mesh: Mesh
    leaves: Shardings
    """Those of other leaves that it updates."""
    parameters: Shardings
    state: Shardings

    @property
    def of_results(self) -> tuple[None, Shardings, Shardings, Shardings]:
        """The same for what an update returns, whose own result may lie anywhere."""
        return None, self.leaves, self.parameters, self.state


class Placed(NamedTuple):
    """What an update takes, on a mesh."""

    placements: Placements
    arrays: tuple[jax.Array, ...]
    """Those of parameters, and of other leaves after them."""
    state: tuple[jax.Array, ...]


def placed_on(mesh: Mesh, solver: Solver, updated: list[Variable], arrays: list[Any]) -> Placed:
    """What an update takes where it belongs on a mesh: parameters as `nn.shard` has it, whatever of the state is of a
    parameter's shape beside it, and all else whole on each device.

    Args:
        mesh: The devices.
        solver: Whose parameters and state these are.
        updated: Other leaves that are updated.
        arrays: Those of parameters, and of other leaves after them.

    Raises:
        ValueError: A parameter cannot be divided as it is to be.
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
    if before is None:  # made where it belongs: on one device there may be no room for it
        made = jax.jit(lambda given: tuple(jax.tree.leaves(init(given))), out_shardings=beside)(parameters)
        solver.state = jax.tree.unflatten(jax.tree.structure(tree), mesh.finished(made))
    state = tuple([
        mesh.put(array, place, f"state {name!r}")
        for array, place, name in zip(solver._flat_state(), beside, owners, strict=True)
    ])
    return Placed(Placements(mesh, tuple(others), tuple(places.values()), beside), moved, state)


def _beside(
    owner: str, shape: Shape, places: Mapping[str, NamedSharding], named: Mapping[str, Variable], mesh: Mesh
) -> NamedSharding:
    """Where an array of the state lies that belongs to the parameter `owner`, or to none."""
    return places[owner] if owner in places and named[owner].shape == shape else mesh.sharding()
