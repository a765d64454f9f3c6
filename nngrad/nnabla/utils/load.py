"""`load`: read networks and parameters from nnabla's files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from ...files.parameter_files import load_parameters
from .nnp_graph import EXTENSIONS, NnpLoader, NnpNetwork


class Executor(NamedTuple):
    """The description of an executor: how to run a network."""

    network: NnpNetwork
    dataset_assign: dict[str, str]
    """The names of data, by the names of the Variables that take it."""
    output_assign: dict[str, str]
    """The names of results, by the names of the Variables that hold them."""


class Info(NamedTuple):
    """The networks of files. Data sets, optimizers and monitors in the files are ignored."""

    networks: dict[str, NnpNetwork]
    executors: dict[str, Executor]


def load(
    filenames: str | Path | Iterable[str | Path], batch_size: int | None = None, parameter_only: bool = False,
    extension: str = ".nntxt",
) -> Info:  # fmt: skip
    """Read files of networks and parameters; the parameters go into the current scope.

    Args:
        filenames: Archives ('.nnp'), text ('.nntxt'), or parameters ('.h5', '.protobuf').
        batch_size: The number of examples in a batch; by default that of each network.
        parameter_only: Whether to ignore networks.
        extension: The format of files with other endings.

    Raises:
        ImportError: A package that reads such files is not installed.
        OSError: A file cannot be read.
        ValueError: A file is damaged, or has something unsupported; the message names it.
    """
    info = Info({}, {})
    paths = [filenames] if isinstance(filenames, str | Path) else list(filenames)
    for path in sorted(paths, key=lambda path: Path(path).suffix not in (".h5", ".protobuf")):  # networks need them
        if parameter_only or Path(path).suffix in (".h5", ".protobuf"):
            load_parameters(path, None if Path(path).suffix in (*EXTENSIONS, ".h5", ".protobuf") else extension)
            continue
        loader = NnpLoader(path, extension=extension)
        info.networks.update({name: loader.get_network(name, batch_size) for name in loader.get_network_names()})
        for entry in loader.executors:
            if entry.network_name not in info.networks:
                raise ValueError(f"{path}: the executor {entry.name!r} runs {entry.network_name!r}, not a network")
            data, output = ({row.variable_name: row.data_name for row in rows}
                            for rows in (entry.data_variable, entry.output_variable))  # fmt: skip
            info.executors[entry.name] = Executor(info.networks[entry.network_name], data, output)
    return info
