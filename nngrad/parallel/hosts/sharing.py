"""The index of a process and its share of the data, and barriers."""

from __future__ import annotations

from typing import Any

import jax
from jax.experimental import multihost_utils

from ...extend import jax_internal

_passed = 0
"""The number of barriers that this process has passed; it makes the name of each barrier in the store unique."""


def is_first() -> bool:
    """True in process 0, or the only one: the process that prints and writes shared data."""
    return jax.process_index() == 0


def barrier(timeout: float = 600.0) -> None:
    """Wait until all processes have called this. In a single process it returns at once.

    Args:
        timeout: Seconds to wait.

    Raises:
        ValueError: `timeout` is not positive.
        RuntimeError: A process did not arrive in time, or has died; the message, which is JAX's, names it as a task.
    """
    global _passed
    if jax.process_count() == 1:
        return
    if not timeout > 0:
        raise ValueError(f"timeout: must be a positive number of seconds, got {timeout!r}")
    _passed += 1
    name, service = f"nngrad/hosts/barrier {_passed}", jax_internal("global_state")
    if service is None:
        multihost_utils.sync_global_devices(name)
    else:
        service.client.wait_at_barrier(name, max(1, int(timeout * 1000)))


def part_of(data: Any, *, remainder: str = "refuse") -> Any:
    """The part of `data` that this process feeds: a contiguous block.

    Concatenated in process order, the parts of a batch are that batch, so anything that depends on the position of an
    example, such as random draws, is the same for any number of processes. All parts have the same length, so that all
    processes take the same number of steps.

    Args:
        data: An array, a list or another sequence that can be sliced; examples are along the first axis.
        remainder: How to treat left-over examples if the number of processes does not divide the number of examples:
            `"refuse"` or `"drop"` them.

    Returns:
        A slice of `data`.

    Raises:
        TypeError: `data` has no length.
        ValueError: There is a remainder, and `remainder` is "refuse"; or nothing is left for this process.
    """
    if remainder not in ("refuse", "drop"):
        raise ValueError(f"remainder: must be 'refuse' or 'drop', got {remainder!r}")
    if not hasattr(data, "__len__"):
        raise TypeError(f"data: must have a length and be sliceable, got {type(data).__name__}; for an iterator use "
                        "itertools.islice(data, jax.process_index(), None, jax.process_count())")
    index, count = jax.process_index(), jax.process_count()
    length, left = divmod(len(data), count)
    if left and remainder == "refuse":
        raise ValueError(f"data: cannot divide {len(data)} examples evenly among {count} processes, {left} are left "
                         "over; pass remainder='drop'")
    if not length:
        raise ValueError(f"data: expected at least {count} examples, one for each process, got {len(data)}")
    return data[index * length : (index + 1) * length]
