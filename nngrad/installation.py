"""What nngrad needs, what of it is installed, and the command that installs the rest."""

from __future__ import annotations

import importlib.metadata
import re
import shlex
import sys
from typing import NamedTuple


class Requirement(NamedTuple):
    """A distribution that nngrad names in its metadata."""

    name: str
    minimum: str
    """Oldest version that will do; empty for any."""
    extra: str
    """The extra that it belongs to; empty where nngrad cannot do without it."""
    installed: str | None
    """Version that is installed; None if it is not."""

    @property
    def satisfied(self) -> bool:
        """Whether it is there and new enough."""
        return self.installed is not None and release_of(self.installed) >= release_of(self.minimum)

    @property
    def wanted(self) -> str:
        """As pip takes it."""
        return f"{self.name}>={self.minimum}" if self.minimum else self.name


def release_of(version: str) -> tuple[int, ...]:
    """The numbers of a version, '0.10.2' as (0, 10, 2)."""
    matched = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(n) for n in matched.group().split(".")) if matched else ()


def version_of(name: str) -> str | None:
    """Version of an installed distribution, or None."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def requirements() -> list[Requirement]:
    """What the metadata of the installed nngrad names, in its order."""
    try:
        lines = importlib.metadata.requires("nngrad") or []
    except importlib.metadata.PackageNotFoundError:
        return []
    return [r for r in map(parsed, lines) if r.name != "nngrad"]


def parsed(line: str) -> Requirement:
    """A line of metadata, such as `rich>=13` or `pytest>=8; extra == "test"`."""
    wanted, _, marker = line.partition(";")
    name = re.match(r"\s*([\w.-]+)", wanted)
    if name is None:
        raise ValueError(f"cannot read the requirement {line!r}")
    minimum = re.search(r">=\s*([\w.]+)", wanted)
    extra = re.search(r"extra\s*==\s*['\"]([\w.-]+)['\"]", marker)
    return Requirement(name[1], minimum[1] if minimum else "", extra[1] if extra else "", version_of(name[1]))


def missing(extra: str) -> list[Requirement]:
    """What an extra names and is not there, or too old."""
    return [r for r in requirements() if r.extra == extra and not r.satisfied]


def install_command(wanted: list[Requirement]) -> str:
    """The command that installs them for the Python that runs."""
    return shlex.join([sys.executable, "-m", "pip", "install", *[r.wanted for r in wanted]])
