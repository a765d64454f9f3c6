"""Serialise XLA executables to bytes and back, and call them as fast as a jitted function.

JAX has all that is needed, but not in public: `jax.experimental.serialize_executable` does the same with pickle, whose
contents can run anything when they are read. If a version of JAX differs, `IS_SUPPORTED` is False or there are no
bytes, and executables are compiled in every process.
"""

from __future__ import annotations

import dataclasses
import json
import re
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import SingleDeviceSharding

from ..graph.inside_jax import taken

trace_context: Any = taken("trace_context")
"""All settings and contexts of this thread that affect what a function is compiled to."""
_registry, _make_devices = taken("dispatch_registry"), taken("xla_client.DeviceList")
_make_call = taken("xla_client._xla.pjit")
_executable, _fast_data = taken("UnloadedMeshExecutable"), taken("MeshExecutableFastpathData")
_cache_keys, _shard = taken("JitGlobalCppCacheKeys"), taken("cc_shard_arg")
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
    try:
        results = _form(compiled.out_tree)
    except _OtherTree:
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
        device: Where it runs, which is where it was made for.
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


class _OtherTree(Exception):
    """A pytree contains something other than tuples."""


def _form(structure: Any) -> Any:
    """The nesting of a pytree of tuples and None, with lists for tuples and 0 for arrays."""

    def form(tree: Any) -> Any:
        if tree.__class__ is tuple:
            return [form(each) for each in tree]
        if tree is not None and tree != 0:
            raise _OtherTree
        return tree

    return form(jax.tree.unflatten(structure, [0] * structure.num_leaves))


def _structure(form: Any) -> Any:
    def built(tree: Any) -> Any:
        return tuple(map(built, tree)) if isinstance(tree, list) else tree

    return jax.tree.structure(built(form))


Choice = Callable[[tuple[Any, ...]], jax.stages.Compiled | None]


def dispatched(choose: Choice, jitted: Any) -> Callable[..., Any]:
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

    call: Any = _make_call(
        "nngrad", jitted, on_miss, [], [], _cache_keys(), _registry, _shard
    )
    call._fun = jitted  # JAX calls it to locate a NaN, if it is set to
    return call  # type: ignore[no-any-return]
