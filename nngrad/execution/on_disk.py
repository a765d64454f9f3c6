"""Functions whose executables come from disk where some process has left them there, and are left there else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import SingleDeviceSharding

from ..graph import Spec
from ..graph.jaxpr import primitives_in
from .disk_cache import disk_cache
from .fingerprint import digest_of, surroundings
from .platforms import default_device
from .serialized import PLATFORMS, dispatched, trace_context

Options = tuple[tuple[str, Any], ...]
"""What the compiler is told, by name."""


_SETTINGS: Any = jax.config


class Entry(NamedTuple):
    """What the disk may have for a function and arguments of one kind."""

    function: OnDisk
    key: bytes
    tree: Any
    """That of the arguments."""
    device: jax.Device
    committed: bool
    """Whether the results are bound to the device."""
    kind: Any
    """Of the calls that the executable can serve from then on; None for none."""

    def load(self, arguments: Sequence[Any]) -> jax.stages.Compiled | None:
        """The executable, if it is there."""
        compiled = disk_cache.load(
            self.key, self.tree, self.device, self.committed, lambda: self.function.traced(arguments).lower()
        )
        if compiled is not None:
            self.function.know(self.kind, compiled)
        return compiled

    def keep(self, compiled: jax.stages.Compiled) -> None:
        """Keep the executable."""
        self.function.know(self.kind, compiled)
        disk_cache.keep(self.key, compiled)


class OnDisk:
    """A jitted function whose executables are on disk: one for arguments of each kind, for the place where they lie,
    and for the settings of JAX that are in force."""

    call: Callable[..., Any]
    """The function. It is as fast as the jitted one, and is neither traced nor compiled where the disk has it."""

    def __init__(self, jitted: Any) -> None:
        self.jitted = jitted
        self._known: dict[Any, jax.stages.Compiled | None] = {}
        self._lock = threading.RLock()  # a signal's handler may compute the same
        self.call = dispatched(self._choose, jitted)

    def know(self, kind: Any, compiled: jax.stages.Compiled) -> None:
        """Let calls of a kind run `compiled`, in whatever thread it was made."""
        if kind is not None:
            with self._lock:
                self._known[kind] = compiled

    def entry(self, arguments: Sequence[Any], options: Options = ()) -> Entry | None:
        """What the disk may have for such arguments: arrays, or what they will be like, in pytrees; None where nothing
        can be said of that. `options` is what the compiler is told besides, by name: calls are not served by what it
        makes then."""
        leaves, tree = jax.tree.flatten(tuple(arguments))
        place = _place_of(leaves)
        if place is None or not self._takes(arguments) or not _can_be_kept(place[0]):
            return None
        digest = self._digest(arguments, *place)
        around = surroundings(place[0], options)
        if digest is None or around is None:
            return None
        kind = None if options else self._kind_of(leaves, tree, place)
        return Entry(self, digest_of(digest, around), tree, *place, kind)

    def traced(self, arguments: Sequence[Any]) -> Any:
        """The function traced for such arguments. JAX does it once."""
        return self.jitted.trace(*arguments)

    def _kind_of(self, leaves: list[Any], tree: Any, place: tuple[jax.Device, bool]) -> Any:
        """What an executable is made for: equal for calls that one can serve; None where JAX shall decide."""
        return None if _is_looked_into() else (trace_context(), place, tree, tuple(map(jax.typeof, leaves)))

    def _choose(self, arguments: tuple[Any, ...]) -> jax.stages.Compiled | None:
        leaves, tree = jax.tree.flatten(arguments)
        place = _place_of(leaves)
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

    def _compiled(self, entry: Entry, arguments: Sequence[Any]) -> jax.stages.Compiled:
        compiled: jax.stages.Compiled = self.traced(arguments).lower().compile()
        entry.keep(compiled)
        return compiled

    def _takes(self, arguments: Sequence[Any]) -> bool:
        return True

    def _digest(self, arguments: Sequence[Any], device: jax.Device, committed: bool) -> bytes | None:
        """What is computed for such arguments, the same in every process; None where that is not known."""
        raise NotImplementedError


class OnDiskByStructure(OnDisk):
    """One that is neither traced nor compiled where the disk has its executable.

    Args:
        jitted: A jitted function of arrays, none of which it takes over.
        structure: A digest of what it computes, the same in every process.
        specs: Of the arrays; None for a function that takes whatever comes.
    """

    def __init__(self, jitted: Any, structure: bytes, specs: tuple[Spec, ...] | None = None) -> None:
        super().__init__(jitted)
        self._structure = structure
        self._specs = specs

    def traced(self, arguments: Sequence[Any]) -> Any:
        """The function traced for what arguments are like, whether or not theirs are weak dtypes."""
        place = _place_of(list(arguments))
        if place is None:  # on several devices, say
            return self.jitted.trace(*arguments)
        sharding = SingleDeviceSharding(place[0]) if place[1] else None
        return self.jitted.trace(*[jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=sharding) for a in arguments])

    def _takes(self, arguments: Sequence[Any]) -> bool:
        if not all([isinstance(a, jax.Array | np.ndarray | np.generic | jax.ShapeDtypeStruct) for a in arguments]):
            return False
        specs = self._specs
        return specs is None or (
            len(arguments) == len(specs)
            and all([a.shape == s.shape and a.dtype == s.dtype for a, s in zip(arguments, specs, strict=True)])
        )

    def _digest(self, arguments: Sequence[Any], device: jax.Device, committed: bool) -> bytes | None:
        return digest_of(self._structure, str([(a.shape, a.dtype.name) for a in arguments]).encode())


class OnDiskOfTrees(OnDisk):
    """One that may be any function, of any pytrees, that returns tuples of arrays. What it computes is known by its
    structure, where it has one; else by what the compiler gets: then it is traced and lowered in every process, but not
    compiled where the disk has its executable, and one that calls functions on the host is not remembered.

    Args:
        jitted: A jitted function.
        structure: Gives a digest of what it computes from arguments of whatever kind, the same in every process; None
            where that is not known. It is asked when arguments of another kind come.
    """

    def __init__(self, jitted: Any, structure: Callable[[], bytes | None]) -> None:
        super().__init__(jitted)
        self._structure = structure

    def _digest(self, arguments: Sequence[Any], device: jax.Device, committed: bool) -> bytes | None:
        structure = self._structure()
        if structure is not None:
            leaves, tree = jax.tree.flatten(tuple(arguments))
            return digest_of(b"call", structure, str(tree).encode(), str(list(map(_described, leaves))).encode())
        traced = self.traced(arguments)
        if traced.jaxpr.effects or any(["callback" in name for name in primitives_in(traced.jaxpr.jaxpr)]):
            return None
        lowered = traced.lower()
        # The text does not say how arrays are nested, nor which of those that come and go are weak in their dtype.
        described = lowered.as_text(), str(lowered.in_tree), str(lowered.out_tree), str(lowered.out_info)
        return digest_of(b"text", *[text.encode() for text in described])


def _described(array: Any) -> tuple[Any, ...]:
    """What a function sees of an array when it is traced."""
    aval: Any = jax.typeof(array)
    return aval.shape, aval.dtype.name, aval.weak_type


def on_disk_by_structure(
    structure: bytes | None, jitted: Any, specs: tuple[Spec, ...] | None = None
) -> OnDiskByStructure | None:
    """`jitted` as a function whose executables are on disk; None where its structure is not known, or the disk is not
    used. The arguments are those of the class."""
    return OnDiskByStructure(jitted, structure, specs) if structure is not None and disk_cache.is_on else None


def on_disk_of_trees(jitted: Any, structure: Callable[[], bytes | None] = lambda: None) -> OnDiskOfTrees | None:
    """The same for a function of pytrees. The arguments are those of the class."""
    return OnDiskOfTrees(jitted, structure) if disk_cache.is_on else None


def _can_be_kept(device: jax.Device) -> bool:
    return disk_cache.is_on and device.platform in PLATFORMS and not _is_within_a_context()


def _place_of(leaves: list[Any]) -> tuple[jax.Device, bool] | None:
    """The device that a call with such arguments runs on, and whether its results are bound to that; None where JAX
    shall decide."""
    device, committed = default_device(), False
    free = set()
    for leaf in leaves:
        if isinstance(leaf, jax.core.Tracer):
            return None
        if isinstance(leaf, jax.ShapeDtypeStruct):
            if leaf.sharding is not None:
                if len(leaf.sharding.device_set) != 1 or (committed and device not in leaf.sharding.device_set):
                    return None
                (device,), committed = leaf.sharding.device_set, True
            continue
        if not isinstance(leaf, jax.Array):
            if leaf.__class__ not in _ON_HOST and not isinstance(leaf, np.generic):
                return None
            continue
        found = leaf.devices()
        if len(found) != 1:
            return None
        if not leaf.committed:
            free |= found
        elif not committed:
            (device,), committed = found, True
        elif device not in found:
            return None
    return (device, committed) if free <= {device} and device.platform in PLATFORMS else None


_ON_HOST = (np.ndarray, float, int, bool)


def _is_looked_into() -> bool:
    """Whether JAX looks at every result, and says where a NaN comes from by running a function once more."""
    return bool(_SETTINGS.jax_debug_nans or _SETTINGS.jax_debug_infs)


def _is_within_a_context() -> bool:
    """Whether a context is in force that changes what is compiled and is no setting, as a mesh is."""
    settings = list(jax.config.values.values())
    return any([
        now is not usual and now != usual and now not in settings
        for now, usual in zip(trace_context(), _usual_context(), strict=True)
    ])


_usual: list[tuple[Any, ...]] = []


def _usual_context() -> tuple[Any, ...]:
    """What is in force in a thread where nothing was said."""
    if not _usual:
        thread = threading.Thread(target=lambda: _usual.append(trace_context()))
        thread.start()
        thread.join()
    return _usual[0]
