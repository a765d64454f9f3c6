"""Meshes: devices in a grid with named axes, and the placement of leaves' arrays on them.

A graph is one program over global arrays, on any number of devices: JAX partitions the work by the placement of its
arguments. So nngrad only has to place them, and placement changes no result except by the order of sums.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from ...extend import Block, Variable, placement, provide, x64_if
from .. import exchange
from ..across import Across
from .contributions import DATA, with_sums_of_rows


class Mesh:
    """Devices in a grid with named axes. Meshes are equal if their devices and grids are.

    Args:
        grid: The corresponding JAX mesh.
    """

    __slots__ = ("_keys_agree", "_shardings", "_waits", "device_set", "grid", "platform", "sizes", "spans_processes")

    grid: jax.sharding.Mesh
    sizes: Mapping[str, int]
    """The number of devices along each axis, by its name."""
    platform: str
    spans_processes: bool
    """True if devices of other processes are among them."""

    def __init__(self, grid: jax.sharding.Mesh) -> None:
        devices = list(grid.devices.flat)
        self.grid = grid
        self.sizes = dict(grid.shape)
        self.device_set = frozenset(devices)
        self.platform = devices[0].platform
        self.spans_processes = len({device.process_index for device in devices}) > 1
        self._keys_agree = False
        self._waits = self.platform == "cpu"
        self._shardings: dict[placement.Axes, NamedSharding] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mesh) and self.grid == other.grid

    def __hash__(self) -> int:
        return hash(self.grid)

    def __repr__(self) -> str:
        return f"mesh({', '.join([f'{name}={size}' for name, size in self.sizes.items()])})"

    # ---------------------------------------------------------------- where arrays lie

    def sharding(self, axes: placement.Axes = ()) -> NamedSharding:
        """The JAX sharding that divides an array over `axes`; without them it is replicated."""
        known = self._shardings.get(axes)
        if known is None:
            known = self._shardings[axes] = NamedSharding(self.grid, PartitionSpec(*axes))
        return known

    def of_batch(self, shape: tuple[int, ...]) -> NamedSharding:
        """The sharding of a batch: divided along its first axis, or replicated if that is not divisible."""
        return self.sharding((DATA,) if self._divides(shape) else ())

    def axes_of(self, x: Variable, number: int = 0) -> placement.Axes:
        """The axes over which a Variable's array is divided: for a leaf those given to `nn.shard`, else a batch's, if
        it is divisible. Keys of random functions are replicated. `number` is for messages."""
        if x.key_source is not None:
            return ()
        axes = x.cell.axes
        if axes is None:
            return (DATA,) if self._divides(x.shape) else ()
        return self.resolved(axes, x.shape, name_of_leaf(x, number))

    def resolved(self, axes: placement.Axes | str, shape: tuple[int, ...], name: str) -> placement.Axes:
        """`axes` for an array of `shape`, checked. A single name divides the largest axis that is divisible.

        Raises:
            ValueError: The mesh has no such axis, or the shape is not divisible. The message begins with `name`.
        """
        entries = (axes,) if isinstance(axes, str) else axes
        for entry in entries:
            for axis in (entry,) if isinstance(entry, str) else entry or ():
                if axis not in self.sizes:
                    raise ValueError(f"{name}: cannot be divided over {axis!r}, because {self!r} has no such axis; add "
                                     f"it to the mesh, with size 1 if need be: nn.mesh(..., {axis}=1)")
        if isinstance(axes, str):
            count = self.sizes[axes]
            fitting = [i for i, size in enumerate(shape) if size and size % count == 0]
            if not fitting:
                return ()
            chosen = max(fitting, key=lambda i: (shape[i], -i))
            return (*[None] * chosen, axes)
        if len(axes) > len(shape):
            raise ValueError(f"{name}: cannot divide {len(axes)} axes, {axes}, of an array of shape {shape}")
        for i, entry in enumerate(axes):
            names = (entry,) if isinstance(entry, str) else entry or ()
            count = math.prod([self.sizes[axis] for axis in names])
            if shape[i] % count:
                raise ValueError(f"{name}: axis {i} of shape {shape} has size {shape[i]}, which is not divisible by "
                                 f"the {count} devices of {entry!r}")
        return axes

    def is_uneven(self, x: Variable) -> bool:
        """True for a leaf that is a batch and cannot be divided evenly: it arrives whole, and is divided in the
        program, where XLA pads and masks the remainder."""
        if x.key_source is not None or x.cell.axes is not None:
            return False
        count = self.sizes.get(DATA, 1)
        return count > 1 and x.ndim > 0 and x.shape[0] >= count and x.shape[0] % count != 0

    def _divides(self, shape: tuple[int, ...]) -> bool:
        count = self.sizes.get(DATA, 1)
        return count > 1 and len(shape) > 0 and shape[0] > 0 and shape[0] % count == 0

    # ---------------------------------------------------------------- moving arrays there

    def put(self, array: Any, sharding: NamedSharding, name: str) -> Any:
        """Move an array, the same in all processes, to `sharding`. Messages begin with `name`."""
        if isinstance(array, jax.Array) and array.sharding.is_equivalent_to(sharding, array.ndim):
            return array
        with x64_if(array.dtype.itemsize == 8):
            if not self.spans_processes:
                return jax.device_put(array, sharding, may_alias=False)  # an update may donate it
            if isinstance(array, jax.Array) and not array.is_fully_addressable:
                return jax.device_put(array, sharding)
            return exchange.shared(np.asarray(array), sharding, name)

    def placed(self, leaves: Sequence[Variable], arrays: list[Any]) -> list[Any]:
        """The arrays of leaves, moved to their placements; from now on the leaves' cells hold these. Keys of random
        functions are not moved: JAX copies them to all devices."""
        if self.spans_processes and not self._keys_agree and (keys := [arrays[i] for i, x in enumerate(leaves)
                                                                       if x.key_source is not None]):
            exchange.check_equal(np.stack(keys), "random numbers: the keys")
            self._keys_agree = True  # from now on, provided that all processes run the same program
        for i, x in enumerate(leaves):
            if x.key_source is None:
                array = arrays[i]
                moved = arrays[i] = self.put(array, self.sharding(self.axes_of(x, i)), name_of_leaf(x, i))
                # The cell of a batch keeps its array: otherwise no process would have all of it.
                if moved is not array and not (self.spans_processes and x.cell.axes is None):
                    x.cell.held.keep_moved(array, moved)
        return arrays

    def argument(self, array: Any, name: str, x: Variable | None = None) -> Any:
        """An argument of a step as a global array; with several processes it is given as this process's part.

        Args:
            array: An array.
            name: How messages begin.
            x: The Variable that it is for; None if its shape follows from the array.

        Raises:
            ValueError: It lies on other devices, or the parts do not fit together.
        """
        if isinstance(array, jax.core.Tracer):
            return array
        if isinstance(array, jax.Array) and len(array.sharding.device_set) > 1:
            if array.sharding.device_set != self.device_set:
                raise ValueError(f"{name}: lies on {len(array.sharding.device_set)} devices other than those of "
                                 f"{self!r}; pass a NumPy array, or an array on that mesh")
            return array
        if array.dtype.itemsize == 8 and x is not None and not x.spec.needs_x64:
            array = array.astype(jax.dtypes.canonicalize_dtype(array.dtype))
        if x is not None and x.cell.axes is not None:
            return self.put(array, self.sharding(self.axes_of(x)), name)
        if self.spans_processes:
            return exchange.global_batch(np.asarray(array), self, name, None if x is None else x.shape)
        return self.put(array, self.of_batch(array.shape), name)

    # ---------------------------------------------------------------- within programs

    def divided(self, arrays: Sequence[Any], which: Sequence[int]) -> list[Any]:
        """`arrays`, with those at the indices `which` divided as batches although unevenly. Only under JAX's tracing:
        only programs can hold such arrays."""
        results = list(arrays)
        for i in which:
            if isinstance(results[i], jax.core.Tracer):
                results[i] = self.constrained_batch(results[i])
        return results

    def partitioned(self, block: Block, places: Sequence[placement.Axes]) -> Block:
        """The block with sums over batches that the devices exchange once, whatever their number of terms. Where there
        are other axes, which XLA may divide the terms over, it is left as it is."""
        count = self.sizes.get(DATA, 1)
        return with_sums_of_rows(block, places, count) if count == self.grid.size > 1 else block

    def constrained_batch(self, array: Any) -> Any:
        """An array that JAX traces, divided as a batch, evenly or not."""
        count = self.sizes.get(DATA, 1)
        if count == 1 or array.ndim == 0 or array.shape[0] < count:
            return array
        return jax.lax.with_sharding_constraint(array, self.sharding((DATA,)))

    # ---------------------------------------------------------------- running

    def turn(self) -> AbstractContextManager[Any]:
        """A lock to hold while something runs on the mesh: on CPUs one program at a time."""
        return _turns if self._waits else _AT_ONCE

    def finished(self, results: Any) -> Any:
        """`results`, after waiting for them if the mesh is of CPUs.

        There each device is a thread of this process, and two programs whose devices wait for each other may each hold
        threads that the other needs.
        """
        if self._waits and not any([isinstance(result, jax.core.Tracer) for result in jax.tree.leaves(results)]):
            jax.block_until_ready(results)
        return results


_turns = threading.RLock()  # reentrant, for signal handlers
_AT_ONCE = nullcontext()


def mesh_of(arrays: Sequence[Any]) -> Mesh | None:
    """The mesh that the arrays lie on, or None if each lies on one device."""
    for array in arrays:
        sharding = array.sharding if isinstance(array, jax.Array) else None
        grid = sharding.mesh if isinstance(sharding, NamedSharding) else None
        if isinstance(grid, jax.sharding.Mesh) and grid.size > 1:
            return Mesh(grid)
    return None


def name_of_leaf(x: Variable, number: int) -> str:
    """A leaf's name in messages."""
    return f"parameter {x.name!r}" if x.name else f"leaf {number}, of shape {x.shape},"


provide(placement.Placement, {"mesh_of": staticmethod(mesh_of), "across": Across})
