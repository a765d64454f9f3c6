"""Parameters in nnabla's formats: HDF5 ('.h5'), protocol buffers ('.protobuf', '.nntxt'), archives of these ('.nnp').

In HDF5 each parameter is a dataset whose path is its name, with attributes `need_grad` and `index`, its position in the
order. A protocol buffer is a message `NNablaProtoBuf`, in binary or as text. An archive is a zip file with the network
as text, and the parameters in one of the other formats.
"""

from __future__ import annotations

import functools
import importlib
import io
import math
import re
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from ...files.formats import FileParameters, package_for
from ...files.replacing import read_whole

NO_NAME = re.compile(r"(^|/)[.](/|$)|[\0\ud800-\udfff]")
"""Names that HDF5 cannot hold: a component "." is the group itself, a NUL ends a name, surrogates are invalid."""

_MOST_FOLD = 1032
"""The limit on the size of all values, as a multiple of the file's: the highest compression that deflate reaches."""


def read_parameters(path: str | Path, extension: str) -> FileParameters:
    """Read the parameters in a file.

    Args:
        path: The file.
        extension: Its format, one of `READABLE`.

    Raises:
        ImportError: The package that reads such files is not installed.
        OSError: The file cannot be read, or is a device, a pipe or a socket; the message names it.
        ValueError: The file has another format, is damaged, or holds invalid parameters; the message names it.
    """
    return READABLE[extension](read_whole(path), str(path))


def h5_of(arrays: Mapping[str, Any], need_grad: Mapping[str, bool], where: str) -> bytes:
    """The bytes of an HDF5 file in nnabla's format; bfloat16 becomes float32.

    Raises:
        ImportError: h5py is not installed.
        ValueError: HDF5 cannot hold one of the names; the message includes `where`, the name of the file.
    """
    h5py = package_for("h5py", "h5py", f"{where}: '.h5' files")
    content = io.BytesIO()
    with h5py.File(content, "w") as file:
        for index, (name, array) in enumerate(arrays.items()):
            if NO_NAME.search(name):
                raise ValueError(f"{where}: {name!r} is not a valid name in an HDF5 file")
            file[name] = widened(array)
            file[name].attrs["need_grad"] = need_grad[name]
            file[name].attrs["index"] = index
    return content.getvalue()


def widened(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Convert an array to a dtype that HDF5 supports."""
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array


def _read_h5(content: bytes, where: str) -> FileParameters:
    h5py = package_for("h5py", "h5py", f"{where}: '.h5' files")
    items: list[tuple[tuple[bool, int, str], Any]] = []

    def add(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            if item.is_virtual or item.external:
                raise ValueError(f"{name!r} is stored in another file")
            if item.dtype.kind not in "biuf" or item.dtype.itemsize > 8:
                raise ValueError(f"{name!r} has dtype {item.dtype}, which is not supported")
            index = item.attrs.get("index")
            items.append(((index is None, 0 if index is None else int(index), name), item))

    held = FileParameters({}, {})
    try:
        with h5py.File(io.BytesIO(content), "r") as file:
            file.visititems(add)
            nbytes = sum([int(item.nbytes) for _, item in items])
            if nbytes > _MOST_FOLD * len(content):
                raise ValueError(f"it claims {nbytes} bytes of values in a file of {len(content)} bytes")
            for (*_, name), item in sorted(items, key=lambda pair: pair[0]):
                array, flag = np.asarray(item[()]), item.attrs.get("need_grad")
                held.arrays[name] = array.astype(array.dtype.newbyteorder("="))
                if flag is not None:
                    held.need_grad[name] = bool(flag)
    except Exception as error:  # h5py raises nearly anything
        raise ValueError(f"{where}: not an HDF5 file, or a damaged one ({type(error).__name__}: {error})") from error
    return held


# nnabla's messages for parameters and solver states, by name: the number and kind of each field, and whether it is
# repeated (https://github.com/sony/nnabla, nnabla.proto). Readers skip the other fields. A map in nnabla.proto is a
# repeated message of keys and values.
Messages = Mapping[str, Mapping[str, tuple[int, str, bool]]]
_SHAPE = {"dim": (1, "INT64", True)}
_PARAMETER = {
    "variable_name": (1, "STRING", False),
    "shape": (20, "Shape", False),
    "data": (100, "FLOAT", True),
    "need_grad": (101, "BOOL", False),
}
MESSAGES: Messages = {
    "Shape": _SHAPE, "Parameter": _PARAMETER,
    "Named": {"key": (1, "STRING", False), "value": (2, "Parameter", False)},
    "State": {"t": (1, "UINT32", False), "pstate": (2, "Named", True)},
    "OfParameter": {"key": (1, "STRING", False), "value": (2, "State", False)},
    "Solver": {"states": (40, "OfParameter", True)},
    "NNablaProtoBuf": {"solver": (30, "Solver", False), "parameter": (200, "Parameter", True)},
}  # fmt: skip


@functools.lru_cache(maxsize=1)
def parameter_message() -> Any:
    """The class `NNablaProtoBuf` with parameters and solver states."""
    return message_class(MESSAGES)


def message_class(messages: Messages) -> Any:
    """The class `NNablaProtoBuf`, built from message descriptions such as `MESSAGES`."""
    pb2 = importlib.import_module("google.protobuf.descriptor_pb2")
    field = pb2.FieldDescriptorProto
    file = pb2.FileDescriptorProto(name="nnabla_parameters.proto", syntax="proto3")
    for message, fields in messages.items():
        described = file.message_type.add(name=message)
        for name, (number, kind, repeated) in fields.items():
            is_message = kind in messages
            described.field.add(
                name=name, number=number, label=field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL,
                type=field.TYPE_MESSAGE if is_message else getattr(field, f"TYPE_{kind}"),
                type_name=f".{kind}" if is_message else None,
            )  # fmt: skip
    pool = importlib.import_module("google.protobuf.descriptor_pool").DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    factory = importlib.import_module("google.protobuf.message_factory")
    return factory.GetMessageClass(pool.FindMessageTypeByName("NNablaProtoBuf"))


def message_in(content: bytes, where: str) -> Any:
    """Parse the message in a file of parameters or states.

    Raises:
        ImportError: The package protobuf is not installed.
        ValueError: The file has another format or is damaged; the error includes `where`, the name of the file.
    """
    errors = package_for("google.protobuf.message", "protobuf", f"{where}: '.protobuf' files")
    try:
        return parameter_message().FromString(content)
    except errors.DecodeError as error:
        raise ValueError(f"{where}: not an nnabla file, or a damaged one ({error})") from error


def message_of_text(content: bytes, kind: Callable[[], Any], where: str, what: str) -> Any:
    """Parse the message in a file in the text format.

    Args:
        content: The content of the file.
        kind: Returns the class of the message.
        where: The name of the file, for errors.
        what: What needs protobuf, for the error if it is not installed.

    Raises:
        ImportError: The package protobuf is not installed.
        ValueError: The file has another format or is damaged.
    """
    text_format = package_for("google.protobuf.text_format", "protobuf", f"{where}: {what}")
    try:
        return text_format.Parse(content.decode(), kind()(), allow_unknown_field=True)
    except (UnicodeDecodeError, text_format.ParseError) as error:
        raise ValueError(f"{where}: not an nnabla file, or a damaged one ({error})") from error


def _read_protobuf(content: bytes, where: str) -> FileParameters:
    return _held(message_in(content, where), where)


def _read_text(content: bytes, where: str) -> FileParameters:
    return _held(message_of_text(content, parameter_message, where, "'.nntxt' files"), where)


def _held(message: Any, where: str) -> FileParameters:
    held = FileParameters({}, {})
    for parameter in message.parameter:
        name = parameter.variable_name
        held.arrays[name] = array_of_message(parameter, name, where)
        held.need_grad[name] = parameter.need_grad
    return held


def array_of_message(message: Any, name: str, where: str) -> np.ndarray[Any, Any]:
    """The array in a message with shape and data; `name` is for errors.

    Raises:
        ValueError: The data do not fit the shape.
    """
    shape = tuple(message.shape.dim)
    if min(shape, default=0) < 0 or math.prod(shape) != len(message.data):
        raise ValueError(f"{where}: damaged: {name!r} has shape {shape} but {len(message.data)} values")
    return np.array(message.data, np.float32).reshape(shape)


def members_of_archive(content: bytes, where: str) -> dict[str, bytes]:
    """The members of an nnabla archive by name.

    Raises:
        ValueError: The archive has another format or is damaged.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            nbytes = sum([member.file_size for member in archive.infolist()])
            if nbytes > _MOST_FOLD * len(content):
                raise ValueError(f"it claims {nbytes} bytes in a file of {len(content)} bytes")
            end = content.rindex(b"PK\5\6")  # the end record of the directory, with the number of members
            if int.from_bytes(content[end + 10 : end + 12], "little") not in (len(archive.infolist()), 0xFFFF):
                raise ValueError("its directory lists another number of files than it records")
            # Read all members: zipfile compares names in the directory with those in the members, and finds damage.
            return {name: archive.read(name) for name in archive.namelist()}
    except Exception as error:  # truncated, encrypted or malformed archives raise nearly anything
        raise ValueError(f"{where}: not an nnabla archive, or a damaged one ({error})") from error


def _read_archive(content: bytes, where: str) -> FileParameters:
    members = members_of_archive(content, where)
    suffixes = {name: PurePosixPath(name).suffix for name in members}
    chosen = [name for name, suffix in suffixes.items() if suffix in (".h5", ".protobuf")]
    held = FileParameters({}, {})
    # Without such a member, the parameters are in the network's own file.
    for name in chosen or [name for name, suffix in suffixes.items() if suffix in (".nntxt", ".prototxt")]:
        member = READABLE[suffixes[name]](members[name], f"{where}: {name}")
        held.arrays.update(member.arrays)
        held.need_grad.update(member.need_grad)
    return held


READABLE: dict[str, Callable[[bytes, str], FileParameters]] = {
    ".h5": _read_h5,
    ".protobuf": _read_protobuf,
    ".nntxt": _read_text,
    ".prototxt": _read_text,
    ".nnp": _read_archive,
}
