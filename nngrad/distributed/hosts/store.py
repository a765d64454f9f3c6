"""The keys and values that JAX's coordination service holds for all processes of a run."""

from __future__ import annotations

import contextlib
from typing import Any

import jax

from ...graph.inside_jax import taken


class _Public:
    """What JAX tells of its processes in public."""

    client = coordinator_address = None

    @property
    def process_id(self) -> int:
        """Which process this is."""
        return int(jax.process_index()) if jax.distributed.is_initialized() else 0

    @property
    def num_processes(self) -> int:
        """How many there are."""
        return int(jax.process_count()) if jax.distributed.is_initialized() else 1


global_state: Any = taken("global_state") or _Public()
"""What JAX knows of its processes, without starting devices."""

PREFIX = "nngrad/hosts"
TERMINATION = "RECEIVED_PREEMPTION_NOTICE"
"""What JAX sets when a process gets SIGTERM, which it handles: the process goes on."""


class KeyValueStore:
    """A folder of keys, as JAX's own client of the service reads and writes it. Where it is gone, RuntimeErrors."""

    def __init__(self) -> None:
        self._client: Any = global_state.client
        if isinstance(global_state, _Public):
            raise RuntimeError(f"nn.hosts cannot join processes with JAX {jax.__version__}, which does not have "
                               "jax._src.distributed.global_state: install another version of JAX")

    def write(self, folder: str, index: int, text: str) -> None:
        """Set the value of `folder/index`, whatever it was."""
        self._client.key_value_set(f"{PREFIX}/{folder}/{index}", text, allow_overwrite=True)

    def write_first(self, folder: str, index: int, text: str) -> None:
        """Set the value of `folder/index`, unless there is one."""
        with contextlib.suppress(Exception):  # as another process was earlier
            self._client.key_value_set(f"{PREFIX}/{folder}/{index}", text, allow_overwrite=False)

    def read(self, folder: str) -> dict[int, str]:
        """The values in a folder, by process."""
        found = self._client.key_value_dir_get(f"{PREFIX}/{folder}/")
        return {int(key.rsplit("/", 1)[1]): value for key, value in found}

    def is_terminated(self) -> bool:
        """Whether a process has got SIGTERM."""
        try:
            return bool(self._client.key_value_try_get(TERMINATION))
        except RuntimeError as error:
            if "NOT_FOUND" in str(error):
                return False
            raise

    def wait_for(self, folder: str, index: int, seconds: float) -> str:
        """The value of `folder/index`, when there is one."""
        found: str = self._client.blocking_key_value_get(f"{PREFIX}/{folder}/{index}", max(1, int(seconds * 1000)))
        return found

    def wait_for_all(self, name: str, seconds: float) -> None:
        """Return when all processes have called this with `name`, which is used once."""
        self._client.wait_at_barrier(f"{PREFIX}/{name}", max(1, int(seconds * 1000)))
