"""Jitted functions backed by the disk cache: executables are read from disk if possible, and else stored there.

JAX has all that is needed, but not in public: `jax.experimental.serialize_executable` does the same with pickle, whose
contents can run anything when they are loaded. If a version of JAX differs, `IS_SUPPORTED` is False or there are no
bytes, and every process compiles its executables.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import threading
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import SingleDeviceSharding

from ..graph import Spec
from ..graph.jaxpr import primitives_in
from ..graph.process import jax_internal
from .disk import DiskCache
from .program import default_device, digest_of, surroundings

trace_context: Any = jax_internal("trace_context")
"""All settings and contexts of this thread that affect what a function is compiled to."""
_registry, _make_devices = jax_internal("dispatch_registry"), jax_internal("xla_client.DeviceList")
_make_call = jax_internal("xla_client._xla.pjit")
_executable, _fast_data = jax_internal("UnloadedMeshExecutable"), jax_internal("MeshExecutableFastpathData")
_cache_keys, _shard = jax_internal("JitGlobalCppCacheKeys"), jax_internal("cc_shard_arg")
_PLAIN_FACTS: dict[str, Any] = {
    "name": "nngrad", "unordered_effects": [], "ordered_effects": [], "keepalive": [], "host_callbacks": [],
    "mut": None, "auto_spmd_lowering": False, "all_args_info": None, "pgle_profiler": None,
}  # fmt: skip
"""Facts about an executable of a pure function for one device."""
_FACTS = {f.name for f in dataclasses.fields(_executable)} if dataclasses.is_dataclass(_executable) else set()
_RESTORED = {
    "xla_executable", "device_list", "backend", "input_avals", "input_shardings", "output_avals",
    "output_shardings", "committed", "kept_var_idx", "xla_in_layouts", "dispatch_in_layouts", "xla_out_layouts",
}  # fmt: skip
IS_SUPPORTED = _RESTORED <= _FACTS <= _RESTORED | _PLAIN_FACTS.keys() and None not in (
    trace_context, _registry, _make_call, _make_devices, _fast_data, _cache_keys, _shard
)  # fmt: skip
"""Whether this version of JAX is known well enough."""

disk_cache = DiskCache(
    lambda: "" if IS_SUPPORTED else f"this version of nngrad cannot store executables of JAX {jax.__version__}"
)

PLATFORMS = frozenset({"cpu", "gpu"})
"""The platforms whose executables can be serialised."""

_CALL = re.compile(r'custom_call_target="([^"]*)"')
"""XLA's notation for custom calls. Targets that begin with two underscores are its own."""


def to_bytes(compiled: Any) -> bytes | None:
    """Serialise a `jax.stages.Compiled`; None if it is not of a pure function for one device that returns tuples of
    arrays, or if the backend cannot serialise it."""
    facts = getattr(getattr(compiled, "_executable", None), "_unloaded_executable", None)
    parameters = getattr(compiled, "_params", None)
    if facts is None or getattr(parameters, "const_args", True) or len(facts.device_list) != 1 or facts.host_callbacks:
        return None
    if any([getattr(facts, name, None) for name in ("unordered_effects", "ordered_effects", "keepalive", "mut")]):
        return None
    if any([layout is not None for layout in facts.dispatch_in_layouts]):
        return None
    inputs = jax.tree.leaves(compiled.args_info)
    if not all([isinstance(each.dtype, np.dtype) for each in (*inputs, *facts.output_avals)]):
        return None
    tree = compiled.out_tree
    try:
        results = json.loads(json.dumps(jax.tree.unflatten(tree, [0] * tree.num_leaves)))
    except TypeError:
        return None
    if _structure(results) != tree:
        return None
    xla, text = facts.xla_executable, compiled.as_text()
    calls = [name for name in _CALL.findall(text or "") if not name.startswith("__")]
    if text is None or any(["callback" in name for name in calls]):
        return None
    try:
        code = xla.serialize() if hasattr(xla, "serialize") else xla.client.serialize_executable(xla)
    except (jax.errors.JaxRuntimeError, NotImplementedError):
        return None
    described = {
        "inputs": [[each.shape, each.dtype.name, each.donated] for each in inputs],
        "kept": sorted(facts.kept_var_idx),
        "outputs": [[each.shape, each.dtype.name, bool(each.weak_type)] for each in facts.output_avals],
        "results": results,
        "calls": calls,
    }
    header = json.dumps(described).encode()
    return len(header).to_bytes(4, "little") + header + zlib.compress(code, 1)


def from_bytes(
    content: bytes, arguments: Any, device: jax.Device, committed: bool, lower: Callable[[], Any]
) -> jax.stages.Compiled | None:
    """Deserialise the result of `to_bytes`, for calls with arrays in the tree `arguments`; None if XLA cannot read it.

    Args:
        content: The bytes, from a trusted source: they are code.
        arguments: The tree of a tuple.
        device: The device it was made for, on which it runs.
        committed: Whether its results are committed to the device.
        lower: Lowers the same computation, upon which JAX initialises its libraries. An executable that calls them
            before that crashes the process.
    """
    size = int.from_bytes(content[:4], "little")
    described = json.loads(content[4 : 4 + size])
    if described["calls"]:
        lower()
    client = device.client
    devices = _make_devices((device,))
    try:
        xla = client.deserialize_executable(zlib.decompress(content[4 + size :]), executable_devices=devices)
    except (jax.errors.JaxRuntimeError, NotImplementedError):
        return None
    inputs = [(_aval(shape, dtype), donated) for shape, dtype, donated in described["inputs"]]
    outputs = [_aval(*each) for each in described["outputs"]]
    kept = described["kept"]
    sharding = SingleDeviceSharding(device, memory_kind=device.default_memory().kind)
    facts = _PLAIN_FACTS | {
        "xla_executable": xla,
        "device_list": devices,
        "backend": client,
        "input_avals": [inputs[i][0] for i in kept],
        "input_shardings": [sharding] * len(kept),
        "output_avals": outputs,
        "output_shardings": [sharding] * len(outputs),
        "committed": committed,
        "kept_var_idx": set(kept),
        "xla_in_layouts": [None] * len(kept),
        "dispatch_in_layouts": [None] * len(kept),
        "xla_out_layouts": [None] * len(outputs),
    }
    executable = _executable(**{name: facts[name] for name in _FACTS}).load()
    infos = jax.tree.unflatten(arguments, [jax.stages.ArgInfo(*each) for each in inputs])
    return jax.stages.Compiled(executable, [], (infos, {}), _structure(described["results"]))


def _aval(shape: Sequence[int], dtype: str, weak: bool = False) -> Any:
    return jax.core.ShapedArray(tuple(shape), np.dtype(dtype), weak_type=weak)


def _structure(form: Any) -> Any:
    """The structure of a pytree of tuples, from JSON, where they are lists."""

    def built(tree: Any) -> Any:
        return tuple(map(built, tree)) if isinstance(tree, list) else tree

    return jax.tree.structure(built(form))


def dispatched(
    choose: Callable[[tuple[Any, ...]], jax.stages.Compiled | None], jitted: Any
) -> Callable[..., Any]:
    """A function that runs the executable that `choose` returns for its arguments, or else `jitted`, its equivalent.

    It calls `choose` when arguments differ in kind from earlier ones, or when a setting of JAX has changed. All other
    calls run in C++ alone, as those of a jitted function do.

    Args:
        choose: From the arguments to an executable that can take them; None leaves them to `jitted`.
        jitted: A jitted function.
    """

    def on_miss(*arguments: Any) -> Any:
        compiled = choose(arguments)
        if compiled is None:
            return jitted(*arguments), None, False
        executable: Any = compiled._executable
        given, _ = _registry.flatten(arguments, None)
        results = jax.tree.unflatten(compiled.out_tree, executable.call(*given))
        arrays, tree = _registry.flatten(results, None)
        fast = _fast_data(
            executable.xla_executable, tree, executable._in_shardings, executable._out_shardings,
            [array.aval for array in arrays], [array.committed for array in arrays],
            [i in executable._kept_var_idx for i in range(len(given))], executable._dispatch_in_layouts, [],
        )  # fmt: skip
        return results, fast, False

    call: Any = _make_call("nngrad", jitted, on_miss, [], [], _cache_keys(), _registry, _shard)
    call._fun = jitted  # JAX calls it to locate a NaN, if it is set to
    return call  # type: ignore[no-any-return]


_SETTINGS: Any = jax.config


# ---------------------------------------------------------------- functions


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
        compiled = disk_cache.load(self.key, lambda content: from_bytes(
            content, self.tree, self.device, self.committed, lambda: self.function.traced(arguments).lower()
        ))
        if compiled is not None:
            self.function.know(self.kind, compiled)
        return compiled

    def keep(self, compiled: jax.stages.Compiled) -> None:
        """Store the executable."""
        self.function.know(self.kind, compiled)
        disk_cache.keep(self.key, lambda: to_bytes(compiled))


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
        self._lock = threading.RLock()  # reentrant, for signal handlers
        self.call = dispatched(self._choose, jitted)

    def know(self, kind: Any, compiled: jax.stages.Compiled) -> None:
        """Serve calls of a kind by `compiled`, whatever thread it was made in."""
        if kind is not None:
            with self._lock:
                self._known[kind] = compiled

    def entry(self, arguments: Sequence[Any], options: tuple[tuple[str, Any], ...] = ()) -> DiskEntry | None:
        """The disk cache's entry for such arguments: arrays, or their abstract values, in pytrees; None if it cannot be
        determined. `options` are additional compiler options: executables made with them do not serve calls."""
        leaves, tree = jax.tree.flatten(tuple(arguments))
        place = place_of_arrays(leaves)
        if place is None or not self._takes(arguments) or not disk_cache.is_on or _is_within_a_context():
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
        if place is None:  # on several devices, for example
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
    if leaf.__class__ in (np.ndarray, float, int, bool) or isinstance(leaf, np.generic):
        return set(), False
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return (set(), False) if leaf.sharding is None else (leaf.sharding.device_set, True)
    if isinstance(leaf, jax.Array) and not isinstance(leaf, jax.core.Tracer):
        return leaf.devices(), leaf.committed
    return None, False


def _is_within_a_context() -> bool:
    """Whether a context is in force that affects compilation without being a setting, such as a mesh."""
    settings = list(jax.config.values.values())
    return any([
        now is not usual and now != usual and now not in settings
        for now, usual in zip(trace_context(), _usual_context(), strict=True)
    ])


@functools.cache
def _usual_context() -> tuple[Any, ...]:
    """The trace context of a thread in which nothing was set."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(trace_context).result()  # type: ignore[no-any-return]
