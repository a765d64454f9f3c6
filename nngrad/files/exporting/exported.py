"""Write exported functions to files, and read them.

A file is an uncompressed zip archive, so reading it takes no more memory than its size. `metadata.json` describes the
function, `program.bin` is the serialized `jax.export.Exported`, and `parameters.safetensors` holds the arrays that are
stored beside the program, if any.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import export as jax_export

from ...extend import array_of, converted, did_you_mean, dtype_of, x64_if
from ..archives import archive_of, members_of
from ..checked import NotAvailable, boolean, integer, text
from ..replacing import read_whole, write_whole
from ..storage import Arrays, arrays_from, content_of

FORMAT, VERSION = "nngrad exported function", 1
_METADATA, _PROGRAM, _PARAMETERS = "metadata.json", "program.bin", "parameters.safetensors"
_MEMBERS = {_METADATA, _PROGRAM, _PARAMETERS}
ARRANGEMENTS = ("one", "list", "dict")
"""The structures of results: an array, a list, or a dict by name."""


class Named(NamedTuple):
    """An input or an output."""

    name: str
    shape: tuple[int | str, ...]
    """Sizes of the axes; a name, or an expression in it, stands for any size."""
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
    """The parameters stored beside the program."""
    platforms: tuple[str, ...]
    draws: bool
    """Whether it draws random numbers, and so takes a seed."""
    x64: bool
    """Whether it uses 64-bit values."""
    nngrad: str
    jax: str
    """The versions of nngrad and JAX that exported it."""
    calling_convention: int
    """The version of `jax.export`'s calling convention."""


class ExportedFunction:
    """A function that `export` has written, made by `load_exported`.

    Call it with arrays, in the order of the inputs or by name; it returns arrays in the structure of the exported
    outputs: one, a list, or a dict by name. It may be called under `jax.jit`. It cannot be differentiated: its only
    derivatives are those among its outputs.
    """

    def __init__(
        self, path: str, described: Described, exported: jax_export.Exported, parameters: Mapping[str, Any]
    ) -> None:
        self._path = path
        self.inputs, self.outputs = described.inputs, described.outputs
        """Name, shape and dtype of each input, and of each output."""
        self.arranged = described.arranged
        """The structure of the results: 'one', 'list' or 'dict'."""
        self.platforms = described.platforms
        """The platforms that it runs on."""
        self.draws = described.draws
        """Whether it draws random numbers, and so takes a `seed`."""
        self.exported = exported
        """JAX's own object: a function of the inputs, the parameters stored beside it, and the seed if it draws."""
        self._x64, self._parameters, self._run = described.x64, dict(parameters), jax.jit(exported.call)

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters stored beside the program, by name."""
        return dict(self._parameters)

    def __call__(self, /, *arrays: Any, seed: int | None = None, **named: Any) -> Any:
        """Compute the outputs.

        Args:
            arrays: Arrays for the first inputs.
            seed: The seed of random functions; required if the program has any.
            named: Arrays for the other inputs, by name.

        Raises:
            TypeError: An input is missing, given twice, or unknown.
            ValueError: An array does not fit its input, a seed is missing, or the program is for other platforms.
        """
        if "seed" in [each.name for each in self.inputs] and seed is not None:
            named, seed = {**named, "seed": seed}, None
        given = [*self._fitted(arrays, named), *self._parameters.values(), *self._seed(seed)]
        traced = any([isinstance(a, jax.core.Tracer) for a in given])
        if not traced:
            self._check_platform(given)
        with x64_if(self._x64 and not traced):
            results = self._run(*given)
        if self.arranged == "one":
            return results[0]
        if self.arranged == "list":
            return list(results)
        return {each.name: array for each, array in zip(self.outputs, results, strict=True)}

    def _fitted(self, arrays: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        """The checked arrays for the inputs, in order."""
        names = [each.name for each in self.inputs]
        if len(arrays) > len(names):
            raise TypeError(f"expected {len(names)} inputs ({', '.join(names)}), got {len(arrays)} arrays")
        for name in named:
            if name not in names:
                raise TypeError(f"unknown input {name!r}{did_you_mean(name, names)}; expected {', '.join(names)}")
            if name in names[: len(arrays)]:
                raise TypeError(f"the input {name!r} is given twice, by position and by name")
        given = dict(zip(names, arrays, strict=False)) | dict(named)
        missing = [str(each) for each in self.inputs if each.name not in given]
        if missing:
            raise TypeError(f"missing inputs: {', '.join(missing)}")
        sizes: dict[str, tuple[int, str]] = {}
        return [_fitted(given[each.name], each, sizes) for each in self.inputs]

    def _seed(self, seed: int | None) -> list[Any]:
        if not self.draws:
            if seed is not None:
                raise TypeError("seed: this graph has no random functions; leave it out")
            return []
        if seed is None:
            raise ValueError("seed: required, because the graph has random functions; pass an int from 0 to 2**32 - 1")
        return [converted(np.asarray(seed), np.dtype(np.uint32), "seed")]

    def _check_platform(self, given: Sequence[Any]) -> None:
        places = [a.devices() for a in given if isinstance(a, jax.Array) and a.committed]
        platform = next(iter(places[0])).platform if places else jax.default_backend()
        names = ("cuda", "rocm") if platform == "gpu" else (platform,)
        if not set(names) & set(self.platforms):
            raise ValueError(f"{self._path}: was exported for {', '.join(self.platforms)}, but the arrays are on "
                             f"{platform}; export it again with {platform!r} in platforms=")

    def __repr__(self) -> str:
        inputs = ", ".join(map(str, self.inputs)) + (", seed" if self.draws else "")
        return f"<exported function ({inputs}) -> ({', '.join(map(str, self.outputs))})>"


def load_exported(path: str | Path, parameters: Mapping[str, Any] | None = None) -> ExportedFunction:
    """Load a function that `nn.export` has written; the graph that it came from is not needed.

    Args:
        path: The file.
        parameters: Arrays by name, which replace parameters stored beside the program.

    Raises:
        ImportError: The package `flatbuffers` is not installed.
        OSError: The file cannot be read.
        ValueError: The file is not an exported function, is damaged, or was made by a newer version; or one of
            `parameters` is unknown or does not fit.
    """
    check_installed("nn.load_exported")
    described, program, held = read_exported(path)
    try:
        exported = jax_export.deserialize(bytearray(program))
    except Exception as error:  # flatbuffers may raise anything
        raise ValueError(f"{path}: JAX {jax.__version__} cannot read its program, which was written by JAX "
                         f"{described.jax} ({error!r:.200})") from error
    if exported.nr_devices != 1:  # an older JAX misreads fields that a newer one has moved
        raise ValueError(f"{path}: was written by JAX {described.jax}, and JAX {jax.__version__} cannot read it; "
                         "upgrade JAX")
    arrays = {each.name: held[each.name] for each in described.parameters}
    specs = {each.name: each for each in described.parameters}
    for name, array in (parameters or {}).items():
        if name not in specs:
            raise ValueError(f"parameters: {path} has no parameter {name!r} outside its program"
                             f"{did_you_mean(name, list(specs))}")
        arrays[name] = _fitted(array, specs[name], {})
    count = len(described.inputs) + len(arrays) + described.draws
    if len(exported.in_avals) != count or len(exported.out_avals) != len(described.outputs):
        raise ValueError(f"{path}: damaged: its program takes {len(exported.in_avals)} arrays, expected {count}")
    return ExportedFunction(str(path), described, exported, arrays)


def _fitted(value: Any, each: Named, sizes: dict[str, tuple[int, str]]) -> Any:
    """`value` as an array for an input, with its shape checked.

    Args:
        value: The value given by the caller.
        each: The input.
        sizes: Sizes by name, each with the input that it was first seen in; updated with those of this input.
    """
    array = value if isinstance(value, jax.Array) else array_of(value, each.name)
    fits = len(array.shape) == len(each.shape)
    for size, wanted in zip(array.shape, each.shape, strict=False):
        if isinstance(wanted, str):
            known, seen = sizes.setdefault(wanted, (size, each.name))
            if known != size:
                raise ValueError(f"{each.name}: has shape {tuple(array.shape)}, so {wanted} is {size}, but in {seen} "
                                 f"it is {known}")
            fits = fits and size > 0
        else:
            fits = fits and size == wanted
    if not fits:
        raise ValueError(f"expected {each}, got shape {tuple(array.shape)}")
    if isinstance(array, jax.core.Tracer):
        return array.astype(jax.dtypes.canonicalize_dtype(each.dtype))
    return converted(array, each.dtype, each.name)


def check_installed(what: str) -> None:
    """Raise an ImportError with instructions if a package that `jax.export` needs for its files is missing."""
    if importlib.util.find_spec("flatbuffers") is None:
        raise ImportError(f"{what} needs flatbuffers, which is not installed: pip install 'nngrad[export]'")


# ---------------------------------------------------------------- files


def write_exported(path: str | Path, described: Described, program: bytes, parameters: Mapping[str, Any]) -> None:
    """Write a file atomically.

    Raises:
        OSError: The file cannot be written; the message names it.
        ValueError: Safetensors cannot hold the name of a parameter.
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
        ValueError: It is not an exported function, is damaged, or was made by a newer version; the message names it.
    """
    members = members_of(read_whole(path), {_METADATA, _PROGRAM}, _MEMBERS,
                         f"{path}: not a file written by nn.export")
    try:
        described = _described(json.loads(members[_METADATA].decode()), path)
    except NotAvailable as newer:
        raise ValueError(str(newer)) from None
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{path}: damaged: its {_METADATA} is invalid ({error!r:.200})") from error
    arrays: Arrays = {}
    if _PARAMETERS in members:
        arrays, _ = arrays_from(members[_PARAMETERS], f"{path}: {_PARAMETERS}")
    wanted = {n.name: (n.shape, n.dtype) for n in described.parameters}
    if {name: (array.shape, array.dtype) for name, array in arrays.items()} != wanted:
        raise ValueError(f"{path}: damaged: {_PARAMETERS} does not hold the arrays that {_METADATA} lists")
    return described, members[_PROGRAM], arrays


def _described(facts: Any, path: str | Path) -> Described:
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise ValueError(f"the format is not {FORMAT!r}")
    if integer(facts["format_version"], 1) > VERSION:
        raise NotAvailable(f"{path}: has version {facts['format_version']} of the format, written by nngrad "
                           f"{facts.get('nngrad')!r:.20}; this nngrad reads versions up to {VERSION}; upgrade nngrad")
    calling = integer(facts["calling_convention"], 0)
    least = jax_export.minimum_supported_calling_convention_version
    most = jax_export.maximum_supported_calling_convention_version
    if not least <= calling <= most:
        change = "upgrade JAX" if calling > most else "export the graph again"
        raise NotAvailable(f"{path}: was written by JAX {facts.get('jax')!r:.20} with version {calling} of its calling "
                           f"convention; JAX {jax.__version__} reads {least} to {most}; {change}")
    named = {key: tuple([_named(each) for each in facts[key]]) for key in ("inputs", "outputs", "parameters")}
    if facts["arranged"] not in ARRANGEMENTS or (facts["arranged"] == "one" and len(named["outputs"]) != 1):
        raise ValueError(f"invalid 'arranged': {facts['arranged']!r:.20}")
    if any([len({n.name for n in each}) != len(each) for each in named.values()]):
        raise ValueError("duplicate names")
    platforms = tuple(map(text, facts["platforms"]))
    return Described(**named, arranged=facts["arranged"], platforms=platforms, draws=boolean(facts["draws"]),
                     x64=boolean(facts["x64"]), nngrad=text(facts["nngrad"]), jax=text(facts["jax"]),
                     calling_convention=calling)  # fmt: skip


def _named(facts: Any) -> Named:
    shape = tuple([n if isinstance(n, str) else integer(n, 0) for n in facts["shape"]])
    return Named(text(facts["name"]), shape, dtype_of(text(facts["dtype"])))
