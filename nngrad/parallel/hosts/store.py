"""JAX's coordination service, which all processes of a run share."""

from __future__ import annotations

from typing import Any

import jax

from ...extend import jax_internal


class _Public:
    """The part of `global_state` that JAX's public functions provide."""

    client = None

    @property
    def process_id(self) -> int:
        """The index of this process."""
        return int(jax.process_index()) if jax.distributed.is_initialized() else 0

    @property
    def num_processes(self) -> int:
        """The number of processes."""
        return int(jax.process_count()) if jax.distributed.is_initialized() else 1


global_state: Any = jax_internal("global_state") or _Public()
"""JAX's state of processes, which can be read without initializing devices."""

PREFIX = "nngrad/hosts"


class KeyValueStore:
    """Names in JAX's coordination service. Methods raise RuntimeErrors once the service is gone."""

    def __init__(self) -> None:
        self._client: Any = global_state.client
        if isinstance(global_state, _Public):
            raise RuntimeError(f"nn.hosts cannot join processes with JAX {jax.__version__}, which lacks "
                               "jax._src.distributed.global_state; install another version of JAX")

    def wait_for_all(self, name: str, seconds: float) -> None:
        """Wait until all processes have called this with `name`, which can be used only once."""
        self._client.wait_at_barrier(f"{PREFIX}/{name}", max(1, int(seconds * 1000)))
