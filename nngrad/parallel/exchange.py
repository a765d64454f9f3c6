"""Exchange of arrays between processes that all make the same calls."""

from __future__ import annotations

import hashlib
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec

from ..extend import placement

_DIGEST = 32


def shared(array: np.ndarray[Any, Any], sharding: NamedSharding, name: str) -> jax.Array:
    """A global array from equal arrays in all processes. All processes must call it.

    Raises:
        ValueError: The arrays differ. The message begins with `name`.
    """
    check_equal(array, f"{name}: the values")
    array_of_all: jax.Array = jax.make_array_from_callback(array.shape, sharding, lambda index: np.array(array[index]))
    return array_of_all


def check_equal(array: np.ndarray[Any, Any], what: str) -> None:
    """Raise a ValueError, beginning with `what`, unless the array is equal in all processes, which must all call it."""
    digest = hashlib.blake2b(array.tobytes(), digest_size=_DIGEST)
    digest.update(f"{array.shape}{array.dtype}".encode())
    digests = multihost_utils.process_allgather(np.frombuffer(digest.digest(), np.uint32))
    others = [i for i in range(len(digests)) if not np.array_equal(digests[i], digests[0])]
    if others:
        raise ValueError(f"{what} differ between process {others[0]} and process 0; give all processes the same seed "
                         "(nn.seed, and NumPy's for initial values), or load the same file in all")


def global_batch(
    part: np.ndarray[Any, Any], mesh: placement.Mesh, name: str, shape: tuple[int, ...] | None
) -> jax.Array:
    """The global batch, from each process's part. All processes must call it.

    Args:
        part: This process's part.
        mesh: The devices.
        name: How messages begin.
        shape: The shape of the batch; None to infer it from the parts, whose shapes must then agree.

    Raises:
        ValueError: Shapes of parts differ, or cannot be divided over this process's devices.
    """
    count = parts_of(mesh)
    if shape is None:
        _check_equal(part, name)
    elif part.ndim and count > 1 and (part.shape[0] * count, *part.shape[1:]) != shape:
        raise ValueError(f"{name}: the graph was built for shape {shape}, so each of {count} processes must give a "
                         f"part of {shape[0] / count:g} rows, got one of shape {part.shape}")
    if part.ndim == 0 or count == 1:
        return shared(part, mesh.sharding(), name)
    whole = (part.shape[0] * count, *part.shape[1:])
    sharding = mesh.of_batch(whole)
    if sharding.is_fully_replicated:
        # Replicate each process's part over its own devices; programs divide it as far as possible.
        devices = mesh.grid.devices.reshape(count, -1)
        if mesh.grid.axis_names[0] != "data":
            size = mesh.grid.shape["data"]
            raise ValueError(f"{name}: cannot divide {whole[0]} rows, {part.shape[0]} from each of {count} processes, "
                             f"over the {size} devices of 'data', which is not the first axis of the mesh; make it "
                             f"the first, or let each process give a multiple of {size // count} rows")
        sharding = NamedSharding(jax.sharding.Mesh(devices, ("process", "device")), PartitionSpec("process"))
    batch: jax.Array = jax.make_array_from_process_local_data(sharding, part, whole)
    return batch


def _check_equal(part: np.ndarray[Any, Any], name: str) -> None:
    """Raise a ValueError unless all processes have parts of the same shape."""
    padded = np.array([part.ndim, *part.shape[:7], *[0] * (7 - part.ndim)], np.int32)
    parts = multihost_utils.process_allgather(padded)
    if not (parts == parts[0]).all():
        shapes = ", ".join([f"{tuple(map(int, row[1 : 1 + row[0]]))} in process {i}" for i, row in enumerate(parts)])
        raise ValueError(f"{name}: all processes must give parts of the same shape, got {shapes}")


def parts_of(mesh: placement.Mesh) -> int:
    """The number of parts, one per process, in which batches arrive."""
    axis = mesh.grid.axis_names.index("data") if "data" in mesh.grid.shape else None
    if axis is None:
        return 1
    rows = np.moveaxis(mesh.grid.devices, axis, 0).reshape(mesh.grid.shape["data"], -1)
    local = sum([any([d.process_index == jax.process_index() for d in row]) for row in rows])
    return len(rows) // max(local, 1)
