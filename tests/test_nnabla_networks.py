"""Networks in files of nnabla's: one that nnabla 1.36 wrote (tests/data/README.md says how), and those written here."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
from nngrad.graph import Variable
from nngrad.utils.load import load
from nngrad.utils.nnp_graph import NnpLoader
from nngrad.utils.save import save

DATA = Path(__file__).with_name("data")
WRITTEN, COMPUTED = DATA / "nnabla_network.nnp", np.load(DATA / "nnabla_network.npz")


@pytest.fixture(autouse=True)
def _empty() -> Iterator[None]:
    nn.clear_parameters()
    yield
    nn.clear_parameters()


def test_what_nnabla_wrote_computes_the_same() -> None:
    loader = NnpLoader(WRITTEN)
    assert loader.get_network_names() == ["net", "train"]
    network = loader.get_network("net")
    assert (list(network.inputs), list(network.outputs)) == (["x"], ["y"])
    network.inputs["x"].d = COMPUTED["x"]
    np.testing.assert_allclose(network.outputs["y"].d, COMPUTED["y"], rtol=1e-5, atol=1e-6)
    train = loader.get_network("train")
    train.inputs["x"].d, train.inputs["t"].d = COMPUTED["x"], COMPUTED["t"]
    np.testing.assert_allclose(train.outputs["loss"].d, COMPUTED["loss"], rtol=1e-5)
    assert next(iter(nn.get_parameters(grad_only=False))) == "conv1/conv/W"
    assert network.variables["conv1/conv/W"] is train.variables["conv1/conv/W"] is nn.get_parameters()["conv1/conv/W"]
    assert not network.variables["bn/bn/mean"].need_grad


def test_batches_of_another_size() -> None:
    network = NnpLoader(WRITTEN).get_network("net", batch_size=5)
    assert network.inputs["x"].shape == (5, 1, 6, 6) and network.outputs["y"].shape == (5, 5)
    network.inputs["x"].d = np.resize(COMPUTED["x"], (5, 1, 6, 6))
    np.testing.assert_allclose(network.outputs["y"].d[:2], COMPUTED["y"], rtol=1e-5, atol=1e-6)


def test_load_gives_networks_and_executors() -> None:
    info = load([WRITTEN], batch_size=1)
    runtime = info.executors["runtime"]
    assert runtime.network is info.networks["net"]
    assert (runtime.dataset_assign, runtime.output_assign) == ({"x": "x"}, {"y": "y"})
    nn.clear_parameters()
    assert load(str(WRITTEN), parameter_only=True).networks == {} and len(nn.get_parameters(grad_only=False)) == 8


def network_of(x: Any) -> Any:
    h = PF.convolution(x, 4, (3, 3), pad=(1, 1), name="conv")
    h = F.relu(PF.batch_normalization(h, batch_stat=False, name="bn"))
    h = F.average_pooling(F.max_pooling(h, (2, 2)), (3, 3), stride=(1, 1))
    y = PF.affine(h, 5, name="fc")
    return F.leaky_relu(y[:, 1:4] + y[:, 0:1] * 2 - F.max(y, axis=1, keepdims=True) / 3) + y[0, 0]


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    x, t = nn.Variable((2, 1, 6, 6)), nn.Variable((2, 1))
    y = network_of(x)
    loss = F.mean(F.softmax_cross_entropy(y, t))
    contents = {
        "networks": [{"name": "n", "batch_size": 2, "outputs": {"loss": loss, "y": y}, "names": {"x": x, "t": t}}],
        "executors": [{"name": "run", "network": "n", "data": ["x"], "output": ["y"]}],
    }
    save(tmp_path / "n.nnp", contents)
    x.d, t.d = COMPUTED["x"], COMPUTED["t"]
    expected = loss.d.copy(), y.d.copy()
    nn.clear_parameters()
    info = load([tmp_path / "n.nnp"])
    variables = info.networks["n"].variables
    variables["x"].d, variables["t"].d = COMPUTED["x"], COMPUTED["t"]
    np.testing.assert_allclose(variables["loss"].d, expected[0], rtol=1e-5)
    np.testing.assert_allclose(variables["y"].d, expected[1], rtol=1e-5, atol=1e-6)
    with zipfile.ZipFile(tmp_path / "n.nnp") as archive:
        text = archive.read("network.nntxt").decode()
    kinds = {line.split('"')[1] for line in text.splitlines() if line.startswith("    type:")}
    assert {"Convolution", "MaxPooling", "Affine", "Slice", "LeakyReLU", "SoftmaxCrossEntropy", "Mean"} <= kinds
    assert load([tmp_path / "n.nnp"], batch_size=3).networks["n"].variables["y"].shape == (3, 3)


@pytest.mark.parametrize(("build", "said"), [
    (lambda x: F.logsumexp(x), "logsumexp"),
    (lambda x: F.dropout(x, 0.5), "draws anew"),
    (lambda x: PF.batch_normalization(x), "batch_stat=True"),
    (lambda x: x + nn.Variable((2, 3)), "no parameter, and `names` has no name"),
])  # fmt: skip
def test_what_cannot_be_said_is_refused(build: Any, said: str, tmp_path: Path) -> None:
    x = nn.Variable((2, 3))
    contents = {"networks": [{"name": "n", "batch_size": 2, "outputs": {"y": build(x)}, "names": {"x": x}}]}
    with pytest.raises(ValueError, match=f"the network 'n' cannot be saved: .*{said}"):
        save(tmp_path / "n.nnp", contents)
    assert not list(tmp_path.iterdir())


def test_wrong_calls(tmp_path: Path) -> None:
    x = nn.Variable((2, 3))
    network = {"name": "n", "batch_size": 2, "outputs": {"y": F.relu(x)}, "names": {"x": x, "z": Variable((1,))}}
    for path, contents, said in [
        ("n.txt", {}, "'n.txt' does not end in '.nnp'|n.txt"), ("n.nnp", {"optimizers": []}, "'optimizers'"),
        ("n.nnp", {"networks": [network]}, "'z' is no Variable of the network"),
        ("n.nnp", {"executors": [{"name": "e", "network": "m", "data": ["x"], "output": []}]}, "no Variable of"),
    ]:  # fmt: skip
        with pytest.raises(ValueError, match=said):
            save(tmp_path / path, contents)
    with pytest.raises(ValueError, match="has no network 'other'; it has net, train"):
        NnpLoader(WRITTEN).get_network("other")
    with pytest.raises(ValueError, match="callback"):
        NnpLoader(WRITTEN).get_network("net", callback=max)  # type: ignore[arg-type]


def test_files_with_other_functions_are_refused(tmp_path: Path) -> None:
    text = """network { name: "n" batch_size: 1 variable { name: "x" shape { dim: -1 dim: 3 } }
              function { name: "f" type: "KIND" input: "INPUT" output: "y" } }"""
    for kind, source, said in [("RepeatStart", "x", "'f' of type RepeatStart"), ("ReLU", "z", "reads 'z'")]:
        path = tmp_path / f"{kind}.nntxt"
        path.write_text(text.replace("KIND", kind).replace("INPUT", source))
        with pytest.raises(ValueError, match=said):
            NnpLoader(path).get_network("n")
    path.write_text("network {")
    with pytest.raises(ValueError, match="damaged"):
        NnpLoader(path)
