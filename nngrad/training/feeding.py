"""`nn.feed`: batches from any source, on their devices, and the position among them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Any, TypeAlias

import jax
import numpy as np

from ..extend import build_options, checked_count, placement, x64_if
from ..parallel.exchange import parts_of

Position = dict[str, Any]
"""A position in the input, as JSON values."""
Batches: TypeAlias = Generator[tuple[Any, Position], None, None]
"""Batches, each with the position after it."""


class Feed:
    """An iterator of batches that knows its position. Made by `feed`; by `nn.fit`, batches stay where they are."""

    def __init__(self, source: Counted | OfGrain, moves: bool) -> None:
        self._source, self._moves = source, moves
        self._position = source.start
        self._batches: Batches | None = None  # from that position on
        self._has_lost = False

    def __iter__(self) -> Feed:
        return self

    def __next__(self) -> Any:
        if self._has_lost:
            raise RuntimeError("the feed was closed, and its iterator cannot go back")
        if self._batches is None:
            batches = self._source.batches(self._position)
            self._batches = _placed_batches(batches) if self._moves else batches
        try:
            batch, self._position = next(self._batches)
        except StopIteration:
            raise
        except BaseException:  # a batch may be lost, so the next request reads again
            self.close()
            raise
        return batch

    def get_state(self) -> Position:
        """The position after the last batch that was taken, as JSON values."""
        return self._position

    def set_state(self, state: Position) -> None:
        """Continue from a position that `get_state` returned for the same input.

        Raises:
            ValueError: The position belongs to another kind of input, or batches were already taken from an iterator.
        """
        if state.keys() != self._source.start.keys():
            expected = " and ".join(map(repr, self._source.start))
            raise ValueError(f"state: expected {expected} as keys, got {sorted(state)}")
        if self._source.is_once and (self._batches is not None or self._has_lost):
            raise ValueError("state: batches were already taken from the iterator; restore before the first batch, or "
                             "pass an iterable, which can start again")
        self.close()
        self._position = state

    def close(self) -> None:
        """Stop reading. The next request starts again at the current position; an iterator cannot go back, and is
        finished."""
        batches, self._batches = self._batches, None
        if batches is not None:
            self._has_lost = self._source.is_once
            batches.close()

    def __enter__(self) -> Feed:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<feed at {self._position}>"


def feed(source: Iterable[Any] | Callable[[int], Iterable[Any]], epochs: int | None = 1) -> Feed:
    """Batches of `source` on their devices, by an iterator whose position a checkpoint saves.

        batches = nn.feed(lambda epoch: shuffled(images, labels, seed=epoch), epochs=10)
        for x, t in batches:
            loss = step(x, t)

    A step returns before the device has computed it, so the loop reads the next batch and begins to move it meanwhile.
    Where reading takes longer than a step, pass a loader of grain with worker processes.

    Batches are arrays, in tuples, lists and dicts. NumPy arrays become arrays on the context's device, or on the mesh
    that is current when the first batch is requested, sharded over `data`. With several processes each yields its own
    part of every batch, all of the same shape: from a loader of grain with `ShardByJaxProcess`, from a data set of
    grain with `ds[jax.process_index()::jax.process_count()]`. Anything else in a batch stays as it is.

    A `Checkpointer(feed=...)` saves the position. Loaders and data sets of grain seek to it. For other sources, batches
    are read again from the start of the epoch and dropped, so they must be reproducible: for example, shuffled with a
    seed that depends only on the epoch.

    Args:
        source: An iterable or an iterator of batches; a function from the number of an epoch, from 0, to an iterable;
            or a DataLoader, MapDataset or IterDataset of grain.
        epochs: The number of times to iterate over `source`; None for endlessly. An iterator is used once.

    Raises:
        TypeError: `source` is not of these kinds, or `epochs` is not an int.
        ValueError: `epochs` is less than 1, or not 1 for an iterator or for grain.
    """
    if epochs is not None:
        checked_count(epochs, "epochs")
    return Feed(source_of(source, epochs), True)

# ---------------------------------------------------------------- moving to devices


def _placed_batches(batches: Batches) -> Batches:
    options = build_options()
    mesh, context = options.running.mesh, options.applying.context
    device = None if context is None else context.device

    def placed(leaf: Any) -> Any:
        return _placed_array(leaf, mesh, device) if isinstance(leaf, np.ndarray) else leaf

    try:
        for batch, position in batches:
            yield jax.tree.map(placed, batch), position
    finally:
        batches.close()


def _placed_array(array: np.ndarray[Any, Any], mesh: placement.Mesh | None, device: jax.Device | None) -> Any:
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

# ---------------------------------------------------------------- sources


def source_of(source: Any, epochs: int | None, name: str = "source") -> Counted | OfGrain:
    """The argument of `nn.feed` as a source of batches; `name` is for errors.

    Raises:
        TypeError: `source` is not a source of batches.
        ValueError: The source does not support `epochs`.
    """
    if callable(source) and not hasattr(source, "__iter__"):
        return Counted(source, epochs, is_once=False)
    if not hasattr(source, "__iter__"):
        raise TypeError(f"{name}: expected an iterable, a function of the epoch, or a loader or data set of grain, "
                        f"got {type(source).__name__}")
    if is_of_grain(source):
        if epochs != 1:
            raise ValueError(f"epochs: must be 1 for grain, got {epochs}; use grain's own num_epochs or repeat()")
        return OfGrain(source.to_iter_dataset() if hasattr(source, "to_iter_dataset") else source)
    is_once = hasattr(source, "__next__")
    if is_once and epochs != 1:
        raise ValueError(f"epochs: must be 1 for an iterator, which can be used only once, got {epochs}; pass an "
                         "iterable, or a function of the epoch that returns one")
    return Counted(lambda _: source, epochs, is_once)


def is_of_grain(source: Any) -> bool:
    """True for a loader or a data set of grain's."""
    return type(source).__module__.partition(".")[0] == "grain"


class Counted:
    """Batches of reproducible iterables; the position is the number of batches taken. `epoch` returns the iterable of
    an epoch, numbered from 0; `epochs` is None for an endless source; with `is_once` it is an iterator, which cannot
    start again."""

    def __init__(self, epoch: Callable[[int], Iterable[Any]], epochs: int | None, is_once: bool) -> None:
        self._epoch, self._epochs, self.is_once = epoch, epochs, is_once
        self.start: Position = {"epoch": 0, "batches": 0}

    def batches(self, position: Position) -> Batches:
        """The batches from a position on."""
        epoch, taken = position["epoch"], position["batches"]
        while self._epochs is None or epoch < self._epochs:
            iterator: Any = iter(self._epoch(epoch))
            try:
                for number in range(taken):
                    try:
                        next(iterator)
                    except StopIteration:
                        raise ValueError(f"cannot resume after {taken} batches of epoch {epoch}: the input has only "
                                         f"{number}; it must be the same as before") from None
                number = taken
                for batch in iterator:
                    number += 1
                    yield batch, {"epoch": epoch, "batches": number}
            finally:
                if not self.is_once and hasattr(iterator, "close"):  # a generator, which releases its resources
                    iterator.close()
            if number == 0 and self._epochs is None:
                raise ValueError(f"the input has no batches in epoch {epoch}, and the number of epochs is unlimited")
            epoch, taken = epoch + 1, 0


class OfGrain:
    """Batches of grain's loaders and data sets, whose iterators have `get_state` and `set_state`."""

    is_once = False
    start: Position = {"grain": None}  # noqa: RUF012  it is never changed

    def __init__(self, iterable: Iterable[Any]) -> None:
        self._iterable = iterable

    def batches(self, position: Position) -> Batches:
        """The batches from a position on."""
        iterator: Any = iter(self._iterable)
        state = position["grain"]
        try:
            if state is not None:
                iterator.set_state(state["bytes"].encode() if state.keys() == {"bytes"} else state)
            for batch in iterator:
                state = iterator.get_state()  # of a loader it is text in bytes
                yield batch, {"grain": {"bytes": state.decode()} if isinstance(state, bytes) else state}
        finally:
            if hasattr(iterator, "close"):
                iterator.close()
