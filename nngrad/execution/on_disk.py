"""Jitted functions backed by the disk cache: executables are read from disk if possible, and else stored there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import SingleDeviceSharding

from ..graph import Spec
from ..graph.jaxpr import primitives_in
from .disk import disk_cache
from .program import default_device, digest_of, surroundings
from .serialized import PLATFORMS, dispatched, trace_context

Options = tuple[tuple[str, Any], ...]
"""Compiler options, by name."""

_SETTINGS: Any = jax.config


class DiskEntry(NamedTuple):
    """The disk cache's entry for a function and arguments of one kind."""

    function: OnDisk
    key: bytes
    tree: Any
    """The pytree of the arguments."""
    device: jax.Device
    committed: bool
    """Whether the results are committed to the device."""
    kind: Any
    """The kind of calls that the executable can serve from then on, or None."""

    def load(self, arguments: Sequence[Any]) -> jax.stages.Compiled | None:
        """The executable, or None."""
        compiled = disk_cache.load(
            self.key, self.tree, self.device, self.committed, lambda: self.function.traced(arguments).lower()
        )
        if compiled is not None:
            self.function.know(self.kind, compiled)
        return compiled

    def keep(self, compiled: jax.stages.Compiled) -> None:
        """Store the executable."""
        self.function.know(self.kind, compiled)
        disk_cache.keep(self.key, compiled)


class OnDisk:
    """A jitted function with executables on disk: one for each kind of arguments, placement and settings of JAX.

    Args:
        jitted: A jitted function. It may donate arrays if it takes pytrees.
        structure: Returns a digest of the computation, the same in every process; None if that is unknown. Then the
            disk identifies it by its lowered text: it is traced and lowered in every process, but not compiled, and is
            not stored if it calls functions on the host. It is called when arguments of another kind come.
        takes_trees: Whether it takes pytrees, and distinguishes weak dtypes in them; else it takes arrays, and is
            neither traced nor compiled if the disk has its executable.
        specs: Shapes and dtypes of the arrays; None for a function that takes any.
    """

    call: Callable[..., Any]
    """The function. It is as fast as the jitted one."""

    def __init__(
        self, jitted: Any, structure: Callable[[], bytes | None], takes_trees: bool = False,
        specs: tuple[Spec, ...] | None = None,
    ) -> None:
        self._jitted = jitted
        self._structure = structure
        self._takes_trees = takes_trees
        self._specs = specs
        self._known: dict[Any, jax.stages.Compiled | None] = {}
        self._lock = threading.RLock()  # a signal's handler may compute the same
        self.call = dispatched(self._choose, jitted)

    def know(self, kind: Any, compiled: jax.stages.Compiled) -> None:
        """Serve calls of a kind by `compiled`, whatever thread it was made in."""
        if kind is not None:
            with self._lock:
                self._known[kind] = compiled

    def entry(self, arguments: Sequence[Any], options: Options = ()) -> DiskEntry | None:
        """The disk cache's entry for such arguments: arrays, or their abstract values, in pytrees; None if it cannot be
        determined. `options` are additional compiler options: executables made with them do not serve calls."""
        leaves, tree = jax.tree.flatten(tuple(arguments))
        place = place_of_arrays(leaves)
        if place is None or not self._takes(arguments) or not _can_be_kept(place[0]):
            return None
        digest = self._digest(arguments, leaves, tree)
        around = surroundings(place[0], options)
        if digest is None or around is None:
            return None
        kind = None if options else self._kind_of(leaves, tree, place)
        return DiskEntry(self, digest_of(digest, around), tree, *place, kind)

    def traced(self, arguments: Sequence[Any]) -> Any:
        """The function traced for such arguments; a function of arrays for their abstract values, whether or not their
        dtypes are weak. JAX caches it."""
        place = None if self._takes_trees else place_of_arrays(list(arguments))
        if place is None:  # on several devices, say
            return self._jitted.trace(*arguments)
        sharding = SingleDeviceSharding(place[0]) if place[1] else None
        return self._jitted.trace(*[jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=sharding) for a in arguments])

    def _choose(self, arguments: tuple[Any, ...]) -> jax.stages.Compiled | None:
        leaves, tree = jax.tree.flatten(arguments)
        place = place_of_arrays(leaves)
        if place is None or not self._takes(arguments):
            return None
        kind = self._kind_of(leaves, tree, place)
        if kind is None:
            return None
        with self._lock:
            if kind not in self._known:
                entry = self.entry(arguments)
                self._known[kind] = None if entry is None else entry.load(arguments) or self._compiled(entry, arguments)
            return self._known[kind]

    def _compiled(self, entry: DiskEntry, arguments: Sequence[Any]) -> jax.stages.Compiled:
        compiled: jax.stages.Compiled = self.traced(arguments).lower().compile()
        entry.keep(compiled)
        return compiled

    def _kind_of(self, leaves: list[Any], tree: Any, place: tuple[jax.Device, bool]) -> Any:
        """The kind of calls that an executable can serve; None if JAX must decide, because it checks every result for
        NaN, and reruns a function to locate one."""
        if _SETTINGS.jax_debug_nans or _SETTINGS.jax_debug_infs:
            return None
        return trace_context(), place, tree, tuple(map(jax.typeof, leaves))

    def _takes(self, arguments: Sequence[Any]) -> bool:
        if self._takes_trees:
            return True
        if not all([isinstance(a, jax.Array | np.ndarray | np.generic | jax.ShapeDtypeStruct) for a in arguments]):
            return False
        specs = self._specs
        return specs is None or (
            len(arguments) == len(specs)
            and all([a.shape == s.shape and a.dtype == s.dtype for a, s in zip(arguments, specs, strict=True)])
        )

    def _digest(self, arguments: Sequence[Any], leaves: list[Any], tree: Any) -> bytes | None:
        """A digest of the computation for such arguments, the same in every process; None if it is unknown."""
        structure = self._structure()
        if structure is not None:
            avals: Any = list(map(jax.typeof, leaves))
            described = [(a.shape, a.dtype.name, self._takes_trees and a.weak_type) for a in avals]
            return digest_of(b"call", structure, str(tree).encode(), str(described).encode())
        if not self._takes_trees:
            return None
        traced = self.traced(arguments)
        if traced.jaxpr.effects or any(["callback" in name for name in primitives_in(traced.jaxpr.jaxpr)]):
            return None
        lowered = traced.lower()
        # The text does not say how arrays are nested, nor which inputs and outputs have weak dtypes.
        text = lowered.as_text(), str(lowered.in_tree), str(lowered.out_tree), str(lowered.out_info)
        return digest_of(b"text", *[part.encode() for part in text])


def on_disk_by_structure(
    structure: bytes | None, jitted: Any, specs: tuple[Spec, ...] | None = None
) -> OnDisk | None:
    """A jitted function of arrays that donates none, with executables on disk; None if its structure is unknown, or the
    disk is not used. For the arguments see the class."""
    if structure is None or not disk_cache.is_on:
        return None
    return OnDisk(jitted, lambda: structure, specs=specs)


def on_disk_of_trees(jitted: Any, structure: Callable[[], bytes | None] = lambda: None) -> OnDisk | None:
    """As `on_disk_by_structure`, for a function of pytrees that returns tuples of arrays."""
    return OnDisk(jitted, structure, takes_trees=True) if disk_cache.is_on else None


def _can_be_kept(device: jax.Device) -> bool:
    return disk_cache.is_on and device.platform in PLATFORMS and not _is_within_a_context()


def place_of_arrays(leaves: list[Any]) -> tuple[jax.Device, bool] | None:
    """The device that a call with such arguments runs on, and whether its results are committed to it; None if JAX must
    decide."""
    device, committed = default_device(), False
    free = set()
    for leaf in leaves:
        devices, is_bound = _devices_of(leaf)
        if devices is None or len(devices) > 1 or (is_bound and committed and device not in devices):
            return None
        if not is_bound:
            free |= devices
        elif not committed:
            (device,), committed = devices, True
    return (device, committed) if free <= {device} and device.platform in PLATFORMS else None


def _devices_of(leaf: Any) -> tuple[set[jax.Device] | None, bool]:
    """The devices that an argument lies on, and whether it is committed to them; None for the devices if JAX must
    decide."""
    if leaf.__class__ in _ON_HOST or isinstance(leaf, np.generic):
        return set(), False
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return (set(), False) if leaf.sharding is None else (leaf.sharding.device_set, True)
    if isinstance(leaf, jax.Array) and not isinstance(leaf, jax.core.Tracer):
        return leaf.devices(), leaf.committed
    return None, False


_ON_HOST = (np.ndarray, float, int, bool)


def _is_within_a_context() -> bool:
    """Whether a context is in force that affects compilation without being a setting, such as a mesh."""
    settings = list(jax.config.values.values())
    return any([
        now is not usual and now != usual and now not in settings
        for now, usual in zip(trace_context(), _usual_context(), strict=True)
    ])


_usual: list[tuple[Any, ...]] = []


def _usual_context() -> tuple[Any, ...]:
    """The trace context of a thread in which nothing was set."""
    if not _usual:
        thread = threading.Thread(target=lambda: _usual.append(trace_context()))
        thread.start()
        thread.join()
    return _usual[0]
