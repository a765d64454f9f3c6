"""A compiled step, what is known of its memory, and whether two of them compute the same."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from ..timing import Contender, as_numpy


class Step(NamedTuple):
    """A step that gives a loss and the gradients of all weights, with what is known of its memory."""

    run: Contender
    temporaries: int
    predicted: int | None = None
    products: int = 0
    """Matrix products in the compiled program."""


def temporaries_of(executable: Any) -> int:
    """Bytes that the compiler allots."""
    return int(executable.memory_analysis().temp_size_in_bytes)


def same_results(step: Step, others: dict[str, Step], tolerance: float) -> None:
    """Raise if another step gives another loss or other gradients.

    The difference is the norm of that of an array (the loss, or a weight's gradient) over the array's norm. Arrays
    may come stacked, as a scan has them: they are compared in the order of the numbers in memory.
    """
    expected = [as_numpy(a).ravel() for a in jax.tree.leaves(step.run())]
    ends = np.cumsum([a.size for a in expected])
    for name, other in others.items():
        flat = np.concatenate([as_numpy(a).ravel() for a in jax.tree.leaves(other.run())])
        if flat.size != ends[-1]:
            raise ValueError(f"{name} gives {flat.size} numbers, where {ends[-1]} are expected")
        found = np.split(flat, ends[:-1])
        worst = max(np.linalg.norm(b - a) / np.linalg.norm(a) for a, b in zip(expected, found, strict=True))
        if not worst <= tolerance:
            raise ValueError(f"a result of {name} differs by {worst:.1e}, relative to its norm")
