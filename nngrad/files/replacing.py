"""Atomic replacement of files, and reading them whole."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from pathlib import Path


def checked_ending(path: str | os.PathLike[str], ending: str, instead: str) -> Path:
    """The path of a file that has to end in `ending`, checked before there is something to write; an error says what to
    do `instead`."""
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"path: expected the path of a file, got {path!r}")
    if Path(path).suffix.lower() != ending:
        raise ValueError(f"path: must end in '{ending}', got {str(path)!r}; {instead}")
    return Path(path)


def write_whole(path: str | Path, content: bytes) -> None:
    """Write `content` to `path` atomically: if it fails or is interrupted, the file is unchanged.

    The content goes to a temporary file in the same folder, is flushed to disk, and renamed. The new file takes over
    the mode of the old one and, if permitted, its owner and group; without an old one the umask determines the mode. If
    `path` is a link, its target is replaced. Only a process that is killed leaves its temporary file, `.nngrad-*.tmp`.

    Raises:
        OSError: The file cannot be written, is read-only, or is a folder, a device, a pipe or a socket; the message
            names `path`.
    """
    target = os.path.realpath(path)
    folder = os.path.dirname(target)
    try:
        before = _status_if_replaceable(target)
        _replace(target, content, before, os.path.join(folder, f".nngrad-{secrets.token_hex(16)}.tmp"))
    except OSError as error:
        raise OSError(error.errno, f"cannot be written: {error.strerror}", str(path)) from error
    sync_folder(folder)


def read_whole(path: str | Path) -> bytes:
    """The content of a file.

    Raises:
        OSError: The file cannot be read, or is a device, a pipe or a socket; the message names it.
    """
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # reading anything else might never end
        raise OSError(errno.EINVAL, "cannot be read: it is a device, a pipe or a socket", str(path))
    return Path(path).read_bytes()


def _status_if_replaceable(target: str) -> os.stat_result | None:
    """The stat result of a file that may be replaced; None if it does not exist."""
    try:
        status = os.stat(target)
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder")
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is a device, a pipe or a socket; give the name of a file")
    if not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, "it is read-only")
    return status


def _replace(target: str, content: bytes, before: os.stat_result | None, beside: str) -> None:
    """Write `content` to the new file `beside`, and rename it to `target`."""
    mode = 0o666 if before is None else 0o600  # private until it gets the mode of the old file
    try:
        with open(beside, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            file.write(content)
            file.flush()
            if before is not None:
                _take_over_rights(file.fileno(), before)
            os.fsync(file.fileno())
        os.replace(beside, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise


def _take_over_rights(handle: int, before: os.stat_result) -> None:
    """Give an open file the owner, group and mode in `before`, as far as permitted."""
    if hasattr(os, "fchown"):
        for owner in (before.st_uid, -1):
            with contextlib.suppress(OSError):
                os.fchown(handle, owner, before.st_gid)
                break
        with contextlib.suppress(OSError):
            os.fchmod(handle, stat.S_IMODE(before.st_mode))


def sync_folder(folder: str) -> None:
    """Flush a rename in `folder` to disk, if the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
