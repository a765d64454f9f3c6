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
from nngrad.nnabla.utils.load import load
from nngrad.nnabla.utils.nnp_graph import NnpLoader, NnpNetworkPass
from nngrad.nnabla.utils.save import save

DATA = Path(__file__).parents[1] / "data"
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


# What nnabla 1.36 computes of the network with such changes: the sum of the output, and of its absolute values.
@pytest.mark.parametrize(("change", "output", "sums"), [
    (lambda changes: changes.remove_and_rewire("@net/ReLU"), "y", (1.2220742, 3.2489977)),
    (lambda changes: changes.use_up_to("@net/ReLU_out"), "@net/ReLU_out", (38.73949, 38.73949)),
    (lambda changes: changes.set_batch_normalization_batch_stat_all(True), "y", (15.294129, 15.87112)),
    (lambda changes: changes.drop_function("@net/Affine"), "@net/MaxPooling_out", (17.07539, 17.07539)),
    (lambda changes: changes.fix_parameters(), "y", (1.9651375, 2.454281)),
])  # fmt: skip
def test_changes_of_networks(change: Any, output: str, sums: tuple[float, float]) -> None:
    changes, loader = NnpNetworkPass(), NnpLoader(WRITTEN)
    change(changes)
    network = loader.get_network("net", callback=changes)
    assert (list(network.inputs), list(network.outputs)) == (["x"], [output])
    network.inputs["x"].d = COMPUTED["x"]
    y = network.outputs[output].d
    np.testing.assert_allclose([y.sum(), np.abs(y).sum()], sums, rtol=1e-5)
    assert bool(nn.get_parameters()) != changes.fixes_parameters
    loader.get_network("net")
    assert len(nn.get_parameters()) == 6


Message = dict[str, list[Any]]


def parsed(text: str) -> Message:
    """A message in the text form of protocol buffers, whatever its fields are: all that was written of each."""
    above: list[Message] = []
    message: Message = {}
    for line in text.splitlines():
        words = line.split()
        if words == ["}"]:
            message = above.pop()
        elif words:
            inner: Message = {}
            key, value = (words[0], inner) if words[1:] == ["{"] else (words[0][:-1], " ".join(words[1:]))
            message.setdefault(key, []).append(value)
            if value is inner:
                above.append(message)
                message = inner
    assert not above
    return message


def described(network: Message) -> dict[str, Any]:
    """What the Variables that no function reads are, by what their functions do, whatever those are called: types,
    arguments, shapes and inputs. Reshaping in place or not is one, and so are two ways to write no arguments."""
    shapes = {each["name"][0]: (each["type"], each.get("shape")) for each in network["variable"]}
    values: dict[str, Any] = {name: (name, what) for name, what in shapes.items()}
    unread = set(shapes)
    for f in network["function"]:
        arguments = {key: {k: v for k, v in value[0].items() if k != "inplace"}
                     for key, value in f.items() if key.endswith("_param")}  # fmt: skip
        for name in f["output"]:
            ins = [values[x] for x in f["input"]]
            values[name] = (f["type"], [a for a in arguments.items() if a[1]], shapes[name], ins)
        unread -= {*f["input"]}
    return {name: values[name] for name in unread}


def test_networks_are_written_as_nnabla_writes_them(tmp_path: Path) -> None:
    """The second program in tests/data/README.md, run here, says the same in its file."""
    x, t = nn.Variable((2, 1, 8, 8)), nn.Variable((2, 1))
    h = F.max_pooling(F.relu(PF.convolution(x, 4, (3, 3), pad=(1, 1), with_bias=False, name="c1")), (2, 2))
    h = F.average_pooling(F.tanh(PF.convolution(h, 4, (3, 3), with_bias=False, name="c2")), (2, 2), stride=(1, 1))
    h = F.concatenate(F.sigmoid(h), F.elu(h, alpha=0.5), axis=1)
    h = F.transpose(F.reshape(h, (2, 2, 4)), (0, 2, 1))
    h = h + 2.0 * F.leaky_relu(h, alpha=0.2) - F.max(h, axis=2, keepdims=True) / 3
    y = PF.affine(F.reshape(F.swish(h), (2, 8)), 5, with_bias=False, name="fc")
    loss = F.mean(F.softmax_cross_entropy(y, t)) + 0.5 * F.sum(F.exp(y) ** 2)
    contents = {
        "networks": [
            {"name": "net", "batch_size": 2, "outputs": {"y": y}, "names": {"x": x}},
            {"name": "train", "batch_size": 2, "outputs": {"loss": loss}, "names": {"x": x, "t": t}},
        ],
        "executors": [{"name": "runtime", "network": "net", "data": ["x"], "output": ["y"]}],
    }
    save(tmp_path / "n.nntxt", contents)
    save(tmp_path / "n.nnp", contents)
    text = (tmp_path / "n.nntxt").read_text()
    with zipfile.ZipFile(tmp_path / "n.nnp") as archive, zipfile.ZipFile(WRITTEN) as theirs:
        assert archive.read("network.nntxt").decode() == text
        assert archive.namelist() == theirs.namelist()
    found, expected = parsed(text), parsed((DATA / "nnabla_text.nntxt").read_text())
    assert found.keys() == expected.keys() and found["executor"] == expected["executor"]
    for ours, nnabla_s in zip(found["network"], expected["network"], strict=True):
        assert ours.keys() == nnabla_s.keys()
        assert (ours["name"], ours["batch_size"]) == (nnabla_s["name"], nnabla_s["batch_size"])
        assert described(ours) == described(nnabla_s)


def test_networks_as_text_with_parameters_and_without(tmp_path: Path) -> None:
    x = nn.Variable((2, 3))
    y = F.tile(PF.affine(x, 4), (1, 2)) + F.mean(PF.embed(nn.Variable.from_numpy_array([[1, 2], [3, 4]]), 5, 8), axis=1)
    words = y.parent.inputs[1].parent.inputs[0].parent.inputs[0]
    network = {"name": "n", "batch_size": 2, "outputs": {"y": y}, "names": {"x": x, "words": words}}
    x.d = np.arange(6).reshape(2, 3)
    for name, include in [("with.nntxt", True), ("without.nntxt", False), ("without.prototxt", False)]:
        save(tmp_path / name, {"networks": [network]}, include_params=include)
    save(tmp_path / "n", {"networks": [network]}, extension=".nntxt")
    assert (tmp_path / "n").read_bytes() == (tmp_path / "without.nntxt").read_bytes()
    nn.save_parameters(tmp_path / "p.h5")
    nn.clear_parameters()
    with pytest.raises(ValueError, match=r"'.*/W' is neither in the file.*call nn\.load_parameters first"):
        load(tmp_path / "without.nntxt")
    for files in (["with.nntxt"], ["without.nntxt", "p.h5"], ["without.prototxt", "p.h5"]):
        nn.clear_parameters()
        variables = load([tmp_path / name for name in files], batch_size=4).networks["n"].variables
        variables["x"].d, variables["words"].d = np.resize(x.d, (4, 3)), np.resize(words.d, (4, 2))
        np.testing.assert_allclose(variables["y"].d, np.resize(y.d, (4, 8)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("build", "said"), [
    (lambda x: F.logsumexp(x), "logsumexp"),
    (lambda x: F.dropout(x, 0.5), "cannot hold random functions"),
    (lambda x: PF.batch_normalization(x), "batch_stat=True"),
    (lambda x: x + nn.Variable((2, 3)), "neither a parameter nor among `names`"),
])  # fmt: skip
def test_what_cannot_be_said_is_refused(build: Any, said: str, tmp_path: Path) -> None:
    x = nn.Variable((2, 3))
    contents = {"networks": [{"name": "n", "batch_size": 2, "outputs": {"y": build(x)}, "names": {"x": x}}]}
    with pytest.raises(ValueError, match=f"the network 'n' cannot be saved: .*{said}"):
        save(tmp_path / "n.nnp", contents)
    assert not list(tmp_path.iterdir())


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
