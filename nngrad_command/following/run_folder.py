"""Safe reading of a run's folder while the run writes to it: metrics, pictures, and a few keys."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import os
import re
import stat
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

METRICS, CONFIGURATION, RUN, SAMPLES = "metrics.csv", "config.toml", "run.toml", "samples"
SERIES = ".series.txt"
"""The ending of files of nnabla's monitors, whose lines have an index and a value."""
PICTURE = re.compile(r"step-(\d{1,12})\.png")
"""The names of pictures, which include the number of the step."""
MOST_BYTES = 1 << 18
"""The maximum number of bytes of metrics that are returned at once."""
MOST_PICTURE = 1 << 25
"""The maximum number of bytes of a picture."""
_MOST_CONFIGURATION = 1 << 20
_MOST_SERIES = 1 << 24
_BEFORE = 256
"""The number of bytes before a position that identify it."""
_NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
"""Flags that refuse links, and do not block on named pipes."""


class Lines(NamedTuple):
    """Whole lines of the metrics from a position on."""

    text: str
    begins: bool
    """Whether they start at the first line; if so, lines read before are obsolete."""
    place: str
    """The position after them, an opaque text for the next call."""
    is_all: bool
    """Whether there are no more lines at present."""


class RunFolder:
    """A run's folder. Only files with known names are read, and symbolic links are not followed.

    Args:
        path: The path of the folder, which need not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def lines(self, place: str) -> Lines:
        """The whole lines of the metrics after a position.

        A resumed run replaces the file, and drops lines. So the position includes a digest of the bytes before it, and
        if those have changed, lines are returned from the first one on.

        Args:
            place: The position returned by the previous call; empty for the first call.
        """
        with self._metrics() as file:
            if file is None:
                return Lines("", bool(place), "", True)
            begin = _place_in(file, place)
            file.seek(begin)
            read = file.read(MOST_BYTES)
            size = file.seek(0, os.SEEK_END)
            whole = read[: read.rfind(b"\n") + 1]
            if not whole and len(read) == MOST_BYTES:  # no run writes such a long line
                whole = read
            end = begin + len(whole)
            is_first = begin == 0 and (bool(whole) or bool(place))
            is_all = end >= size or len(read) < MOST_BYTES
            return Lines(whole.decode(errors="replace"), is_first, f"{end}-{_mark(file, end)}" if end else "", is_all)

    @contextlib.contextmanager
    def _metrics(self) -> Iterator[BinaryIO | None]:
        """The metrics file or, if there is none, an equivalent made from series of nnabla's monitors."""
        with self._opened(METRICS) as file:
            yield file if file is not None else self._series()

    def _series(self) -> BinaryIO | None:
        names: list[str] = []
        with contextlib.suppress(OSError), self._listed() as found:
            names = [name for name in found if name.endswith(SERIES)]
        rows: dict[str, dict[str, str]] = {}
        for name in names:
            with self._opened(name) as file:
                content = b"" if file is None else file.read(_MOST_SERIES)
            for line in content[: content.rfind(b"\n") + 1].decode(errors="replace").splitlines():
                index, _, value = line.partition(" ")
                if index.isdecimal():
                    rows.setdefault(index, {})[name] = value
        names = sorted({name for row in rows.values() for name in row})
        if not names:
            return None
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["step", *[name.removesuffix(SERIES) for name in names]])
        writer.writerows([index, *[rows[index].get(name, "") for name in names]] for index in sorted(rows, key=int))
        return io.BytesIO(text.getvalue().encode())

    def pictures(self) -> list[int]:
        """The steps with a picture, in order."""
        found = []
        with contextlib.suppress(OSError), self._listed(SAMPLES) as names:
            for name in names:
                matched = PICTURE.fullmatch(name)
                if matched:
                    found.append(matched[1])
        return sorted([int(digits) for digits in found if _named(int(digits)) == f"step-{digits}.png"])

    def picture(self, name: str) -> bytes | None:
        """The bytes of a picture; None if there is no picture of that name."""
        if not PICTURE.fullmatch(name):
            return None
        with self._opened(SAMPLES, name) as file:
            content = None if file is None else file.read(MOST_PICTURE + 1)
            return content if content is not None and len(content) <= MOST_PICTURE else None

    def settings(self) -> dict[str, Any]:
        """The known facts of the run: `recipe`, `steps` and whether it is `finished`."""
        keys = self._keys(CONFIGURATION) | self._keys(RUN)
        kinds = {"recipe": str, "steps": int, "finished": bool}
        return {key: keys[key] for key, kind in kinds.items() if type(keys.get(key)) is kind}

    def _keys(self, name: str) -> dict[str, Any]:
        with self._opened(name) as file:
            try:
                return {} if file is None else tomllib.loads(file.read(_MOST_CONFIGURATION).decode(errors="replace"))
            except (tomllib.TOMLDecodeError, RecursionError):
                return {}

    def seconds_since_written(self) -> float | None:
        """The age of the metrics in seconds; None if there are none."""
        names = [METRICS]
        with contextlib.suppress(OSError), self._listed() as found:
            names += [name for name in found if name.endswith(SERIES)]
        times = []
        for name in names:
            with self._opened(name) as file:
                times += [] if file is None else [os.fstat(file.fileno()).st_mtime]
        return max(0.0, time.time() - max(times)) if times else None

    # ---------------------------------------------------------------- opening

    @contextlib.contextmanager
    def _opened(self, *names: str) -> Iterator[BinaryIO | None]:
        """Open a regular file of the folder without following links; None if it does not exist or is something else."""
        try:
            number = self._descriptor(names)
        except (OSError, ValueError):
            yield None
            return
        if not stat.S_ISREG(os.fstat(number).st_mode):
            os.close(number)
            yield None
            return
        with os.fdopen(number, "rb") as file:
            yield file

    def _descriptor(self, names: tuple[str, ...]) -> int:
        *folders, name = names
        if os.open not in os.supports_dir_fd:  # not a POSIX system
            path = self.path
            for part in names:
                path = path / part
                if path.is_symlink():
                    raise OSError(f"{path} is a link")
            return os.open(path, os.O_RDONLY | _NO_LINK)
        with self._folder(*folders) as folder:
            return os.open(name, os.O_RDONLY | _NO_LINK, dir_fd=folder)

    @contextlib.contextmanager
    def _folder(self, *names: str) -> Iterator[int]:
        """Open a subfolder, and return its descriptor. Only the run's folder itself may be a link."""
        with contextlib.ExitStack() as opened:
            number = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
            opened.callback(os.close, number)
            for name in names:
                number = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=number)
                opened.callback(os.close, number)
            yield number

    @contextlib.contextmanager
    def _listed(self, *names: str) -> Iterator[list[str]]:
        """The names in the folder, or in a subfolder."""
        if os.listdir not in os.supports_fd:
            path = self.path.joinpath(*names)
            yield [] if names and path.is_symlink() else os.listdir(path)
            return
        with self._folder(*names) as folder:
            yield os.listdir(folder)


def _named(step: int) -> str:
    """The name of the picture of a step."""
    return f"step-{step:08d}.png"


def _place_in(file: BinaryIO, place: str) -> int:
    """The number of bytes before a position, or 0 if what was before it has changed."""
    digits, _, mark = place.partition("-")
    if not re.fullmatch(r"[0-9]{1,15}", digits):
        return 0
    begin = int(digits)
    return begin if mark and mark == _mark(file, begin) else 0


def _mark(file: BinaryIO, end: int) -> str:
    """A digest of the bytes right before a position; empty if the file is shorter."""
    if end > file.seek(0, os.SEEK_END):
        return ""
    begin = max(0, end - _BEFORE)
    file.seek(begin)
    return hashlib.sha256(file.read(end - begin)).hexdigest()[:16]
