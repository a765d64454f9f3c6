"""Atomic replacement of files, and reading them whole."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import re
import secrets
import stat
from pathlib import Path
from typing import BinaryIO

try:
    import fcntl
except ImportError:  # not a POSIX system: nothing is locked there, so no left-over is removed
    fcntl = None  # type: ignore[assignment]

_BOOT_ID = "/proc/sys/kernel/random/boot_id"

_OF_OTHERS = {
    ".h5": "HDF5", ".hdf5": "HDF5", ".json": "JSON", ".keras": "Keras", ".mlir": "MLIR", ".mlmodel": "Core ML",
    ".nnb": "nnabla", ".nnp": "nnabla", ".nntxt": "nnabla", ".npy": "NumPy", ".npz": "NumPy", ".onnx": "ONNX",
    ".pb": "protobuf", ".pkl": "pickle", ".protobuf": "protobuf", ".prototxt": "protobuf", ".pt": "PyTorch",
    ".pt2": "PyTorch", ".pth": "PyTorch", ".safetensors": "safetensors", ".tflite": "TensorFlow Lite",
}  # fmt: skip
"""Endings of file names that belong to other formats."""


def check_own_ending(path: str | Path, function: str, ending: str, instead: str) -> None:
    """Raise a ValueError if a file name has the ending of another format than `function` writes.

    Args:
        path: The file.
        function: The function that is about to write it.
        ending: The usual ending of its files.
        instead: How to write files of other formats.
    """
    found = Path(path).suffix.lower()
    if found in _OF_OTHERS:
        raise ValueError(f"path: {str(path)!r} has the ending of {_OF_OTHERS[found]}, but {function} writes a format "
                         f"of its own. Give a path that ends in {ending}. {instead}")


def write_whole(path: str | Path, content: bytes) -> None:
    """Write `content` to `path` atomically: if it fails or is interrupted, the file is unchanged.

    The content goes to a temporary file in the same folder, is flushed to disk, and renamed. The new file takes over
    the mode of the old one and, if permitted, its owner and group; without an old one the umask determines the mode. If
    `path` is a link, its target is replaced. Temporary files of killed processes in the folder are removed.

    Raises:
        OSError: The file cannot be written, is read-only, or is a folder, a device, a pipe or a socket; the message
            names `path`.
    """
    target = os.path.realpath(path)
    folder = os.path.dirname(target)
    try:
        before = _status_if_replaceable(target)
        _remove_left_overs(folder)
        while not _replace(target, content, before, os.path.join(folder, _own_name())):
            pass
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


def _replace(target: str, content: bytes, before: os.stat_result | None, beside: str) -> bool:
    """Write `content` to the new file `beside`, and rename it to `target`.

    Returns:
        False if another process took `beside` for a left-over before it was locked.
    """
    mode = 0o666 if before is None else 0o600  # private until it gets the mode of the old file
    try:
        with open(beside, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            if not _locked(file):
                return False
            file.write(content)
            file.flush()
            if before is not None:
                _take_over_rights(file.fileno(), before)
            os.fsync(file.fileno())
            if fcntl is None:
                file.close()  # such systems cannot rename an open file; elsewhere the lock is kept until after renaming
            os.replace(beside, target)
    except FileExistsError:
        raise  # another process's file, not ours to remove
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise
    return True


def _take_over_rights(handle: int, before: os.stat_result) -> None:
    """Give an open file the owner, group and mode in `before`, as far as permitted."""
    if hasattr(os, "fchown"):
        for owner in (before.st_uid, -1):
            with contextlib.suppress(OSError):
                os.fchown(handle, owner, before.st_gid)
                break
        with contextlib.suppress(OSError):
            os.fchmod(handle, stat.S_IMODE(before.st_mode))


# ---------------------------------------------------------------- left-overs
#
# A killed process leaves its temporary file behind. The file is recognised by its name, and its process is known to be
# dead when the file is no longer locked, since the kernel drops locks with their process. Other machines that share the
# folder may not see the lock, and it does not outlive a restart, so the name includes the boot id of the machine.


@functools.cache
def _kernel() -> str:
    """The boot id of this machine; '' if the system has none."""
    try:
        return Path(_BOOT_ID).read_text().strip().replace("-", "")
    except OSError:
        return ""


def _own_name() -> str:
    return f".nngrad-{_kernel()}-{secrets.token_hex(16)}.tmp"


def _locked(file: BinaryIO) -> bool:
    """Lock a new file; False if another process has removed it or is about to."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks: no other process can get one either
        return True
    return os.fstat(file.fileno()).st_nlink > 0


def _remove_left_overs(folder: str) -> None:
    if fcntl is None or not _kernel():
        return
    own = re.compile(rf"\.nngrad-{_kernel()}-[0-9a-f]{{32}}\.tmp")
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if own.fullmatch(entry.name):
                with contextlib.suppress(OSError):
                    _remove_if_dead(entry.path)


def _remove_if_dead(path: str) -> None:
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK)) as file:
        status = os.fstat(file.fileno())
        if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid():
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(path)


def sync_folder(folder: str) -> None:
    """Flush a rename in `folder` to disk, if the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
