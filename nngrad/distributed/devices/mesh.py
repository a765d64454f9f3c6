"""`nn.mesh`: the device mesh that graphs run on; `nn.shard`: the sharding of parameters and values over it."""

from __future__ import annotations

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
from ...graph import Variable, build_options
from ...graph.mesh import Axes, Mesh
from ...graph.options import Switched
from ...parameter import get_parameters


class MeshBlock(Switched):
    """The context manager of `mesh`, which is also a decorator."""

    def __init__(self, sizes: dict[str, int], devices: Sequence[jax.Device] | None) -> None:
        super().__init__({})
        self._sizes = sizes
        self._devices = devices

    def value(self) -> Any:
        """The mesh to put in force; none for a single device, where everything is as without a mesh."""
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
    """Run graphs on a mesh of devices, within a `with` block or a decorated function.

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
    """The devices as an array with the shape of the mesh."""
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


Spec: TypeAlias = "str | PartitionSpec | tuple[str | tuple[str, ...] | None, ...] | None"
"""How an array is divided: for each of its axes an axis of the mesh, several in a tuple, or None; the name of an axis
alone stands for whichever of the array's axes is the largest that is divisible; None: whole on each device."""


@overload
def shard(what: Variable, spec: Spec) -> Variable: ...


@overload
def shard(what: str, spec: Spec) -> OrderedDict[str, Variable]: ...


def shard(what: Variable | str, spec: Spec) -> Variable | OrderedDict[str, Variable]:
    """Set how parameters, inputs or intermediate values are sharded over the axes of a mesh.

    Parameters are whole on each device unless this says otherwise. It changes where arrays lie, and no result. The
    optimizer's state of a parameter is divided as the parameter is. Without a mesh all of it is without effect.

        nn.shard("*/W", "data")                       # fully sharded data parallel
        nn.shard("up/affine/W", (None, "model"))      # tensor parallel: the columns,
        nn.shard("down/affine/W", ("model", None))    # and then the rows
        h = nn.shard(h, ("data", None, "model"))      # a value, and its gradients

    Args:
        what: A leaf, which is divided so from its next use on; an output of a function, which is divided so wherever
            the result is used, and so are all its gradients; or a pattern of names of parameters below the present
            scope, in which `*` stands for any characters, those of further scopes included.
        spec: For each axis of the array the name of an axis of the mesh, or several in a tuple, or None; what is left
            out is None. Or a `jax.sharding.PartitionSpec`. A name alone divides the largest axis that is divisible by
            the number of devices, and nothing where none is. None: whole on each device.

    Returns:
        The Variable; for a pattern the parameters that it has matched, by name.

    Raises:
        TypeError: `what` or `spec` is of the wrong kind.
        ValueError: No parameter matches, an axis of the mesh is named twice, or there are more names than axes. Within
            a mesh also: it has no such axis, or a size is not divisible. Else that is said when a mesh uses it.
    """
    axes = _axes_of(spec)
    if isinstance(what, Variable):
        return _sharded(what, axes, f"Variable {what.name!r}" if what.name else "the Variable")
    if not isinstance(what, str):
        raise TypeError(f"what: expected a Variable or a pattern of names of parameters, got {type(what).__name__}")
    known = get_parameters(grad_only=False)
    matched = OrderedDict((name, p) for name, p in known.items() if fnmatchcase(name, what))
    if not matched:
        raise ValueError(f"what: no parameter matches {what!r}; below the present scope there are "
                         f"{', '.join(map(repr, known)) or 'none yet: call it after the functions that make them'}")
    for name, p in matched.items():
        _check(p, axes, f"parameter {name!r}")
    for p in matched.values():
        _sharded(p, axes, "")
    return matched


def shard_parameters(sharding: Spec | Mapping[str, Spec]) -> None:
    """Shard the parameters of the current scope, given the argument `sharding` of parametric functions: a sharding by
    name or pattern or, without names, one for all."""
    given = sharding if isinstance(sharding, Mapping) else {"*": sharding}
    for pattern, spec in given.items():
        shard(pattern, spec)


def _sharded(x: Variable, axes: Axes | str, name: str) -> Variable:
    """`x`, sharded so from now on."""
    _check(x, axes, name)
    if x.parent is not None:
        divided: Variable = F.sharding_constraint(x, axes=axes)
        return divided
    cell = x.cell
    if cell.axes != axes:
        cell.axes = axes
        cell.put(cell.raw())  # another value: whoever holds it in place takes it anew, and moves it
    return x


def _check(x: Variable, axes: Axes | str, name: str) -> None:
    if not isinstance(axes, str) and len(axes) > x.ndim:
        raise ValueError(f"{name}: has {x.ndim} axes, of shape {x.shape}, but spec {axes} is for {len(axes)}")
    mesh = build_options().running.mesh
    if mesh is not None:
        mesh.resolved(axes, x.shape, name)


def _axes_of(spec: Any) -> Axes | str:
    """`spec` as a plain tuple or name, checked."""
    if isinstance(spec, str):
        return spec
    if spec is None:
        return ()
    if not isinstance(spec, tuple | list | PartitionSpec):
        raise TypeError("spec: expected a tuple of names of the mesh's axes or None, one for each axis of the array, "
                        f"or a jax.sharding.PartitionSpec, got {spec!r}")
    axes: list[Any] = []
    for each in spec:
        if isinstance(each, tuple | list) and all([isinstance(name, str) for name in each]):
            axes.append(tuple(each) if len(each) != 1 else each[0])
        elif each is None or isinstance(each, str):
            axes.append(each)
        else:
            raise TypeError(f"spec: {each!r} is not the name of an axis of the mesh, a tuple of names, or None")
    names = [name for each in axes if each for name in ((each,) if isinstance(each, str) else each)]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"spec: {', '.join(map(repr, twice))} can divide one axis of an array only, got {spec!r}")
    return tuple([each or None for each in axes])
