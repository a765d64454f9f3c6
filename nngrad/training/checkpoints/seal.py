"""The seal of a checkpoint: a file beside its arrays, with all other facts and the digests of all files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

NAME = "nngrad.json"
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
    (directory / NAME).write_text(json.dumps({"sha256": _digest_of_text(content), "content": content}))


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
        sealed = json.loads((directory / NAME).read_bytes())
        text, digest = sealed["content"], sealed["sha256"]
        is_whole = digest == _digest_of_text(text)
    except FileNotFoundError:
        raise DamagedCheckpoint(f"the file {NAME} is missing") from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        is_whole = False
    if not is_whole:
        raise DamagedCheckpoint(f"the file {NAME} has changed since it was written")
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
