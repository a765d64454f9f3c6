"""Functions whose executables come from disk where some process has left them there, and are left there else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import SingleDeviceSharding

from ..graph import Spec
from ..graph.jaxpr import primitives_in
from .disk_cache import disk_cache
from .fingerprint import digest_of, surroundings
from .serialized import PLATFORMS, dispatched, trace_context

Options = tuple[tuple[str, Any], ...]
"""What the compiler is told, by name."""


_SETTINGS: Any = jax.config


def remembered(structure: bytes | None, jitted: Any, specs: tuple[Spec, ...] | None = None) -> Callable[..., Any]:
    """`jitted` as a function that is neither traced nor compiled where the disk has its executable, and is as fast.

    Args:
        structure: A digest of what it computes, the same in every process; None if that is not known, and `jitted` is
            returned as it is.
        jitted: A jitted function of arrays, none of which it takes over.
        specs: Of the arrays; None for a function that takes whatever comes.
    """
    if structure is None or not disk_cache.is_on:
        return jitted  # type: ignore[no-any-return]
    return dispatched(_ByStructure(jitted, structure, specs), jitted)


def remembered_by_text(jitted: Any) -> Callable[..., Any]:
    """`jitted` as a function that is not compiled where the disk has its executable, and is as fast.

    It is traced and lowered in every process: what it computes is known by what the compiler gets. So it may be any
    function, of any pytrees, that returns tuples of arrays. One that calls functions on the host is not remembered.
    """
    return dispatched(_ByText(jitted), jitted) if disk_cache.is_on else jitted


class _Choice:
    """Which executable runs a function: one for arguments of each kind, for the place where they lie, and for the
    settings of JAX that are in force."""

    def __init__(self, jitted: Any) -> None:
        self._jitted = jitted
        self._known: dict[Any, jax.stages.Compiled | None] = {}
        self._lock = threading.RLock()  # a signal's handler may compute the same

    def __call__(self, arguments: tuple[Any, ...]) -> jax.stages.Compiled | None:
        leaves, tree = jax.tree.flatten(arguments)
        place = _place_of(leaves)
        if place is None or not self._takes(arguments) or _is_looked_into():
            return None
        kind = trace_context(), place, tree, tuple(map(jax.typeof, leaves))
        with self._lock:
            if kind not in self._known:
                self._known[kind] = self._compiled(arguments, *place)
            return self._known[kind]

    def _takes(self, arguments: tuple[Any, ...]) -> bool:
        return True

    def _compiled(self, arguments: tuple[Any, ...], device: jax.Device, committed: bool) -> jax.stages.Compiled | None:
        raise NotImplementedError


class _ByStructure(_Choice):
    def __init__(self, jitted: Any, structure: bytes, specs: tuple[Spec, ...] | None) -> None:
        super().__init__(jitted)
        self._structure = structure
        self._specs = specs

    def _takes(self, arguments: tuple[Any, ...]) -> bool:
        if not all([isinstance(a, jax.Array | np.ndarray | np.generic) for a in arguments]):
            return False
        specs = self._specs
        return specs is None or (
            len(arguments) == len(specs)
            and all([a.shape == s.shape and a.dtype == s.dtype for a, s in zip(arguments, specs, strict=True)])
        )

    def _compiled(self, arguments: tuple[Any, ...], device: jax.Device, committed: bool) -> jax.stages.Compiled:
        return compiled_for_shapes(self._structure, self._jitted, arguments, device, committed)


class _ByText(_Choice):
    def _compiled(self, arguments: tuple[Any, ...], device: jax.Device, committed: bool) -> jax.stages.Compiled | None:
        traced = self._jitted.trace(*arguments)
        if traced.jaxpr.effects or any(["callback" in name for name in primitives_in(traced.jaxpr.jaxpr)]):
            return None
        lowered = traced.lower()
        # The text does not say how arrays are nested, nor which of those that come and go are weak in their dtype.
        described = lowered.as_text(), str(lowered.in_tree), str(lowered.out_tree), str(lowered.out_info)
        key = _key(digest_of(b"text", *[text.encode() for text in described]), device)
        return _compiled_for(key, lambda: lowered, arguments, device, committed)


def compiled_for_shapes(
    structure: bytes | None, jitted: Any, shaped: Sequence[Any], device: jax.Device | None, committed: bool
) -> jax.stages.Compiled:
    """The executable of a jitted function, read from disk or compiled.

    Args:
        structure: The digest of what it computes; None if that is not known.
        jitted: The function.
        shaped: Arrays that it is called with, or their specs.
        device: Where it runs; None leaves it to JAX.
        committed: Whether its results are bound to the device.
    """
    device = device or _default_device()
    sharding = SingleDeviceSharding(device) if committed else None
    given = tuple([jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=sharding) for a in shaped])
    if structure is None:
        compiled: jax.stages.Compiled = jitted.lower(*given).compile()
        return compiled
    key = key_for_shapes(structure, shaped, device)
    return _compiled_for(key, lambda: jitted.lower(*given), given, device, committed)


def key_for_shapes(
    structure: bytes, shaped: Sequence[Any], device: jax.Device | None, options: Options = ()
) -> bytes | None:
    """Under what the disk has the executable of a function of arrays; None where that is not known. The arguments are
    those of `compiled_for_shapes`; `options` is what the compiler is told besides, by name."""
    return _key(digest_of(structure, str([(a.shape, a.dtype.name) for a in shaped]).encode()), device, options)


def _key(structure: bytes, device: jax.Device | None, options: Options = ()) -> bytes | None:
    device = device or _default_device()
    if not disk_cache.is_on or device.platform not in PLATFORMS or _is_within_a_context():
        return None
    around = surroundings(device, options)
    return None if around is None else digest_of(structure, around)


def _compiled_for(
    key: bytes | None,
    lower: Callable[[], jax.stages.Lowered],
    arguments: tuple[Any, ...],
    device: jax.Device,
    committed: bool,
) -> jax.stages.Compiled:
    """What the disk has under `key`; else it is compiled, and kept there."""
    found = None if key is None else disk_cache.load(key, jax.tree.structure(arguments), device, committed, lower)
    if found is not None:
        return found
    compiled = lower().compile()
    if key is not None:
        disk_cache.keep(key, compiled)
    return compiled


def _place_of(leaves: list[Any]) -> tuple[jax.Device, bool] | None:
    """The device that a call with such arguments runs on, and whether its results are bound to that; None where JAX
    shall decide."""
    device, committed = _default_device(), False
    free = set()
    for leaf in leaves:
        if isinstance(leaf, jax.core.Tracer):
            return None
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
