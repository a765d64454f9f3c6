"""`nn.mesh`: the devices that graphs run on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import mesh_utils

from ...graph import build_options
from ...graph.mesh import Mesh
from ...graph.options import Switched


class MeshBlock(Switched):
    """The `with` block of `mesh`; it may also decorate a function."""

    def __init__(self, sizes: dict[str, int], devices: Sequence[jax.Device] | None) -> None:
        super().__init__({})
        self._sizes = sizes
        self._devices = devices

    def value(self) -> Any:
        """Returns what an entry puts in force: nothing for a single device, where all is as without a mesh."""
        outer = build_options().running.mesh
        if outer is not None:
            raise RuntimeError(f"mesh: {outer!r} is in force already; leave it before another one is entered")
        grid = _grid_of(self._sizes, self._devices)
        (first, *others) = grid.devices.flat
        if others:
            return {"mesh": Mesh(grid)}
        if first != jax.local_devices()[0]:
            raise ValueError(f"devices: for the single device {first} use nn.context_scope(nn.Context("
                             f"{first.platform!r}, device_id={first.id}))")
        return {"mesh": None}

    def __enter__(self) -> Any:
        super().__enter__()
        mesh = build_options().running.mesh
        return None if mesh is None else mesh.grid


def mesh(devices: Sequence[jax.Device] | None = None, **axes: int) -> MeshBlock:
    """Let graphs run on many devices, within a `with` block or a decorated function.

    The devices are a grid with named axes. Each graph is one program over global arrays, which JAX divides: batches
    over the axis `data`, along their first axis; parameters are whole on each device, or divided as `nn.shard` has it.
    Gradients of any order, batch statistics and random numbers are those of the whole batch, so results are the same
    on any number of devices, but for the order in which sums are added up.

        with nn.mesh(data=8):
            step = nn.train_step(loss, nn.get_parameters, S.Adam())
        for images, labels in batches:
            step(images, labels)

    What `train_step`, `compile` and `to_jax` make keeps the mesh in which it was made. `forward`, `backward` and
    reading values use the one in which they are called. A mesh of a single device changes nothing.

    Args:
        devices: Those to use, in the order of the grid, the last axis running fastest; by default as many as are
            needed of those that there are.
        axes: The number of devices along each axis, such as `data=4, model=2`; -1, for one of them, is all that are
            left.
            Without the axis `data` batches are whole on each device.

    Returns:
        A block, whose `with` gives the `jax.sharding.Mesh`; None for a single device.

    Raises:
        TypeError: A size is no int.
        ValueError: A size is 0 or below -1, or two are -1, or there are no axes. When the block is entered: the sizes
            do not fit the number of devices.
        RuntimeError: The block is entered within another mesh.
    """
    if not axes:
        raise ValueError("axes: give at least one, such as nn.mesh(data=8)")
    for name, size in axes.items():
        if isinstance(size, bool) or not hasattr(size, "__index__"):
            raise TypeError(f"{name}: expected the number of devices along it, an int, got {size!r}")
        if size < -1 or size == 0:
            raise ValueError(f"{name}: expected 1 or more devices, or -1 for all that are left, got {size}")
    if list(axes.values()).count(-1) > 1:
        raise ValueError(f"{', '.join([n for n, size in axes.items() if size == -1])}: only one of them can be -1")
    if devices is not None:
        devices = list(devices)
        for i, device in enumerate(devices):
            if not isinstance(device, jax.Device):
                raise TypeError(f"devices[{i}]: expected a jax.Device, as jax.devices() lists them, got {device!r}")
        if len(set(devices)) != len(devices):
            raise ValueError("devices: the same one is given twice")
    return MeshBlock({name: int(size) for name, size in axes.items()}, devices)


def _grid_of(wanted: dict[str, int], devices: Sequence[jax.Device] | None) -> jax.sharding.Mesh:
    """The devices as a grid."""
    given = jax.devices() if devices is None else list(devices)
    known = math.prod([size for size in wanted.values() if size != -1])
    sizes = {name: len(given) // known if size == -1 else size for name, size in wanted.items()}
    needed, is_filled = math.prod(sizes.values()), -1 in wanted.values()
    # All that are given, or that -1 stands for, have to be used; else there may be more of them.
    fits = needed == len(given) if is_filled or devices is not None else needed <= len(given)
    if not fits or not needed:
        shown = " x ".join([f"{name}={size}" for name, size in wanted.items()])
        what = f"{'there are' if devices is None else 'devices has'} {len(given)}"
        if is_filled:
            raise ValueError(f"{shown}: {what} devices, which are no multiple of {known}")
        raise ValueError(f"{shown} needs {needed} devices, and {what}")
    given = given[:needed]
    if len({device.process_index for device in given}) < jax.process_count():
        raise ValueError(f"the mesh has devices of {len({device.process_index for device in given})} processes, of "
                         f"{jax.process_count()} that there are; each must have a part in it: nn.mesh(data=-1) takes "
                         "all devices")
    shape = tuple(sizes.values())
    if devices is None:  # JAX knows which are neighbours
        return jax.sharding.Mesh(mesh_utils.create_device_mesh(shape, given, allow_split_physical_axes=True), [*sizes])
    return jax.sharding.Mesh(np.array(given).reshape(shape), [*sizes])
