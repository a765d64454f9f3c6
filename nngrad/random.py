"""Random keys: a stream of them per thread, and streams with their own seeds.

A key is the raw data of a JAX threefry key, `uint32[2]`, made on the host from a counter and a hash: drawing
one takes about a microsecond and does not call JAX.
"""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from collections.abc import Iterable
from operator import itemgetter
from typing import Any

import numpy as np

Key = np.ndarray[Any, Any]
Position = tuple[int, int]
"""The start of a sequence of keys, and how many were drawn."""

_MASK = (1 << 64) - 1
_STEP = 0x9E3779B97F4A7C15
_DEFAULT_SEED = 313


def mixed(z: int) -> int:
    """A bijective hash of 64 bits: the finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014)."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def _key(start: int, number: int) -> Key:
    """The key at index `number` of the sequence that starts at `start`."""
    z = mixed((start + number * _STEP) & _MASK)
    return np.array((z >> 32, z & 0xFFFFFFFF), np.uint32)


class KeyStream:
    """A reproducible sequence of distinct keys.

    Args:
        seed: The seed, from 0 to 2**64 - 1.
        branch: Which of the seed's sequences; threads take different ones.
        since: The stream that the thread drew from before.
    """

    __slots__ = ("__weakref__", "_count", "built", "start")

    built: tuple[int, int, int]
    """How many streams the thread had before, how many keys were drawn, and how many functions that draw from this
    stream were built since. Functions built before the last draw do not count, so that a resumed run need not build
    them equally often."""

    def __init__(self, seed: int, branch: int = 0, since: KeyStream | None = None) -> None:
        self.start = mixed((mixed((checked_seed(seed) + _STEP) & _MASK) + branch * _STEP) & _MASK)
        self._count = itertools.count(1)
        self.built = (0 if since is None else since.built[0] + 1), 0, 0

    def __call__(self) -> Key:
        """The next key."""
        number = next(self._count)
        self.built = self.built[0], number, 0
        return _key(self.start, number)

    def ahead(self) -> Key:
        """The next key, without drawing it."""
        start, drawn = self.position
        return _key(start, drawn + 1)

    @property
    def position(self) -> Position:
        """The start of the sequence, and how many of its keys were drawn."""
        return self.start, int(repr(self._count)[len("count(") : -1]) - 1  # the only way to read a counter

    def go_to(self, position: Position) -> None:
        """Continue like a stream at this `position`."""
        self.start, drawn = position
        self._count = itertools.count(drawn + 1)
        self.built = self.built[0], drawn, 0


def checked_seed(value: Any, name: str = "seed") -> int:
    """`value` as an int from 0 to 2**64 - 1."""
    if isinstance(value, bool | np.bool_) or not hasattr(value, "__index__"):
        raise TypeError(f"{name}: expected an int, got {value!r}")
    result = int(value.__index__())
    if not 0 <= result <= _MASK:
        raise ValueError(f"{name}: must be between 0 and 2**64 - 1, got {result}")
    return result


class _Seeding:
    """The seed for new threads and forked processes, and counters of those that have used it."""

    def __init__(self, value: int) -> None:
        self.value = value
        self.branches = itertools.count(1)
        self.forks = itertools.count(1)


class _OfThread:
    """The key source of a function that draws from the stream of whichever thread computes it."""

    __slots__ = ("_built", "_start")

    def __init__(self) -> None:
        stream = _stream()
        self._start = stream.start
        streams, drawn, functions = self._built = stream.built
        stream.built = streams, drawn, functions + 1

    def __call__(self) -> Key:
        """The next key of the thread's stream."""
        return next_key()

    def ahead(self) -> Key:
        """A key determined by the thread's stream and the function's index among those built."""
        stream = _stream()
        streams, drawn, number = self._built
        since = mixed((self._start + (stream.built[0] - streams) * _STEP) & _MASK)
        return _key(mixed(mixed(stream.start ^ since) ^ drawn), number)


class _OwnStreams:
    """The streams of functions with their own `seed`, identified by seed and order of creation."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._made: dict[int, int] = {}
        self._alive: weakref.WeakValueDictionary[tuple[int, int], KeyStream] = weakref.WeakValueDictionary()
        self._to_come: dict[int, list[Position]] = {}  # for streams that are not made yet

    def new(self, seed: int) -> KeyStream:
        """A new stream, at the position restored for it, or at its beginning."""
        stream = KeyStream(seed)
        with self._lock:
            number = self._made[seed] = self._made.get(seed, 0) + 1
            self._alive[seed, number] = stream
            if self._to_come.get(seed):
                stream.go_to(self._to_come[seed].pop(0))
        return stream

    def get(self) -> list[tuple[int, list[Position]]]:
        """The positions of each seed's streams, in order of creation.

        Functions that are made anew at each step have new streams each time: streams at the end that were drawn from at
        most once are left out if others have come and gone.
        """
        with self._lock:
            alive = self._by_seed()
            for seed, streams in alive.items():
                while len(streams) < self._made[seed] and streams and streams[-1].position[1] < 2:
                    streams.pop()
            seeds = {**alive, **self._to_come}
            return [(seed, [s.position for s in alive.get(seed, [])] + self._to_come.get(seed, [])) for seed in seeds]

    def set(self, positions: Iterable[tuple[int, list[Position]]]) -> None:
        """Set the positions of each seed's streams, in order of creation; the others restart."""
        with self._lock:
            self._to_come = {seed: list(of_seed) for seed, of_seed in positions}
            for seed, streams in self._by_seed().items():
                left = self._to_come.get(seed, [])
                for stream in streams:
                    stream.go_to(left.pop(0) if left else KeyStream(seed).position)

    def _by_seed(self) -> dict[int, list[KeyStream]]:
        streams: dict[int, list[KeyStream]] = {}
        for (seed, _), stream in sorted(self._alive.items(), key=itemgetter(0)):
            streams.setdefault(seed, []).append(stream)
        return streams


class _PerThread(threading.local):
    stream: KeyStream | None = None
    seed_of_child: int = _DEFAULT_SEED
    """The seed of a process that this thread forks."""


prng: np.random.RandomState
"""nnabla's NumPy generator: reading this attribute makes a new one, seeded by the next key and so reproducible under
`nn.seed`."""

_seeding = _Seeding(_DEFAULT_SEED)
_streams = _OwnStreams()
_own = _PerThread()
if threading.current_thread() is threading.main_thread():
    _own.stream = KeyStream(_DEFAULT_SEED)


def seed(value: int) -> None:
    """Restart the random draws of this thread: after `seed(3)` they are the same each time.

    Threads that draw for the first time after it get streams of their own, determined by `value`
    and the order in which they start; a thread that has already drawn is not affected. Likewise processes
    forked after it each draw as if they had called `seed` with a value of their own. A program that
    never calls `seed` draws the same in every run. Functions with a `seed` argument other than -1 are
    not affected.

    Args:
        value: The seed, from 0 to 2**64 - 1.
    """
    global _seeding
    value = checked_seed(value, "value")
    _seeding = _Seeding(value)
    _own.stream = KeyStream(value, since=_own.stream)


def _stream() -> KeyStream:
    """This thread's stream."""
    stream = _own.stream
    if stream is None:
        seeding = _seeding
        stream = _own.stream = KeyStream(seeding.value, next(seeding.branches))
    return stream


def next_key() -> Key:
    """The next key of this thread's stream."""
    return _stream()()


def key_source(seed: int = -1) -> KeyStream | _OfThread:
    """The source of a random function's keys: the thread's stream for -1, else a new stream with this seed."""
    return _OfThread() if seed == -1 else _streams.new(seed)


def get_draws() -> dict[str, Any]:
    """The state of random draws in this thread and in functions with their own seeds, serialisable as JSON."""
    stream = _own.stream
    return {
        "seed": _seeding.value,
        "thread": None if stream is None else stream.position,
        "built": None if stream is None else stream.built,
        "functions": _streams.get(),
    }


def set_draws(draws: dict[str, Any]) -> None:
    """Restore the state of random draws that `get_draws` returned. Streams of functions that are not made yet start
    there when they are made, in the same order."""
    seed(draws["seed"])
    if draws["thread"] is None:
        _own.stream = None
    else:
        next_stream = KeyStream(draws["seed"])
        next_stream.go_to(tuple(draws["thread"]))
        next_stream.built = tuple(draws.get("built") or next_stream.built)  # checkpoints of before have none
        _own.stream = next_stream
    _streams.set([(of, [(start, drawn) for start, drawn in positions]) for of, positions in draws["functions"]])


def _before_fork() -> None:
    seeding = _seeding
    _own.seed_of_child = mixed((seeding.value ^ mixed(next(seeding.forks))) & _MASK)


def _in_child() -> None:
    seed(_own.seed_of_child)


def __getattr__(name: str) -> np.random.RandomState:
    if name == "prng":
        return np.random.RandomState(next_key())
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_in_child)
