"""Uncompressed zip archives of a few members."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Mapping, Set

_LONG_AGO = (1980, 1, 1, 0, 0, 0)
"""A fixed date for members, so that equal contents give equal files."""
_UNREADABLE = (zipfile.BadZipFile, EOFError, NotImplementedError, OSError, RuntimeError, ValueError, struct.error)
"""The exceptions that zipfile raises for damaged archives."""


def archive_of(members: Mapping[str, bytes]) -> bytes:
    """The bytes of an archive with these members by name."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_STORED) as archive:
        for name, member in members.items():
            archive.writestr(zipfile.ZipInfo(name, _LONG_AGO), member)
    return content.getvalue()


def members_of(content: bytes, names: Set[str], what: str) -> dict[str, bytes]:
    """The members of an archive by name.

    Args:
        content: The content of the archive.
        names: The names of its members.
        what: What the file should be, and its name, for messages.

    Raises:
        ValueError: The archive has other members or is damaged.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entries = archive.infolist()
            present = [entry.filename for entry in entries]
            if sorted(present) != sorted(names):
                raise ValueError(f"unexpected members: {', '.join(present)[:200]}")
            return {entry.filename: archive.read(entry) for entry in entries}  # zipfile checks their checksums
    except _UNREADABLE as error:
        raise ValueError(f"{what}, or a damaged one ({error})") from error
