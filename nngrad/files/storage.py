"""Named arrays in safetensors files, which are replaced atomically."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from operator import itemgetter
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from safetensors import SafetensorError, deserialize
from safetensors.numpy import save

from ..parameter import RESERVED
from .replacing import read_whole, write_whole

Arrays = dict[str, np.ndarray[Any, Any]]

# Safetensors' names of dtypes (https://github.com/huggingface/safetensors, "Format").
CODES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_), "F16": np.dtype(np.float16), "BF16": np.dtype(ml_dtypes.bfloat16),
    "F32": np.dtype(np.float32), "F64": np.dtype(np.float64),
    **{f"{code}{bits}": np.dtype(f"{name}{bits}") for code, name in (("U", "uint"), ("I", "int"))
       for bits in (8, 16, 32, 64)},
}  # fmt: skip
_FACTS = "nngrad"


def write_arrays(path: str | Path, arrays: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
    """Write `arrays` and `facts` (JSON values) to the file `path`, atomically.

    Raises:
        ValueError: An array has a name that the format reserves or cannot hold.
        OSError: The file cannot be written; the message names it.
    """
    write_whole(path, content_of(arrays, facts, str(path)))


def content_of(arrays: Mapping[str, Any], facts: Mapping[str, Any], path: str) -> bytes:
    """The bytes of a safetensors file; `path` is for error messages.

    Raises:
        ValueError: An array has a name that the format reserves or cannot hold.
    """
    for name in arrays:
        if name == RESERVED:
            raise ValueError(f"{path}: an array cannot be named {name!r}, which the format reserves")
        if re.search("[\ud800-\udfff]", name):
            raise ValueError(f"{path}: an array cannot be named {name!r}, which is not valid Unicode")
    held = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    return bytes(save(held, {_FACTS: json.dumps(facts)}))


def read_arrays(path: str | Path) -> tuple[Arrays, dict[str, Any]]:
    """The arrays of a safetensors file, sorted by name, and the facts that `write_arrays` added.

    Raises:
        OSError: The file cannot be read, or is a device, a pipe or a socket; the message names it.
        ValueError: It is not a safetensors file, is damaged, or has an invalid array; the message names the file.
    """
    return arrays_from(read_whole(path), str(path))


def read_into(path: str | Path, take: Callable[[Arrays, dict[str, Any]], None]) -> None:
    """Pass the arrays and facts of a safetensors file to `take`.

    Raises:
        ValueError: The file is damaged, or `take` refuses its contents; the message names the file.
        OSError: The file cannot be read.
    """
    arrays, facts = read_arrays(path)
    try:
        take(arrays, facts)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def arrays_from(content: bytes, path: str) -> tuple[Arrays, dict[str, Any]]:
    """The arrays and facts in the bytes of a safetensors file; `path` is for error messages.

    Raises:
        ValueError: It is not a safetensors file, is damaged, or has an invalid array.
    """
    try:
        entries = deserialize(content)
        facts = _facts_in(content)
    except (SafetensorError, ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not a safetensors file, or a damaged one ({error})") from error
    ordered = sorted(entries, key=itemgetter(0))  # safetensors returns them in random order
    return {name: _array_of(entry, f"{path}: {name!r}") for name, entry in ordered}, facts


def _facts_in(content: bytes) -> dict[str, Any]:
    """The facts in a file, whose header must have been validated."""
    size = int.from_bytes(content[:8], "little")
    metadata = json.loads(content[8 : 8 + size]).get(RESERVED) or {}
    facts = json.loads(metadata.get(_FACTS, "{}"))
    if not isinstance(facts, dict):
        raise ValueError(f"the metadata {_FACTS!r} must be an object, got {type(facts).__name__}")
    return facts


def _array_of(entry: Mapping[str, Any], what: str) -> np.ndarray[Any, Any]:
    dtype, shape = CODES.get(entry["dtype"]), entry["shape"]
    if dtype is None:
        raise ValueError(f"{what} has dtype {entry['dtype']}, which is not supported")
    flat: np.ndarray[Any, Any] = np.frombuffer(entry["data"], dtype)
    if dtype == np.bool_ and flat.size and flat.view(np.uint8).max() > 1:
        raise ValueError(f"{what} has dtype BOOL, but bytes other than 0 and 1")
    try:
        return flat.reshape(shape)
    except ValueError as error:  # too many axes, or an empty array with too long an axis
        raise ValueError(f"{what} has {len(shape)} axes of sizes {shape[:8]}, more than an array can have") from error
