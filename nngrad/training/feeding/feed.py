"""`nn.feed`: batches that are on the devices before a step asks for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ...graph import build_options
from ...graph.arguments import checked_count
from .ahead import Ahead
from .placing import placed
from .sources import BatchSource, Position, source_of


class Feed:
    """Batches, moved to devices ahead of use. Made by `feed`; an iterator, which knows its position."""

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
                raise RuntimeError("the feed was closed, and the batches it had taken ahead from the iterator are gone")
            self._end()
            ahead = _ahead(self._source, self._count)
            self._end = ahead.close  # before there is a thread to be ended
            self._ahead = ahead
        batch, self._position = self._ahead.next()
        return batch

    def get_state(self) -> Position:
        """The position after the last batch that was taken, fit for JSON; what waits ahead does not count."""
        return self._position

    def set_state(self, state: Position) -> None:
        """Go on from a position that `get_state` gave, of a feed of the same input.

        Raises:
            ValueError: It is a position in input of another kind, or batches were taken of an iterator already.
        """
        self._source.check(state)
        if self._ahead is not None:
            if self._source.is_once:
                raise ValueError("state: batches were already taken from the iterator; restore before the first one, "
                                 "or give an iterable, which can start again")
            self.close()
        self._source.go_to(state)
        self._position = self._source.position()

    def close(self) -> None:
        """End what works ahead. The next batch starts it again, from the position that was reached; not so for an
        iterator, which cannot go back."""
        if self._ahead is not None:
            self._source.go_to(self._position)
            self._has_lost = self._source.is_once
            self._ahead = None  # before it ends: what is interrupted while it does gives no more batches
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
    """Batches of `source`, read and moved to devices by a thread of its own, before a step asks for them.

        batches = nn.feed(lambda epoch: shuffled(images, labels, seed=epoch), epochs=10)
        for x, t in batches:
            loss = step(x, t)

    Batches are arrays, in tuples, lists and dicts; NumPy arrays in them become arrays on the device of the context, or
    on the mesh that is in force where the first batch is asked for, divided over `data`. With several processes each
    gives its own part of every batch, all of the same shape: of a loader of grain with `ShardByJaxProcess`, of a data
    set of grain with `ds[jax.process_index()::jax.process_count()]`. Anything else in a batch stays as it is.

    An error in `source` comes out of the loop where its batch would have come. The position, which a
    `Checkpointer(feed=...)` saves, counts the batches that were taken, not those that wait. Loaders and data sets of
    grain go there by themselves; for others batches are read again and dropped, from the beginning of the epoch on, so
    they must be the same again: shuffled by a seed that follows from the epoch.

    Code of `source` runs in the thread: `nn.random` draws there are not those of the loop.

    Args:
        source: An iterable or an iterator of batches; a function that returns one for the number of an epoch, from 0
            on; or a DataLoader, MapDataset or IterDataset of grain.
        ahead: How many batches may wait on the devices, 1 or more.
        epochs: How many times `source` is gone through; None for no end. An iterator is gone through once.

    Raises:
        TypeError: `source` is nothing of that kind, or a number no int.
        ValueError: A number is less than 1, or `epochs` is not 1 for an iterator, or for grain.
    """
    for name, value in (("ahead", ahead), ("epochs", epochs)):
        if name == "epochs" and value is None:
            continue
        checked_count(value, name)
    return Feed(source_of(source, epochs), int(ahead))


def _ahead(source: BatchSource, count: int) -> Ahead:
    """The batches of `source` on their devices, ahead of use."""
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
