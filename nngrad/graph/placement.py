"""Where programs run on several devices or in several processes: declared here, and provided by a package above."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeAlias

import jax

if TYPE_CHECKING:
    from ..distributed.devices.grid import Mesh as Mesh
    from .process import Processes

Axes: TypeAlias = "tuple[str | tuple[str, ...] | None, ...]"
"""For each axis of an array, the mesh axis, or several, over which it is divided, or None; missing entries are None."""


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
