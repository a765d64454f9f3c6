"""A subprocess that reads an HDF5 file, since a damaged file may crash the library or make it hang.

It is run by its path. Its arguments are `sys.path` and a limit on its CPU seconds; standard input is the file. It
writes a line of JSON that describes the datasets, followed by their values; or a line of JSON with the error.
"""

from __future__ import annotations

import importlib
import io
import json
import sys
from typing import Any

MOST_FOLD = 1032
"""The limit on the size of all values, as a multiple of the file's: the highest compression that deflate reaches."""
_ROOM = 4 << 30
"""Address space beyond that for the file and the values: mostly code that is mapped but unused."""


def read_datasets(content: bytes) -> tuple[list[list[Any]], list[Any]]:
    """Name, dtype, shape and `need_grad` of each dataset in the order of its `index`, and the values.

    Raises:
        Exception: The content is not HDF5, is damaged, or holds invalid parameters.
    """
    import numpy as np

    h5py: Any = importlib.import_module("h5py")
    found: list[tuple[tuple[bool, int, str], Any]] = []

    def add(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            if item.is_virtual or item.external:
                raise ValueError(f"{name!r} is stored in another file")
            if item.dtype.kind not in "biuf" or item.dtype.itemsize > 8:
                raise ValueError(f"{name!r} has dtype {item.dtype}, which is not supported")
            index = item.attrs.get("index")
            found.append(((index is None, 0 if index is None else int(index), name), item))

    _limit("RLIMIT_AS", _ROOM + len(content))
    with h5py.File(io.BytesIO(content), "r") as file:
        file.visititems(add)
        nbytes = sum([int(item.nbytes) for _, item in found])
        if nbytes > MOST_FOLD * len(content):
            raise ValueError(f"it claims {nbytes} bytes of values in a file of {len(content)} bytes")
        _limit("RLIMIT_AS", _ROOM + len(content) + 3 * nbytes)
        facts, values = [], []
        for (*_, name), item in sorted(found, key=lambda each: each[0]):
            flag = item.attrs.get("need_grad")
            array = np.asarray(item[()])
            facts.append([name, array.dtype.str, array.shape, None if flag is None else bool(flag)])
            values.append(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
    return facts, values


def _limit(name: str, most: int) -> None:
    try:
        import resource
    except ImportError:  # not a POSIX system
        return
    kind = getattr(resource, name)
    hard = resource.getrlimit(kind)[1]
    resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def main() -> None:
    """Entry point of the subprocess."""
    sys.path[:] = json.loads(sys.argv[1])
    _limit("RLIMIT_CPU", int(sys.argv[2]))
    values: list[Any] = []
    try:
        told, values = read_datasets(sys.stdin.buffer.read())
    except Exception as error:  # h5py raises nearly anything
        said: Any = f"{type(error).__name__}: {error}"
    else:
        said = told
    sys.stdout.buffer.write(json.dumps(said).encode() + b"\n")
    sys.stdout.buffer.writelines(values)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
