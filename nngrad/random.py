"""Keys for random functions: a stream of them per thread, and streams with a seed of their own.

A key is the raw data of a JAX threefry key, `uint32[2]`, made on the host by a counter and a hash: drawing
one takes about a microsecond and calls nothing of JAX.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

Key = np.ndarray[Any, Any]

_MASK = (1 << 64) - 1
_STEP = 0x9E3779B97F4A7C15
_DEFAULT_SEED = 313


def mixed(z: int) -> int:
    """A hash of 64 bits, one to one: the finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014)."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


class KeyStream:
    """A reproducible sequence of keys, none of which comes twice.

    Args:
        seed: Which sequence, from 0 to 2**64 - 1.
        branch: Which of the sequences that belong to the seed; threads take different ones.
    """

    __slots__ = ("_count", "_start")

    def __init__(self, seed: int, branch: int = 0) -> None:
        self._start = mixed((mixed((checked_seed(seed) + _STEP) & _MASK) + branch * _STEP) & _MASK)
        self._count = itertools.count(1)

    def next(self) -> Key:
        """The next key."""
        z = mixed((self._start + next(self._count) * _STEP) & _MASK)
        return np.array((z >> 32, z & 0xFFFFFFFF), np.uint32)


def checked_seed(value: Any, name: str = "seed") -> int:
    """`value` as an int from 0 to 2**64 - 1."""
    if isinstance(value, bool | np.bool_) or not hasattr(value, "__index__"):
        raise TypeError(f"{name}: expected an int, got {value!r}")
    result = int(value.__index__())
    if not 0 <= result <= _MASK:
        raise ValueError(f"{name}: expected an int from 0 to 2**64 - 1, got {result}")
    return result


class _Seeding:
    """The seed that new threads and forked processes start from, and how many have started from it."""

    def __init__(self, value: int) -> None:
        self.value = value
        self.branches = itertools.count(1)
        self.forks = itertools.count(1)


class _PerThread(threading.local):
    stream: KeyStream | None = None
    seed_of_child: int = _DEFAULT_SEED
    """What a process that this thread forks starts from."""


_seeding = _Seeding(_DEFAULT_SEED)
_own = _PerThread()
if threading.current_thread() is threading.main_thread():
    _own.stream = KeyStream(_DEFAULT_SEED)


def seed(value: int) -> None:
    """Start the random draws of this thread anew: after `seed(3)` they are the same each time.

    Threads that draw for the first time after it get streams of their own, which follow from `value`
    and the order in which they come; a thread that has drawn already goes on as it was. So do processes that are
    forked after it, each of which draws as if it had called `seed` with a value of its own. A program that
    never calls `seed` draws the same in every run. Functions with a `seed` argument other than -1 are
    not touched.

    Args:
        value: From 0 to 2**64 - 1.
    """
    global _seeding
    value = checked_seed(value, "value")
    _seeding = _Seeding(value)
    _own.stream = KeyStream(value)


def next_key() -> Key:
    """The next key of this thread's stream."""
    stream = _own.stream
    if stream is None:
        seeding = _seeding
        stream = _own.stream = KeyStream(seeding.value, next(seeding.branches))
    return stream.next()


def key_source(seed: int = -1) -> Callable[[], Key]:
    """Where a random function draws its keys: the thread's stream for -1, else a stream of its own."""
    return next_key if seed == -1 else KeyStream(seed).next


def _before_fork() -> None:
    seeding = _seeding
    _own.seed_of_child = mixed((seeding.value ^ mixed(next(seeding.forks))) & _MASK)


def _in_child() -> None:
    seed(_own.seed_of_child)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_in_child)
