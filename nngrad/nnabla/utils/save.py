"""`save`: write networks and parameters in nnabla's formats."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...extend import Value, Variable
from ...files.archives import archive_of
from ...files.formats import package_for
from ...files.replacing import write_whole
from ...parameter import get_parameters
from ..formats.networks import network_message
from ..formats.parameters import h5_of
from ..formats.writing import CannotBeSaved, NetworkWriter
from .nnp_graph import EXTENSIONS

_VERSION = b"0.1\n"


def save(
    filename: str | Path, contents: Mapping[str, Any], include_params: bool = False, variable_batch_size: bool = True,
    extension: str = ".nnp", parameters: Mapping[str, Variable] | None = None,
) -> None:  # fmt: skip
    """Write networks with their parameters to a file that nnabla loads: an archive ('.nnp'), or text ('.nntxt').

    Args:
        filename: The name of the file, which is replaced atomically.
        contents: The contents as in nnabla's `save`: under 'networks' a list of dicts with 'name', 'batch_size',
            'outputs' and 'names', the last two being Variables by name; under 'executors' a list of dicts with 'name',
            'network', 'data' and 'output', the last two being lists of names.
        include_params: Whether text includes the parameters too; an archive always has them.
        variable_batch_size: Whether the file leaves first axes with the batch size open, to be chosen on loading.
        extension: The format, '.nnp', '.nntxt' or '.prototxt', for a `filename` without an ending.
        parameters: The parameters by name; by default all in the current scope.

    Raises:
        ImportError: h5py or protobuf is not installed.
        ValueError: The name has another ending, `contents` has something that cannot be written, or a network has a
            function that nnabla lacks; the message names it.
        OSError: The file cannot be written.
    """
    suffix = Path(filename).suffix or extension
    if suffix not in EXTENSIONS:
        raise ValueError(f"filename: must end in '.nnp', '.nntxt' or '.prototxt', got {str(filename)!r}; for "
                         "parameters alone use nn.save_parameters, for graphs of any functions nn.export")
    unknown = contents.keys() - {"networks", "executors"}
    if unknown:
        raise ValueError(f"contents: only 'networks' and 'executors' can be saved, got "
                         f"{', '.join(sorted(map(repr, unknown)))}")
    text_format = package_for("google.protobuf.text_format", "protobuf", f"{filename}: nnabla networks")
    chosen = get_parameters(grad_only=False) if parameters is None else dict(parameters)
    message = network_message()()
    names = {x: name for name, x in chosen.items()}
    for network in contents.get("networks", ()):
        written = message.network.add(name=network["name"], batch_size=network["batch_size"])
        try:
            NetworkWriter(written, network["outputs"], network["names"], names, variable_batch_size)
        except CannotBeSaved as error:
            raise ValueError(f"contents: the network {network['name']!r} cannot be saved: {error}") from None
    for executor in contents.get("executors", ()):
        _write_executor(message, executor)
    arrays = [np.asarray(array) for array in Value.read([x.data for x in chosen.values()])]
    flags = {name: bool(x.need_grad) for name, x in chosen.items()}
    if suffix != ".nnp":
        for name, array in zip(chosen, arrays, strict=True) if include_params else ():
            row = message.parameter.add(variable_name=name, need_grad=flags[name])
            row.shape.dim.extend(array.shape)
            row.data.extend(array.ravel().tolist())
        write_whole(filename, text_format.MessageToString(message).encode())
        return
    members = {
        "nnp_version.txt": _VERSION,
        "network.nntxt": text_format.MessageToString(message).encode(),
        "parameter.h5": h5_of(dict(zip(chosen, arrays, strict=True)), flags, str(filename)),
    }
    write_whole(filename, archive_of(members))


def _write_executor(message: Any, executor: Mapping[str, Any]) -> None:
    network = next((item for item in message.network if item.name == executor["network"]), None)
    known = {} if network is None else {item.name: item.type for item in network.variable}
    written = message.executor.add(name=executor["name"], network_name=executor["network"])
    for names, rows in ((executor["data"], written.data_variable), (executor["output"], written.output_variable)):
        for name in names:
            if name not in known:
                raise ValueError(f"contents: the executor {executor['name']!r} has {name!r}, which is not a Variable "
                                 f"of the network {executor['network']!r}")
            rows.add(variable_name=name, data_name=name)
    for name, kind in known.items():
        if kind == "Parameter":
            written.parameter_variable.add(variable_name=name)
