"""Program: a closed graph and where it runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from ..graph import Variable
from ..graph.block import Block
from ..graph.placement import Axes, Mesh, Processes, group_of, running_on, several_processes
from ..graph.process import Process, check_process
from ..graph.value import Value
from ..graph.variable import cells_of


class Program(NamedTuple):
    """A closed graph, where it runs, and the passes to leave out. Equal structures with equal placement are equal
    programs."""

    block: Block
    """The computation. Its inputs are the leaves of the graph."""
    device: jax.Device | None = None
    """Where it runs; None leaves it to JAX."""
    without: frozenset[str] = frozenset()
    """The passes to leave out of its lowering (`nn.passes`)."""
    mesh: Mesh | None = None
    """The devices that it runs on; None for one."""
    places: tuple[Axes, ...] = ()
    """The mesh axes over which each leaf is divided."""
    uneven: tuple[int, ...] = ()
    """Indices of leaves that are batches which the mesh cannot divide evenly."""

    def __repr__(self) -> str:
        block = self.block
        return f"<program: {len(block.inputs)} leaves, {len(block.steps)} functions, {len(block.outputs)} results>"

    def unread(self, leaves: Sequence[int]) -> list[int]:
        """The leaves among these, by index, on which no result depends."""
        read = {i for _, _, ins in self.block.steps for i in ins}.union(self.block.outputs)
        return [i for i in leaves if i not in read]

    @property
    def group(self) -> Processes | None:
        """The processes among which functions in it exchange arrays; None if there is no exchange, or only one process.

        Raises:
            ValueError: There are several groups, or also a mesh.
        """
        if not several_processes():
            return None
        group = group_of(self.block.groups)
        if group is not None and self.mesh is not None:
            raise ValueError(
                f"the graph exchanges arrays among the processes {list(group)}, each with its own graph, but on "
                f"{self.mesh!r} all processes share one graph; leave out the exchange, or run outside the mesh"
            )
        return group


def in_one(program: Program) -> Callable[..., tuple[Any, ...]]:
    """The program as one function, without further passes."""

    def run(*arrays: Any) -> tuple[Any, ...]:
        if program.mesh is None:
            return program.block.results_of(arrays)
        with running_on(program.mesh):
            block = program.mesh.partitioned(program.block, program.places)
            return block.results_of(tuple(program.mesh.divided(arrays, program.uneven)))

    return run


def keys_among(leaves: Sequence[Variable]) -> list[int]:
    """The indices of the leaves that are keys of random functions."""
    return [i for i, x in enumerate(leaves) if x.key_source is not None]


def arrays_of(
    leaves: Sequence[Variable], draw: bool = True, often: bool = False, mesh: Mesh | None = None,
    keys: Sequence[int] | None = None,
) -> list[Any]:  # fmt: skip
    """The arrays in the leaves' cells, read atomically.

    Keys of random functions are drawn first. Without `draw` they stay, and those never drawn are read ahead of the
    stream: so reading changes no noise, in any order of reads. Small NumPy arrays that are passed `often` are moved to
    JAX for good; with a `mesh`, all arrays are moved to their places on it. `keys` are the indices of the keys, if they
    are known.
    """
    if Process.cannot_compute:  # cheaper than a call; every run passes here
        check_process()
    cells = cells_of(leaves)
    drawn: dict[int, Any] = {}
    for i in keys_among(leaves) if keys is None else keys:
        if draw or cells[i].is_zero:
            source = leaves[i].key_source
            drawn[i] = source() if draw else source.ahead()  # type: ignore[misc, union-attr]
            cells[i].put(drawn[i])
    values = Value.held_by(cells)
    arrays = Value.arrays_of(values)
    if often and np.ndarray in map(type, arrays):
        for i, value in enumerate(values):
            if i not in drawn:
                value.as_jax()
        arrays = Value.arrays_of(values)
    for i, key in drawn.items():
        arrays[i] = key  # not the key that another thread draws at the same time
    return arrays if mesh is None else mesh.placed(leaves, arrays)


# ---------------------------------------------------------------- where it runs


def default_device() -> jax.Device:
    """The device for arrays that are committed to none."""
    configured: Any = jax.config.jax_default_device  # type: ignore[attr-defined]
    if configured is None or isinstance(configured, str):
        return jax.devices(configured)[0]
    device: jax.Device = configured
    return device


def platform_of(program: Program) -> str:
    """The platform that a program runs on, unless it is lowered for another one."""
    return platform_on(program.device) if program.mesh is None else program.mesh.platform


def platform_on(device: jax.Device | None = None) -> str:
    """The platform of a device, or of the default one."""
    platform: str = (device or default_device()).platform
    return platform


class HoistedLiteral(float):
    """A number that became an input of its program: it equals others at the same place among the inputs. Its value as a
    float is meaningless."""

    __slots__ = ("place",)

    place: int

    def __new__(cls, place: int) -> HoistedLiteral:
        literal = super().__new__(cls, 0.5)
        literal.place = place
        return literal

    def __eq__(self, other: object) -> bool:
        return self is other or (other.__class__ is HoistedLiteral and other.place == self.place)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((HoistedLiteral, self.place))
