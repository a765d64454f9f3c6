"""The requirements of nngrad, whether they are installed, and the command that installs the missing ones."""

from __future__ import annotations

import importlib.metadata
import operator
import re
import shlex
import sys
from typing import NamedTuple

_MODULES = {"scikit-learn": "sklearn"}
"""Modules whose names differ from those of their distributions."""

_RELATIONS = {">=": operator.ge, "<=": operator.le, "!=": operator.ne, ">": operator.gt, "<": operator.lt}


class Requirement(NamedTuple):
    """A distribution that nngrad's metadata requires."""

    name: str
    bounds: str
    """The accepted versions, such as '>=0.8' or '>=0.8,<=0.9'; empty for any."""
    extra: str
    """The extra that it belongs to; empty if nngrad always needs it."""
    installed: str | None
    """The installed version; None if it is not installed."""

    @property
    def satisfied(self) -> bool:
        """True if it is installed in an accepted version."""
        if self.installed is None:
            return False
        installed = release_of(self.installed)
        return all(
            _RELATIONS[relation](installed, release_of(version))
            for relation, version in re.findall(r"([<>!]=|<|>)\s*([\w.]+)", self.bounds)
        )

    @property
    def wanted(self) -> str:
        """The requirement in pip's syntax."""
        return self.name + self.bounds

    @property
    def module(self) -> str:
        """The name under which it is imported."""
        return _MODULES.get(self.name, self.name)


def release_of(version: str) -> tuple[int, ...]:
    """The numbers of a version without trailing zeros: (0, 10) for '0.10.0'."""
    matched = re.match(r"\d+(\.\d+)*", version)
    numbers = [int(n) for n in matched.group().split(".")] if matched else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def version_of(name: str) -> str | None:
    """The version of an installed distribution; None if it is not installed, or if its metadata is damaged."""
    try:
        return importlib.metadata.version(name) or None
    except (importlib.metadata.PackageNotFoundError, KeyError):
        return None


def requirements() -> list[Requirement]:
    """The requirements in the metadata of the installed nngrad, in order, and JAX's requirement of jaxlib."""
    required = [r for r in _required_by("nngrad") if r.name != "nngrad"]
    if not required:
        return []
    jaxlib = next((r for r in _required_by("jax") if r.name == "jaxlib" and not r.extra), parsed("jaxlib"))
    return [jaxlib, *required]


def needs(name: str, other: str) -> bool:
    """True if an installed distribution requires another one, according to its metadata."""
    return any(r.name == other and not r.extra for r in _required_by(name))


def _required_by(name: str) -> list[Requirement]:
    try:
        return [parsed(line) for line in importlib.metadata.requires(name) or []]
    except (importlib.metadata.PackageNotFoundError, KeyError):
        return []


def parsed(line: str) -> Requirement:
    """Parse a requirement, such as `rich>=13` or `pytest>=8; extra == "test"`."""
    wanted, _, marker = line.partition(";")
    split = re.fullmatch(r"\s*([\w.-]+)\s*(?:\[.*\])?\s*(.*?)\s*", wanted)
    if split is None:
        raise ValueError(f"cannot read the requirement {line!r}")
    extra = re.search(r"extra\s*==\s*['\"]([\w.-]+)['\"]", marker)
    return Requirement(split[1], split[2], extra[1] if extra else "", version_of(split[1]))


def missing(extra: str) -> list[Requirement]:
    """The requirements of an extra that are not installed, or have an unsupported version."""
    return [r for r in requirements() if r.extra == extra and not r.satisfied]


def install_command(wanted: list[Requirement]) -> str:
    """The command that installs requirements for the running Python."""
    return shlex.join([sys.executable, "-m", "pip", "install", *[r.wanted for r in wanted]])
