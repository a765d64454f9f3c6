"""Write exported functions to files, and read them.

A file is an uncompressed zip archive. `metadata.json` names inputs, outputs and parameters, `program.bin` is the
serialized `jax.export.Exported`, which knows their shapes and dtypes, and `parameters.safetensors` holds the arrays
that are stored beside the program.
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

from ...extend import array_of, did_you_mean, x64_if
from ..archives import archive_of, members_of
from ..replacing import read_whole, write_whole
from ..storage import arrays_from, content_of

_FORMAT, _VERSION = "nngrad exported function", 1
_METADATA, _PROGRAM, _PARAMETERS = "metadata.json", "program.bin", "parameters.safetensors"
_MEMBERS = {_METADATA, _PROGRAM, _PARAMETERS}


class Named(NamedTuple):
    """An input or an output."""

    name: str
    shape: tuple[int | str, ...]
    """Sizes of the axes; a name, or an expression in it, stands for any size."""
    dtype: np.dtype[Any]

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype.name}[{', '.join(map(str, self.shape))}]"


class Described(NamedTuple):
    """What a program does not know about itself."""

    inputs: list[str]
    """The names of its inputs."""
    outputs: list[str]
    """The names of its outputs."""
    parameters: list[str]
    """The names of the parameters that it takes after its inputs."""
    arranged: str
    """The structure of the results: 'one', 'list' or 'dict'."""
    draws: bool
    """True if it draws random numbers, and so takes a seed after these."""
    x64: bool
    """True if it uses 64-bit values."""


class ExportedFunction:
    """A function that `export` has written, made by `load_exported`.

    Call it with arrays, in the order of the inputs or by name; it returns arrays in the structure of the exported
    outputs: one, a list, or a dict by name. It may be called under `jax.jit`. It cannot be differentiated: its only
    derivatives are those among its outputs.
    """

    def __init__(self, described: Described, exported: jax_export.Exported, parameters: Mapping[str, Any]) -> None:
        count = len(described.inputs)
        self.inputs = _named(described.inputs, exported.in_avals[:count])
        """Name, shape and dtype of each input."""
        self.outputs = _named(described.outputs, exported.out_avals)
        """Name, shape and dtype of each output."""
        self.arranged = described.arranged
        """The structure of the results: 'one', 'list' or 'dict'."""
        self.platforms = exported.platforms
        """The platforms that it runs on."""
        self.draws = described.draws
        """True if it draws random numbers, and so takes a `seed`."""
        self.exported = exported
        """JAX's own object: a function of the inputs, the parameters stored beside it, and the seed if it draws."""
        self._x64, self._run = described.x64, jax.jit(exported.call)
        specs = _named(described.parameters, exported.in_avals[count:])
        self._parameters = {spec.name: _fitted(parameters[spec.name], spec) for spec in specs}

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
        names = [spec.name for spec in self.inputs]
        if "seed" in names and seed is not None:
            named, seed = {**named, "seed": seed}, None
        if len(arrays) > len(names):
            raise TypeError(f"expected {len(names)} inputs ({', '.join(names)}), got {len(arrays)} arrays")
        by_name = dict(zip(names, arrays, strict=False))
        for name, array in named.items():
            if name not in names:
                raise TypeError(f"unknown input {name!r}{did_you_mean(name, names)}; expected {', '.join(names)}")
            if name in by_name:
                raise TypeError(f"the input {name!r} is given twice, by position and by name")
            by_name[name] = array
        missing = [str(spec) for spec in self.inputs if spec.name not in by_name]
        if missing:
            raise TypeError(f"missing inputs: {', '.join(missing)}")
        fitted = [*[_fitted(by_name[spec.name], spec) for spec in self.inputs], *self._parameters.values()]
        if not self.draws and seed is not None:
            raise TypeError("seed: this graph has no random functions; leave it out")
        if self.draws:
            if seed is None:
                raise ValueError("seed: required, because the graph has random functions; pass an int from 0 to "
                                 "2**32 - 1")
            fitted.append(array_of(np.asarray(seed), "seed", np.dtype(np.uint32)))
        with x64_if(self._x64 and not any([isinstance(a, jax.core.Tracer) for a in fitted])):
            results = self._run(*fitted)
        if self.arranged == "one":
            return results[0]
        if self.arranged == "list":
            return list(results)
        return {spec.name: array for spec, array in zip(self.outputs, results, strict=True)}

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
    members = members_of(read_whole(path), _MEMBERS, f"{path}: not a file written by nn.export")
    try:
        facts = json.loads(members[_METADATA])
        if facts["format"] != _FORMAT:
            raise ValueError(f"the format is not {_FORMAT!r}")
        newer = facts["format_version"] > _VERSION
        described = Described(*[facts.get(name) for name in Described._fields])
        inputs = len(described.inputs) + len(described.parameters) + described.draws
        outputs = len(described.outputs)
        writer = f"nngrad {facts['nngrad']} and JAX {facts['jax']}"
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{path}: damaged: its {_METADATA} is invalid ({error!r:.200})") from error
    if newer:
        raise ValueError(f"{path}: has version {facts['format_version']} of the format, written by {writer}; this "
                         f"nngrad reads versions up to {_VERSION}; upgrade nngrad")
    try:
        exported = jax_export.deserialize(bytearray(members[_PROGRAM]))
    except Exception as error:  # flatbuffers may raise anything
        raise ValueError(f"{path}: JAX {jax.__version__} cannot read its program, which was written by {writer} "
                         f"({error!r:.200})") from error
    if exported.nr_devices != 1:  # an older JAX misreads fields that a newer one has moved
        raise ValueError(f"{path}: was written by {writer}, and JAX {jax.__version__} cannot read it; upgrade JAX")
    if len(exported.in_avals) != inputs or len(exported.out_avals) != outputs:
        raise ValueError(f"{path}: damaged: its program takes {len(exported.in_avals)} arrays, expected {inputs}")
    arrays, _ = arrays_from(members[_PARAMETERS], f"{path}: {_PARAMETERS}")
    if arrays.keys() != set(described.parameters):
        raise ValueError(f"{path}: damaged: {_PARAMETERS} does not hold the arrays that {_METADATA} lists")
    for name in parameters or {}:
        if name not in arrays:
            raise ValueError(f"parameters: {path} has no parameter {name!r} outside its program"
                             f"{did_you_mean(name, described.parameters)}")
    return ExportedFunction(described, exported, {**arrays, **(parameters or {})})


def _named(names: Sequence[str], avals: Sequence[Any]) -> tuple[Named, ...]:
    shapes = [tuple([n if type(n) is int else str(n) for n in aval.shape]) for aval in avals]
    return tuple([Named(name, shape, np.dtype(aval.dtype))
                  for name, shape, aval in zip(names, shapes, avals, strict=False)])


def _fitted(value: Any, wanted: Named) -> Any:
    """`value` as an array in the dtype of an input. Its fixed sizes are checked; JAX checks those that have a name."""
    array = value if isinstance(value, jax.Array) else array_of(value, wanted.name)
    shape = tuple(array.shape)
    sizes = zip(shape, wanted.shape, strict=False)
    if len(shape) != len(wanted.shape) or any([isinstance(n, int) and n != size for size, n in sizes]):
        raise ValueError(f"expected {wanted}, got shape {shape}")
    if isinstance(array, jax.core.Tracer):
        return array.astype(jax.dtypes.canonicalize_dtype(wanted.dtype))
    return array_of(array, wanted.name, wanted.dtype)


def check_installed(what: str) -> None:
    """Raise an ImportError with instructions if a package that `jax.export` needs for its files is missing."""
    if importlib.util.find_spec("flatbuffers") is None:
        raise ImportError(f"{what} needs flatbuffers, which is not installed: pip install 'nngrad[export]'")


def write_exported(
    path: str | Path, described: Described, exported: jax_export.Exported, parameters: Mapping[str, Any], version: str
) -> None:
    """Write a file atomically; `version` is that of nngrad.

    Raises:
        OSError: The file cannot be written; the message names it.
        ValueError: Safetensors cannot hold the name of a parameter.
    """
    facts = {"format": _FORMAT, "format_version": _VERSION, "nngrad": version, "jax": jax.__version__,
             **described._asdict()}  # fmt: skip
    members = {_METADATA: json.dumps(facts, indent=1).encode(), _PROGRAM: bytes(exported.serialize()),
               _PARAMETERS: content_of(parameters, {}, str(path))}  # fmt: skip
    write_whole(path, archive_of(members))
