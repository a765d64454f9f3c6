"""Where arrays lie, and programs run: meshes of devices, and groups of processes that exchange arrays.

Declared here, and provided by a package above.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import jax

if TYPE_CHECKING:
    from .block import Block
    from .op import Op
    from .variable import Variable

Axes: TypeAlias = "tuple[str | tuple[str, ...] | None, ...]"
"""For each axis of an array, the mesh axis, or several, over which it is divided, or None; missing entries are None."""


class Mesh(Protocol):
    """Several devices that run one program on global arrays; a package above has them."""

    @property
    def grid(self) -> jax.sharding.Mesh:
        """The corresponding JAX mesh."""

    @property
    def platform(self) -> str:
        """JAX's name of their platform."""

    @property
    def spans_processes(self) -> bool:
        """True with devices of other processes among them."""

    def sharding(self, axes: Axes = ()) -> jax.sharding.NamedSharding:
        """The sharding that divides an array over `axes`; without them it is replicated."""

    def of_batch(self, shape: tuple[int, ...]) -> jax.sharding.NamedSharding:
        """The sharding of a batch."""

    def axes_of(self, x: Variable, number: int = 0) -> Axes:
        """The axes over which a Variable's array is divided; `number` is for messages."""

    def resolved(self, axes: Axes | str, shape: tuple[int, ...], name: str) -> Axes:
        """`axes` for an array of `shape`, checked; messages begin with `name`."""

    def is_uneven(self, x: Variable) -> bool:
        """True of a leaf that is a batch which cannot be divided evenly."""

    def put(self, array: Any, sharding: Any, name: str) -> Any:
        """Move an array to `sharding`."""

    def placed(self, leaves: Sequence[Variable], arrays: list[Any]) -> list[Any]:
        """The arrays of leaves, moved to their places; the leaves' cells hold these from now on."""

    def argument(self, array: Any, name: str, x: Variable | None = None) -> Any:
        """An argument of a program as a global array."""

    def divided(self, arrays: Sequence[Any], which: Sequence[int]) -> list[Any]:
        """Arrays that JAX traces, with those at the indices `which` divided as batches."""

    def partitioned(self, block: Block, places: Sequence[Axes]) -> Block:
        """A block as it runs on the devices, with its inputs divided over the axes in `places`."""

    def constrained_batch(self, array: Any) -> Any:
        """An array that JAX traces, divided as a batch."""

    def turn(self) -> AbstractContextManager[Any]:
        """A lock to hold while something runs."""

    def finished(self, results: Any) -> Any:
        """`results`, after waiting for them where that is needed."""


class Placement:
    """What a package above provides."""

    mesh_of: Callable[[Sequence[Any]], Mesh | None] = staticmethod(lambda arrays: None)
    """The mesh that arrays lie on, or None if each lies on one device."""
    across: Callable[[Callable[..., Any], Processes, jax.Device | None], Any]
    """`across(function, group, device)`: a function of arrays that all processes of a group call together."""


_running: ContextVar[Mesh | None] = ContextVar("mesh_of_program", default=None)


def mesh_of_program() -> Mesh | None:
    """The mesh of the program that JAX is tracing."""
    return _running.get()


@contextmanager
def running_on(mesh: Mesh | None) -> Iterator[None]:
    """Set the mesh that programs are traced for, within a context."""
    token = _running.set(mesh)
    try:
        yield
    finally:
        _running.reset(token)


# ---------------------------------------------------------------- several processes

# Each process has a graph and arrays of its own. A function that exchanges arrays has a JAX collective as its forward,
# along an axis of processes; the engine puts the arrays of the processes side by side along that axis.


Processes = tuple[int, ...]
"""The indices of processes, in their order along the axis."""

AXIS = "processes"
"""The name of the axis."""


def several_processes() -> bool:
    """True if this process has joined others; the check does not initialise JAX."""
    return bool(jax.distributed.is_initialized())


def groups_of(op: Op, arguments: tuple[Any, ...]) -> frozenset[Processes]:
    """The groups of processes among which a function exchanges arrays, by itself or in its bodies.

    Raises:
        ValueError: Its bodies exchange arrays, but each process decides by itself how often it runs them.
    """
    groups = groups_within(arguments)
    if groups and not op.lockstep:
        raise ValueError(
            f"{op.name}: its body exchanges arrays with other processes, but each process may run it a different "
            "number of times, and one would wait forever; exchange before or after it"
        )
    group = None if op.exchanges is None else op.exchanges(arguments)
    return groups if group is None else groups | {group}


def groups_within(arguments: tuple[Any, ...]) -> frozenset[Processes]:
    """The groups among which bodies in the static arguments, including those in tuples, exchange arrays."""
    all_groups: frozenset[Processes] = frozenset()
    for argument in arguments:
        groups = groups_within(argument) if isinstance(argument, tuple) else getattr(argument, "groups", None)
        if isinstance(groups, frozenset) and groups:
            all_groups |= groups
    return all_groups


def group_of(groups: Iterable[Processes]) -> Processes | None:
    """The only one of `groups`, among which a program exchanges arrays; None if there is none.

    Raises:
        ValueError: There are several.
    """
    listed = sorted(groups)
    if len(listed) > 1:
        raise ValueError(
            f"the graph exchanges arrays among the processes {listed[0]} and among {listed[1]}, but a graph supports "
            "one group only; compute it in parts, and pass values from one to the next"
        )
    return listed[0] if listed else None


def as_one_of(function: Callable[..., Any], groups: Iterable[Processes]) -> Callable[..., Any]:
    """`function` for tracing, as one process of a group runs it, if there is a group."""
    group = group_of(groups)
    if group is None:
        return function

    def one(*arrays: Any) -> Any:
        run: Callable[[int], Any] = jax.vmap(
            lambda _: function(*arrays), axis_name=AXIS, axis_size=len(group), in_axes=None, out_axes=0
        )
        return jax.tree.map(lambda y: y[0], run(0))

    return one
