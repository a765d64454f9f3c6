"""Programs whose executables come from disk where another process has left them there, and are left there else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import SingleDeviceSharding

from ..graph import Spec
from .disk_cache import disk_cache
from .fingerprint import digest_of, structure_of, surroundings
from .program import Program
from .serialized import PLATFORMS, dispatched, trace_context

Options = tuple[tuple[str, Any], ...]
"""What the compiler is told, by name."""


def remembered(program: Program, jitted: Any, first: tuple[Spec, ...] = ()) -> Callable[..., Any]:
    """`jitted` as a function that is not compiled where the disk has its executable, and is as fast.

    With a structure that is known for certain in every process it is neither traced nor lowered. Programs with code of
    the user's have none; `jitted` itself is returned for them, and where there is no disk to look on.

    Args:
        program: What is computed.
        jitted: A jitted function of arrays that computes it.
        first: Specs of the arrays that it takes before those of the program's leaves.
    """
    structure = structure_of(program) if disk_cache.is_on else None
    if structure is None:
        return jitted  # type: ignore[no-any-return]
    return dispatched(_Choice(structure, (*first, *program.leaves), jitted), jitted)


class _Choice:
    """Which executable runs a program: one for each place where its arrays lie, and for settings of JAX."""

    __slots__ = ("_jitted", "_known", "_lock", "_specs", "_structure")

    def __init__(self, structure: bytes, specs: tuple[Spec, ...], jitted: Any) -> None:
        self._structure = structure
        self._specs = specs
        self._jitted = jitted
        self._known: dict[Any, jax.stages.Compiled] = {}
        self._lock = threading.RLock()  # a signal's handler may compute the same

    def __call__(self, arrays: tuple[Any, ...]) -> jax.stages.Compiled | None:
        device, committed = _place_of(arrays, self._specs)
        if device is None or device.platform not in PLATFORMS or _is_looked_into():
            return None
        kind = trace_context(), device, committed
        with self._lock:
            compiled = self._known.get(kind)
            if compiled is None:
                sharding = SingleDeviceSharding(device) if committed else None
                given = tuple([spec.abstract(sharding) for spec in self._specs])
                compiled = self._known[kind] = compiled_for(self._structure, self._jitted, given, device, committed)
            return compiled


def compiled_for(
    structure: bytes,
    jitted: Any,
    given: tuple[Any, ...],
    device: jax.Device,
    committed: bool,
    options: Options = (),
) -> jax.stages.Compiled:
    """A jitted function compiled, or what the disk has of it; what is compiled is kept there.

    Args:
        structure: The digest of what it computes.
        jitted: The function.
        given: What it is called with, in shapes and dtypes.
        device: Where it runs.
        committed: Whether its results are bound to the device.
        options: What the compiler is told besides.
    """
    around = None if _is_within_a_context() else surroundings(device, options)
    key = None if around is None else digest_of(structure, around)
    compiled = None if key is None else disk_cache.load(key, jax.tree.structure(given), device, committed)
    if compiled is None:
        compiled = jitted.lower(*given).compile(dict(options) or None)
        if key is not None:
            disk_cache.keep(key, compiled)
    return compiled


def _place_of(arrays: tuple[Any, ...], specs: Sequence[Spec]) -> tuple[jax.Device | None, bool]:
    """The device that a call with such arrays runs on, and whether its results are bound to that; None for arrays that
    a jitted function would have to be compiled anew for."""
    device, committed = _default_device(), False
    if len(arrays) != len(specs):
        return None, False
    free = set()
    for array, spec in zip(arrays, specs, strict=True):
        on_host = array.__class__ is np.ndarray or isinstance(array, np.generic)
        if not on_host and (isinstance(array, jax.core.Tracer) or not isinstance(array, jax.Array)):
            return None, False
        if array.shape != spec.shape or array.dtype != spec.dtype:
            return None, False
        if on_host:
            continue
        found = array.devices()
        if len(found) != 1:
            return None, False
        if not array.committed:
            free |= found
        elif committed and device not in found:
            return None, False
        else:
            (device,), committed = found, True
    return (device, committed) if free <= {device} else (None, False)


def _default_device() -> jax.Device:
    given = jax.config.jax_default_device
    if given is None or isinstance(given, str):
        return jax.devices(given)[0]
    device: jax.Device = given
    return device


def _is_looked_into() -> bool:
    """Whether JAX looks at every result, and says where a NaN comes from by running a function once more."""
    return bool(jax.config.jax_debug_nans or jax.config.jax_debug_infs)


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
