"""Named arrays in safetensors files, which are replaced as a whole or not at all."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from safetensors import SafetensorError, deserialize
from safetensors.numpy import save

Arrays = dict[str, np.ndarray[Any, Any]]

# The format's names of dtypes (https://github.com/huggingface/safetensors, "Format").
_CODES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_),
    "U8": np.dtype(np.uint8),
    "I8": np.dtype(np.int8),
    "U16": np.dtype(np.uint16),
    "I16": np.dtype(np.int16),
    "U32": np.dtype(np.uint32),
    "I32": np.dtype(np.int32),
    "U64": np.dtype(np.uint64),
    "I64": np.dtype(np.int64),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F32": np.dtype(np.float32),
    "F64": np.dtype(np.float64),
}
_FACTS = "nngrad"
RESERVED = "__metadata__"
"""The name under which the format keeps facts, so that no array can have it."""
_attempts = itertools.count()


def write_arrays(path: str | Path, arrays: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
    """Write `arrays` and `facts`, which must be fit for JSON, to the file `path`.

    Raises:
        ValueError: An array has the name that the format reserves.
        OSError: It cannot be written; the message names the file.
    """
    if RESERVED in arrays:
        raise ValueError(f"{path}: an array cannot have the name {RESERVED!r}: files keep something else under it")
    held = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    write_whole(path, save(held, {_FACTS: json.dumps(facts)}))


def read_arrays(path: str | Path) -> tuple[Arrays, dict[str, Any]]:
    """The arrays in a safetensors file, and the facts that `write_arrays` put beside them.

    Raises:
        OSError: It cannot be read; the message names the file.
        ValueError: It is not a safetensors file, or damaged; the message names the file.
    """
    content = Path(path).read_bytes()
    try:
        entries = deserialize(content)
        size = int.from_bytes(content[:8], "little")
        metadata = json.loads(content[8 : 8 + size]).get(RESERVED, {})
        facts = json.loads(metadata.get(_FACTS, "{}"))
    except (SafetensorError, ValueError) as error:
        raise ValueError(f"{path}: not a safetensors file, or a damaged one ({error})") from error
    arrays = {}
    for name, entry in entries:
        dtype = _CODES.get(entry["dtype"])
        if dtype is None:
            raise ValueError(f"{path}: {name!r} has dtype {entry['dtype']}, which is not supported")
        arrays[name] = np.frombuffer(bytes(entry["data"]), dtype).reshape(entry["shape"])
    return arrays, facts if isinstance(facts, dict) else {}


def write_whole(path: str | Path, content: bytes) -> None:
    """Make `content` the file `path`: all of it or, where that fails or is interrupted, nothing.

    It is written beside the file under another name, brought to the disk, and renamed.
    """
    target = os.path.realpath(path)
    beside = f"{target}.{os.getpid()}-{next(_attempts)}.tmp"
    try:
        with open(beside, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        if isinstance(error, OSError):
            raise OSError(error.errno, f"cannot be written: {error.strerror}", str(path)) from error
        raise
    _sync_folder(os.path.dirname(target))


def _sync_folder(folder: str) -> None:
    """Bring a rename in `folder` to the disk, on systems where a folder can be synchronised."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
