"""Execution across processes: one function on the arrays of each, with JAX's collectives between them.

Each process passes arrays of its own. They are put side by side, along an axis of processes, as one JAX array with one
part on a device of each process; the function runs under `shard_map`, so that each device runs it on its own part, and
each process gets back its own part.
"""

from __future__ import annotations

import functools
import hashlib
import threading
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ..extend import check_process, placement

_ALONG = PartitionSpec(placement.AXIS)


class Across:
    """A function of arrays that all processes of a group call together, each with its own arrays.

    The first call compares what the processes are about to run. If the programs differ, all processes raise an error,
    and none waits for a partner that never comes. If only some have already compared theirs, they do wait for each
    other: comparing at each call would take as long as a small exchange.
    On CPUs results are waited for, since JAX's queue there does not keep several exchanges apart.

    Args:
        function: The function, which may call collectives along `AXIS`. It takes arrays, and returns one or a tuple.
        group: The indices of the processes, in their order along the axis.
        device: A device of the kind to run on; None leaves that to JAX.

    Raises:
        ValueError: This process is not in `group`, or there are no processes of these indices. A call raises it if the
            processes run different programs.
    """

    __slots__ = (
        "__weakref__", "_checked", "_device", "_function", "_jitted", "_lock", "_mesh", "_processes", "_waits",
    )  # fmt: skip

    def __init__(
        self, function: Callable[..., Any], group: placement.Processes, device: jax.Device | None = None
    ) -> None:
        self._mesh = mesh_of_processes(group, None if device is None else device.platform)
        self._device = next(d for d in self._mesh.devices.flat if d.process_index == jax.process_index())
        self._processes = group
        self._function = function
        self._jitted = jax.jit(self._on_parts)
        self._checked = False
        self._lock = threading.RLock()  # reentrant, for signal handlers
        self._waits = self._device.platform == "cpu"

    def __call__(self, *arrays: Any) -> Any:
        """This process's results for its own arrays."""
        check_process()
        joined = tuple([self._joined(array) for array in arrays])
        if not self._checked:
            self._check(joined)
        results = self._jitted(joined)
        parts = tuple(map(_own, results)) if isinstance(results, tuple) else _own(results)
        return jax.block_until_ready(parts) if self._waits else parts

    def lowered(self, *arrays: Any) -> Any:
        """The `jax.stages.Lowered` for arrays like these."""
        return self._jitted.lower(tuple([self._joined(array) for array in arrays]))

    def _on_parts(self, joined: tuple[Any, ...]) -> Any:
        """The function on the process's parts, under `shard_map`."""

        def run(parts: tuple[Any, ...]) -> Any:
            results = self._function(*[_without_axis(part) for part in parts])
            return tuple(map(_with_axis, results)) if isinstance(results, tuple) else _with_axis(results)

        # Results may differ between processes: there is no replication for JAX to check.
        over = jax.shard_map(run, mesh=self._mesh, in_specs=(_ALONG,), out_specs=_ALONG, check_vma=False)
        return over(joined)

    def _joined(self, array: Any) -> Any:
        """The arrays of all processes side by side along the first axis, as one array. A number gets such an axis, and
        is wrapped in a list to mark it."""
        if array.ndim == 0:
            return [self._joined(array.reshape(1))]
        if not isinstance(array, jax.Array) or array.sharding.device_set != {self._device}:
            array = jax.device_put(array, self._device)
        shape = (len(self._processes) * array.shape[0], *array.shape[1:])
        return jax.make_array_from_single_device_arrays(shape, NamedSharding(self._mesh, _ALONG), [array])

    def _check(self, joined: tuple[Any, ...]) -> None:
        """Raise an error in all processes if one of them is about to run another program."""
        with self._lock:
            if self._checked:
                return
            digest = hashlib.sha256(self._jitted.lower(joined).as_text().encode()).digest()
            digests = _gathering(self._processes, self._device.platform)(np.frombuffer(digest, np.uint8))
            pairs = zip(self._processes, np.asarray(digests), strict=True)
            others = [process for process, other in pairs if bytes(other) != digest]
            if others:
                raise ValueError(
                    f"the processes {others} run a different program from process {jax.process_index()}, but arrays "
                    f"are exchanged among {list(self._processes)}: all of these must make the same call, with arrays "
                    "of the same shapes and dtypes, and build the same graph, with the same numbers in it"
                )
            self._checked = True


class _Gathering(Across):
    """Stacks the arrays of all processes. `Across` uses it for its check, so it makes no check itself."""

    __slots__ = ()

    def _check(self, joined: tuple[Any, ...]) -> None:
        """Do nothing: the program is the same in every process."""


@functools.lru_cache(maxsize=64)
def _gathering(group: placement.Processes, platform: str) -> _Gathering:
    return _Gathering(lambda x: lax.all_gather(x, placement.AXIS), group, jax.local_devices(backend=platform)[0])


def gathered(array: Any, group: placement.Processes) -> np.ndarray[Any, Any]:
    """The arrays of one shape and dtype in the processes of a group, stacked in their order."""
    return np.asarray(_gathering(group, jax.local_devices()[0].platform)(array))


@functools.lru_cache(maxsize=64)
def mesh_of_processes(group: placement.Processes, platform: str | None = None) -> Mesh:
    """The mesh of the first device of each process, along one axis.

    Args:
        group: The indices of the processes.
        platform: The kind of devices; None for JAX's default.

    Raises:
        ValueError: There is no such process, or this one is not among them.
    """
    first: dict[int, jax.Device] = {}
    for device in jax.devices(platform):
        first.setdefault(device.process_index, device)
    missing = [p for p in group if p not in first]
    if missing:
        raise ValueError(f"processes: must be between 0 and {len(first) - 1}, got {missing}")
    if jax.process_index() not in group:
        raise ValueError(
            f"process {jax.process_index()} is not one of the processes {list(group)} that exchange arrays; call this "
            "only in these processes"
        )
    return Mesh(np.array([first[p] for p in group]), (placement.AXIS,))


def _own(result: Any) -> Any:
    """This process's part of a result."""
    return result[0].addressable_data(0).reshape(()) if isinstance(result, list) else result.addressable_data(0)


def _with_axis(result: Any) -> Any:
    return [result.reshape(1)] if result.ndim == 0 else result


def _without_axis(part: Any) -> Any:
    return part[0].reshape(()) if isinstance(part, list) else part
