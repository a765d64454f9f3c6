"""Directories of checkpoints: a subdirectory per step, written in the background; the last and the best stay.

Each process writes the arrays that it holds to a safetensors file. A seal is a file beside these, with all other facts
and the files' digests. All of it is written to a directory with a temporary name, flushed to disk, and then renamed.
One assignment in the user's thread begins a checkpoint, and the rename completes it, so an interrupt comes before or
after either.

Orbax's CheckpointManager was tried in place of this: of 500 saves with an interrupt, it acknowledged 21 that were not
there, and after 30 it refused the same step or all further ones; managers in three threads failed or waited in vain.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import json
import math
import os
import secrets
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax
import ml_dtypes
import numpy as np
from jax.experimental import multihost_utils

from ...distributed.hosts.store import KeyValueStore
from ...files.replacing import sync_folder
from ...files.storage import CODES
from ...graph.messages import warn_user
from ...graph.process import OwnThread

_UNFINISHED = ".unfinished"
"""The suffix of a directory until it is complete, and when it is about to be deleted."""
_DAMAGED = ".damaged"
_SEAL = "nngrad.json"
_FORMAT = 2
_PATIENCE = 3600.0
"""Seconds to wait for the files of other processes. JAX ends a run much earlier if one of them dies."""


class _Writing:
    """A checkpoint that is written in a thread of its own, which no interrupt reaches. The arrays do not change while
    they are held here."""

    def __init__(self, step: int, write: Callable[[], None]) -> None:
        self.step = step
        self.error: BaseException | None = None
        self._write = write
        self.thread = OwnThread(self._work)

    def _work(self) -> None:
        try:
            self._write()
        except BaseException as error:
            self.error = error


class CheckpointStore:
    """The checkpoints in one directory, which hosts share; every host calls each method, except `steps`. The directory
    is created with the first checkpoint. The arguments are those of `Checkpointer`."""

    def __init__(self, path: Path, keep: int | None, best: str | None, highest: bool) -> None:
        self.path = path
        self._keep = keep
        self._best = best
        self._highest = highest
        self._writing: _Writing | None = None
        self.last: int | None = None
        """The step of the last checkpoint that was begun or restored."""
        self._is_tidy = False

    # ---------------------------------------------------------------- writing

    def write(self, step: int, arrays: Mapping[str, Any], facts: dict[str, Any]) -> None:
        """Begin to write a checkpoint after the previous one is written. Arrays are read until it is finished."""
        self.wait()
        token = secrets.randbits(31)  # a name for this attempt, the same in all processes
        if jax.process_count() > 1:
            token = int(multihost_utils.broadcast_one_to_all(np.int32(token)))
        held = dict(arrays)
        writing = _Writing(step, lambda: self._write(step, held, facts, f"{token:08x}"))
        unfinished.add(self)
        self._writing, self.last = writing, step  # now it is begun
        writing.thread.start()

    def wait(self) -> None:
        """Wait until the current checkpoint is written.

        Raises:
            OSError: The checkpoint could not be written. This is said once.
        """
        writing = self._writing
        if writing is None:
            return
        writing.thread.start()  # where an interrupt kept `write` from it
        writing.thread.wait()
        if writing.error is None:
            unfinished.discard(self)
            self._writing = None
            return
        failure = OSError(f"{self.path}: the checkpoint of step {writing.step} could not be written: {writing.error}")
        unfinished.discard(self)
        self._is_tidy = False
        self._writing, self.last = None, None  # no interrupt comes between this and the error
        raise failure from writing.error

    def forget(self) -> None:
        """Give up the current checkpoint: in a forked child, which lacks the thread that writes it."""
        self._writing = None

    def _write(self, step: int, arrays: dict[str, Any], facts: dict[str, Any], token: str) -> None:
        """Write a checkpoint together with the other processes, then delete superfluous ones."""
        is_first = jax.process_index() == 0
        directory = self.path / f"{step}.{token}{_UNFINISHED}"
        digest, problem = "", ""
        try:
            if is_first and not self._is_tidy:
                for left in self.path.glob(f"*{_UNFINISHED}"):  # by a killed process, or a save that failed
                    if left != directory:  # where another process may already write
                        shutil.rmtree(left, ignore_errors=True)
            self._is_tidy = True
            directory.mkdir(parents=True, exist_ok=True)
            digest = write_arrays(directory / _file_of(jax.process_index()), _pieces(arrays))
        except Exception as error:
            problem = str(error) or type(error).__name__
        arrays.clear()  # steps may reuse their memory
        reports = _reports(token, [digest, problem])
        if is_first:
            problem = next((found for _, found in reports if found), "")
            try:
                if not problem:
                    write_seal(directory, {_file_of(i): found for i, (found, _) in enumerate(reports)}, facts)
                    sync_folder(str(directory))
                    directory.rename(self._directory(step))  # now it exists
                    sync_folder(str(self.path))
            except Exception as error:
                problem = str(error) or type(error).__name__
        problem = _decision(token, problem)
        if problem:
            raise OSError(problem)
        if is_first:
            with suppress(OSError):  # no permission: they stay
                for superfluous in self._superfluous():
                    aside = self._directory(superfluous).rename(self.path / f"{superfluous}.{token}{_UNFINISHED}")
                    shutil.rmtree(aside, ignore_errors=True)

    def _superfluous(self) -> list[int]:
        steps = self.steps()
        if self._keep is None:
            return []
        best = self.best_step()
        return [step for step in steps[: -self._keep] if step != best]

    # ---------------------------------------------------------------- existing checkpoints

    def steps(self) -> list[int]:
        """The steps that have checkpoints, in ascending order, damaged or not."""
        try:
            return sorted([int(found.name) for found in self.path.iterdir() if found.name.isdecimal()])
        except FileNotFoundError:
            return []

    def best_step(self) -> int | None:
        """The step with the best metric, in a tie the last one; None if no checkpoint has the metric."""
        if self._best is None:
            return None
        found = []
        for step in self.steps():
            try:
                metric = read_facts(self._directory(step))["metrics"].get(self._best)
            except (DamagedCheckpoint, ValueError):
                continue
            if metric is not None and not math.isnan(metric):
                found.append((metric if self._highest else -metric, step))
        return max(found)[1] if found else None

    def whole_step(self, step: int | None) -> int | None:
        """The step of an intact checkpoint: `step`, or the last intact one; None if there is none.

        Damaged checkpoints are renamed, and a warning lists them. On several hosts the first process reads the files,
        and sends the others its answer.

        Raises:
            FileNotFoundError: There is no checkpoint of `step`.
            ValueError: The checkpoint of `step` is damaged.
        """
        answer, problem = -1, ""
        if jax.process_index() == 0:
            try:
                found = self._whole_step(step)
                answer = -1 if found is None else found
            except (FileNotFoundError, ValueError) as error:
                answer, problem = -2, str(error)
                raised = type(error)
        if jax.process_count() > 1:
            answer = int(multihost_utils.broadcast_one_to_all(np.int32(answer)))
        if answer == -2:
            if problem:
                raise raised(problem)
            raise ValueError(f"{self.path}: the first process found no intact checkpoint of step {step}")
        return None if answer == -1 else answer

    def _whole_step(self, step: int | None) -> int | None:
        steps = self.steps()
        if step is not None:
            if step not in steps:
                raise FileNotFoundError(f"{self.path}: no checkpoint of step {step}, only of {steps}")
            try:
                check_files(self._directory(step))
            except DamagedCheckpoint as error:
                raise ValueError(f"{self._directory(step)}: the checkpoint is damaged ({error})") from None
            return step
        for last in reversed(steps):
            directory = self._directory(last)
            try:
                check_files(directory)
            except DamagedCheckpoint as error:
                aside = self._put_aside(directory)
                warn_user(f"the checkpoint {directory} is damaged ({error}) and will not be used; renamed to {aside}")
                continue
            return last
        return None

    def _put_aside(self, directory: Path) -> Path:
        for number in range(1000):
            aside = directory.with_name(f"{directory.name}{_DAMAGED}{number or ''}")
            if not aside.exists():
                break
        try:
            directory.rename(aside)
        except OSError:  # no permission in this directory
            return directory
        return aside

    # ---------------------------------------------------------------- reading

    def facts(self, step: int) -> dict[str, Any]:
        """The facts of a checkpoint."""
        return read_facts(self._directory(step))

    def arrays(self, step: int, shardings: Mapping[str, jax.sharding.Sharding | None]) -> dict[str, Any]:
        """The arrays of a checkpoint, as `jax.Array`s with their shardings; NumPy arrays if the sharding is None.

        Raises:
            ValueError: The checkpoint lacks a part of an array.
        """
        content = _content_of(self._directory(step))
        pieces: dict[str, list[_Piece]] = {name: [] for name in shardings}
        for file in content["files"]:
            for name, start, piece in read_pieces(self._directory(step) / file, content["facts"]["arrays"]):
                if name in pieces:
                    pieces[name].append((start, piece))
        arrays: dict[str, Any] = {}
        for name, sharding in shardings.items():
            shape, dtype = content["facts"]["arrays"][name]
            part = functools.partial(_part_of, pieces[name], tuple(shape), dtype_named(dtype), f"{self.path}: {name!r}")
            arrays[name] = (part((slice(None),) * len(shape)) if sharding is None
                            else jax.make_array_from_callback(tuple(shape), sharding, part))
        return arrays

    def _directory(self, step: int) -> Path:
        return self.path / str(step)


unfinished: set[CheckpointStore] = set()
"""Those with a checkpoint to finish before Python exits."""
_codes: list[int] = []


def _finish() -> None:
    for store in list(unfinished):
        try:
            store.wait()
        except BaseException as error:
            print(f"nngrad: {type(error).__name__}: {error}", file=sys.stderr)
            _codes.append(130 if isinstance(error, KeyboardInterrupt) else 1)


def _end() -> None:
    """Exit with an error code if finishing a checkpoint failed, since Python ignores errors while it exits."""
    if _codes:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(_codes[0])


def _forget() -> None:
    for store in unfinished:
        store.forget()
    unfinished.clear()


# Functions registered with `atexit` may run after JAX has left its coordination service.
getattr(threading, "_register_atexit", atexit.register)(_finish)
atexit.register(_end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)

# ---------------------------------------------------------------- processes


def _file_of(process: int) -> str:
    return f"arrays-{process}.safetensors"


def _reports(token: str, own: list[str]) -> list[list[str]]:
    """In the first process the reports of all processes, in another its own."""
    index, reports = jax.process_index(), [own]
    if index > 0:
        KeyValueStore().write(f"checkpoints/{token}", index, json.dumps(own))
    for other in range(1, jax.process_count() if index == 0 else 0):
        reports.append(json.loads(KeyValueStore().wait_for(f"checkpoints/{token}", other, _PATIENCE)))
    return reports


def _decision(token: str, problem: str) -> str:
    """What the first process found, in all of them."""
    if jax.process_count() == 1:
        return problem
    if jax.process_index() == 0:
        KeyValueStore().write(f"checkpoints/{token}", 0, problem)
        return problem
    return KeyValueStore().wait_for(f"checkpoints/{token}", 0, _PATIENCE)


# ---------------------------------------------------------------- arrays
#
# A file is a safetensors file (https://github.com/huggingface/safetensors, "Format"). An array that several processes
# hold is written in pieces, whose keys are JSON: the array's name, and where in it the piece starts. Arrays of a dtype
# that the format lacks have one more axis, of bytes.

_Piece = tuple[Sequence[int], Any]
"""The start of a piece in its array, along each axis, and its values."""


def dtype_named(name: str) -> np.dtype[Any]:
    """The dtype with a name, including dtypes that NumPy lacks."""
    return np.dtype(getattr(ml_dtypes, name, name))


def _pieces(arrays: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """What this process writes, by key. If every process has a copy of an array, the first one writes it."""
    for name, array in arrays.items():
        if isinstance(array, jax.Array) and not array.is_fully_addressable:
            for shard in array.addressable_shards:
                if shard.replica_id == 0:
                    yield json.dumps([name, [along.start or 0 for along in shard.index]]), shard.data
        elif jax.process_index() == 0:
            yield name, array


def write_arrays(path: Path, pieces: Iterator[tuple[str, Any]]) -> str:
    """Write a safetensors file, one array after the other, flush it to disk, and return its digest."""
    header, values, offset = {}, [], 0
    for key, piece in pieces:
        dtype, end = np.dtype(piece.dtype).newbyteorder("="), offset + piece.nbytes
        code = next((code for code, known in CODES.items() if known == dtype), None)
        header[key] = {"dtype": code or "U8", "shape": [*piece.shape, *([] if code else [dtype.itemsize])],
                       "data_offsets": [offset, end]}
        values.append(piece)
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    digest = hashlib.sha256()
    with path.open("xb") as file:
        for content in (len(text).to_bytes(8, "little"), text, *values):
            if not isinstance(content, bytes):
                content = np.ascontiguousarray(content, np.dtype(content.dtype).newbyteorder("="))
                content = content.reshape(-1).view(np.uint8).data
            digest.update(content)
            file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()


def read_pieces(path: Path, specs: Mapping[str, Any]) -> Iterator[tuple[str, Sequence[int], Any]]:
    """The name, start and values of each piece in a file; `specs` has the shapes and dtypes of the arrays."""
    content = np.memmap(path, np.uint8, "r")
    first = 8 + int.from_bytes(content[:8].tobytes(), "little")
    for key, entry in json.loads(content[8:first].tobytes()).items():
        name, start = json.loads(key) if key.startswith("[") else (key, None)
        shape, dtype = specs[name]
        begin, end = entry["data_offsets"]
        values = content[first + begin : first + end].view(dtype_named(dtype))
        yield name, start or [0] * len(shape), values.reshape(entry["shape"][: len(shape)])


def _part_of(
    pieces: Sequence[_Piece], shape: tuple[int, ...], dtype: np.dtype[Any], what: str, index: tuple[slice, ...]
) -> np.ndarray[Any, Any]:
    """The part of an array at `index`, put together from its pieces."""
    bounds = [along.indices(size)[:2] for along, size in zip(index, shape, strict=True)]
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


# ---------------------------------------------------------------- seals


class DamagedCheckpoint(Exception):
    """A checkpoint differs from what was written."""


def write_seal(directory: Path, digests: Mapping[str, str], facts: Mapping[str, Any]) -> None:
    """Write `facts` (JSON values) and the digests of all other files in `directory`, and flush them to disk."""
    content = json.dumps({"format": _FORMAT, "files": digests, "facts": facts})
    with (directory / _SEAL).open("x") as file:
        file.write(json.dumps({"sha256": _digest_of_text(content), "content": content}))
        file.flush()
        os.fsync(file.fileno())


def read_facts(directory: Path) -> dict[str, Any]:
    """The facts in the seal, without checking the other files.

    Raises:
        DamagedCheckpoint: The seal is missing or damaged.
        ValueError: A later version of nngrad has written it.
    """
    facts: dict[str, Any] = _content_of(directory)["facts"]
    return facts


def check_files(directory: Path) -> None:
    """Read all files, and compare their digests with the seal.

    Raises:
        DamagedCheckpoint: A file is missing or damaged; the message names it.
        ValueError: A later version of nngrad has written it.
    """
    for name, digest in _content_of(directory)["files"].items():
        path = directory / name
        if not path.is_file():
            raise DamagedCheckpoint(f"the file {name} is missing")
        if _digest_of(path) != digest:
            raise DamagedCheckpoint(f"the file {name} has changed since it was written")


def _content_of(directory: Path) -> dict[str, Any]:
    try:
        sealed = json.loads((directory / _SEAL).read_bytes())
        text, digest = sealed["content"], sealed["sha256"]
        is_whole = digest == _digest_of_text(text)
    except FileNotFoundError:
        raise DamagedCheckpoint(f"the file {_SEAL} is missing") from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        is_whole = False
    if not is_whole:
        raise DamagedCheckpoint(f"the file {_SEAL} has changed since it was written")
    content: dict[str, Any] = json.loads(text)
    if content["format"] != _FORMAT:
        raise ValueError(f"{directory}: the checkpoint has format {content['format']}, and this nngrad reads "
                         f"{_FORMAT}; use the nngrad that wrote it")
    return content


def _digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest_of_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
