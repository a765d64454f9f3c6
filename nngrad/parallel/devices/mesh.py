"""`nn.mesh`: the device mesh that graphs run on; `nn.shard`: the sharding of parameters and values over it."""

from __future__ import annotations

import functools
import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, TypeAlias, overload

import jax
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import PartitionSpec

from ... import functions as F
from ...extend import Switched, Variable, build_options, placement
from ...parameter import get_parameters
from .grid import Mesh


class MeshBlock(Switched):
    """The context manager of `mesh`, which is also a decorator."""

    def __init__(self, sizes: dict[str, int], devices: Sequence[jax.Device] | None) -> None:
        super().__init__()
        self._sizes = sizes
        self._devices = devices

    def value(self) -> Any:
        """The switch for the mesh to activate; None for a single device, which needs none."""
        outer = build_options().running.mesh
        if outer is not None:
            raise RuntimeError(f"mesh: {outer!r} is already active; leave it before you enter another")
        devices = jax.devices() if self._devices is None else self._devices
        grid = _grid_of(tuple(self._sizes.items()), tuple(devices), self._devices is not None)
        return None if grid is None else {"mesh": Mesh(grid)}

    def __enter__(self) -> Any:
        switches = super().__enter__()
        return None if switches is None else switches["mesh"].grid


def mesh(devices: Sequence[jax.Device] | None = None, **axes: int) -> MeshBlock:
    """Run graphs on a mesh of devices, within a `with` block or a decorated function.

    The devices form a grid with named axes. Each graph is one program over global arrays, which JAX shards: batches
    over the axis `data`, along their first axis. Parameters are replicated, unless `nn.shard` shards them. Gradients of
    any order, batch statistics and random numbers are those of the whole batch, so results are the same on any number
    of devices, except for the order of summation.

        with nn.mesh(data=8):
            step = nn.train_step(loss, nn.get_parameters, S.Adam())
        for images, labels in batches:
            step(images, labels)

    The results of `train_step`, `compile` and `to_jax` keep the mesh in which they were made. `forward`, `backward` and
    reads of values use the mesh in which they are called. A mesh of a single device changes nothing.

    Args:
        devices: The devices in the order of the grid, the last axis varying fastest; by default as many of the
            available devices as needed.
        axes: The number of devices along each axis, such as `data=4, model=2`; one of them may be -1, for all remaining
            devices. Without the axis `data`, batches are replicated on each device.

    Returns:
        A context manager; `with` returns the `jax.sharding.Mesh`, or None for a single device.

    Raises:
        TypeError: A size is not an int.
        ValueError: A size is 0 or below -1, two are -1, or there are no axes. When the block is entered: the sizes do
            not fit the number of devices.
        RuntimeError: The block is entered within another mesh.
    """
    if not axes:
        raise ValueError("axes: give at least one, such as nn.mesh(data=8)")
    for name, size in axes.items():
        if isinstance(size, bool) or not hasattr(size, "__index__"):
            raise TypeError(f"{name}: expected an int, the number of devices along this axis, got {size!r}")
        if size < -1 or size == 0:
            raise ValueError(f"{name}: must be at least 1, or -1 for all remaining devices, got {size}")
    if list(axes.values()).count(-1) > 1:
        raise ValueError(f"{', '.join([n for n, size in axes.items() if size == -1])}: only one axis can be -1")
    if devices is not None:
        devices = list(devices)
        for i, device in enumerate(devices):
            if not isinstance(device, jax.Device):
                raise TypeError(f"devices[{i}]: expected a jax.Device, such as from jax.devices(), got {device!r}")
        if len(set(devices)) != len(devices):
            raise ValueError("devices: the same device is given twice")
    return MeshBlock({name: int(size) for name, size in axes.items()}, devices)


@functools.lru_cache(maxsize=64)  # a step may enter its mesh each time
def _grid_of(
    wanted: tuple[tuple[str, int], ...], chosen: tuple[jax.Device, ...], by_user: bool
) -> jax.sharding.Mesh | None:
    """The devices, which the user may have chosen, as an array with the shape of the mesh; None for a single one."""
    known = math.prod([size for _, size in wanted if size != -1])
    sizes = {name: len(chosen) // known if size == -1 else size for name, size in wanted}
    needed, is_filled = math.prod(sizes.values()), -1 in dict(wanted).values()
    # Devices given by the user, or by -1, must all be used; otherwise some may be left over.
    fits = needed == len(chosen) if is_filled or by_user else needed <= len(chosen)
    if not fits or not needed:
        shown = " x ".join([f"{name}={size}" for name, size in wanted])
        what = f"{'devices has' if by_user else 'there are'} {len(chosen)}"
        if is_filled:
            raise ValueError(f"{shown}: {what} devices, which is not a multiple of {known}")
        raise ValueError(f"{shown} needs {needed} devices, but {what}")
    chosen = chosen[:needed]
    if len({device.process_index for device in chosen}) < jax.process_count():
        raise ValueError("the mesh must have devices of every process, but it has devices of "
                         f"{len({device.process_index for device in chosen})} of {jax.process_count()} processes; "
                         "nn.mesh(data=-1) takes all devices")
    if needed == 1:
        if chosen[0] != jax.local_devices()[0]:
            raise ValueError(f"devices: a mesh cannot select the single device {chosen[0]}; use nn.context_scope("
                             f"nn.Context({chosen[0].platform!r}, device_id={chosen[0].id}))")
        return None
    shape = tuple(sizes.values())
    if by_user:
        return jax.sharding.Mesh(np.array(chosen).reshape(shape), [*sizes])
    # JAX places neighbouring devices next to each other.
    placed = mesh_utils.create_device_mesh(shape, chosen, allow_split_physical_axes=True)
    return jax.sharding.Mesh(placed, [*sizes])


Spec: TypeAlias = "str | PartitionSpec | tuple[str | tuple[str, ...] | None, ...] | None"
"""The sharding of an array: for each of its axes the name of a mesh axis, a tuple of several, or None; a single name
shards the largest axis that is divisible; None replicates the array."""


@overload
def shard(what: Variable, spec: Spec) -> Variable: ...


@overload
def shard(what: str, spec: Spec) -> OrderedDict[str, Variable]: ...


def shard(what: Variable | str, spec: Spec) -> Variable | OrderedDict[str, Variable]:
    """Set how parameters, inputs or intermediate values are sharded over the axes of a mesh.

    By default parameters are replicated on each device. Sharding changes where arrays are stored, and no result. The
    optimizer's state is sharded like its parameter. Without a mesh, sharding has no effect.

        nn.shard("*/W", "data")                       # fully sharded data parallel
        nn.shard("up/affine/W", (None, "model"))      # tensor parallel: the columns,
        nn.shard("down/affine/W", ("model", None))    # and then the rows
        h = nn.shard(h, ("data", None, "model"))      # a value, and its gradients

    Args:
        what: A leaf, which is sharded from its next use on; an output of a function, whose sharded version is returned,
            and whose gradients are sharded alike; or a pattern of parameter names in the current scope, in which `*`
            matches any characters, also across scopes.
        spec: For each axis of the array the name of a mesh axis, a tuple of several, or None; missing entries are None.
            Or a `jax.sharding.PartitionSpec`. A single name shards the largest axis that is divisible by the number of
            devices, or none if no axis is. None replicates the array.

    Returns:
        The Variable; for a pattern the matching parameters by name.

    Raises:
        TypeError: `what` or `spec` has the wrong type.
        ValueError: No parameter matches, a mesh axis is named twice, or there are more names than axes. Within a mesh
            also: it has no such axis, or a size is not divisible. Otherwise a mesh raises these errors on use.
    """
    axes = _axes_of(spec)
    if isinstance(what, Variable):
        return _sharded(what, axes, f"Variable {what.name!r}" if what.name else "the Variable")
    if not isinstance(what, str):
        raise TypeError(f"what: expected a Variable or a pattern of parameter names, got {type(what).__name__}")
    known = get_parameters(grad_only=False)
    matched = OrderedDict((name, p) for name, p in known.items() if fnmatchcase(name, what))
    if not matched:
        raise ValueError(f"what: no parameter matches {what!r}; the current scope has "
                         f"{', '.join(map(repr, known)) or 'none yet: call shard after the layers that make them'}")
    for name, p in matched.items():
        _check(p, axes, f"parameter {name!r}")
    for p in matched.values():
        _sharded(p, axes, "")
    return matched


def shard_parameters(sharding: Spec | Mapping[str, Spec]) -> None:
    """Shard the parameters of the current scope by the argument `sharding` of parametric functions: a mapping from
    names or patterns to shardings, or a single sharding for all."""
    by_pattern = sharding if isinstance(sharding, Mapping) else {"*": sharding}
    for pattern, spec in by_pattern.items():
        shard(pattern, spec)


def _sharded(x: Variable, axes: placement.Axes | str, name: str) -> Variable:
    """Shard a leaf in place, or return the sharded version of a function's output."""
    _check(x, axes, name)
    if x.parent is not None:
        divided: Variable = F.sharding_constraint(x, axes=axes)
        return divided
    cell = x.cell
    if cell.axes != axes:
        cell.axes = axes
        cell.put(cell.raw())  # a new version: holders of the old value fetch it again, and move it
    return x


def _check(x: Variable, axes: placement.Axes | str, name: str) -> None:
    if not isinstance(axes, str) and len(axes) > x.ndim:
        raise ValueError(f"{name}: has shape {x.shape}, but spec {axes} is for {len(axes)} axes")
    mesh = build_options().running.mesh
    if mesh is not None:
        mesh.resolved(axes, x.shape, name)


def _axes_of(spec: Any) -> placement.Axes | str:
    """Check `spec`, and return it as a plain tuple or name."""
    if isinstance(spec, str):
        return spec
    if spec is None:
        return ()
    if not isinstance(spec, tuple | list | PartitionSpec):
        raise TypeError("spec: expected a jax.sharding.PartitionSpec, or a tuple with the name of a mesh axis or None "
                        f"for each axis of the array, got {spec!r}")
    axes: list[Any] = []
    for entry in spec:
        if isinstance(entry, tuple | list) and all([isinstance(name, str) for name in entry]):
            axes.append(tuple(entry) if len(entry) != 1 else entry[0])
        elif entry is None or isinstance(entry, str):
            axes.append(entry)
        else:
            raise TypeError(f"spec: expected the name of a mesh axis, a tuple of names, or None, got {entry!r}")
    names = [name for entry in axes if entry for name in ((entry,) if isinstance(entry, str) else entry)]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"spec: {', '.join(map(repr, twice))} can divide only one axis of an array, got {spec!r}")
    return tuple([entry or None for entry in axes])
