"""What the benchmarks compile, lowered for platforms that are not at hand too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from nngrad.extend import Executable
from tests.lowered import PLATFORMS, detours, lowered_for


class Lowered:
    """What came of it."""

    def __init__(self) -> None:
        self.count = 0
        """How many programs there were."""
        self.detours: set[str] = set()
        """What they call that none of the platforms has."""


@contextmanager
def lowered_too() -> Iterator[Lowered]:
    """Within, each program that nngrad traces to compile it is lowered for all of `PLATFORMS` as well.

    Raises:
        ValueError: At the end: one calls what is for CPUs.
    """
    found = Lowered()
    look_at = Executable._look_at

    def and_lower(executable: Executable, traced: Any) -> None:
        look_at(executable, traced)
        found.detours |= detours(lowered_for(traced, *PLATFORMS))
        found.count += 1

    with patch.object(Executable, "_look_at", and_lower):
        yield found
    if found.detours:
        raise ValueError(f"of {found.count} programs lowered for {', '.join(PLATFORMS)} some call "
                         f"{', '.join(sorted(found.detours))}, which is for CPUs")
