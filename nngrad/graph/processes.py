"""Arrays that several processes hold parts of."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec

from .spec import Shape

if TYPE_CHECKING:
    from .mesh import Mesh

_DIGEST = 32


class Watch(Protocol):
    """What is told when this process computes together with others, so that it can say which of them is missing."""

    def begin(self) -> None:
        """A computation begins; raises an error if another process has failed."""

    def running(self, results: Any) -> None:
        """It has given `results`, which may not be there yet."""

    def end(self) -> None:
        """It has returned."""

    def lost(self, error: Exception) -> Exception | None:
        """The error of another process that `error` comes from, if it does."""


watch: Watch | None = None
"""Set once, when this process joins others."""
terminations = 0
"""How many blocks are entered that see to SIGTERM themselves. JAX lets all processes know when one gets it, and each
goes on; outside of such blocks `watch` ends them, as SIGTERM does elsewhere."""


@contextlib.contextmanager
def joint_computation() -> Iterator[None]:
    """Around what all processes take part in: where one is missing, the error is that of `watch`, which names it."""
    if watch is None:
        yield
        return
    watch.begin()
    try:
        yield
    except Exception as error:
        named = watch.lost(error)
        if named is None or named is error:
            raise
        raise named from error
    finally:
        watch.end()


def gathered_rows(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The arrays that processes call this with, one row each. They call it together."""
    with joint_computation():
        rows: np.ndarray[Any, Any] = multihost_utils.process_allgather(array)
        return rows


def shared(array: np.ndarray[Any, Any], sharding: NamedSharding, name: str) -> jax.Array:
    """A global array of what each process has the same of. All processes call this together.

    Raises:
        ValueError: Processes have different ones. The message begins with `name`.
    """
    check_equal(array, f"{name}: the values")
    made: jax.Array = jax.make_array_from_callback(array.shape, sharding, lambda index: np.array(array[index]))
    return made


def check_equal(array: np.ndarray[Any, Any], what: str) -> None:
    """Raise a ValueError, which begins with `what`, unless all processes have the same. They call this together."""
    digest = hashlib.blake2b(array.tobytes(), digest_size=_DIGEST)
    digest.update(f"{array.shape}{array.dtype}".encode())
    found = gathered_rows(np.frombuffer(digest.digest(), np.uint32))
    others = [i for i in range(len(found)) if not np.array_equal(found[i], found[0])]
    if others:
        raise ValueError(f"{what} differ between process {others[0]} and process 0; let all processes start from "
                         "the same seed (nn.seed, and that of NumPy for initial values), or load the same file")


def global_batch(part: np.ndarray[Any, Any], mesh: Mesh, name: str, shape: Shape | None) -> jax.Array:
    """The global batch of which each process has a part. All processes call this together.

    Args:
        part: That of this process.
        mesh: The devices.
        name: What messages begin with.
        shape: The shape of the batch; None where that follows from the parts, which processes have to agree on then.

    Raises:
        ValueError: Parts are unequal, or cannot be divided over this process's devices.
    """
    count = parts_of(mesh)
    if shape is None:
        _check_equal(part, name)
    elif part.ndim and count > 1 and (part.shape[0] * count, *part.shape[1:]) != shape:
        raise ValueError(f"{name}: the graph was built for shape {shape}, of which each of {count} processes gives a "
                         f"part of {shape[0] / count:g} rows; got a part of shape {part.shape}")
    if part.ndim == 0 or count == 1:
        return shared(part, mesh.sharding(), name)
    whole = (part.shape[0] * count, *part.shape[1:])
    sharding = mesh.of_batch(whole)
    if sharding.is_fully_replicated:
        # Each process's part as a whole on each of its devices; programs divide it, as far as that goes.
        devices = mesh.grid.devices.reshape(count, -1)
        if mesh.grid.axis_names[0] != "data":
            size = mesh.sizes["data"]
            raise ValueError(f"{name}: {whole[0]} rows, {part.shape[0]} from each of {count} processes, cannot be "
                             f"divided over the {size} devices of 'data', which is not the first axis of the mesh; let "
                             f"it be the first, or each process give a multiple of {size // count}")
        sharding = NamedSharding(jax.sharding.Mesh(devices, ("process", "device")), PartitionSpec("process"))
    made: jax.Array = jax.make_array_from_process_local_data(sharding, part, whole)
    return made


def _check_equal(part: np.ndarray[Any, Any], name: str) -> None:
    """Raise a ValueError unless all processes have parts of one shape."""
    found = gathered_rows(np.array([part.ndim, *part.shape[:7], *[0] * (7 - part.ndim)], np.int32))
    if not (found == found[0]).all():
        shapes = ", ".join([f"{tuple(map(int, row[1 : 1 + row[0]]))} in process {i}" for i, row in enumerate(found)])
        raise ValueError(f"{name}: each process has to give a part of the same shape, got {shapes}")


def parts_of(mesh: Mesh) -> int:
    """In how many parts, each a process's, batches come."""
    axis = mesh.grid.axis_names.index("data") if "data" in mesh.sizes else None
    if axis is None:
        return 1
    rows = np.moveaxis(mesh.grid.devices, axis, 0).reshape(mesh.sizes["data"], -1)
    own = sum([any([d.process_index == jax.process_index() for d in row]) for row in rows])
    return len(rows) // max(own, 1)
