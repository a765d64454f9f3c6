"""`nngrad run`: apply an exported function to arrays in files."""

from __future__ import annotations

import argparse
import io
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.table import Table

from nngrad_command.outcome import reported

from ..files.exporting import ExportedFunction, load_exported
from ..files.replacing import write_whole
from ..graph.messages import did_you_mean
from .console import console_of_output, plain_table

DESCRIPTION = ("Run a function that nn.export has written, on arrays in '.npy' files, and show its outputs. The graph "
               "that it was made of is not needed.")
_MOST_SHOWN = 6
"""The maximum number of elements of an output that are shown in full."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `nngrad run`."""
    parser.add_argument("file", type=Path, metavar="FILE", help="the file that nn.export has written")
    parser.add_argument("--input", action="append", default=[], metavar="[NAME=]FILE", dest="inputs",
                        help="array of an input, in the order of the inputs or by name; given once for each")
    parser.add_argument("--seed", type=int, metavar="S", help="what a function that draws at random draws from")
    parser.add_argument("--output", type=Path, metavar="DIR",
                        help="folder for the outputs, each a '.npy' file; or a '.npz' file for all, or a '.npy' file "
                        "where there is one")


@reported("run", ImportError, TypeError, ValueError, devices=jax.devices)
def run(given: argparse.Namespace) -> int:
    """`nngrad run`; returns the exit code."""
    function = load_exported(given.file)
    by_place, by_name = _arrays(function, given.inputs)
    found = function(*by_place, seed=given.seed, **by_name)
    results = [found] if function.arranged == "one" else found.values() if function.arranged == "dict" else found
    outputs = {each.name: np.asarray(a) for each, a in zip(function.outputs, results, strict=True)}
    written = [] if given.output is None else _saved(outputs, given.output)
    console_of_output().print(_table(outputs))
    for path in written:
        print(path)
    return 0


def _arrays(function: ExportedFunction, inputs: Sequence[str]) -> tuple[list[Any], dict[str, Any]]:
    """The positional and the named arrays."""
    given: list[Any] = []
    named: dict[str, Any] = {}
    names = [each.name for each in function.inputs]
    for text in inputs:
        name, separator, file = text.partition("=")
        if not separator or (name not in names and Path(text).exists()):
            given.append(_read(Path(text)))
            continue
        if name not in names:
            raise ValueError(f"--input {text}: unknown input {name!r}{did_you_mean(name, names)}; expected "
                             f"{', '.join(names)}")
        if name in named:
            raise ValueError(f"--input {text}: {name!r} is given twice")
        named[name] = _read(Path(file))
    return given, named


def _read(path: Path) -> Any:
    try:
        array = np.load(path, allow_pickle=False)
    except (EOFError, ValueError) as error:
        raise ValueError(f"{path}: not a file of one array of numbers as numpy.save writes it") from error
    if not isinstance(array, np.ndarray):
        array.close()
        raise ValueError(f"{path}: holds several arrays; give one '.npy' file for each input")
    return array


def _table(outputs: Mapping[str, np.ndarray[Any, Any]]) -> Table:
    table = plain_table("output", "dtype", "shape", "values")
    for name, array in outputs.items():
        table.add_row(name, array.dtype.name, str(array.shape), _values(array))
    return table


def _values(array: np.ndarray[Any, Any]) -> str:
    wide = array.astype(np.float64) if array.dtype.kind not in "biu" else array
    if array.size <= _MOST_SHOWN:
        return ", ".join([f"{v:.6g}" if wide.dtype.kind == "f" else str(v) for v in wide.reshape(-1).tolist()])
    numbers = wide.astype(np.float64)
    strange = int(numbers.size - np.isfinite(numbers).sum())
    if strange:
        return f"{strange} of {numbers.size} are not finite"
    return f"{numbers.min():.6g} to {numbers.max():.6g}, {numbers.mean():.6g} in the mean"


def _saved(outputs: Mapping[str, np.ndarray[Any, Any]], output: Path) -> list[Path]:
    """Write arrays to files; bfloat16, which NumPy's format lacks, becomes float32."""
    known = {name: a.astype(np.float32) if a.dtype.name == "bfloat16" else a for name, a in outputs.items()}
    if output.suffix == ".npz":
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w") as archive:  # numpy.savez accepts no array named 'file'
            for name, array in known.items():
                archive.writestr(f"{name}.npy", _npy(array))
        write_whole(output, content.getvalue())
        return [output]
    if output.suffix == ".npy":
        if len(known) != 1:
            raise ValueError(f"--output {output}: there are {len(known)} outputs; give a folder or a '.npz' file")
        write_whole(output, _npy(*known.values()))
        return [output]
    files = {output / f"{name.replace('/', '.')}.npy": array for name, array in known.items()}
    if len(files) < len(known) or any([file.parent != output for file in files]):
        raise ValueError(f"--output {output}: the outputs' names cannot all be names of files; give a '.npz' file")
    output.mkdir(parents=True, exist_ok=True)
    for file, array in files.items():
        write_whole(file, _npy(array))
    return list(files)


def _npy(array: np.ndarray[Any, Any]) -> bytes:
    """The bytes that `numpy.save` writes for an array."""
    content = io.BytesIO()
    np.save(content, array)
    return content.getvalue()
