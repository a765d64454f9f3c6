"""Parameters in files of nnabla's, which are written here by h5py, and byte by byte where they are protocol buffers."""

from __future__ import annotations

import io
import struct
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
from nngrad.parameter import clear_parameters, get_parameter, get_parameters

rng = np.random.default_rng(0)
STORED: dict[str, Any] = {
    "conv/W": rng.standard_normal((2, 3, 3)).astype(np.float32),
    "conv/b": rng.standard_normal(2).astype(np.float32),
    "a/bn/mean": rng.standard_normal((1, 2, 1)).astype(np.float32),
    "a/bn/var": rng.uniform(1, 2, (1, 2, 1)).astype(np.float32),
    "prelu/slope": np.float32(0.125),
}
"""As nnabla lists them: in the order in which they were made, which is not that of their names."""


@pytest.fixture(autouse=True)
def _empty() -> Iterator[None]:
    clear_parameters()
    yield
    clear_parameters()


def trained(name: str) -> bool:
    """Whether nnabla trains a parameter."""
    return not name.endswith(("mean", "var"))


# ---------------------------------------------------------------- what nnabla writes


def h5(parameters: dict[str, Any] = STORED) -> bytes:
    """A dataset for each parameter, with its place in the order."""
    content = io.BytesIO()
    with h5py.File(content, "w") as file:
        for index, (name, array) in enumerate(parameters.items()):
            file[name] = array
            file[name].attrs["need_grad"] = trained(name)
            file[name].attrs["index"] = index
    return content.getvalue()


def varint(number: int) -> bytes:
    """Seven bits in each byte, the lowest first."""
    more = number >> 7
    return bytes([number & 127 | 128]) + varint(more) if more else bytes([number & 127])


def field(number: int, value: bytes | int | str) -> bytes:
    """A field of a protocol buffer: its number and kind, and a number, or a length and bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    content = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(content)) + content


def parameter(name: str, array: Any) -> bytes:
    """The message `Parameter`: a name, a shape, values of four bytes, and whether it is trained."""
    array = np.asarray(array, "<f4")
    shape = field(1, b"".join([varint(n) for n in array.shape])) if array.shape else b""
    return field(1, name) + field(20, shape) + field(100, array.tobytes()) + field(101, int(trained(name)))


def protobuf(parameters: dict[str, Any] = STORED) -> bytes:
    """A version, a network of one variable, and the parameters."""
    network = field(1, "net") + field(10, 8) + field(100, field(1, "x") + field(2, "Buffer"))
    return field(1, "1.39.0") + field(100, network) + b"".join([
        field(200, parameter(name, array)) for name, array in parameters.items()
    ])  # fmt: skip


def text() -> str:
    """The same as text."""
    lines = ['version: "1.39.0"', 'network { name: "net" variable { name: "x" shape { dim: -1 dim: 3 } } }']
    for name, array in STORED.items():
        dims = "".join([f" dim: {n}" for n in array.shape])
        values = "".join([f" data: {value!r}" for value in np.ravel(array).tolist()])
        need_grad = str(trained(name)).lower()
        lines.append(f'parameter {{ variable_name: "{name}" shape {{{dims} }}{values} need_grad: {need_grad} }}')
    return "\n".join(lines)


def archive(**members: bytes | str) -> bytes:
    """A zip file; `parameter_h5` is called 'parameter.h5' in it."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as file:
        for name, member in members.items():
            file.writestr(".".join(name.rsplit("_", 1)), member)
    return content.getvalue()


NETWORK = 'version: "1.39.0" network { name: "net" }'
FILES: dict[str, Callable[[], bytes]] = {
    "p.h5": h5,
    "p.protobuf": protobuf,
    "p.nntxt": lambda: text().encode(),
    "p.prototxt": lambda: text().encode(),
    "h5.nnp": lambda: archive(nnp_version_txt="0.1\n", network_nntxt=NETWORK, parameter_h5=h5(),
                              solver_optimizer=h5({"other": np.ones(3)})),
    "protobuf.nnp": lambda: archive(nnp_version_txt="0.1\n", network_nntxt=NETWORK, parameter_protobuf=protobuf()),
    "text.nnp": lambda: archive(nnp_version_txt="0.1\n", network_nntxt=text()),
}


@pytest.mark.parametrize("name", FILES)
def test_what_nnabla_has_written_is_read(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(FILES[name]())
    loaded = nn.load_parameters(tmp_path / name)
    assert list(loaded) == list(STORED)
    assert get_parameters(grad_only=False).keys() == STORED.keys()
    for key, array in STORED.items():
        p = get_parameter(key)
        assert p is loaded[key] and p.dtype == np.float32 and p.need_grad == trained(key)
        np.testing.assert_array_equal(p.d, array)


def test_a_network_goes_on_with_what_nnabla_has_trained(tmp_path: Path) -> None:
    def network(x: nn.Variable) -> nn.Variable:
        h = PF.convolution(x, 2, (3,))
        return PF.prelu(PF.batch_normalization(h, no_scale=True, no_bias=True, batch_stat=False, name="a"))

    x = rng.standard_normal((1, 3, 5)).astype(np.float32)
    y = network(x)
    weight = get_parameter("conv/W")
    (tmp_path / "p.h5").write_bytes(h5())
    nn.load_parameters(tmp_path / "p.h5")
    assert get_parameter("conv/W") is weight
    normalised = F.convolution(x, STORED["conv/W"], STORED["conv/b"]).d - STORED["a/bn/mean"]
    normalised /= np.sqrt(STORED["a/bn/var"] + 1e-5)
    y.forward()
    np.testing.assert_allclose(y.d, np.where(normalised > 0, normalised, normalised / 8), rtol=1e-5, atol=1e-6)


def test_counters_are_taken_as_floats_and_as_whole_numbers(tmp_path: Path) -> None:
    PF.mean_subtraction(np.zeros((2, 3), np.float32))
    t, mean = get_parameter("mean_subtraction/t"), get_parameter("mean_subtraction/mean")
    stored = {"mean_subtraction/mean": np.array([1, 2, 3], np.int32), "mean_subtraction/t": np.array([7.0], np.float32)}
    (tmp_path / "p.h5").write_bytes(h5(stored))
    nn.load_parameters(tmp_path / "p.h5")
    assert (t.d, t.dtype, mean.dtype) == ([7], np.int32, np.float32)
    np.testing.assert_array_equal(mean.d, [1, 2, 3])
    (tmp_path / "p.h5").write_bytes(h5({"mean_subtraction/t": np.array([7.5])}))
    with pytest.raises(ValueError, match=r"'mean_subtraction/t' is float64 in the file, but int32 here"):
        nn.load_parameters(tmp_path / "p.h5")
    clear_parameters()
    (tmp_path / "p.h5").write_bytes(h5(stored | {"mean_subtraction/mean": np.ones(3, np.float32)}))
    nn.load_parameters(tmp_path / "p.h5")
    x = np.full((2, 3), 9, np.float32)
    y = PF.mean_subtraction(x)
    y.forward()
    np.testing.assert_allclose(y.d, np.full((2, 3), 7.0))
    assert get_parameter("mean_subtraction/t").d == [8]


def test_what_is_saved_is_as_nnabla_writes_it(tmp_path: Path) -> None:
    for i, (name, array) in enumerate(STORED.items()):
        dtype = ["float32", "float16", "bfloat16", "float64", "float32"][i]
        p = nn.Variable.from_numpy_array(array, dtype=dtype)
        p.need_grad = trained(name)
        nn.set_parameter(name, p)
    nn.set_parameter("t", nn.Variable.from_numpy_array(np.array([3], np.int32)))
    nn.save_parameters(tmp_path / "p.h5")
    before = {name: p.d.astype(np.float64) for name, p in get_parameters(grad_only=False).items()}
    with h5py.File(tmp_path / "p.h5") as file:
        for index, (name, array) in enumerate(before.items()):
            np.testing.assert_array_equal(file[name][()], array)
            assert file[name].attrs["index"] == index
            assert bool(file[name].attrs["need_grad"]) is (trained(name) and name != "t")
        assert [file[n].dtype.name for n in before] == ["float32", "float16", "float32", "float64", "float32", "int32"]
    clear_parameters()
    assert list(nn.load_parameters(tmp_path / "p.h5")) == list(before)
    for name, p in get_parameters(grad_only=False).items():
        np.testing.assert_array_equal(p.d.astype(np.float64), before[name])
        assert p.need_grad == (trained(name) and name != "t")


CUT = [(name, lambda made=made: made()[:-7]) for name, made in FILES.items() if not name.endswith("txt")]
BAD: list[tuple[str, Callable[[], bytes], str]] = [
    *[(name, made, "damaged") for name, made in CUT],
    ("p.h5", lambda: b"", "not an HDF5 file"),
    ("p.h5", lambda: h5({"w": np.ones(2, np.complex64)}), "'w' has dtype complex64"),
    ("p.h5", lambda: h5({"w": "text"}), "'w' has dtype (object|.S4)"),
    ("p.protobuf", lambda: field(200, parameter("w", np.ones(3)) + field(100, b"\0\0\0\0")),
     r"shape \(3,\) but 4 values"),
    ("p.protobuf", lambda: field(200, parameter("", np.ones(3))), "a parameter cannot be named ''"),
    ("p.nntxt", lambda: b"parameter {", "damaged"),
    ("p.nntxt", lambda: b"parameter { variable_name: 3 }", "damaged"),
    ("p.nntxt", lambda: b"\xff", "damaged"),
    ("p.nnp", lambda: b"no archive", "not an nnabla archive"),
    ("p.nnp", lambda: archive(parameter_h5=b"no such thing"), r"p\.nnp: parameter\.h5: not an HDF5 file"),
]


@pytest.mark.parametrize("name, made, message", BAD)
def test_what_is_damaged_is_refused_and_changes_nothing(name: str, made: Any, message: str, tmp_path: Path) -> None:
    weight = nn.Variable((2, 3, 3))
    nn.set_parameter("conv/W", weight)
    (tmp_path / name).write_bytes(made())
    with pytest.raises(ValueError, match=message) as caught:
        nn.load_parameters(tmp_path / name)
    assert name in str(caught.value)
    assert list(get_parameters(grad_only=False)) == ["conv/W"] and not weight.d.any()


@pytest.mark.parametrize("name, module, package", [
    ("p.h5", "h5py", "h5py"),
    ("p.protobuf", "google.protobuf.message", "protobuf"),
    ("p.nntxt", "google.protobuf.text_format", "protobuf"),
])  # fmt: skip
def test_a_package_that_is_missing(
    name: str, module: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / name).write_bytes(FILES[name]())
    monkeypatch.setitem(sys.modules, module, None)
    message = rf"files need {package}, which is not installed: pip install 'nngrad\[nnabla\]'"
    with pytest.raises(ImportError, match=message):
        nn.load_parameters(tmp_path / name)
    if name == "p.h5":
        with pytest.raises(ImportError, match=message):
            nn.save_parameters(tmp_path / "other.h5", {"w": nn.Variable(())})


def test_bytes_are_those_of_nnabla_s_messages() -> None:
    # Two fields as protocol buffers have them: number << 3 | kind, length, content.
    assert parameter("w", [1.0])[:3] == b"\x0a\x01w"
    assert struct.pack("<f", 1.0) in parameter("w", [1.0])
    assert varint(300) == b"\xac\x02"
