"""Graphs in files that run without them: programs, names, any batch size, damage, and the command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
from nngrad.extend import Array, op
from tests.exact import exactly
from tests.leaves import leaf
from tests.oracle import compiled_cheaply

pytest.importorskip("flatbuffers")

RNG = np.random.default_rng(0)
X = RNG.standard_normal((5, 3))
W, V = RNG.standard_normal((3, 4)), RNG.standard_normal((4, 1))


@pytest.fixture(autouse=True)
def no_parameters() -> None:
    nn.clear_parameters()
    nn.seed(0)


def penalty(x: nn.Variable, w: nn.Variable, v: nn.Variable) -> dict[str, nn.Variable]:
    """Values, slopes and second derivatives: their graphs have the number of rows in shapes and in numbers."""
    y = F.tanh(x @ w) @ v
    (slope,) = nn.grad(y, x)
    loss = F.mean((F.sum(slope**2, axis=1) - 1) ** 2) + F.sum(F.std(y, axis=0)) / x.shape[0]
    (second,) = nn.grad(loss, w)
    return {"loss": loss, "slope": slope, "flat": F.reshape(slope, (x.shape[0] * 3,)), "second": second}


def penalty_in_jax(x: Any, w: Any, v: Any) -> dict[str, Any]:
    def loss_of(w: Any) -> Any:
        y = jnp.tanh(x @ w) @ v
        slope = jax.grad(lambda x: jnp.sum(jnp.tanh(x @ w) @ v))(x)
        return jnp.mean((jnp.sum(slope**2, axis=1) - 1) ** 2) + jnp.sum(jnp.std(y, axis=0)) / x.shape[0]

    slope = jax.grad(lambda x: jnp.sum(jnp.tanh(x @ w) @ v))(x)
    return {"loss": loss_of(w), "slope": slope, "flat": slope.reshape(-1), "second": jax.grad(loss_of)(w)}


def compare(found: dict[str, Any], rows: int) -> None:
    wanted = exactly(penalty_in_jax, X[:rows], W, V)
    assert list(found) == ["loss", "slope", "flat", "second"]
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-12, atol=1e-13, err_msg=name)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A graph of fixed shapes, and one of any size, each written once."""
    folder = tmp_path_factory.mktemp("exported")
    x, w, v = (leaf(a, name=name) for a, name in ((X, "x"), (W, "w"), (V, "v")))
    nn.export(penalty(x, w, v), [x], folder / "fixed.nnx")
    struct = jax.ShapeDtypeStruct(jax.export.symbolic_shape("rows, 3"), np.float64)
    nn.export(lambda x: penalty(x, w, v), {"x": struct}, folder / "any.nnx", platforms="cpu", parameters_inside=True)
    return {"fixed": folder / "fixed.nnx", "any": folder / "any.nnx"}


def test_gradients_are_outputs_by_name(files: dict[str, Path]) -> None:
    run = nn.load_exported(files["fixed"])
    compare(run(X), 5)
    assert run.platforms == ("cpu", "cuda", "rocm", "tpu")
    assert list(run.parameters) == ["w", "v"]
    assert repr(run) == ("<exported function (x: float64[5, 3]) -> (loss: float64[], slope: float64[5, 3], "
                         "flat: float64[15], second: float64[3, 4])>")
    with jax.enable_x64(True):
        traced = compiled_cheaply(lambda x: run(x=x)["loss"])(X)
        zeros = nn.load_exported(files["fixed"], parameters={"v": np.zeros((4, 1))})
        assert zeros(X)["loss"] == 1
    np.testing.assert_allclose(traced, exactly(penalty_in_jax, X, W, V)["loss"], rtol=1e-12)


def test_any_batch_size(files: dict[str, Path]) -> None:
    run = nn.load_exported(files["any"])
    assert [str(each) for each in run.outputs][1:3] == ["slope: float64[rows, 3]", "flat: float64[3*rows]"]
    assert not run.parameters
    assert run(X[:1])["flat"].shape == (3,)
    for rows in (2, 5):
        compare(run(X[:rows]), rows)


def test_what_does_not_fit_is_refused(files: dict[str, Path]) -> None:
    run = nn.load_exported(files["fixed"])
    for wrong, kind, message in (
        (lambda: run(X[:4]), ValueError, r"expected x: float64\[5, 3\], got shape \(4, 3\)"),
        (lambda: run(), TypeError, r"missing inputs: x: float64\[5, 3\]"),
        (lambda: run(X, X), TypeError, r"expected 1 inputs \(x\), got 2 arrays"),
        (lambda: run(X, x=X), TypeError, "'x' is given twice"),
        (lambda: run(y=X), TypeError, "unknown input 'y'"),
        (lambda: run(X + 1j), TypeError, "x: dtype complex128 is not supported"),
        (lambda: run(X, seed=3), TypeError, "seed: this graph has no random functions"),
        (lambda: nn.load_exported(files["any"])(np.zeros((0, 3))), ValueError, "Expected value >= 1 .* 'rows'"),
        (lambda: nn.load_exported(files["fixed"], {"u": X}), ValueError, "no parameter 'u'"),
        (lambda: nn.load_exported(files["fixed"], {"v": X}), ValueError, r"expected v: .*, got shape \(5, 3\)"),
        (lambda: nn.load_exported("nowhere.nnx"), FileNotFoundError, "nowhere.nnx"),
    ):
        with pytest.raises(kind, match=message):
            wrong()


def test_random_functions_take_a_seed(tmp_path: Path) -> None:
    x = nn.Variable((64,))
    nn.export(F.dropout(x, 0.5) + F.rand(shape=(64,)), {"x": x}, tmp_path / "a.nnx", platforms=["cpu"])
    run = nn.load_exported(tmp_path / "a.nnx")
    ones = np.ones(64, np.float32)
    assert run.draws and "seed" in repr(run)
    first, again, other = run(ones, seed=1), run(ones, seed=1), run(ones, seed=2)
    assert np.array_equal(first, again) and not np.array_equal(first, other)
    assert (np.asarray(first) < 1).any() and (np.asarray(first) > 2).any()
    with pytest.raises(ValueError, match="seed: required, because the graph has random functions"):
        run(ones)
    with pytest.raises(ValueError, match="inputs: 'seed' is the name under which a graph"):
        nn.export(F.dropout(x, 0.5), {"seed": x}, tmp_path / "a.nnx")


def test_updates_of_leaves_are_refused_or_left_out(tmp_path: Path) -> None:
    x = nn.Variable((4, 3))
    y = PF.batch_normalization(x)
    with pytest.raises(ValueError, match=r"cannot export the update of .*'bn/mean'.*leave_updates_out=True"):
        nn.export(y, x, tmp_path / "a.nnx")
    assert not list(tmp_path.iterdir())
    nn.export(y, {"x": x}, tmp_path / "a.nnx", platforms="cpu", leave_updates_out=True)
    run = nn.load_exported(tmp_path / "a.nnx")
    assert "bn/gamma" in run.parameters
    np.testing.assert_allclose(np.mean(run(X[:4]), axis=0), np.zeros(3), atol=1e-6)


def test_bodies_and_branches_of_any_size(tmp_path: Path) -> None:
    w = leaf(W[:, :3], np.float32)

    def build(x: nn.Variable) -> list[nn.Variable]:
        y, _ = F.scan(lambda h, _: (F.tanh(h @ w), h), x, None, length=3)
        z = F.where(F.sum(y, axis=1, keepdims=True) > 0, y, -y)
        return [z, nn.grad(F.sum(z[1:] * z[:-1]), x)[0], F.concatenate(z, x, axis=0)]

    with pytest.raises(ValueError, match=r"cannot export take_slices for any batch size: .*\n.*constraints"):
        nn.export(build, {"x": ("b", 3)}, tmp_path / "a.nnx", platforms="cpu")
    shape = jax.export.symbolic_shape("b, 3", constraints=["b >= 2"])
    nn.export(build, [jax.ShapeDtypeStruct(shape, np.float32)], tmp_path / "a.nnx", platforms="cpu")
    run = nn.load_exported(tmp_path / "a.nnx")
    for rows in (2, 5):
        x, at = X[:rows].astype(np.float32), nn.Variable((rows, 3), need_grad=True)
        for found, wanted in zip(run(x), compiled_cheaply(nn.to_jax(build(at), at))(x), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_layers_of_any_size(tmp_path: Path) -> None:
    """Slices, pads, transposed convolutions and sums over rows, whose forwards compare sizes, at order 1."""
    index = np.int32([0, 1])

    def build(x: nn.Variable) -> list[nn.Variable]:
        h = F.average_pooling(PF.convolution(x, 3, (3, 3), pad=(1, 1)), (2, 2))
        h = F.pad(F.reshape(h[:, 1:, ::-1], (x.shape[0], -1)), (1, 1))
        variance = F.sum((h - F.mean(h, axis=0)) ** 2) / (x.shape[0] - 1) / x.shape[0]
        loss = variance + F.sum(F.gather(h, index, axis=1)) / (x.shape[0] + 1)
        return [loss, *nn.grad(loss, [x, *nn.get_parameters().values()])]

    nn.export(build, {"x": ("b", 2, 4, 4)}, tmp_path / "a.nnx", platforms="cpu")
    run, at = nn.load_exported(tmp_path / "a.nnx"), nn.Variable((3, 2, 4, 4), need_grad=True)
    x = RNG.standard_normal((3, 2, 4, 4)).astype(np.float32)
    for found, wanted in zip(run(x), compiled_cheaply(nn.to_jax(build(at), at))(x), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_regions_of_any_number_of_images(tmp_path: Path) -> None:
    boxes = nn.Variable.from_numpy_array(np.array([[0, 0, 0, 4, 4], [2, 1, 0, 3, 5]], np.float32))

    def build(x: nn.Variable) -> list[nn.Variable]:
        y = F.roi_align(x, boxes, (2, 2), sampling_ratio=2)
        return [y, nn.grad(F.sum(y**2), x)[0]]

    nn.export(build, {"x": ("b", 1, 6, 6)}, tmp_path / "a.nnx", platforms="cpu")
    x = np.random.default_rng(0).normal(size=(3, 1, 6, 6)).astype(np.float32)
    expected = build(nn.Variable.from_numpy_array(x))
    nn.forward_all(expected)
    for found, wanted in zip(nn.load_exported(tmp_path / "a.nnx")(x), expected, strict=True):
        np.testing.assert_allclose(found, wanted.d, atol=1e-6)


@op
def rounded_up(x: Array, /) -> jax.Array:
    return jnp.tile(x, (int(x.shape[0]), 1))


@pytest.mark.parametrize(("build", "message"), [
    (lambda x: F.sum(x * (x.shape[0] % 7)), "argument .* depends on the batch size|structure"),
    (lambda x: x[: x.shape[0] // 2], "the argument key depends on the batch size: it is 504 for 1009"),
    (lambda x: F.sum(x) if x.shape[0] == 1009 else F.sum(x * x), "the structure of the graph depends on the batch"),
    (lambda x: x * nn.Variable.from_numpy_array(np.arange(x.shape[0], dtype="f")[:, None]), "another array for each"),
    (rounded_up, "cannot export rounded_up for any batch size"),
    (lambda x: F.jax_function(jnp.sin)(x), "the argument fun depends on the batch size"),
])
def test_what_is_not_a_function_of_the_size_is_named(build: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        nn.export(build, {"x": ("b", 3)}, tmp_path / "a.nnx", platforms="cpu")
    assert not list(tmp_path.iterdir())


def test_wrong_requests_are_named(tmp_path: Path) -> None:
    x = nn.Variable((2,))
    y, path = x * 2, tmp_path / "a.nnx"
    for outputs, inputs, kind, message in (
        (y, {"x": ("b",)}, TypeError, "inputs: 'x' must be a Variable of the graph"),
        (y, ("b", 3), TypeError, "inputs: expected a list of Variables"),
        (y, [x, x], ValueError, "inputs: the same Variable is given twice"),
        (3, x, TypeError, "outputs: expected a Variable"),
        ({"y": 3}, x, TypeError, "outputs: expected a Variable.*got 3 as 'y'"),
        (F.add2, {"x": ("a",), "y": ("b",)}, ValueError, "inputs: only one size may have a name, got a, b"),
        (F.tanh, {"x": ("a b",)}, ValueError, "inputs: the shape of 'x'"),
        (F.tanh, {"x": (None, 3)}, ValueError, "inputs: the shape of 'x' must consist of sizes and at most one name"),
        (F.tanh, {"x": 5}, TypeError, "inputs: the shape of 'x' must be a list or tuple of sizes, got 5"),
        ([F.tanh(x).apply(name="x"), F.sin(x).apply(name="x")], x, ValueError, "outputs: 'x' is the name of two"),
    ):
        with pytest.raises(kind, match=message):
            nn.export(outputs, inputs, path)
    with pytest.raises(ValueError, match=r"platforms: must be among cpu, cuda, .*, got 'gpu'"):
        nn.export(y, x, path, platforms="gpu")
    with pytest.raises(ValueError, match=r"a\.onnx has the ending of another format"):
        nn.export(y, x, tmp_path / "a.onnx", platforms="cpu")
    with pytest.raises(OSError, match="nowhere"):
        nn.export(y, x, tmp_path / "nowhere" / "a.nnx", platforms="cpu")
    assert not list(tmp_path.iterdir())


# ---------------------------------------------------------------- files


@hypothesis.settings(max_examples=40, deadline=None)
@hypothesis.given(st.data())
def test_a_damaged_file_raises_or_is_the_same(files: dict[str, Path], data: st.DataObject) -> None:
    content = bytearray(files["any"].read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content[at] ^= data.draw(st.integers(1, 255))
    else:
        del content[at:]
    path = files["any"].with_name("damaged.nnx")
    path.write_bytes(content)
    try:
        run = nn.load_exported(path)
    except ValueError as error:
        assert str(path) in str(error)
    else:
        assert repr(run) == repr(nn.load_exported(files["any"]))


def rewritten(path: Path, changes: dict[str, Any], program: bytes | None = None) -> Path:
    """The file with other facts, or another program."""
    other = path.with_name("other.nnx")
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(other, "w") as made:
        facts = json.loads(archive.read("metadata.json")) | changes
        made.writestr("metadata.json", json.dumps(facts))
        made.writestr("program.bin", archive.read("program.bin") if program is None else program)
        made.writestr("parameters.safetensors", archive.read("parameters.safetensors"))
    return other


def test_newer_and_wrong_files_say_so(files: dict[str, Path]) -> None:
    for changes, message in (
        ({"format_version": 2}, "has version 2 of the format.*upgrade nngrad"),
        ({"inputs": []}, "its program takes 1 arrays, expected 0"),
        ({"outputs": 3}, "metadata.json is invalid"),
        ({"format": "something"}, "metadata.json is invalid"),
        ({"inputs": [], "parameters": ["x"]}, "does not hold the arrays"),
    ):
        with pytest.raises(ValueError, match=message):
            nn.load_exported(rewritten(files["any"], changes))
    with pytest.raises(ValueError, match="cannot read its program"):
        nn.load_exported(rewritten(files["any"], {}, b"\x00" * 64))


def test_without_flatbuffers_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, files: dict[str, Path]) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"nn\.load_exported needs flatbuffers.*pip install 'nngrad\[export\]'"):
        nn.load_exported(files["any"])
    with pytest.raises(ImportError, match=r"nn\.export needs flatbuffers"):
        nn.export(nn.Variable(()), [], "a.nnx")


def test_another_process_runs_it_without_the_graph(files: dict[str, Path], tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    code = ("import sys, numpy as np, nngrad as nn\n"
            "np.savez(sys.argv[3], **nn.load_exported(sys.argv[1])(np.load(sys.argv[2])))")
    subprocess.run([sys.executable, "-c", code, files["fixed"], tmp_path / "x.npy", tmp_path / "out.npz"], check=True,
                   env={**os.environ, "JAX_PLATFORMS": "cpu"})  # fmt: skip
    compare(dict(np.load(tmp_path / "out.npz")), len(X))
