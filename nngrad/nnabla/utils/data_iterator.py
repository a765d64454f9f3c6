"""nnabla's data iterators: batches of a source's examples, prefetched by a thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...extend import checked_count
from .data_source import (
    CacheDataSource,
    DataSource,
    DataSourceWithFileCache,
    DataSourceWithMemoryCache,
    Example,
    Generator,
    SlicedDataSource,
)
from .data_source_implements import ConcatDataSource, CsvDataSource, SimpleDataSource

Callback = Callable[[int], object]


class _Batch(NamedTuple):
    """The arrays of a batch, and the source's position after it."""

    arrays: tuple[Any, ...]
    epoch: int
    position: int


class DataIterator:
    """Endless batches: a source's examples, epoch after epoch. A batch may span two epochs, so that all have the same
    size.

    Args:
        data_source: The source of the examples.
        batch_size: The number of examples in a batch.
        rng: Accepted for compatibility with nnabla; sources determine the order.
        use_thread: Whether a thread prepares the next batch while this one is used.
        epoch_begin_callbacks: Functions to call with the number of an epoch when its first batch is made.
        epoch_end_callbacks: Functions to call with the number of an epoch when its last example was taken.

    Raises:
        ValueError: The source is empty, or `batch_size` is less than 1.
    """

    def __init__(
        self, data_source: DataSource, batch_size: int, rng: Generator | None = None, use_thread: bool = True,
        epoch_begin_callbacks: Sequence[Callback] = (), epoch_end_callbacks: Sequence[Callback] = (),
    ) -> None:  # fmt: skip
        checked_count(batch_size, "batch_size")
        if data_source.size < 1:
            raise ValueError("data_source: must have at least one example")
        self._source, self._batch_size = data_source, batch_size
        self._begins, self._ends = list(epoch_begin_callbacks), list(epoch_end_callbacks)
        self._filled = -1
        self._epoch, self._position = -1, 0
        self._next_epoch()
        self._ahead = ThreadPoolExecutor(1, "nngrad data iterator") if use_thread else None
        self._next: Future[_Batch] | None = None
        self._closed = False

    def _next_epoch(self) -> None:
        if self._filled >= 0:
            for call in self._ends:
                call(self._filled)
        self._filled += 1
        for call in self._begins:
            call(self._filled)
        self._source.reset()

    def _batch(self) -> _Batch:
        examples: list[Example] = []
        for _ in range(self._batch_size):
            examples.append(self._source.next())
            if self._source.position >= self._source.size:
                self._next_epoch()
        arrays = tuple(np.array(column) for column in zip(*examples, strict=True))
        return _Batch(arrays, self._filled, self._source.position)

    def next(self) -> tuple[Any, ...]:
        """The next batch: an array for each variable of the source, with examples along its first axis.

        Raises:
            RuntimeError: The iterator was closed.
        """
        if self._closed:
            raise RuntimeError("this data iterator was closed")
        if self._ahead is None:
            batch = self._batch()
        else:
            batch = (self._next or self._ahead.submit(self._batch)).result()
            self._next = self._ahead.submit(self._batch)
        self._epoch, self._position = batch.epoch, batch.position
        return batch.arrays

    def __next__(self) -> tuple[Any, ...]:
        return self.next()

    def __iter__(self) -> DataIterator:
        return self

    def __enter__(self) -> DataIterator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the thread and the source's files."""
        self._closed = True
        if self._ahead is not None:
            self._ahead.shutdown(cancel_futures=True)
        self._source.close()

    @property
    def epoch(self) -> int:
        """The number of epochs completed by the last batch; -1 before the first one."""
        return self._epoch

    @property
    def position(self) -> int:
        """The number of examples of the epoch returned so far, including the last batch."""
        return self._position

    @property
    def size(self) -> int:
        """The number of examples in an epoch."""
        return self._source.size

    @property
    def variables(self) -> Sequence[str]:
        """The names of an example's variables."""
        return self._source.variables

    @property
    def batch_size(self) -> int:
        """The number of examples in a batch."""
        return self._batch_size

    def register_epoch_begin_callback(self, callback: Callback) -> None:
        """Call a function with the number of each epoch at its beginning."""
        self._begins.append(callback)

    def register_epoch_end_callback(self, callback: Callback) -> None:
        """Call a function with the number of each epoch at its end."""
        self._ends.append(callback)

    def slice(
        self, rng: Generator | None, num_of_slices: int | None = None, slice_pos: int | None = None,
        slice_start: int | None = None, slice_end: int | None = None, cache_dir: str | Path | None = None,
    ) -> DataIterator:  # fmt: skip
        """Batches of a part of the examples, for one process of several.

        Args:
            rng: The random generator for the order of the part.
            num_of_slices: The number of parts, which have equal sizes; left-over examples are in none.
            slice_pos: The index of the part, from 0.
            slice_start: The first position, instead of `num_of_slices` and `slice_pos`.
            slice_end: The position after the last, likewise.
            cache_dir: A folder for a cache of the part in files.

        Raises:
            ValueError: Neither pair of arguments is given, or both are.
        """
        by_number = num_of_slices is not None and slice_pos is not None
        by_position = slice_start is not None and slice_end is not None
        if by_number == by_position:
            raise ValueError("slice: pass either num_of_slices and slice_pos, or slice_start and slice_end")
        if num_of_slices is not None and slice_pos is not None:
            length, left = divmod(self.size, num_of_slices)
            slice_start = min(slice_pos * length + min(slice_pos, left), self.size - length)
            slice_end = slice_start + length
        part: DataSource = SlicedDataSource(self._source, slice_start=slice_start or 0, slice_end=slice_end)
        if cache_dir is not None:
            name = f"cache_sliced_{slice_start:08d}_{slice_end:08d}"
            part = DataSourceWithFileCache(part, cache_dir, name, self._source.shuffle, rng)
        return DataIterator(DataSourceWithMemoryCache(part, self._source.shuffle, rng), self._batch_size)


def data_iterator(
    data_source: DataSource, batch_size: int, rng: Generator | None = None, with_memory_cache: bool = True,
    with_file_cache: bool = False, cache_dir: str | Path | None = None,
    epoch_begin_callbacks: Sequence[Callback] = (), epoch_end_callbacks: Sequence[Callback] = (), **options: Any,
) -> DataIterator:  # fmt: skip
    """Batches of a source, optionally cached.

    Args:
        data_source: The source of the examples.
        batch_size: The number of examples in a batch.
        rng: The random generator for the order of caches.
        with_memory_cache: Whether examples are kept in memory, if all take less than 1 GiB.
        with_file_cache: Whether examples are kept in files.
        cache_dir: The folder of the files; by default a temporary one.
        epoch_begin_callbacks: Functions to call with the number of an epoch when its first batch is made.
        epoch_end_callbacks: Functions to call with the number of an epoch when its last example was taken.
        **options: `use_thread` of `DataIterator`.
    """
    if with_file_cache:
        data_source = DataSourceWithFileCache(data_source, cache_dir, shuffle=data_source.shuffle, rng=rng)
    if with_memory_cache:
        data_source = DataSourceWithMemoryCache(data_source, data_source.shuffle, rng)
    return DataIterator(
        data_source, batch_size, rng, epoch_begin_callbacks=epoch_begin_callbacks,
        epoch_end_callbacks=epoch_end_callbacks, **options,
    )  # fmt: skip


def data_iterator_simple(
    load_func: Callable[[int], Example], num_examples: int, batch_size: int, shuffle: bool = False,
    rng: Generator | None = None, with_memory_cache: bool = True, with_file_cache: bool = False, **options: Any,
) -> DataIterator:  # fmt: skip
    """Batches of the examples that a function returns.

    Args:
        load_func: A function of the index of an example, which returns a tuple of arrays.
        num_examples: The number of examples.
        batch_size: The number of examples in a batch.
        shuffle: Whether the order is random.
        rng: The random generator for the order.
        with_memory_cache: As in `data_iterator`.
        with_file_cache: As in `data_iterator`.
        **options: Further arguments of `data_iterator`.
    """
    source = SimpleDataSource(load_func, num_examples, shuffle, rng)
    return data_iterator(source, batch_size, rng, with_memory_cache, with_file_cache, **options)


def data_iterator_csv_dataset(
    uri: str | Path, batch_size: int, shuffle: bool, rng: Generator | None = None, normalize: bool = True,
    with_memory_cache: bool = True, with_file_cache: bool = False, **options: Any,
) -> DataIterator:  # fmt: skip
    """Batches of the rows of a CSV file, read by `CsvDataSource`.

    Args:
        uri: The file.
        batch_size: The number of examples in a batch.
        shuffle: Whether the order is random.
        rng: The random generator for the order.
        normalize: Whether images are scaled to 0 to 1.
        with_memory_cache: As in `data_iterator`.
        with_file_cache: As in `data_iterator`.
        **options: Further arguments of `data_iterator`.
    """
    source = CsvDataSource(uri, shuffle, rng, normalize)
    return data_iterator(source, batch_size, rng, with_memory_cache, with_file_cache, **options)


def data_iterator_cache(
    uri: str | Path, batch_size: int, shuffle: bool, rng: Generator | None = None, normalize: bool = True,
    with_memory_cache: bool = True, **options: Any,
) -> DataIterator:  # fmt: skip
    """Batches from a folder of a file cache, read by `CacheDataSource`.

    Args:
        uri: The folder.
        batch_size: The number of examples in a batch.
        shuffle: Whether the order is random.
        rng: The random generator for the order.
        normalize: Whether arrays of uint8 are scaled to 0 to 1.
        with_memory_cache: As in `data_iterator`.
        **options: Further arguments of `data_iterator`.
    """
    return data_iterator(CacheDataSource(uri, shuffle, rng, normalize), batch_size, rng, with_memory_cache, **options)


def data_iterator_concat_datasets(
    data_source_list: Sequence[DataSource], batch_size: int, shuffle: bool = True, rng: Generator | None = None,
    **options: Any,
) -> DataIterator:  # fmt: skip
    """Batches of several sources.

    Args:
        data_source_list: The sources.
        batch_size: The number of examples in a batch.
        shuffle: Whether the order is random, across all sources; if not, one source comes after another.
        rng: The random generator for the order.
        **options: Further arguments of `data_iterator`.
    """
    return data_iterator(ConcatDataSource(data_source_list, shuffle, rng), batch_size, rng, **options)
