"""Files of checkpoints: one safetensors file for each step, replaced atomically, with a digest of its content.

Orbax's CheckpointManager was tried in place of this: of 500 saves with an interrupt, it acknowledged 21 that were not
there, and after 30 it refused the same step or all further ones; managers in three threads failed or waited in vain.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from ...files.replacing import write_whole
from ...files.storage import Arrays, content_of, read_arrays

_ENDING = ".safetensors"
_FORMAT = 1


def file_of(folder: Path, step: int) -> Path:
    """The file of a step's checkpoint."""
    return folder / f"{step}{_ENDING}"


def steps_in(folder: Path) -> list[int]:
    """The steps that have checkpoints, in ascending order, damaged or not."""
    return sorted([int(file.stem) for file in folder.glob(f"*{_ENDING}") if file.stem.isdecimal()])


def write_checkpoint(folder: Path, step: int, arrays: Arrays, facts: Mapping[str, Any]) -> None:
    """Write a checkpoint in the first process; every process calls this.

    Raises:
        OSError: It could not be written.
    """
    problem = ""
    if jax.process_index() == 0:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for left in folder.glob(".nngrad-*.tmp"):  # by a process that was killed
                left.unlink()
            text = json.dumps({"format": _FORMAT, **facts})
            path = file_of(folder, step)
            write_whole(path, content_of(arrays, {"checkpoint": text, "sha256": _digest(arrays, text)}, str(path)))
        except OSError as error:
            problem = f"{folder}: the checkpoint of step {step} could not be written: {error}"
    problem = of_all_processes(problem)[0]
    if problem:
        raise OSError(problem)


def delete_checkpoints(folder: Path, steps: list[int]) -> None:
    """Delete checkpoints; where that is not permitted, they stay."""
    for step in steps if jax.process_index() == 0 else ():
        with suppress(OSError):
            file_of(folder, step).unlink()


def read_checkpoint(folder: Path, step: int) -> tuple[Arrays, dict[str, Any]]:
    """The arrays and facts of a checkpoint, compared with its digest.

    Raises:
        ValueError: The file is damaged, or a later version of nngrad has written it.
        OSError: It cannot be read.
    """
    path = file_of(folder, step)
    try:
        arrays, sealed = read_arrays(path)
        if sealed["sha256"] != _digest(arrays, sealed["checkpoint"]):
            raise ValueError("its content differs from its digest")
    except (ValueError, KeyError, AttributeError) as error:
        earlier = [other for other in steps_in(folder) if other < step]
        instead = f"restore({earlier[-1]}) takes the one before" if earlier else "there is none before it"
        raise ValueError(f"{path}: the checkpoint is damaged, it has changed since it was written ({error}); {instead}."
                         " Delete the file to go on without it") from error
    facts = json.loads(sealed["checkpoint"])
    if facts["format"] != _FORMAT:
        raise ValueError(f"{path}: the checkpoint has format {facts['format']}, and this nngrad reads {_FORMAT}; "
                         "upgrade nngrad")
    return arrays, facts


def _digest(arrays: Arrays, facts: str) -> str:
    """A digest of facts and of the names, shapes, dtypes and values of arrays."""
    digest = hashlib.sha256(facts.encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype.name} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


# ---------------------------------------------------------------- processes


def whole_array(array: Any) -> np.ndarray[Any, Any]:
    """An array as a NumPy array in each process, also if the processes hold parts of it."""
    if isinstance(array, jax.Array) and not array.is_fully_addressable:
        array = multihost_utils.process_allgather(array, tiled=True)
    return np.asarray(array)


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
