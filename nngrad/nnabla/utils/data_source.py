"""nnabla's data sources, from which a `DataIterator` takes examples, and caches of them."""

from __future__ import annotations

import csv
import functools
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...files.formats import package_for

Example = Sequence[Any]
Generator = np.random.RandomState | np.random.Generator
_SEED = 313
_MOST_BYTES = 1 << 30
"""The maximum size of a source that is kept in memory."""
_FILE_SIZE = 100
"""The number of examples in one file of a cache."""


class DataSource:
    """Examples in some order, one epoch after another.

    A subclass defines `_get_data(position)`, which returns the example at a position of the current order as a tuple of
    arrays or numbers, and sets `_size` (the number of examples) and `_variables` (the names of an example's variables).
    `reset()` begins an epoch; a shuffling source draws a new order there, and calls `super().reset()`.

    Args:
        shuffle: Whether the order is random.
        rng: The random generator for the order; by default one with seed 313.
    """

    def __init__(self, shuffle: bool = False, rng: Generator | None = None) -> None:
        self._rng = np.random.RandomState(_SEED) if rng is None else rng
        self._shuffle = shuffle
        self._variables: Sequence[str] = ()
        self._size = 0
        self._position = 0
        self._generation = -1

    def _get_data(self, position: int) -> Example:
        raise NotImplementedError(f"{type(self).__name__} does not define _get_data(position)")

    def next(self) -> Example:
        """The next example."""
        position = self._position
        data = self._get_data(position)
        self._position = position + 1
        return data

    def __next__(self) -> Example:
        return self.next()

    def reset(self) -> None:
        """Begin a new epoch."""
        self._position = 0
        self._generation += 1

    def close(self) -> None:
        """Release files."""

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def variables(self) -> Sequence[str]:
        """The names of an example's variables."""
        return self._variables

    @property
    def position(self) -> int:
        """The number of examples returned in this epoch."""
        return self._position

    @property
    def size(self) -> int:
        """The number of examples."""
        return self._size

    @property
    def shuffle(self) -> bool:
        """True if the order is random."""
        return self._shuffle

    @shuffle.setter
    def shuffle(self, value: bool) -> None:
        self._shuffle = value

    def _new_order(self, count: int) -> Any:
        return self._rng.permutation(count) if self._shuffle else np.arange(count)


class _Ordered(DataSource):
    """A source that starts with an order of its examples, and draws a new one for each later epoch."""

    _order: Any

    def _drawn(self) -> Any:
        return self._new_order(self._size)

    def reset(self) -> None:
        super().reset()
        if self._generation:
            self._order = self._drawn()


class _Of(DataSource):
    """A source that wraps another."""

    def __init__(self, data_source: DataSource, shuffle: bool, rng: Generator | None) -> None:
        super().__init__(shuffle, rng)
        self._data_source, self._variables, self._size = data_source, data_source.variables, data_source.size

    def close(self) -> None:
        self._data_source.close()


class DataSourceWithMemoryCache(_Of):
    """A source whose examples are kept in memory if they take less than 1 GiB together. The first epoch has the order
    of the source; later ones draw orders of their own.

    Args:
        data_source: The source.
        shuffle: Whether the order is random.
        rng: The random generator for the order.
    """

    def __init__(self, data_source: DataSource, shuffle: bool = False, rng: Generator | None = None) -> None:
        super().__init__(data_source, shuffle, rng)
        self._kept: dict[int, Example] = {}
        self._order: Any = np.arange(self._size)
        first = data_source._get_data(0) if self._size else ()
        self._in_memory = sum(np.asarray(x).nbytes for x in first) * self._size < _MOST_BYTES

    def _get_data(self, position: int) -> Example:
        if not self._in_memory:
            return self._data_source._get_data(position)
        at = int(self._order[position])
        if at not in self._kept:
            self._kept[at] = self._data_source._get_data(at)
        return self._kept[at]

    def reset(self) -> None:
        super().reset()
        if not self._in_memory:
            self._data_source.reset()
        elif self._generation:
            self._order = self._new_order(self._size)


class CacheDataSource(_Ordered):
    """The examples in a folder written by `DataSourceWithFileCache`, here or in nnabla: NumPy's files, or .h5 files. A
    random order shuffles the files, and the examples within each file.

    Args:
        cachedir: The folder.
        shuffle: Whether the order is random.
        rng: The random generator for the order.
        normalize: Whether arrays of uint8 are scaled to 0 to 1, in float32.

    Raises:
        ImportError: The files are .h5, and h5py is not installed.
        OSError: A file cannot be read.
    """

    def __init__(
        self, cachedir: str | Path, shuffle: bool = False, rng: Generator | None = None, normalize: bool = False
    ) -> None:
        super().__init__(shuffle, rng)
        self._folder, self._normalize = Path(cachedir), normalize
        with (self._folder / "cache_index.csv").open(newline="") as file:
            self._files = [(name, int(length)) for name, length in csv.reader(file)]
        self._columns = functools.lru_cache(maxsize=2)(self._read)
        info = self._folder / "cache_info.csv"
        if info.exists():
            self._variables = tuple(info.read_text().split())
        else:
            self._variables = tuple(_read_h5(self._folder / self._files[0][0]))
        self._size = sum(length for _, length in self._files)
        self._order = self._drawn()

    def _drawn(self) -> list[tuple[str, int]]:
        files = [self._files[i] for i in self._new_order(len(self._files))]
        return [(name, int(i)) for name, length in files for i in self._new_order(length)]

    def _read(self, name: str) -> list[Any]:
        path = self._folder / name
        if path.suffix == ".h5":
            columns = _read_h5(path)
            return [columns[variable] for variable in self._variables]
        with path.open("rb") as file:
            return [np.load(file, allow_pickle=False) for _ in self._variables]

    def _get_data(self, position: int) -> Example:
        name, index = self._order[position]
        values = [column[index] for column in self._columns(name)]
        if self._normalize:
            values = [x.astype(np.float32) / 255 if x.dtype == np.uint8 else x for x in values]
        return tuple(values)


def _read_h5(path: Path) -> dict[str, Any]:
    h5py = package_for("h5py", "h5py", f"{path}: '.h5' files")
    with h5py.File(path, "r") as file:
        return {name: values[()] for name, values in file.items()}


class DataSourceWithFileCache(_Of):
    """A source whose examples are written to NumPy's files, 100 to each, and read from there. A random order shuffles
    the files, and the examples within each file. `CacheDataSource` can read the folder later.

    Args:
        data_source: The source.
        cache_dir: The folder; by default a temporary one, deleted with the source.
        cache_file_name_prefix: The prefix of file names.
        shuffle: Whether the order is random.
        rng: The random generator for the order.
    """

    def __init__(
        self, data_source: DataSource, cache_dir: str | Path | None = None, cache_file_name_prefix: str = "cache",
        shuffle: bool = False, rng: Generator | None = None,
    ) -> None:  # fmt: skip
        super().__init__(data_source, shuffle, rng)
        self._temporary = None if cache_dir is not None else tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        folder = Path(self._temporary.name if self._temporary else cache_dir or "")
        folder.mkdir(parents=True, exist_ok=True)
        self._cache_dir = str(folder)
        self._write(folder, cache_file_name_prefix)
        self._files = CacheDataSource(self._cache_dir, shuffle=shuffle, rng=self._rng)

    def _write(self, folder: Path, prefix: str) -> None:
        lengths = []
        for start in range(0, self._size, _FILE_SIZE):
            stop = min(start + _FILE_SIZE, self._size)
            examples = [self._data_source._get_data(i) for i in range(start, stop)]
            name = f"{prefix}_{start:08d}_{stop - 1:08d}.npy"
            with (folder / name).open("wb") as file:
                for column in zip(*examples, strict=True):
                    np.save(file, np.stack([np.asarray(x) for x in column]))
            lengths.append((name, stop - start))
        for name, rows in (("cache_index.csv", lengths), ("cache_info.csv", [(v,) for v in self._variables])):
            with (folder / name).open("w", newline="") as file:
                csv.writer(file, lineterminator="\n").writerows(rows)

    def _get_data(self, position: int) -> Example:
        return self._files._get_data(position)

    def reset(self) -> None:
        super().reset()
        self._files.reset()

    def close(self) -> None:
        super().close()
        if self._temporary:
            self._temporary.cleanup()


class SlicedDataSource(_Of):
    """The examples of a source at the positions from `slice_start` to before `slice_end`, in the order of each epoch.

    Args:
        data_source: The source.
        shuffle: Accepted for compatibility with nnabla; the order is that of the source.
        rng: Likewise.
        slice_start: The first position.
        slice_end: The position after the last.
    """

    def __init__(
        self, data_source: DataSource, shuffle: bool = False, rng: Generator | None = None, slice_start: int = 0,
        slice_end: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__(data_source, shuffle, rng)
        self._start = slice_start
        self._size = (data_source.size if slice_end is None else slice_end) - slice_start

    def _get_data(self, position: int) -> Example:
        return self._data_source._get_data(self._start + position)

    def reset(self) -> None:
        super().reset()
        self._data_source.reset()
