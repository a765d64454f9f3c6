"""`nn.feed`: prefetch batches to the devices."""

from __future__ import annotations

import contextvars
import functools
import queue
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import numpy as np

from ...distributed.devices.grid import Mesh
from ...distributed.exchange import parts_of
from ...graph import build_options
from ...graph.arguments import checked_count
from ...graph.process import OwnThread
from ...graph.spec import x64_if
from .sources import BatchSource, Position, source_of


class Feed:
    """An iterator of prefetched batches that knows its position. Made by `feed`."""

    def __init__(self, source: BatchSource, ahead: int) -> None:
        self._source = source
        self._count = ahead
        self._position = source.position()
        self._ahead: Ahead | None = None
        self._end: Callable[[], Any] = lambda: None
        self._has_lost = False

    def __iter__(self) -> Feed:
        return self

    def __next__(self) -> Any:
        if self._ahead is None:
            if self._has_lost:
                raise RuntimeError("the feed was closed, and the batches that it had prefetched are lost")
            self._end()
            ahead = _ahead(self._source, self._count)
            self._end = ahead.close  # set before the thread starts
            self._ahead = ahead
        batch, self._position = self._ahead.next()
        return batch

    def get_state(self) -> Position:
        """The position after the last batch that was taken, as JSON values; prefetched batches do not count."""
        return self._position

    def set_state(self, state: Position) -> None:
        """Continue from a position that `get_state` returned for the same input.

        Raises:
            ValueError: The position belongs to another kind of input, or batches were already taken from an iterator.
        """
        self._source.check(state)
        if self._ahead is not None:
            if self._source.is_once:
                raise ValueError("state: batches were already taken from the iterator; restore before the first batch, "
                                 "or pass an iterable, which can start again")
            self.close()
        self._source.go_to(state)
        self._position = self._source.position()

    def close(self) -> None:
        """Stop prefetching. The next request restarts it at the current position; an iterator cannot go back, and is
        finished."""
        if self._ahead is not None:
            self._source.go_to(self._position)
            self._has_lost = self._source.is_once
            self._ahead = None  # before closing, so that an interrupted close yields no more batches
        self._end()

    def __enter__(self) -> Feed:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<feed, {self._count} ahead, at {self._position}>"


def feed(
    source: Iterable[Any] | Callable[[int], Iterable[Any]], ahead: int = 2, epochs: int | None = 1
) -> Feed:
    """Prefetch batches of `source`: a separate thread reads them and moves them to devices before a step needs them.

        batches = nn.feed(lambda epoch: shuffled(images, labels, seed=epoch), epochs=10)
        for x, t in batches:
            loss = step(x, t)

    Batches are arrays, in tuples, lists and dicts. NumPy arrays become arrays on the context's device, or on the mesh
    that is current when the first batch is requested, sharded over `data`. With several processes each yields its own
    part of every batch, all of the same shape: from a loader of grain with `ShardByJaxProcess`, from a data set of
    grain with `ds[jax.process_index()::jax.process_count()]`. Anything else in a batch stays as it is.

    An error in `source` is raised in the loop in place of its batch. The position, which a `Checkpointer(feed=...)`
    saves, counts the batches that were taken, not prefetched ones. Loaders and data sets of grain seek to it. For other
    sources, batches are read again from the start of the epoch and dropped, so they must be reproducible: for example,
    shuffled with a seed that depends only on the epoch.

    The code of `source` runs in the thread, so `nn.random` has a separate state there.

    Args:
        source: An iterable or an iterator of batches; a function from the number of an epoch, from 0, to an iterable;
            or a DataLoader, MapDataset or IterDataset of grain.
        ahead: The maximum number of prefetched batches on the devices, at least 1.
        epochs: The number of times to iterate over `source`; None for endlessly. An iterator is used once.

    Raises:
        TypeError: `source` is not of these kinds, or a number is not an int.
        ValueError: A number is less than 1, or `epochs` is not 1 for an iterator or for grain.
    """
    ahead = checked_count(ahead, "ahead")
    if epochs is not None:
        checked_count(epochs, "epochs")
    return Feed(source_of(source, epochs), ahead)


def _ahead(source: BatchSource, count: int) -> Ahead:
    """The batches of `source`, prefetched to their devices."""
    options = build_options()
    mesh, context = options.running.mesh, options.applying.context
    device = None if context is None else context.device

    def results() -> Iterator[tuple[Any, Position]]:
        batches = source.batches()
        try:
            for batch, position in batches:
                yield placed(batch, mesh, device), position
        finally:
            batches.close()

    return Ahead(results, count)


def placed(batch: Any, mesh: Mesh | None, device: jax.Device | None) -> Any:
    """The batch with its NumPy arrays copied to devices, in memory of their own; everything else is unchanged."""
    made = jax.tree.map(lambda leaf: _placed_array(leaf, mesh, device) if isinstance(leaf, np.ndarray) else leaf, batch)
    # Wait in this thread, which delays nobody, so that no more batches are in transit than requested.
    jax.block_until_ready([leaf for leaf in jax.tree.leaves(made) if isinstance(leaf, jax.Array)])
    return made


def _placed_array(array: np.ndarray[Any, Any], mesh: Mesh | None, device: jax.Device | None) -> Any:
    if array.dtype.kind not in "biufV" or (array.dtype.kind == "V" and array.dtype.fields is not None):
        return array  # strings, objects, records
    # Copied by NumPy, since JAX may read the given array after the call, even after waiting for the result, and a
    # source may write its next batch into the same memory.
    array = array.copy()
    with x64_if(array.dtype.itemsize == 8):
        if mesh is None:
            return jax.device_put(array, device)
        if not mesh.spans_processes:
            return jax.device_put(array, mesh.of_batch(array.shape))
        whole = (array.shape[0] * parts_of(mesh), *array.shape[1:]) if array.ndim else ()
        return jax.make_array_from_process_local_data(mesh.of_batch(whole), array, whole)


_SECONDS = 0.1
"""Seconds between polls by either side, since an interrupt may lose a notification."""
_PATIENCE = 5.0
"""Seconds to wait for the end of the thread, since users' code may not return."""


class Ahead:
    """Results of the iterator that `start` returns, computed by a thread in the context of its creator. The thread
    starts when the first result is requested. At most `count` results are buffered."""

    def __init__(self, start: Callable[[], Iterator[Any]], count: int) -> None:
        self._between = _Between(count, weakref.ref(self))
        work = functools.partial(contextvars.copy_context().run, _work, start, self._between)
        self._thread = OwnThread(work)
        weakref.finalize(self, _close, self._between, self._thread)  # also when the interpreter exits

    def next(self) -> Any:
        """The next result.

        Raises:
            StopIteration: There are no more results.
            Exception: Whatever the iterator raised, with its traceback.
        """
        self._thread.start()
        between = self._between
        while not between.results:
            if between.has_ended and not between.results:
                raise StopIteration if between.error is None else between.error
            _wait(between.to_reader)
        result = between.results.popleft()
        between.to_thread.put(None)
        return result

    def close(self) -> None:
        """End the thread, and close the iterator."""
        _close(self._between, self._thread)


class _Between:
    """The state shared by thread and reader. It has no lock that an interrupt could leave held."""

    def __init__(self, count: int, reader: weakref.ref[Any]) -> None:
        self.count = count
        self.reader = reader
        self.results: deque[Any] = deque()
        self.error: BaseException | None = None
        self.has_ended = False
        self.is_closed = False
        self.to_reader: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.to_thread: queue.SimpleQueue[None] = queue.SimpleQueue()

    def is_over(self) -> bool:
        """Whether the reader is gone. An interrupt during finalisation may cancel the finaliser, so the thread checks
        whether the reader still exists."""
        return self.is_closed or self.reader() is None


def _close(between: _Between, thread: OwnThread) -> None:
    between.is_closed = True
    between.to_thread.put(None)
    thread.end(_PATIENCE)
    between.results.clear()


def _wait(bell: queue.SimpleQueue[None]) -> None:
    try:
        bell.get(timeout=_SECONDS)
    except queue.Empty:
        return


def _work(start: Callable[[], Iterator[Any]], between: _Between) -> None:
    """The body of the thread. It holds no reference to the reader, so that the reader can be collected."""
    try:
        results = start()
        try:
            for result in results:
                while len(between.results) >= between.count and not between.is_over():
                    _wait(between.to_thread)
                if between.is_over():
                    return
                between.results.append(result)
                between.to_reader.put(None)
        finally:
            if hasattr(results, "close"):
                results.close()
    except BaseException as error:  # passed on to the reader
        between.error = error
    finally:
        between.has_ended = True
        between.to_reader.put(None)
