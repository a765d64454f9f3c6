"""nnabla's data sources for functions and CSV files, and concatenated sources."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .data_source import CacheDataSource as CacheDataSource
from .data_source import DataSource, Example, Generator, _Ordered
from .data_source_loader import FileReader, load


class SimpleDataSource(_Ordered):
    """The examples that a function returns.

    Args:
        load_func: A function of the index of an example, which returns a tuple of arrays.
        num_examples: The number of examples.
        shuffle: Whether the order is random.
        rng: The random generator for the order.
    """

    def __init__(
        self, load_func: Callable[[int], Example], num_examples: int, shuffle: bool = False,
        rng: Generator | None = None,
    ) -> None:  # fmt: skip
        super().__init__(shuffle, rng)
        self._load_func, self._size = load_func, num_examples
        self._variables = tuple(f"x{i}" for i, _ in enumerate(load_func(0)))
        self._order = self._drawn()

    def _get_data(self, position: int) -> Example:
        return self._load_func(int(self._order[position]))


class ConcatDataSource(_Ordered):
    """The examples of several sources, one source after another, or all of them in random orders.

    Args:
        data_source_list: The sources, all with the same variables.
        shuffle: Whether the order is random.
        rng: The random generator for the order.

    Raises:
        ValueError: There are no sources, or they have different variables.
    """

    def __init__(
        self, data_source_list: Sequence[DataSource], shuffle: bool = True, rng: Generator | None = None
    ) -> None:
        super().__init__(shuffle, rng)
        self._sources = list(data_source_list)
        names = {tuple(source.variables) for source in self._sources}
        if len(names) != 1:
            raise ValueError(f"data_source_list: all sources must have the same variables, got {sorted(names)}")
        self._variables = self._sources[0].variables
        self._starts = np.cumsum([0, *(source.size for source in self._sources)])
        self._size = int(self._starts[-1])
        self._order = self._drawn()

    def _get_data(self, position: int) -> Example:
        at = int(self._order[position])
        which = int(np.searchsorted(self._starts, at, side="right")) - 1
        return self._sources[which]._get_data(at - int(self._starts[which]))

    def close(self) -> None:
        for source in self._sources:
            source.close()


class CsvDataSource(_Ordered):
    """The rows of a CSV file. Its header names each column: the cells of `x` are single numbers, or names of files that
    hold the values; `x__0`, `x__1` and so on are the elements of a variable. Text after a colon is a label for human
    readers.

    Args:
        filename: The file; files that it names are relative to its folder.
        shuffle: Whether the order is random.
        rng: The random generator for the order.
        normalize: Whether images are scaled to 0 to 1.

    Raises:
        ValueError: A row and the header have different numbers of columns.
    """

    def __init__(
        self, filename: str | Path, shuffle: bool = False, rng: Generator | None = None, normalize: bool = False
    ) -> None:
        super().__init__(shuffle, rng)
        self._reader, self._normalize = FileReader(filename), normalize
        with self._reader.open(textmode=True) as file:
            header, *self._rows = [row for row in csv.reader(file) if row]
        for number, row in enumerate(self._rows, 2):
            if len(row) != len(header):
                raise ValueError(f"{filename}: row {number} has {len(row)} columns, but the header has {len(header)}")
        named = [column.partition(":")[0].partition("__") for column in header]
        self._columns: dict[str, list[int]] = {}
        for i, (name, _, _) in enumerate(named):
            self._columns.setdefault(name, []).append(i)
        self._elements = {name for name, separator, _ in named if separator}
        self._variables, self._size = tuple(self._columns), len(self._rows)
        self._order = self._drawn()

    def _get_data(self, position: int) -> Example:
        row = self._rows[int(self._order[position])]
        return tuple(
            [self._number(row[i]) for i in columns] if name in self._elements else self._value(row[columns[0]])
            for name, columns in self._columns.items()
        )

    def _number(self, text: str) -> Any:
        try:
            return float(text)
        except ValueError:
            return self._of_file(text)

    def _value(self, text: str) -> Any:
        value = self._number(text)
        return [value] if isinstance(value, float) else value

    def _of_file(self, name: str) -> Any:
        with self._reader.open(name) as file:
            return load(Path(name).suffix.lower())(file, normalize=self._normalize)
