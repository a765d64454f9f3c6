"""Functions whose executables come from disk where some process has left them there, and are left there else."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from ..graph import Spec
from ..graph.jaxpr import primitives_in
from .disk_cache import disk_cache
from .fingerprint import digest_of, surroundings
from .serialized import PLATFORMS, dispatched, trace_context

_SETTINGS: Any = jax.config


class Wanted:
    """An executable that was looked for on disk, for arguments of one kind."""

    __slots__ = ("_key", "_lower", "compiled")

    compiled: jax.stages.Compiled | None
    """What was found, or compiled since."""

    def __init__(self, key: bytes | None, lower: Callable[[], Any], arguments: Any, place: Place) -> None:
        self._key = key
        self._lower: Callable[[], Any] | None = lower
        tree = jax.tree.structure(arguments)
        self.compiled = None if key is None else disk_cache.load(key, tree, *place, lower)
        if self.compiled is not None:
            self._lower = None  # it may hold the whole program, as XLA would get it

    def keep(self, compiled: jax.stages.Compiled) -> jax.stages.Compiled:
        """Let what was compiled be it, and leave it on disk."""
        self.compiled, self._lower = compiled, None
        if self._key is not None:
            disk_cache.keep(self._key, compiled)
        return compiled

    def get(self) -> jax.stages.Compiled:
        """The executable, which is compiled if it is not there."""
        if self.compiled is not None:
            return self.compiled
        assert self._lower is not None
        return self.keep(self._lower().compile())


class Remembered:
    """A jitted function whose executables are looked for on disk, and left there.

    There is one for arguments of each kind, for the place where they lie, and for the settings of JAX in force.
    """

    def __init__(self, jitted: Any) -> None:
        self.jitted = jitted
        self._known: dict[Any, Wanted | None] = {}
        self._lock = threading.RLock()  # a signal's handler may compute the same

    def function(self) -> Callable[..., Any]:
        """The function for calls: as fast as the jitted one, which serves where nothing can be found on disk."""
        return dispatched(self._compiled, self.jitted) if self._is_on() else self.jitted

    def look_for(self, arguments: tuple[Any, ...]) -> Wanted | None:
        """The executable for arguments, or for what they will be like; None where JAX has to compile its own way."""
        leaves, tree = jax.tree.flatten(arguments)
        place = _place_of(leaves) if self._is_on() else None
        if place is None or not self._takes(arguments) or _is_looked_into():
            return None
        kind = trace_context(), place, tree, tuple(map(_kind_of, leaves))
        with self._lock:
            if kind not in self._known:
                self._known[kind] = self._wanted(arguments, place)
            return self._known[kind]

    def compiled(self, arguments: tuple[Any, ...]) -> jax.stages.Compiled:
        """The executable for arguments, or for what they will be like, read from disk or compiled."""
        found: jax.stages.Compiled = self._compiled(arguments) or self.jitted.lower(*arguments).compile()
        return found

    def _compiled(self, arguments: tuple[Any, ...]) -> jax.stages.Compiled | None:
        with self._lock:
            wanted = self.look_for(arguments)
            return None if wanted is None else wanted.get()

    def _is_on(self) -> bool:
        return disk_cache.is_on

    def _takes(self, arguments: tuple[Any, ...]) -> bool:
        raise NotImplementedError

    def _wanted(self, arguments: tuple[Any, ...], place: Place) -> Wanted | None:
        raise NotImplementedError


class ByStructure(Remembered):
    """A function of arrays that is neither traced nor compiled where its executable is found.

    Args:
        structure: A digest of what it computes, the same in every process; None if that is not known, and nothing is
            looked for.
        jitted: The jitted function, which takes over none of its arguments.
        specs: Of the arrays; None for a function that takes whatever comes.
    """

    def __init__(self, structure: bytes | None, jitted: Any, specs: tuple[Spec, ...] | None = None) -> None:
        super().__init__(jitted)
        self._structure = structure
        self._specs = specs

    def _is_on(self) -> bool:
        return self._structure is not None and disk_cache.is_on

    def _takes(self, arguments: tuple[Any, ...]) -> bool:
        if not all([isinstance(a, jax.Array | np.ndarray | np.generic | jax.ShapeDtypeStruct) for a in arguments]):
            return False
        specs = self._specs
        return specs is None or (
            len(arguments) == len(specs)
            and all([a.shape == s.shape and a.dtype == s.dtype for a, s in zip(arguments, specs, strict=True)])
        )

    def _wanted(self, arguments: tuple[Any, ...], place: Place) -> Wanted:
        assert self._structure is not None
        device, committed = place
        # What came as an array must not be held.
        sharding = jax.sharding.SingleDeviceSharding(device) if committed else None
        given = tuple([jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=sharding) for a in arguments])
        described = str([(a.shape, a.dtype.name) for a in given]).encode()
        key = _key(digest_of(self._structure, described), device)
        jitted = self.jitted
        return Wanted(key, lambda: jitted.lower(*given), given, place)


class ByText(Remembered):
    """A function that is not compiled where its executable is found.

    It is traced and lowered in every process: what it computes is known by what the compiler gets. So it may be any
    function, of any pytrees, that returns tuples of arrays. For one that calls functions on the host nothing is looked
    for.
    """

    def _takes(self, arguments: tuple[Any, ...]) -> bool:
        return True

    def _wanted(self, arguments: tuple[Any, ...], place: Place) -> Wanted | None:
        traced = self.jitted.trace(*arguments)
        if traced.jaxpr.effects or any(["callback" in name for name in primitives_in(traced.jaxpr.jaxpr)]):
            return None
        lowered = traced.lower()
        # The text does not say how arrays are nested, nor which of those that come and go are weak in their dtype.
        described = lowered.as_text(), str(lowered.in_tree), str(lowered.out_tree), str(lowered.out_info)
        key = _key(digest_of(b"text", *[text.encode() for text in described]), place[0])
        return Wanted(key, lambda: lowered, arguments, place)


def _key(structure: bytes, device: jax.Device) -> bytes | None:
    around = None if _is_within_a_context() else surroundings(device)
    return None if around is None else digest_of(structure, around)


Place = tuple[jax.Device, bool]
"""The device that a call runs on, and whether its results are bound to that."""


def _place_of(leaves: list[Any]) -> Place | None:
    """Where a call with such arguments runs; None where JAX shall decide."""
    device, committed = _default_device(), False
    free = set()
    for leaf in leaves:
        if isinstance(leaf, jax.core.Tracer):
            return None
        if isinstance(leaf, jax.ShapeDtypeStruct):
            if leaf.sharding is None:
                continue
            found, is_bound = leaf.sharding.device_set, True
        elif isinstance(leaf, jax.Array):
            found, is_bound = leaf.devices(), leaf.committed
        elif leaf.__class__ in _ON_HOST or isinstance(leaf, np.generic):
            continue
        else:
            return None
        if len(found) != 1:
            return None
        if not is_bound:
            free |= found
        elif not committed:
            (device,), committed = found, True
        elif device not in found:
            return None
    return (device, committed) if free <= {device} and device.platform in PLATFORMS else None


def _kind_of(leaf: Any) -> Any:
    if hasattr(leaf, "shape"):
        return leaf.shape, leaf.dtype, bool(getattr(leaf, "weak_type", False))
    return leaf.__class__


_ON_HOST = (np.ndarray, float, int, bool)


def _default_device() -> jax.Device:
    given = _SETTINGS.jax_default_device
    if given is None or isinstance(given, str):
        return jax.devices(given)[0]
    device: jax.Device = given
    return device


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
