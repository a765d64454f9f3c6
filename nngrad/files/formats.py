"""Formats of files beside safetensors, which other packages add: `nngrad.nnabla.formats` has nnabla's."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

Arrays = dict[str, np.ndarray[Any, Any]]


class FileParameters(NamedTuple):
    """The parameters of a file, in its order."""

    arrays: Arrays
    need_grad: dict[str, bool]
    """Only for the parameters whose `need_grad` the file records."""


class ParameterFormat(NamedTuple):
    """A format of parameters; its functions get what errors call the file."""

    read: Callable[[bytes, str], FileParameters]
    """The parameters in the bytes of a file. Raises a ValueError if these are damaged."""
    write: Callable[[Mapping[str, Any], Mapping[str, bool], str], bytes] | None = None
    """The bytes of a file, from arrays and their `need_grad` by name; None if such files are only read."""


class StateFormat(NamedTuple):
    """A format of solver states."""

    read: Callable[[str | Path], dict[str, tuple[Arrays, int]]]
    """The state arrays and the update count of each parameter in a file."""
    write: Callable[[str | Path, Mapping[str, Any]], None]
    """Write states, each with `pstate` and `t`, by parameter name, to a file."""


class Formats(NamedTuple):
    """Formats by the extension of files, such as '.h5'."""

    parameters: dict[str, ParameterFormat]
    states: dict[str, StateFormat]


formats = Formats({}, {})
"""Those that have been added."""


def known_formats() -> Formats:
    """All formats; where `nngrad.nnabla` was left out, its own are missing."""
    with suppress(ModuleNotFoundError):
        importlib.import_module("nngrad.nnabla.formats")
    return formats


def package_for(module: str, package: str, what: str) -> Any:
    """Import `module`, or raise an ImportError that says how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"{what} need {package}, which is not installed: pip install 'nngrad[nnabla]'") from error
