"""The index of a process and its share of the data."""

from __future__ import annotations

from typing import Any

import jax


def is_first() -> bool:
    """True in process 0, or the only one: the process that prints and writes shared data."""
    return jax.process_index() == 0


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
