"""Directories of checkpoints: a subdirectory per step; the last ones stay.

Each process writes the arrays that it holds to a safetensors file. A seal is a file beside these, with all other facts
and the files' digests. All of it is written to a directory with a temporary name, flushed to disk, and then renamed, so
that an interrupt or a kill comes before or after.

Orbax's CheckpointManager was tried in place of this: of 500 saves with an interrupt, it acknowledged 21 that were not
there, and after 30 it refused the same step or all further ones; managers in three threads failed or waited in vain.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import jax
import numpy as np
from jax.experimental import multihost_utils

from ...files.replacing import sync_folder
from ...files.storage import CODES, arrays_from, content_of

_UNFINISHED = ".unfinished"
"""The suffix of a directory until it is complete, and when it is about to be deleted."""
_SEAL = "nngrad.json"
_FORMAT = 2


class CheckpointStore:
    """The checkpoints in one directory, which hosts share; every host calls each method, except `steps`. The directory
    is created with the first checkpoint. The arguments are those of `Checkpointer`."""

    def __init__(self, path: Path, keep: int | None) -> None:
        self.path = path
        self._keep = keep
        self.begun: int | None = None
        """The step of the last checkpoint that was begun or restored."""
        self.last: int | None = None
        """The step of the last checkpoint that was completed or restored."""

    def write(self, step: int, arrays: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
        """Write a checkpoint together with the other processes.

        Raises:
            OSError: A process could not write it.
        """
        index, directory = jax.process_index(), self.path / f"{step}{_UNFINISHED}"

        def begin() -> None:
            if index == 0:
                self._tidy()
                directory.mkdir(parents=True)

        def finish() -> None:
            if index == 0:
                write_seal(directory, {_file_of(i): digest for i, digest in enumerate(digests)}, facts)
                sync_folder(str(directory))
                directory.rename(self.directory(step))  # now it exists
                sync_folder(str(self.path))

        self.begun = step
        try:
            _jointly(begin)
            digests = _jointly(lambda: write_arrays(directory / _file_of(index), arrays))
            _jointly(finish)
        except OSError as error:
            raise OSError(f"{self.path}: the checkpoint of step {step} could not be written: {error}") from error

    def complete(self, step: int) -> None:
        """Delete superfluous checkpoints after one was written."""
        if jax.process_index() == 0 and self._keep is not None:
            with suppress(OSError):  # no permission: they stay
                for superfluous in self.steps()[: -self._keep]:
                    self.directory(superfluous).rename(self.path / f"{superfluous}{_UNFINISHED}")
            self._tidy()
        self.last = step

    def _tidy(self) -> None:
        """Delete what a killed process, a save that failed or `complete` has left."""
        for left in self.path.glob(f"*{_UNFINISHED}"):
            shutil.rmtree(left, ignore_errors=True)

    # ---------------------------------------------------------------- reading

    def directory(self, step: int) -> Path:
        """The directory of a checkpoint."""
        return self.path / str(step)

    def steps(self) -> list[int]:
        """The steps that have checkpoints, in ascending order, damaged or not."""
        try:
            return sorted([int(found.name) for found in self.path.iterdir() if found.name.isdecimal()])
        except FileNotFoundError:
            return []

    def read(self, step: int) -> SavedCheckpoint:
        """A checkpoint, after all its files were compared with their digests.

        Raises:
            ValueError: A file is missing or damaged, or a later version of nngrad has written it; the message names it.
        """
        directory = self.directory(step)
        contents: dict[str, bytes] = {}
        try:
            seal = json.loads((directory / _SEAL).read_bytes())
            text = seal["content"]
            changed = [] if seal["sha256"] == _digest_of(text.encode()) else [_SEAL]
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            changed = [_SEAL]
        if not changed:
            sealed = json.loads(text)
            if sealed["format"] != _FORMAT:
                raise ValueError(f"{directory}: the checkpoint has format {sealed['format']}, and this nngrad reads "
                                 f"{_FORMAT}; use the nngrad that wrote it")
            for name in sealed["files"]:
                with suppress(OSError):
                    contents[name] = (directory / name).read_bytes()
            changed = [name for name, digest in sealed["files"].items() if _digest_of(contents.get(name)) != digest]
        if changed:
            earlier = [other for other in self.steps() if other < step]
            instead = f"restore({earlier[-1]}) takes the one before" if earlier else "there is none before it"
            raise ValueError(f"{directory}: the checkpoint is damaged: {', '.join(changed)} has changed since it was "
                             f"written, or is missing; {instead}. Delete the directory to go on without it")
        pieces: dict[str, list[_Piece]] = {}
        for name, content in contents.items():
            for key, piece in arrays_from(content, str(directory / name))[0].items():
                whole, start = json.loads(key) if key.startswith("[") else (key, [0] * piece.ndim)
                pieces.setdefault(whole, []).append((start, piece))
        return SavedCheckpoint(directory, sealed["facts"], pieces)


class SavedCheckpoint(NamedTuple):
    """The content of a checkpoint."""

    directory: Path
    facts: dict[str, Any]
    pieces: dict[str, list[_Piece]]
    """The pieces of each array."""

    def array(self, name: str, sharding: jax.sharding.Sharding | None) -> Any:
        """An array with a sharding; a NumPy array if that is None.

        Raises:
            ValueError: The checkpoint lacks a part of it.
        """
        shape, dtype = self.facts["arrays"][name]
        known = {each.name: each for each in CODES.values()}
        part = functools.partial(_part_of, self.pieces.get(name, []), known[dtype], f"{self.directory}: {name!r}")
        if sharding is None:
            return part(tuple([slice(0, size) for size in shape]))

        def part_at(index: Any) -> Any:
            return part(tuple([slice(*along.indices(size)) for along, size in zip(index, shape, strict=True)]))

        return jax.make_array_from_callback(tuple(shape), sharding, part_at)


# ---------------------------------------------------------------- processes


def _file_of(process: int | str) -> str:
    return f"arrays-{process}.safetensors"


def of_all_processes(value: Any) -> list[Any]:
    """The values that all processes pass, JSON values."""
    if jax.process_count() == 1:
        return [value]
    text = np.frombuffer(json.dumps(value).encode(), np.uint8)
    sizes = multihost_utils.process_allgather(np.int32(text.size))
    padded = np.zeros(int(sizes.max()), np.uint8)
    padded[: text.size] = text
    texts = multihost_utils.process_allgather(padded)
    return [json.loads(row[:size].tobytes()) for row, size in zip(texts, sizes, strict=True)]


def _jointly(work: Callable[[], Any]) -> list[Any]:
    """The results of `work` in all processes. If it fails in one, all raise an OSError that says why."""
    try:
        result, problem = work(), ""
    except Exception as error:
        result, problem = None, str(error) or type(error).__name__
    reports = of_all_processes([result, problem])
    for _, found in reports:
        if found:
            raise OSError(found)
    return [result for result, _ in reports]

# ---------------------------------------------------------------- files
#
# A file is a safetensors file (https://github.com/huggingface/safetensors, "Format"). An array that several processes
# hold is written in pieces, whose keys are JSON: the array's name, and where in it the piece starts.

_Piece: TypeAlias = tuple[Sequence[int], Any]
"""The start of a piece in its array, along each axis, and its values."""


def local_parts(array: Any) -> Iterator[tuple[list[int] | None, np.ndarray[Any, Any]]]:
    """The parts of an array of which this process is the first to have a copy, and where they start; None for all of
    it."""
    if isinstance(array, jax.Array) and not array.is_fully_addressable:
        for shard in array.addressable_shards:
            if shard.replica_id == 0:
                yield [along.start or 0 for along in shard.index], np.asarray(shard.data)
    elif jax.process_index() == 0:
        yield None, np.asarray(array)


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> str:
    """Write this process's pieces of the arrays to a safetensors file, flush it to disk, and return its digest."""
    pieces = {
        name if start is None else json.dumps([name, start]): part
        for name, array in arrays.items() for start, part in local_parts(array)
    }  # fmt: skip
    content = content_of(pieces, {}, str(path))
    _write(path, content)
    return _digest_of(content)


def write_seal(directory: Path, digests: Mapping[str, str], facts: Mapping[str, Any]) -> None:
    """Write `facts` (JSON values) and the digests of all other files in `directory`, and flush them to disk."""
    content = json.dumps({"format": _FORMAT, "files": digests, "facts": facts})
    _write(directory / _SEAL, json.dumps({"sha256": _digest_of(content.encode()), "content": content}).encode())


def _write(path: Path, content: bytes) -> None:
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _digest_of(content: bytes | None) -> str:
    """The digest of a file's content; "" if it is missing."""
    return "" if content is None else hashlib.sha256(content).hexdigest()


def _part_of(pieces: Sequence[_Piece], dtype: np.dtype[Any], what: str, index: tuple[slice, ...]) -> Any:
    """The part of an array at `index`, put together from its pieces."""
    bounds = [(along.start, along.stop) for along in index]
    part = np.empty([high - low for low, high in bounds], dtype)
    copied = 0
    for start, piece in pieces:
        common = [(max(low, first), min(high, first + size))
                  for (low, high), first, size in zip(bounds, start, piece.shape, strict=True)]
        if all([low < high for low, high in common]):
            values = piece[tuple([slice(low - s, high - s) for (low, high), s in zip(common, start, strict=True)])]
            part[tuple([slice(low - b, high - b) for (low, high), (b, _) in zip(common, bounds, strict=True)])] = values
            copied += values.size
    if copied != part.size:
        raise ValueError(f"{what}: the checkpoint has {copied} of {part.size} elements")
    return part
