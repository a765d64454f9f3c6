"""Executables that another process has compiled: kept on disk, where they are the user's own."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
from platformdirs import user_cache_dir

from ..graph.source_location import warn_user
from . import serialized
from .disk import IS_SUPPORTED, Folder

VARIABLE = "NNGRAD_DISK_CACHE"
"""The environment variable that switches the cache off, or names its folder."""

_OFF, _ON = ("0", "false", "no", "off"), ("", "1", "true", "yes", "on")

MOST_BYTES = 512 << 20
"""How many bytes all executables take at most, unless something else is said: 3 kB for a sum, 50 kB for the gradients
of a small network."""


class DiskInfo(NamedTuple):
    """What is known of the executables on disk."""

    folder: Path
    """Where they are."""
    on: bool
    """Whether they are used."""
    trouble: str
    """Why they are not, or no new ones are kept, though nobody has switched that off; empty where all is well."""
    hits: int
    """How many this process has read instead of compiling them."""
    misses: int
    """How many it has looked for in vain."""
    size: int
    """How many there are."""
    nbytes: int
    """How many bytes they take."""
    most_bytes: int
    """How many bytes they take at most."""


class DiskCache:
    """Executables on disk, by key. Thread-safe, and safe with many processes.

    Whatever goes wrong with the folder costs time and nothing else: what is not found there is compiled.
    """

    def __init__(self) -> None:
        told = os.environ.get(VARIABLE, "")
        self._is_on = told.lower() not in _OFF
        self._is_named = self._is_on and told.lower() not in _ON
        path = Path(told).expanduser() if self._is_named else Path(user_cache_dir("nngrad", False)) / "executables"
        self._folder = Folder(path, MOST_BYTES)
        self._reads = self._writes = False
        self._trouble = ""
        self._begin()
        self.hits = self.misses = 0
        """What `info` tells; set to 0 by `executables.clear()`."""

    def _begin(self) -> None:
        """Take it that all is well, until something shows that it is not."""
        self._trouble = ""
        if not IS_SUPPORTED:
            self._trouble = "this system does not say whose a file is"
        elif not serialized.IS_SUPPORTED:
            self._trouble = f"this version of nngrad does not know the executables of JAX {jax.__version__}"
        elif not self._folder.path.is_absolute():
            self._trouble = f"{self._folder.path} is no absolute path"
        self._reads = self._writes = not self._trouble

    @property
    def is_on(self) -> bool:
        """Whether executables are looked for on disk."""
        return self._is_on and self._reads

    def switch(self, on: bool, folder: str | os.PathLike[str] | None = None) -> None:
        """Switch it on or off in this process: for all threads, and for what is not compiled yet.

        Args:
            on: Whether executables on disk are used.
            folder: Where they are from now on; made when the first is kept. It must be the user's own and closed to
                others, or else is not used. None leaves it where it is.

        Raises:
            TypeError: What is given is of another kind.
        """
        if not isinstance(on, bool):
            raise TypeError(f"on: expected True or False, got {on!r}")
        if folder is not None:
            self._folder = Folder(Path(folder).expanduser().absolute(), self._folder.most_bytes)
            self._is_named = True
        self._is_on = on
        self._begin()

    def resize(self, most_bytes: int) -> None:
        """Set how many bytes the executables on disk take at most, for as long as this process is the one that writes.

        Raises:
            ValueError: It is not a positive int.
            OSError: The folder cannot be used; the message says why.
        """
        if not isinstance(most_bytes, int) or isinstance(most_bytes, bool) or most_bytes < 1:
            raise ValueError(f"most_bytes: expected a positive int, got {most_bytes!r}")
        self._folder.most_bytes = most_bytes
        self._folder.shrink()

    def clear(self) -> int:
        """Remove all executables from the disk, other processes' too, and return how many there were.

        Raises:
            OSError: The folder cannot be used; the message says why.
        """
        return self._folder.clear()

    def info(self) -> DiskInfo:
        """Where it is, whether it works, what is there and what came of it in this process."""
        size = nbytes = 0
        trouble, on, folder = self._trouble, self.is_on, self._folder
        try:
            size, nbytes = folder.usage()
        except OSError as error:
            trouble, on = trouble or error.strerror or str(error), False
        return DiskInfo(folder.path, on, trouble, self.hits, self.misses, size, nbytes, folder.most_bytes)

    def load(
        self, key: bytes, arguments: Any, device: jax.Device, committed: bool, lower: Callable[[], Any]
    ) -> jax.stages.Compiled | None:
        """The executable that was kept under `key`; None where there is none that can be trusted and read. The other
        arguments are those of `serialized.from_bytes`."""
        if not self.is_on:
            return None
        try:
            content = self._folder.read(key)
        except OSError as error:
            self._reads = self._writes = False
            self._say(error)
            return None
        compiled = None if content is None else serialized.from_bytes(content, arguments, device, committed, lower)
        if compiled is None:
            self.misses += 1
        else:
            self.hits += 1
        return compiled

    def keep(self, key: bytes, compiled: jax.stages.Compiled) -> None:
        """Keep an executable under `key`, if it is of a kind that can be kept."""
        if not (self.is_on and self._writes):
            return
        content = serialized.to_bytes(compiled)
        if content is None:
            return
        try:
            self._folder.write(key, content)
        except OSError as error:
            self._writes = False
            self._say(error)

    def _say(self, error: OSError) -> None:
        """Remember what is wrong; warn of it where somebody has asked for this folder."""
        told = self._trouble
        self._trouble = error.strerror or str(error)
        if self._is_named and not told:
            warn_user(f"executables are not kept on disk, in {self._folder.path}: {self._trouble}")


def lines_of_info(info: DiskInfo) -> list[str]:
    """What the `nngrad` command says of it, in lines."""
    if info.on:
        used = f"new ones are not kept: {info.trouble}" if info.trouble else "in use"
    else:
        used = f"not in use: {info.trouble or f'{VARIABLE} says so'}"
    room = f"{info.nbytes / 1e6:.2f} MB of {info.most_bytes / 1e6:.0f} MB at most"
    return [f"executables on disk: {info.folder}", f"    {info.size} with {room}; {used}"]


disk_cache = DiskCache()
