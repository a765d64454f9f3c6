"""Contexts: devices, auto_forward, no_grad and deterministic runs."""

from __future__ import annotations

import copy
import os
from typing import Any

import jax
import numpy as np

from .extend import (
    Switched,
    build_options,
    checked_choice,
    explained,
    placement,
)
from .parallel.hosts.joining import launched_by

PLATFORMS = {"cpu": "cpu", "cuda": "gpu", "cudnn": "gpu", "gpu": "gpu", "tpu": "tpu"}
"""JAX's platform for each backend."""


class Context:
    """A device for functions to run on.

    Args:
        backend: 'cpu', 'cuda' or 'cudnn' (both mean the GPU as JAX sees it), 'gpu' or 'tpu'; or a list as in
            nnabla, such as ['cudnn:float', 'cpu:float'], of which the first entry counts. A colon precedes the type:
            with 'float', float64 arrays that become Variables while the context is in force become
            float32, unless a dtype is given; with 'double' or without a type they stay float64.
        array_class: Accepted for nnabla's sake; arrays are JAX's.
        device_id: Index of the device among those of its kind that this process has. In a run of several processes,
            a process with only one takes that, whatever its index on the machine.

    It is pickled by `backend`, `type_config` and `device_id`, and refers to the device of that index where it is
    loaded. Contexts of the same device are equal.

    Raises:
        ValueError: There is no such device, and the message lists the available ones; or the type is unknown, such as
            'half'.
    """

    __slots__ = ("_device", "_device_id", "backend", "type_config")

    @explained
    def __init__(self, backend: str | list[str] = "cpu", array_class: str = "", device_id: str | int = "0") -> None:
        names = [backend] if isinstance(backend, str) else list(backend)
        self.backend, _, self.type_config = names[0].partition(":") if names else ("cpu", "", "")
        if self.type_config not in ("", "float", "double"):
            raise ValueError(
                f"type_config: must be 'float' or 'double', got {self.type_config!r}; for 16 bits, build "
                "within nn.precision('float16') or nn.precision('bfloat16')"
            )
        self.device_id = str(device_id)

    @property
    def device_id(self) -> str:
        """Index of the device among those of its kind that this process has. Setting it does not affect functions
        already made, or scopes already entered."""
        return self._device_id

    @device_id.setter
    def device_id(self, device_id: str | int) -> None:
        device = None if _joins_others() else _find_device(self.backend, str(device_id))
        self._device_id, self._device = str(device_id), device

    @property
    def device(self) -> jax.Device | None:
        """The JAX device; None if it is JAX's default, to which nothing need be moved."""
        return None if self.jax_device == jax.local_devices()[0] else self._device

    @property
    def jax_device(self) -> jax.Device:
        """The JAX device."""
        if self._device is None:
            self._device = _find_device(self.backend, self.device_id)
        return self._device

    @property
    def float_dtype(self) -> np.dtype[Any] | None:
        """The dtype that float64 arrays take on when they become Variables in this context; None if they keep theirs.
        """
        return np.dtype(np.float32) if self.type_config == "float" else None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Context) and self.jax_device == other.jax_device

    def __hash__(self) -> int:
        return hash(self.jax_device)

    def __copy__(self) -> Context:
        twin = Context.__new__(Context)
        twin.backend, twin.type_config = self.backend, self.type_config
        twin._device_id, twin._device = self._device_id, self.jax_device
        return twin

    def __reduce__(self) -> tuple[Any, ...]:
        return Context, (self._name, "", self.device_id)

    def __repr__(self) -> str:
        return f"Context(backend={self._name!r}, device_id={self.device_id!r})"

    @property
    def _name(self) -> str:
        return f"{self.backend}:{self.type_config}" if self.type_config else self.backend


def _find_device(backend: str, device_id: str) -> jax.Device:
    platform = PLATFORMS[checked_choice(backend, PLATFORMS, "backend")]
    try:
        devices = jax.local_devices(backend=platform)
    except RuntimeError:
        devices = []
    if device_id.isdigit() and int(device_id) < len(devices):
        return devices[int(device_id)]
    if device_id.isdigit() and len(devices) == 1 and placement.several_processes():
        return devices[0]
    raise ValueError(
        f"no device {device_id!r} of backend {backend!r}; JAX has {', '.join(_available())}"
        + ("" if devices else f" (install JAX with support for {backend!r} to use it)")
    )


def _available() -> list[str]:
    names = []
    for platform in ("cpu", "gpu", "tpu"):
        try:
            names += [f"{platform}:{i}" for i, _ in enumerate(jax.local_devices(backend=platform))]
        except RuntimeError:
            continue
    return names


def get_extension_context(ext_name: str, device_id: str | int = "0", type_config: str = "float") -> Context:
    """The Context of a backend, by nnabla's name for it: 'cpu', 'cuda' or 'cudnn'.

    Args:
        ext_name: Name of the backend.
        device_id: Index of the device.
        type_config: 'float': while the context is in force, float64 arrays that become Variables become float32,
            unless a dtype is given. 'double': they stay float64. Variables are never cast.

    Raises:
        ValueError: There is no such device; or `type_config` is unknown: 'half' is refused, because here
            `nn.precision("float16")` chooses what is computed in float16.
    """
    return Context(f"{ext_name}:{type_config}", device_id=device_id)


def device(device: str | jax.Device) -> Switched:
    """Run functions made within this block on a device. Arrays are copied there when those functions read them, and
    parameters stay there from their first update.

    Args:
        device: 'cpu', 'gpu' or 'tpu', with an index after a colon unless it is the first of its kind ('gpu:1'); or a
            JAX device.

    Returns:
        A `with` block that also decorates functions.

    Raises:
        TypeError: `device` is something else.
        ValueError: There is no such device; the message lists the available ones.
    """
    if isinstance(device, jax.Device):
        if device not in (local := jax.local_devices(backend=device.platform)):
            raise ValueError(f"device: {device} belongs to another process; this one has {', '.join(map(str, local))}")
        return context_scope(Context(device.platform, device_id=local.index(device)))
    if not isinstance(device, str):
        raise TypeError(f"device: expected a name such as 'cpu' or 'gpu:1', or a JAX device, got {device!r}")
    backend, _, number = device.partition(":")
    return context_scope(Context(backend, device_id=number or "0"))


def context_scope(context: Context) -> Switched:
    """Run functions made within this block on the device of `context`."""
    return Switched(context=_in_force(context))


def set_default_context(context: Context) -> None:
    """Run functions made from now on in this thread or asyncio task on the device of `context`."""
    Switched(context=_in_force(context)).from_now_on()


def get_current_context() -> Context:
    """The Context in force in this thread or asyncio task."""
    context: Context | None = build_options().applying.context
    if context is not None:
        return context
    device = jax.local_devices()[0]
    return Context(device.platform, device_id=0)


def _in_force(context: Any) -> Context:
    """A copy of `context` whose device will not change."""
    if not isinstance(context, Context):
        raise TypeError(f"context: expected a Context, got {context!r}")
    return copy.copy(context)


def auto_forward(auto: bool = True) -> Switched:
    """Run functions made within this block as soon as they are made, so that their values are available at once."""
    return Switched(auto_forward=bool(auto))


def set_auto_forward(auto: bool) -> None:
    """Run functions made from now on in this thread or asyncio task as soon as they are made, or not."""
    Switched(auto_forward=bool(auto)).from_now_on()


def get_auto_forward() -> bool:
    """True where functions made in this thread or asyncio task run as soon as they are made."""
    return build_options().applying.auto_forward


def no_grad(no_grad_: bool = True) -> Switched:
    """Stop gradients at functions made within this block."""
    return Switched(no_grad=bool(no_grad_))


def deterministic(deterministic_: bool = True) -> Switched:
    """Run everything within this block in one tier: each call runs the best executable, so that equal calls give equal
    bits.

    Otherwise the first call of a large program in a process runs an executable that compiles quickly, and later ones
    the best one, whose results differ by rounding. So two runs that make the same calls still get the same bits; a run
    that is resumed begins anew, and gets them only within this block.
    """
    return Switched(deterministic=bool(deterministic_))


def _joins_others() -> bool:
    """True in a process that is to join others but has not yet, so that JAX must not be asked for devices."""
    if placement.several_processes():
        return False
    try:
        launched = launched_by(os.environ)
    except ValueError:  # which is raised where processes join
        return True
    return launched is not None and launched.count != 1
