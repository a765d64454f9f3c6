"""Files in other people's formats that are damaged: refused by their name, or read as they are."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import nngrad as nn

VALUES = {"conv/W": np.arange(24.0, dtype=np.float32).reshape(2, 3, 4), "conv/b": np.ones(2, np.float32)}


def h5(change: Callable[[Any], None] = lambda file: None) -> bytes:
    """A file of parameters, with a change."""
    content = io.BytesIO()
    with h5py.File(content, "w") as file:
        for index, (name, array) in enumerate(VALUES.items()):
            file[name] = array
            file[name].attrs["index"] = index
        change(file)
    return content.getvalue()


def attribute(name: str, value: Any) -> bytes:
    return h5(lambda file: file["conv/b"].attrs.__setitem__(name, value))


def with_more(**how: Any) -> bytes:
    return h5(lambda file: file.create_dataset("more", **how))


def virtual(file: Any) -> None:
    layout = h5py.VirtualLayout((2,), "f4")
    layout[:] = h5py.VirtualSource("others.h5", "w", (2,))
    file.create_virtual_dataset("more", layout)


@pytest.mark.parametrize(("made", "message"), [
    (lambda: attribute("index", np.inf), "OverflowError"),
    (lambda: attribute("index", "first"), "ValueError"),
    (lambda: attribute("need_grad", [True, False]), "ValueError"),
    (lambda: with_more(shape=(2**40,), dtype="f4", chunks=(2**20,)), r"claims \d+ bytes of values in a file of"),
    (lambda: with_more(shape=(4,), dtype="f4", external=[("values", 0, 16)]), "'more' is stored in another file"),
    (lambda: h5(virtual), "'more' is stored in another file"),
    (lambda: with_more(data=["text"] * 3), "'more' has dtype object"),
])
def test_what_no_parameter_can_be(made: Callable[[], bytes], message: str, tmp_path: Path) -> None:
    path = tmp_path / "p.h5"
    (tmp_path / "values").write_bytes(bytes(16))
    path.write_bytes(made())
    with pytest.raises(ValueError, match=rf"^{path}: not an HDF5 file, or a damaged one .*{message}"):
        nn.load_parameters(path)


def archive() -> bytes:
    """An archive of nnabla's, compressed."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("nnp_version.txt", "0.1\n" * 20)
        file.writestr("network.nntxt", 'parameter { variable_name: "w" shape { dim: 2 } data: 1 data: 2 }' * 9)
    return content.getvalue()


def changed(content: bytes, place: int, instead: bytes) -> bytes:
    return content[:place] + instead + content[place + len(instead) :]


DIRECTORY = archive().index(b"PK\1\2")
SECOND = archive().index(b"PK\1\2", DIRECTORY + 1)
END = archive().index(b"PK\5\6")


@pytest.mark.parametrize("content", [
    changed(archive(), archive().index(b"network.nntxt") + 13, b"\xff" * 8),
    changed(archive(), SECOND + 46, b"netwosk.nn7xt"),
    changed(archive(), SECOND + 24, (2**31 - 1).to_bytes(4, "little")),
    changed(archive(), END + 16, b"\xff\xff\xff\x7f"),
    archive()[:-1],
], ids=["values", "name in the directory", "size", "place of the directory", "cut"])
def test_a_damaged_archive_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "p.nnp"
    path.write_bytes(archive())
    assert nn.load_parameters(path)["w"].d.tolist() == [1, 2]
    nn.clear_parameters()
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"^{path}: not an nnabla archive, or a damaged one"):
        nn.load_parameters(path)
    assert not nn.get_parameters(grad_only=False)
