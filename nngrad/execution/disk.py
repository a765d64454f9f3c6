"""A folder of entries that belong to one user, and that nobody else can have written.

What is read here is code: it runs in the user's process. So the folder must be the user's own and closed to others, and
so must each file; neither may be a symbolic link, and both are looked at through what was opened, so that nothing can
be exchanged after the look. A file says which key it is for and has a checksum. What does not fit is taken for missing.
Files are written beside their place and renamed, so that many processes can share the folder.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

MAGIC = b"nngrad\x00\x01"
"""What a file begins with: a name, and the version of the format. Key and checksum follow, then the content."""

_DIGEST = hashlib.sha256().digest_size
_HEADER = len(MAGIC) + 2 * _DIGEST
_NAME = re.compile(r"[0-9a-f]{64}\Z")
_UNFINISHED = re.compile(r"[0-9a-f]{64}\.[0-9a-f]{16}\Z")
_SECONDS_TO_WRITE = 600
"""An unfinished file that is older was left by a process that was killed."""
_LOOK_AGAIN = 200
"""After so many files of its own a process counts again what others have written meanwhile."""

IS_SUPPORTED = hasattr(os, "geteuid") and os.open in os.supports_dir_fd and hasattr(os, "O_NOFOLLOW")
"""Whether this system can say whose a file is."""


class DiskFile(NamedTuple):
    """A file of the folder."""

    used: float
    """When it was written or read last."""
    nbytes: int
    name: str


class Folder:
    """Entries by key, each a file. At more than `most_bytes` those that were used longest ago go.

    Args:
        path: Where; made when the first entry is written.
        most_bytes: How many bytes all may take.
    """

    def __init__(self, path: Path, most_bytes: int) -> None:
        self.path = path
        self.most_bytes = most_bytes
        self._nbytes = 0
        self._left = 0
        """How many files may be written until all are counted again."""

    def read(self, key: bytes) -> bytes | None:
        """The content that was written under `key`, a digest; None where there is none that can be trusted.

        Raises:
            OSError: The folder cannot be used; the message says why.
        """
        with self._opened() as folder:
            if folder is None:
                return None
            try:
                with open(key.hex(), "rb", opener=partial(_open_entry, folder)) as opened:
                    held = opened.read() if _is_private(os.fstat(opened.fileno()), stat.S_ISREG) else b""
                    content = held[_HEADER:]
                    if held[:_HEADER] != _header(key, content):
                        return None
                    with suppress(OSError):  # of a folder that can be read alone
                        os.utime(opened.fileno())
                    return content
            except OSError:
                return None

    def write(self, key: bytes, content: bytes) -> None:
        """Keep `content` under `key`, in place of what is there, unless that is a folder.

        Raises:
            OSError: It cannot be written.
        """
        with self._opened(make=True) as folder:
            assert folder is not None
            name = key.hex()
            unfinished = f"{name}.{secrets.token_hex(8)}"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            try:
                with open(os.open(unfinished, flags, 0o600, dir_fd=folder), "wb") as opened:
                    opened.write(_header(key, content))
                    opened.write(content)
                os.replace(unfinished, name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException as error:
                with suppress(OSError):
                    os.unlink(unfinished, dir_fd=folder)
                if isinstance(error, IsADirectoryError):
                    return
                raise
            self._nbytes += _HEADER + len(content)
            self._left -= 1
            if self._left < 0 or self._nbytes > self.most_bytes:
                self._nbytes = self._shrink(folder)
                self._left = _LOOK_AGAIN

    def usage(self) -> tuple[int, int]:
        """How many entries there are, and how many bytes they take.

        Raises:
            OSError: The folder cannot be used; the message says why.
        """
        with self._opened() as folder:
            found = [] if folder is None else _entries(folder)
            return len(found), sum([entry.nbytes for entry in found])

    def clear(self) -> int:
        """Remove all entries, and return how many there were.

        Raises:
            OSError: The folder cannot be used; the message says why.
        """
        with self._opened() as folder:
            found = [] if folder is None else _entries(folder)
            for entry in found:
                with suppress(FileNotFoundError):  # another process may have been faster
                    os.unlink(entry.name, dir_fd=folder)
            return len(found)

    def shrink(self) -> None:
        """Remove what was used longest ago where there is too much.

        Raises:
            OSError: The folder cannot be used; the message says why.
        """
        with self._opened() as folder:
            if folder is not None:
                self._nbytes = self._shrink(folder)

    def _shrink(self, folder: int) -> int:
        found = sorted(_entries(folder))
        total = sum([entry.nbytes for entry in found])
        if total > self.most_bytes:
            for entry in found:
                if total <= self.most_bytes * 0.9:  # so that not every entry that is written has to count all
                    break
                with suppress(FileNotFoundError):
                    os.unlink(entry.name, dir_fd=folder)
                total -= entry.nbytes
        return total

    @contextmanager
    def _opened(self, make: bool = False) -> Iterator[int | None]:
        """The open folder, once it is known to be the user's alone; None where there is none."""
        if make and not self.path.is_dir():
            _make(self.path)
        try:
            folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            if make:
                raise
            yield None
            return
        try:
            if not _is_private(os.fstat(folder), stat.S_ISDIR):
                raise PermissionError(errno.EACCES, "it must be a folder of your own, closed to others (mode 700)")
            yield folder
        finally:
            os.close(folder)


def _make(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if os.geteuid() == 0 and path.parent.stat().st_uid != 0:
        raise PermissionError(errno.EACCES, "it would be the administrator's, in a folder of somebody else's")
    with suppress(FileExistsError):  # another process may have been faster
        path.mkdir(0o700)


def _open_entry(folder: int, name: str, flags: int) -> int:
    # Not to wait for a pipe's other end.
    return os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)


def _is_private(status: os.stat_result, kind: object) -> bool:
    """Whether something open is of a kind, the user's own, and closed to all others."""
    return bool(kind(status.st_mode)) and status.st_uid == os.geteuid() and not status.st_mode & 0o077  # type: ignore[operator]


def _header(key: bytes, content: bytes) -> bytes:
    return MAGIC + key + hashlib.sha256(key + content).digest()


def _entries(folder: int) -> list[DiskFile]:
    """The entries of an open folder, less what killed processes have left, which is removed."""
    found = []
    latest = time.time() - _SECONDS_TO_WRITE
    with os.scandir(folder) as files:
        for file in files:
            try:
                status = file.stat(follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode):  # which is nobody's entry, and stays
                    continue
                if _NAME.match(file.name):
                    found.append(DiskFile(status.st_mtime, status.st_size, file.name))
                elif _UNFINISHED.match(file.name) and status.st_mtime < latest:
                    os.unlink(file.name, dir_fd=folder)
            except FileNotFoundError:  # another process may have been faster
                continue
    return found
