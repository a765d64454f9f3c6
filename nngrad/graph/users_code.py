"""Code of the user's that has a part in what is derived.

What functions and rules of nngrad's own derive from a structure is remembered by that structure. A rule of the user's
may read what has changed since, or be another one by now. So it runs each time, and what it had a part in is not
remembered.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import TypeVar

from .options import contained

R = TypeVar("R")

_watching: ContextVar[tuple[list[bool], ...]] = ContextVar("watching", default=())


def users_code_runs() -> None:
    """Say that code of the user's has a part in what is being derived."""
    for runs in _watching.get():
        runs.append(True)


@contained
def watching_for_users_code(derive: Callable[[], R]) -> tuple[R, bool]:
    """What `derive` returns, and whether code of the user's had a part in it."""
    runs: list[bool] = []
    _watching.set((*_watching.get(), runs))
    return derive(), bool(runs)
