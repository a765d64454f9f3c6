"""Solver states in nnabla's formats: HDF5 ('.h5') and protocol buffers ('.protobuf').

In HDF5 each parameter is a group whose path is its name, with an attribute `index`, its position in the order. The
group holds `t`, the number of updates, and a dataset for each array, which also has an `index`. A protocol buffer is a
message `NNablaProtoBuf`.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...files.formats import Arrays, package_for
from ...files.replacing import read_whole, write_whole
from .parameters import NO_NAME, array_of_message, message_in, parameter_message, read_parameters, widened


def write_states(path: str | Path, states: Mapping[str, Any]) -> None:
    """Write states, each with `pstate` and `t`, by parameter name; the file is replaced atomically.

    Raises:
        ImportError: The package that writes such files is not installed.
        ValueError: The format cannot hold one of the states.
        OSError: The file cannot be written.
    """
    others = [name for state in [states.get("")] if state is not None for name in state.pstate or ["skipped updates"]]
    if others:
        raise ValueError(f"{path}: nnabla's format for states cannot hold {', '.join(others)}, which belongs to no "
                         "parameter; save to a file that ends in .safetensors")
    arrays = {name: {what: widened(np.asarray(x.d)) for what, x in state.pstate.items()}
              for name, state in states.items()}  # fmt: skip
    counts = {name: int(state.t) for name, state in states.items()}
    write_whole(path, (_h5_of if Path(path).suffix == ".h5" else _protobuf_of)(arrays, counts, str(path)))


def _h5_of(arrays: Mapping[str, Arrays], counts: Mapping[str, int], where: str) -> bytes:
    h5py = package_for("h5py", "h5py", f"{where}: '.h5' files")
    content = io.BytesIO()
    with h5py.File(content, "w") as file:
        for index, (name, of_state) in enumerate(arrays.items()):
            if not name or NO_NAME.search(name):
                raise ValueError(f"{where}: {name!r} is not a valid name in an HDF5 file")
            group = file.create_group(name)
            group.attrs["index"] = index
            group["t"] = np.int64(counts[name])
            for place, (what, array) in enumerate(of_state.items()):
                group[what] = array
                group[what].attrs["index"] = place
    return content.getvalue()


def _protobuf_of(arrays: Mapping[str, Arrays], counts: Mapping[str, int], where: str) -> bytes:
    package_for("google.protobuf", "protobuf", f"{where}: '.protobuf' files")
    message = parameter_message()()
    for name, of_state in arrays.items():
        written = message.solver.states.add(key=name)
        written.value.t = counts[name]
        for what, array in of_state.items():
            value = written.value.pstate.add(key=what).value
            value.shape.dim.extend(array.shape)
            value.data.extend(array.ravel().tolist())
    content: bytes = message.SerializeToString(deterministic=True)
    return content


def read_states(path: str | Path) -> dict[str, tuple[Arrays, int]]:
    """The state arrays and the update count of each parameter in a file.

    Raises:
        ImportError: The package that reads such files is not installed.
        OSError: The file cannot be read.
        ValueError: The file has another format or is damaged; the message names it.
    """
    return _read_h5(path) if Path(path).suffix == ".h5" else _read_protobuf(path)


def _read_h5(path: str | Path) -> dict[str, tuple[Arrays, int]]:
    arrays: dict[str, Arrays] = {}
    counts: dict[str, int] = {}
    for place, array in read_parameters(path, ".h5").arrays.items():
        name, _, what = place.rpartition("/")
        if what != "t":
            arrays.setdefault(name, {})[what] = array
        elif array.shape or array.dtype.kind not in "iu":
            raise ValueError(f"{path}: damaged: the count {place!r} must be an integer, got {array.dtype.name}"
                             f"{list(array.shape)}")
        else:
            counts[name] = int(array)
    missing = next((name for name in arrays if name not in counts), None)
    if missing is not None:
        raise ValueError(f"{path}: not a file of solver states: {missing!r} has no 't', the number of updates")
    return {name: (arrays.get(name, {}), t) for name, t in counts.items()}


def _read_protobuf(path: str | Path) -> dict[str, tuple[Arrays, int]]:
    message = message_in(read_whole(path), str(path))
    if not message.HasField("solver"):
        raise ValueError(f"{path}: not a file of solver states")
    return {
        state.key: ({named.key: array_of_message(named.value, f"{state.key}/{named.key}", str(path))
                    for named in state.value.pstate}, state.value.t)
        for state in message.solver.states
    }  # fmt: skip
