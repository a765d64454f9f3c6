"""nnabla's names for devices: 'cpu', 'cuda' and 'cudnn' refer to JAX's devices."""

from __future__ import annotations

import gc
from typing import Any

import jax

from ..context import PLATFORMS, Context
from ..context import get_extension_context as get_extension_context


class Extension:
    """A backend, with the methods of nnabla's extension modules.

    Args:
        name: 'cpu', 'cuda' or 'cudnn' (both stand for the GPU as JAX sees it), 'gpu' or 'tpu'.

    Raises:
        ImportError: There is no such extension.
    """

    def __init__(self, name: str) -> None:
        if name not in PLATFORMS:
            raise ImportError(f"ext_name: must be one of {', '.join(list_extensions())}, got {name!r}")
        self.name = name

    def context(self, **options: Any) -> Context:
        """The Context of a device, as from `nn.get_extension_context`."""
        return get_extension_context(self.name, **options)

    def get_devices(self) -> list[str]:
        """The indices of JAX's devices of this kind, as strings; empty if JAX lacks the platform."""
        try:
            return [str(i) for i, _ in enumerate(jax.local_devices(backend=PLATFORMS[self.name]))]
        except RuntimeError:
            return []

    def get_device_count(self) -> int:
        """The number of devices of this kind."""
        return len(self.get_devices())

    def device_synchronize(self, device: str | int = "0") -> None:
        """Wait until the device has finished all its work.

        Raises:
            ValueError: There is no such device.
        """
        device_of = Context(self.name, device_id=device).jax_device
        jax.block_until_ready([x for x in jax.live_arrays() if device_of in x.devices()])

    def clear_memory_cache(self) -> None:
        """Free arrays that nobody holds. JAX reuses their memory for later ones."""
        gc.collect()


def import_extension_module(ext_name: str) -> Extension:
    """The extension of this name.

    Raises:
        ImportError: There is none.
    """
    return Extension(ext_name)


def list_extensions() -> list[str]:
    """The names of all extensions."""
    return list(PLATFORMS)
