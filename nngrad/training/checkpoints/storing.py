"""Directories of checkpoints: one subdirectory per step, written by orbax, of which the last and the best are kept.

A seal is a file beside the arrays of a checkpoint, with all other facts and the digests of all files.
"""

from __future__ import annotations

import atexit
import concurrent.futures.thread  # noqa: F401 (it closes the pools)
import hashlib
import json
import math
import os
import shutil
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from ...graph.messages import warn_user
from ..own_thread import OwnThread

_UNFINISHED = ".orbax-checkpoint-tmp"
"""The suffix that orbax gives a directory until it is complete."""
_DAMAGED = ".damaged"


def orbax() -> Any:
    """The module `orbax.checkpoint`.

    Raises:
        ImportError: orbax-checkpoint is not installed.
    """
    try:
        import orbax.checkpoint
    except ImportError as error:
        raise ImportError("checkpoints need orbax-checkpoint, which is not installed: pip install 'nngrad[train]'"
                          ) from error
    return orbax.checkpoint


class _Writing:
    """A checkpoint that has been started, and will be written even if the caller is interrupted.

    `begin` starts orbax in a separate thread, so that an interrupt cannot leave it half started. The arrays do not
    change while they are held here.
    """

    def __init__(
        self, step: int, facts: dict[str, Any], arrays: Mapping[str, Any], begin: Callable[[dict[str, Any]], None],
    ) -> None:
        self.step = step
        self.facts = facts
        self.arrays = arrays
        self._begin = begin
        self._error: BaseException | None = None
        self._thread = OwnThread(self._work)

    def _work(self) -> None:
        try:
            self._begin(dict(self.arrays))
        except BaseException as error:
            self._error = error

    def wait_until_begun(self) -> None:
        """Wait until orbax writes in its own threads, and re-raise errors of `begin`."""
        self._thread.start()
        self._thread.wait()
        if self._error is not None:
            raise self._error


class CheckpointStore:
    """The checkpoints in one directory, which hosts share; every host calls each method, except `steps`. The directory
    is created with the first checkpoint. The arguments are those of `Checkpointer`."""

    def __init__(self, path: Path, keep: int | None, best: str | None, highest: bool) -> None:
        self.path = path
        self._keep = keep
        self._best = best
        self._highest = highest
        library = orbax()
        self._writer = library.AsyncCheckpointer(
            library.PyTreeCheckpointHandler(),
            async_options=library.options.AsyncOptions(post_finalization_callback=self._seal),
        )
        self._library = library
        self._writing: _Writing | None = None
        self.last: int | None = None
        """The step of the last checkpoint that was begun or restored."""
        self._is_tidy = False

    # ---------------------------------------------------------------- writing

    def write(self, step: int, arrays: Mapping[str, Any], facts: dict[str, Any]) -> None:
        """Begin to write a checkpoint after the previous one is written. Arrays are read until it is finished."""
        self.wait()
        if not self._is_tidy and jax.process_index() == 0:
            for left in self.path.glob(f"*{_UNFINISHED}*"):  # left by a killed process
                shutil.rmtree(left, ignore_errors=True)
        self._is_tidy = True
        self.path.mkdir(parents=True, exist_ok=True)
        finished_at_exit.add(self.wait)
        self._writing = _Writing(step, facts, arrays, lambda given: self._writer.save(
            self._directory(step), args=self._library.args.PyTreeSave(given)))
        self.last = step
        try:
            self._writing.wait_until_begun()
        except Exception:
            self._writing, self.last, self._is_tidy = None, None, False
            raise

    def wait(self) -> None:
        """Wait until the current checkpoint is written, and delete superfluous ones.

        Raises:
            OSError: The checkpoint could not be written.
        """
        writing = self._writing
        try:
            if writing is not None:
                writing.wait_until_begun()
            self._writer.wait_until_finished()
        except Exception as error:
            self._writing, self.last, self._is_tidy = None, None, False
            step = "" if writing is None else f" of step {writing.step}"
            finished_at_exit.discard(self.wait)
            raise OSError(f"{self.path}: the checkpoint{step} could not be written: {error}") from error
        self._writing = None
        finished_at_exit.discard(self.wait)
        if writing is not None and jax.process_index() == 0:
            for superfluous in self._superfluous():
                shutil.rmtree(self._directory(superfluous), ignore_errors=True)

    def _seal(self) -> None:
        """Add the seal to a checkpoint after its other files are written, and before it gets its name. Orbax calls this
        in the first process, in the writing thread."""
        if self._writing is None:
            raise RuntimeError("nothing is being written")
        (unfinished,) = self.path.glob(f"{self._writing.step}{_UNFINISHED}*")
        write_seal(unfinished, self._writing.facts)
        self._writing.arrays = {}  # the arrays are written, so steps may reuse their memory

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
        """The arrays of a checkpoint, as `jax.Array`s with their shardings; NumPy arrays if the sharding is None."""
        if not shardings:
            return {}
        library = self._library
        wanted = {
            name: library.RestoreArgs(restore_type=np.ndarray) if sharding is None
            else library.ArrayRestoreArgs(sharding=sharding)
            for name, sharding in shardings.items()
        }
        arrays: dict[str, Any] = self._writer.restore(
            self._directory(step),
            args=library.args.PyTreeRestore(item=dict.fromkeys(wanted, 0), restore_args=wanted, partial_restore=True),
        )
        return arrays

    def close(self) -> None:
        """Wait for the current checkpoint, and end the writing threads."""
        self.wait()
        self._writer.close()

    def _directory(self, step: int) -> Path:
        return self.path / str(step)


finished_at_exit: set[Callable[[], None]] = set()
"""Functions to call when Python exits."""
_codes: list[int] = []


def _finish() -> None:
    for finish in list(finished_at_exit):
        try:
            finish()
        except BaseException as error:
            print(f"nngrad: {type(error).__name__}: {error}", file=sys.stderr)
            if (3, 12) <= sys.version_info < (3, 12, 3):  # works around Python's gh-113964
                print("Python 3.12.0 to 3.12.2 cannot start threads when a program ends: call `checkpointer.wait()` "
                      "before that, or use a later Python", file=sys.stderr)
            _codes.append(130 if isinstance(error, KeyboardInterrupt) else 1)


def _end() -> None:
    """Exit with an error code if finishing a checkpoint failed, since Python ignores errors while it exits."""
    if _codes:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(_codes[0])


# This must run before Python closes the thread pools that orbax writes with, so those are imported above; functions
# registered with `atexit` would run too late.
getattr(threading, "_register_atexit", atexit.register)(_finish)
atexit.register(_end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=finished_at_exit.clear)  # the threads exist only in the parent

# ---------------------------------------------------------------- seals


_SEAL = "nngrad.json"
_FORMAT = 1
_NOT_SEALED = "_CHECKPOINT_METADATA"
"""A file that orbax keeps updating with its own timings, which are not needed."""


class DamagedCheckpoint(Exception):
    """A checkpoint differs from what was written."""


def write_seal(directory: Path, facts: Mapping[str, Any]) -> None:
    """Write `facts` (JSON values) and the digests of all files below `directory`."""
    files = {
        path.relative_to(directory).as_posix(): _digest_of(path)
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != _NOT_SEALED
    }
    content = json.dumps({"format": _FORMAT, "files": files, "facts": facts})
    (directory / _SEAL).write_text(json.dumps({"sha256": _digest_of_text(content), "content": content}))


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
