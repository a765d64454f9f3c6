"""The disk cache of executables: a private folder, in which other processes of the user find what one has compiled.

The cached files are code, which runs in the user's process. So the folder and each file must be the user's own and
closed to others. Neither may be a symbolic link, and both are checked through their open descriptors, so that nothing
can be swapped after the check. A file contains its key and a checksum; files that do not match count as missing. Files
are written under temporary names and renamed, so that many processes can share the folder.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from platformdirs import user_cache_dir

from ..graph.arguments import check_bool, checked_count
from ..graph.messages import warn_user

T = TypeVar("T")

MAGIC = b"nngrad\x00\x01"
"""The first bytes of a file: a name, and the format version. Key and checksum follow, then the content."""

_DIGEST = hashlib.sha256().digest_size
_HEADER = len(MAGIC) + 2 * _DIGEST
_NAME = re.compile(r"[0-9a-f]{64}\Z")
_UNFINISHED = re.compile(r"[0-9a-f]{64}\.[0-9a-f]{16}\Z")
_SECONDS_TO_WRITE = 600
"""An older unfinished file was left by a process that was killed."""
_LOOK_AGAIN = 200
"""After writing this many files, a process counts again the files that others have written."""

IS_SUPPORTED = hasattr(os, "geteuid") and os.open in os.supports_dir_fd and hasattr(os, "O_NOFOLLOW")
"""Whether this system can tell who owns a file."""


class DiskFile(NamedTuple):
    """A file in the folder."""

    used: float
    """When it was last written or read."""
    nbytes: int
    name: str


class Folder:
    """A folder with one file per key. Beyond `most_bytes`, the least recently used files are removed.

    Args:
        path: The folder; created when the first entry is written.
        most_bytes: The maximum size of all files.
    """

    def __init__(self, path: Path, most_bytes: int) -> None:
        self.path = path
        self.most_bytes = most_bytes
        self._nbytes = 0
        self._left = 0
        """How many files may be written before all are counted again."""

    def read(self, key: bytes) -> bytes | None:
        """The content written under `key`, a digest; None if there is none that can be trusted.

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
                    with suppress(OSError):  # in a read-only folder
                        os.utime(opened.fileno())
                    return content
            except OSError:
                return None

    def write(self, key: bytes, content: bytes) -> None:
        """Store `content` under `key`, replacing an earlier file; a folder of that name stays.

        Raises:
            OSError: The file cannot be written.
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
        """The number of entries, and their size in bytes.

        Raises:
            OSError: The folder cannot be used; the message says why.
        """
        with self._opened() as folder:
            found = [] if folder is None else _entries(folder)
            return len(found), sum([entry.nbytes for entry in found])

    def clear(self) -> int:
        """Remove all entries, and return their number.

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
        """Remove the least recently used entries if there are too many bytes.

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
                if total <= self.most_bytes * 0.9:  # so that not every write has to count all entries
                    break
                with suppress(FileNotFoundError):
                    os.unlink(entry.name, dir_fd=folder)
                total -= entry.nbytes
        return total

    @contextmanager
    def _opened(self, make: bool = False) -> Iterator[int | None]:
        """The open folder, after checking that it is the user's alone; None if it does not exist."""
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
                raise PermissionError(errno.EACCES, "the folder must be your own and closed to others (mode 700)")
            yield folder
        finally:
            os.close(folder)


def _make(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if os.geteuid() == 0 and path.parent.stat().st_uid != 0:
        raise PermissionError(errno.EACCES, "root does not create a folder inside another user's folder")
    with suppress(FileExistsError):  # another process may have been faster
        path.mkdir(0o700)


def _open_entry(folder: int, name: str, flags: int) -> int:
    # O_NONBLOCK: do not wait for the other end of a pipe.
    return os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)


def _is_private(status: os.stat_result, kind: object) -> bool:
    """Whether an open file is of a kind, the user's own, and closed to all others."""
    return bool(kind(status.st_mode)) and status.st_uid == os.geteuid() and not status.st_mode & 0o077  # type: ignore[operator]


def _header(key: bytes, content: bytes) -> bytes:
    return MAGIC + key + hashlib.sha256(key + content).digest()


def _entries(folder: int) -> list[DiskFile]:
    """The entries of an open folder; files left by killed processes are removed."""
    found = []
    latest = time.time() - _SECONDS_TO_WRITE
    with os.scandir(folder) as files:
        for file in files:
            try:
                status = file.stat(follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode):  # a folder is not an entry, and stays
                    continue
                if _NAME.match(file.name):
                    found.append(DiskFile(status.st_mtime, status.st_size, file.name))
                elif _UNFINISHED.match(file.name) and status.st_mtime < latest:
                    os.unlink(file.name, dir_fd=folder)
            except FileNotFoundError:  # another process may have been faster
                continue
    return found


VARIABLE = "NNGRAD_DISK_CACHE"
"""The environment variable that disables the cache, or names its folder."""

_OFF, _ON = ("0", "false", "no", "off"), ("", "1", "true", "yes", "on")

MOST_BYTES = 512 << 20
"""The default limit on the size of all executables: one takes 3 kB for a sum, 50 kB for the gradients of a small
network."""


class DiskInfo(NamedTuple):
    """The state of the disk cache."""

    folder: Path
    """The folder."""
    on: bool
    """Whether it is used."""
    trouble: str
    """Why it is not used, or nothing is written, although it is enabled; empty if all is well."""
    hits: int
    """The number of executables this process has read instead of compiling them."""
    misses: int
    """The number it has looked for and not found."""
    size: int
    """The number of executables."""
    nbytes: int
    """Their size in bytes."""
    most_bytes: int
    """Their maximum size in bytes."""


class DiskCache:
    """Executables on disk, by key. Thread-safe, and safe with many processes.

    Problems with the folder only cost time: executables not found there are compiled.

    Args:
        unknown: Returns why executables cannot be serialised in this process; empty if they can.
    """

    def __init__(self, unknown: Callable[[], str]) -> None:
        self._unknown = unknown
        told = os.environ.get(VARIABLE, "")
        self._is_on = told.lower() not in _OFF
        self._is_named = self._is_on and told.lower() not in _ON
        path = Path(told).expanduser() if self._is_named else Path(user_cache_dir("nngrad", False)) / "executables"
        self._folder = Folder(path, MOST_BYTES)
        self._reads = self._writes = False
        self._trouble = ""
        self._begin()
        self.hits = self.misses = 0
        """Statistics for `info`; `executables.clear()` resets them."""

    def _begin(self) -> None:
        """Assume that all is well, until proven otherwise."""
        self._trouble = ""
        if not IS_SUPPORTED:
            self._trouble = "this system does not support file owners"
        elif not self._folder.path.is_absolute():
            self._trouble = f"{self._folder.path} is not an absolute path"
        else:
            self._trouble = self._unknown()
        self._reads = self._writes = not self._trouble

    @property
    def is_on(self) -> bool:
        """Whether executables are looked for on disk."""
        return self._is_on and self._reads

    def switch(self, on: bool, folder: str | os.PathLike[str] | None = None) -> None:
        """Switch the cache on or off in this process: for all threads, and for whatever is not compiled yet.

        Args:
            on: Whether to use executables on disk.
            folder: The folder from now on; created when the first executable is stored. It must be the user's own and
                closed to others, or else is not used. None keeps the present one.

        Raises:
            TypeError: An argument is of another type.
        """
        check_bool(on, "on")
        if folder is not None:
            self._folder = Folder(Path(folder).expanduser().absolute(), self._folder.most_bytes)
            self._is_named = True
        self._is_on = on
        self._begin()

    def resize(self, most_bytes: int) -> None:
        """Set the maximum size of the executables on disk, for as long as this process is the one that writes.

        Raises:
            TypeError: `most_bytes` is not an int.
            ValueError: `most_bytes` is less than 1.
            OSError: The folder cannot be used; the message says why.
        """
        self._folder.most_bytes = checked_count(most_bytes, "most_bytes")
        self._folder.shrink()

    def clear(self) -> int:
        """Remove all executables from the disk, including other processes', and return their number.

        Raises:
            OSError: The folder cannot be used; the message says why.
        """
        return self._folder.clear()

    def info(self) -> DiskInfo:
        """The cache's folder, state, contents and statistics in this process."""
        size = nbytes = 0
        trouble, on, folder = self._trouble, self.is_on, self._folder
        try:
            size, nbytes = folder.usage()
        except OSError as error:
            trouble, on = trouble or error.strerror or str(error), False
        return DiskInfo(folder.path, on, trouble, self.hits, self.misses, size, nbytes, folder.most_bytes)

    def load(self, key: bytes, of_bytes: Callable[[bytes], T | None]) -> T | None:
        """The executable stored under `key`; None if there is none that can be trusted and read."""
        if not self.is_on:
            return None
        try:
            content = self._folder.read(key)
        except OSError as error:
            self._reads = self._writes = False
            self._warn(error)
            return None
        compiled = None if content is None else of_bytes(content)
        if compiled is None:
            self.misses += 1
        else:
            self.hits += 1
        return compiled

    def keep(self, key: bytes, to_bytes: Callable[[], bytes | None]) -> None:
        """Store a serialised executable under `key`, unless it is None."""
        content = to_bytes() if self.is_on and self._writes else None
        if content is None:
            return
        try:
            self._folder.write(key, content)
        except OSError as error:
            self._writes = False
            self._warn(error)

    def _warn(self, error: OSError) -> None:
        """Record the problem; warn of it if the user has named this folder."""
        told = self._trouble
        self._trouble = error.strerror or str(error)
        if self._is_named and not told:
            warn_user(f"executables are not kept on disk in {self._folder.path}: {self._trouble}")


def lines_of_info(info: DiskInfo) -> list[str]:
    """The lines that the `nngrad` command prints about the cache."""
    if info.on:
        used = f"new ones are not kept: {info.trouble}" if info.trouble else "in use"
    else:
        used = f"not in use: {info.trouble or f'{VARIABLE} says so'}"
    room = f"{info.nbytes / 1e6:.2f} MB of {info.most_bytes / 1e6:.0f} MB at most"
    return [f"executables on disk: {info.folder}", f"    {info.size} with {room}; {used}"]

