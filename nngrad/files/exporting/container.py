"""The file format of exported functions: a zip archive of a description, the program, and its parameters.

All members are stored as they are, so a file takes no more memory than its size. `metadata.json` describes the
function, `program.bin` is what `jax.export` makes of it, and `parameters.safetensors` has the arrays that are beside
the program, if there are any.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import export as jax_export

from ...graph.spec import dtype_of
from ..archives import archive_of, members_of
from ..replacing import read_whole, write_whole
from ..storage import Arrays, arrays_from, content_of

FORMAT, VERSION = "nngrad exported function", 1
_METADATA, _PROGRAM, _PARAMETERS = "metadata.json", "program.bin", "parameters.safetensors"
_MEMBERS = {_METADATA, _PROGRAM, _PARAMETERS}
ARRANGEMENTS = ("one", "list", "dict")
"""How results are given: an array, a list, or a dict by name."""


class Named(NamedTuple):
    """An input or an output."""

    name: str
    shape: tuple[int | str, ...]
    """Sizes of the axes; a name, or an expression of it, where any size will do."""
    dtype: np.dtype[Any]

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype.name}[{', '.join(map(str, self.shape))}]"


class Described(NamedTuple):
    """The description of an exported function."""

    inputs: tuple[Named, ...]
    outputs: tuple[Named, ...]
    arranged: str
    """One of `ARRANGEMENTS`."""
    parameters: tuple[Named, ...]
    """Those that are beside the program."""
    platforms: tuple[str, ...]
    draws: bool
    """Whether it draws at random, so that it takes a seed."""
    x64: bool
    """Whether 64-bit values occur in it."""
    nngrad: str
    jax: str
    """The versions that it was made with."""
    calling_convention: int
    """The version of `jax.export`'s way to call programs."""


def write_exported(path: str | Path, described: Described, program: bytes, parameters: Mapping[str, Any]) -> None:
    """Write a file atomically.

    Raises:
        OSError: It cannot be written; the message names the file.
        ValueError: A parameter has a name that the format of its file cannot hold.
    """
    facts = {"format": FORMAT, "format_version": VERSION, **described._asdict()}
    for key in ("inputs", "outputs", "parameters"):
        facts[key] = [{"name": n.name, "shape": list(n.shape), "dtype": n.dtype.name} for n in facts[key]]
    members = {_METADATA: json.dumps(facts, indent=1).encode(), _PROGRAM: program}
    if described.parameters:
        members[_PARAMETERS] = content_of(parameters, {}, str(path))
    write_whole(path, archive_of(members))


def read_exported(path: str | Path) -> tuple[Described, bytes, Arrays]:
    """The description of a function, its program, and the parameters beside it.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is no such file, or damaged, or made by a newer version; the message names the file.
    """
    members = members_of(read_whole(path), {_METADATA, _PROGRAM}, _MEMBERS,
                         f"{path}: not a file that nn.export has written")
    try:
        described = _described(json.loads(members[_METADATA].decode()), path)
    except _Newer as newer:
        raise ValueError(str(newer)) from None
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{path}: a damaged file: its {_METADATA} is wrong ({error!r:.200})") from error
    arrays: Arrays = {}
    if _PARAMETERS in members:
        arrays, _ = arrays_from(members[_PARAMETERS], f"{path}: {_PARAMETERS}")
    wanted = {n.name: (n.shape, n.dtype) for n in described.parameters}
    if {name: (array.shape, array.dtype) for name, array in arrays.items()} != wanted:
        raise ValueError(f"{path}: a damaged file: {_PARAMETERS} has not the arrays that {_METADATA} names")
    return described, members[_PROGRAM], arrays


class _Newer(Exception):
    """A newer version made the file; the message names the package."""


def _described(facts: Any, path: str | Path) -> Described:
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise ValueError(f"its format is not {FORMAT!r}")
    if not isinstance(facts["format_version"], int) or facts["format_version"] > VERSION:
        raise _Newer(f"{path}: was written in version {facts['format_version']!r:.20} of the format, by nngrad "
                     f"{facts.get('nngrad')!r:.20}; this nngrad reads up to version {VERSION}: upgrade nngrad")
    calling = facts["calling_convention"]
    if not isinstance(calling, int):
        raise TypeError(f"calling_convention is {calling!r:.20}")
    least, most = _calling_conventions()
    if not least <= calling <= most:
        change = "upgrade JAX" if calling > most else "export the graph again"
        raise _Newer(f"{path}: was made by JAX {facts.get('jax')!r:.20}, in version {calling} of its calling "
                     f"convention; JAX {jax.__version__} knows {least} to {most}: {change}")
    named = {key: tuple([_named(each) for each in facts[key]]) for key in ("inputs", "outputs", "parameters")}
    if facts["arranged"] not in ARRANGEMENTS or (facts["arranged"] == "one" and len(named["outputs"]) != 1):
        raise ValueError(f"arranged is {facts['arranged']!r:.20}")
    for each in named.values():
        if len({n.name for n in each}) != len(each):
            raise ValueError("a name is there twice")
    for key in ("draws", "x64"):
        if not isinstance(facts[key], bool):
            raise TypeError(f"{key} is {facts[key]!r:.20}")
    platforms = tuple([_text(each) for each in facts["platforms"]])
    return Described(**named, arranged=facts["arranged"], platforms=platforms, draws=facts["draws"], x64=facts["x64"],
                     nngrad=_text(facts["nngrad"]), jax=_text(facts["jax"]), calling_convention=calling)


def _calling_conventions() -> tuple[int, int]:
    """The calling-convention versions that this JAX supports."""
    return (jax_export.minimum_supported_calling_convention_version,
            jax_export.maximum_supported_calling_convention_version)


def _named(facts: Any) -> Named:
    shape = tuple(facts["shape"])
    if not all([isinstance(n, str) or (type(n) is int and n >= 0) for n in shape]):
        raise ValueError(f"a shape is {shape!r:.80}")
    return Named(_text(facts["name"]), shape, dtype_of(_text(facts["dtype"])))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is no text")
    return value
