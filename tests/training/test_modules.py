"""Module and Sequential: their parameters' names, trees, files, and training."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
import nngrad.solvers as S


class Block(nn.Module):
    """An affine function, which is rectified in training."""

    def __init__(self, width: int) -> None:
        self.width = width

    def call(self, x: nn.Variable) -> nn.Variable:
        h = PF.affine(x, self.width)
        return F.relu(h) if self.training else h


class Network(nn.Module):
    """Two blocks and an affine function."""

    def __init__(self) -> None:
        self.first, self.second = Block(4), Block(4)
        self.offset = nn.parameter.get_parameter_or_create("offset", (1,), need_grad=False)

    def call(self, x: nn.Variable) -> nn.Variable:
        return PF.affine(self.second(self.first(x)), 1) + self.offset


NAMES = ["@first/affine/W", "@first/affine/b", "@second/affine/W", "@second/affine/b", "offset", "affine/W", "affine/b"]


@pytest.fixture
def x() -> nn.Variable:
    nn.clear_parameters()
    return nn.Variable.from_numpy_array(np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32))


def test_parameters_are_its_own(x: nn.Variable) -> None:
    one, other = Network(), Network()
    assert list(one.get_parameters(grad_only=False)) == ["offset"]
    y = one(x)
    other(x)
    assert not nn.get_parameters(grad_only=False)
    params = one.get_parameters(grad_only=False)
    assert list(params) == [p.name for p in params.values()] == NAMES
    assert all(f"{name} = " in str(nn.show(y)) for name in NAMES)
    assert list(one.get_parameters()) == [name for name in NAMES if name != "offset"]
    assert list(one.get_parameters(False, grad_only=False)) == ["offset", "affine/W", "affine/b"]
    assert not {id(p) for p in params.values()} & {id(p) for p in other.get_parameters().values()}
    again = one(x)
    np.testing.assert_array_equal(again.d, y.d)
    assert list(one.get_parameters(grad_only=False)) == NAMES
    with nn.parameter_scope("outside"):
        Network()(x)
        PF.affine(x, 2)
    assert list(nn.get_parameters()) == ["outside/affine/W", "outside/affine/b"]


def test_the_tree() -> None:
    network = Network()
    assert network.first.parent is network and network.is_root() and not network.first.is_root()
    assert network.first.get_path_name() == "@network/@first" and network.second.name == "second"
    assert len(network) == 2 and network and Block(2) and list(network.submodules) == ["first", "second"]
    network.training = False
    assert not network.first.training and not network.training and Network().training
    network.second = 3
    assert network.second == 3 and len(network) == 1
    network.second = Block(1)
    assert len(network) == 2
    del network.second
    for name in ("second", "colour"):
        with pytest.raises(AttributeError, match=f"Network has no attribute and no submodule '{name}'"):
            getattr(network, name)
    with pytest.raises(AttributeError, match=r"'state_dict'; torch.nn.Module.state_dict is \{name: p.d for"):
        network.state_dict()
    with pytest.raises(NotImplementedError, match="Module must define the method `call`"):
        nn.Module()(1)


def test_a_module_in_two_places_has_its_parameters_once(x: nn.Variable) -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            self.a = self.b = Block(3)

        def call(self, x: nn.Variable) -> nn.Variable:
            return self.b(self.a(x))

    twice = Twice()
    twice(x)
    assert list(twice.get_parameters()) == ["@a/affine/W", "@a/affine/b"]


def test_files(tmp_path: Path, x: nn.Variable) -> None:
    one, other, empty = Network(), Network(), Network()
    expected, y = one(x), other(x)
    path = tmp_path / "network.safetensors"
    one.save_parameters(path)
    other.load_parameters(path)
    np.testing.assert_array_equal(y.d, expected.d)
    assert not other.get_parameters(grad_only=False)["offset"].need_grad
    empty.load_parameters(path)
    np.testing.assert_array_equal(empty(x).d, expected.d)
    with pytest.raises(ValueError, match="'@first/affine/W': @block has no submodule 'first'"):
        Block(4).load_parameters(path)
    block = Block(4)
    block.load_parameters(path, raise_if_missing=False)
    assert list(block.get_parameters(grad_only=False)) == ["offset", "affine/W", "affine/b"]
    narrow = Network()
    narrow.first = Block(2)
    narrow(x)
    before = {name: p.d.copy() for name, p in narrow.get_parameters().items()}
    with pytest.raises(ValueError, match=r"'@first/affine/W' has shape \(3, 4\), but \(3, 2\) here"):
        narrow.load_parameters(path)
    for name, p in narrow.get_parameters().items():
        np.testing.assert_array_equal(p.d, before[name])


def test_arrays_are_set_completely_or_not_at_all_and_graphs_see_them(x: nn.Variable) -> None:
    network = Network()
    y = network(x)
    arrays = {name: np.full(p.shape, 0.5, np.float32) for name, p in network.get_parameters(grad_only=False).items()}
    network.set_parameters(arrays, raise_if_missing=True)
    first = np.maximum(x.d.sum(1) / 2 + 0.5, 0)
    np.testing.assert_allclose(y.d[:, 0], 4 * (4 * first / 2 + 0.5) / 2 + 1, rtol=1e-6)
    for wrong, message in [
        ({"affine/b": None}, "params: has no 'affine/b'; to leave them"),
        ({"affine/c": np.zeros(1)}, "'affine/c': @network has no such parameter; did you mean 'affine/b'"),
        ({"@first/x": np.zeros(1)}, "'@first/x': @network/@first has no such parameter; it has affine/W, affine/b"),
        ({"affine/b": np.zeros(2)}, r"params: 'affine/b' has shape \(2,\), but \(1,\) here"),
        ({"affine/b": nn.Variable((2,))}, r"params: 'affine/b' has shape \(2,\), but \(1,\) here"),
    ]:
        changed = {name: 0 * array for name, array in arrays.items()} | wrong
        with pytest.raises(ValueError, match=message):
            network.set_parameters({n: a for n, a in changed.items() if a is not None}, raise_if_missing=True)
    np.testing.assert_array_equal([network.get_parameters()[n].d.max() for n in network.get_parameters()], 0.5)
    fresh = Network()
    fresh.set_parameters(arrays)
    assert (fresh(x).d == y.d).all() and list(fresh.get_parameters()) == list(network.get_parameters())


def test_parameters_are_in_the_order_of_definition(x: nn.Variable) -> None:
    class Ordered(nn.Module):
        def __init__(self) -> None:
            self.blocks: list[nn.Module] = []
            self.out, self.scale, self.others = Block(3), nn.Parameter(1.0), {"a": Block(3)}
            self.blocks += [Block(3) for _ in range(11)]

        def call(self, x: nn.Variable) -> nn.Variable:
            x = PF.affine(x, 3, with_bias=False)
            for block in (self.others["a"], self.out, *self.blocks[::-1]):
                x = block(x)
            return x * self.scale

    module = Ordered()
    module(x)
    owners = dict.fromkeys(name.split("/")[0] for name in module.get_parameters())
    assert list(owners) == [*[f"@blocks.{i}" for i in range(11)], "@out", "scale", "@others.a", "affine"]
    assert list(module.submodules) == [name[1:] for name in owners if name.startswith("@")]


def test_a_buffer_is_saved_and_not_trained(x: nn.Variable, tmp_path: Path) -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            self.register_buffer("calls", 0.0)
            self.weight = nn.Parameter(2.0)

        def call(self, x: nn.Variable) -> nn.Variable:
            return x * self.weight + F.assign(self.calls, self.calls + 1)

    module, other = Scaled(), Scaled()
    y = module(np.ones(2, np.float32))
    assert list(module.get_parameters()) == ["weight"]
    assert list(module.get_parameters(grad_only=False)) == ["calls", "weight"]
    for _ in range(3):
        y.forward()
    module.save_parameters(tmp_path / "a.safetensors")
    other.load_parameters(tmp_path / "a.safetensors")
    assert (other.calls.d, other.calls.need_grad, other.calls.dtype) == (3, False, np.float32)


def test_layers_without_names_that_share_parameters_are_said(x: nn.Variable) -> None:
    class Layers(nn.Module):
        def __init__(self, *names: str | None) -> None:
            self.names = names

        def call(self, x: nn.Variable) -> nn.Variable:
            for name in self.names:
                x = F.scan(lambda h, row, name=name: (PF.affine(h, 3, name=name), row), x, np.zeros(2, np.float32))[0]
            for name in self.names:
                x = PF.affine(x, 3, name=name and f"{name}-after")
            return x

    for names in (("a", "b"), ("shared", "shared")):
        net = Layers(*names)
        assert net(net(x)).shape == (5, 3) and len(net.get_parameters()) == 4 * len(set(names))
    with pytest.warns(UserWarning, match="^affine: a layer without name= is used again in the same call of a Module"):
        Layers(None, None)(x)
    chain = nn.Sequential(lambda x: PF.affine(x, 3), F.tanh, lambda x: PF.affine(x, 3))
    with pytest.warns(UserWarning, match="pass name= for parameters of its own, or to say that they are shared"):
        chain(x)
    with nn.parameter_scope("plain", scope=nn.get_current_parameter_scope()):
        assert PF.affine(PF.affine(x, 3), 3).shape == (5, 3)


def test_sequential(x: nn.Variable) -> None:
    class Halves(nn.Module):
        def call(self, x: nn.Variable) -> Any:
            return x[:, :2], x[:, 2:]

    class Product(nn.Module):
        def call(self, a: nn.Variable, b: nn.Variable) -> nn.Variable:
            return a * b

    model = nn.Sequential(Block(4), ("split", Halves()), Product())
    assert list(model.submodules) == ["block_0", "split", "product_2"]
    y = model(x)
    w, b = model.get_parameters().values()
    h = np.maximum(x.d @ w.d + b.d, 0)
    np.testing.assert_allclose(y.d, h[:, :2] * h[:, 2:], rtol=1e-5)
    np.testing.assert_allclose(nn.Sequential(F.tanh, ("a", Block(2)), F.exp)(x).shape, (5, 2))
    for wrong in (3, ("a", 3), (3, Block(1)), Block):
        with pytest.raises(TypeError, match=r"args\[0\]: expected a Module, a function, or a pair \(name, module\)"):
            nn.Sequential(wrong)


@pytest.mark.parametrize("again", [copy.deepcopy, lambda network: pickle.loads(pickle.dumps(network))])
def test_copies_are_models_of_their_own(again: Callable[[Network], Network], x: nn.Variable) -> None:
    network = Network()
    expected = network(x).d.copy()
    other = again(network)
    assert list(other.get_parameters(grad_only=False)) == NAMES and other.first.parent is other
    for p in network.get_parameters().values():
        p.d = 0
    np.testing.assert_array_equal(other(x).d, expected)
    other.first.get_parameters()["affine/W"].d = 0
    assert not other.get_parameters()["@first/affine/W"].d.any(), "a submodule's parameters are the module's"


class Held(nn.Module):
    """Modules and parameters in all that may hold them."""

    def __init__(self) -> None:
        self.blocks = [Block(3), Block(3)]
        self.named = {"left": (Block(3),), "scales": {"a": nn.Parameter([1.0, 2.0, 3.0])}}
        self.scale = nn.Parameter(2.0)
        self.input = nn.Variable((2, 3))
        self.mean = 2 * self.scale

    def call(self, x: nn.Variable) -> nn.Variable:
        for block in (*self.blocks, *self.named["left"]):
            x = block(x)
        return x * self.named["scales"]["a"] * self.scale


HELD = [
    "@blocks.0/affine/W", "@blocks.0/affine/b", "@blocks.1/affine/W", "@blocks.1/affine/b", "@named.left.0/affine/W",
    "@named.left.0/affine/b", "named.scales.a", "scale",
]  # fmt: skip


def test_what_attributes_hold_is_found(x: nn.Variable, tmp_path: Path) -> None:
    held = Held()
    y = held(x)
    parameters = held.get_parameters()
    assert sorted(parameters) == HELD and list(held.submodules) == ["blocks.0", "blocks.1", "named.left.0"]
    assert held.blocks[1].get_path_name() == "@held/@blocks.1" and parameters["scale"] is held.scale
    assert (held.scale.name, parameters["named.scales.a"].name) == ("scale", "named.scales.a")
    held.save_parameters(tmp_path / "held.safetensors")
    other = Held()
    other.load_parameters(tmp_path / "held.safetensors")
    np.testing.assert_array_equal(other(x).d, y.d)
    assert other.scale is not held.scale and other.get_parameters()["scale"] is other.scale
    held.training = False
    assert not any(block.training for block in (*held.blocks, *held.named["left"]))
    del held.mean  # which is computed, and cannot be copied without its graph
    for again in (copy.deepcopy(held), pickle.loads(pickle.dumps(held))):
        assert sorted(again.get_parameters()) == HELD and again.get_parameters()["scale"] is again.scale


def test_what_attributes_hold_may_change(x: nn.Variable) -> None:
    held = Held()
    held(x)
    held.blocks.pop(0)
    assert sorted(held.get_parameters()) == [n for n in HELD if "@blocks.1" not in n]
    held.blocks.append(Block(3))
    held(x)
    assert sorted(held.get_parameters()) == HELD
    held.scale.need_grad = False
    assert "scale" not in held.get_parameters() and "scale" in held.get_parameters(grad_only=False)
    new = nn.Parameter(5.0)
    held.set_parameters({"scale": new, "named.scales.a": new})
    assert held.scale is new and held.named["scales"]["a"] is new
    held.scale = nn.Parameter(1.0)
    assert held.get_parameters()["scale"] is held.scale
    del held.scale
    assert "scale" not in held.get_parameters()
    held.blocks = None
    assert not [name for name in held.get_parameters() if "blocks" in name]
    held.affine = nn.Parameter(1.0)
    held.parameter_scope["affine"] = {"W": new}
    with pytest.raises(ValueError, match="affine: names both a parameter of Held and a scope; rename one"):
        held.get_parameters()
    pair = Held()
    pair.pair = (nn.Parameter(1.0),)
    with pytest.raises(ValueError, match=r"'pair\.0': cannot be replaced in a tuple"):
        pair.set_parameter("pair.0", new)


def test_lists_and_dicts_of_modules(x: nn.Variable) -> None:
    class Network(nn.Module):
        def __init__(self) -> None:
            self.blocks = nn.ModuleList(Block(3) for _ in range(2)).extend([Block(3)])
            self.heads = nn.ModuleDict({"mean": Block(1), "deviation": Block(1)})

        def call(self, x: nn.Variable) -> list[nn.Variable]:
            for block in self.blocks:
                x = block(x)
            return [head(x) for head in self.heads.values()]

    network = Network()
    network(x)
    names = {name.rpartition("/affine")[0] for name in network.get_parameters()}
    assert names == {"@blocks/@0", "@blocks/@1", "@blocks/@2", "@heads/@mean", "@heads/@deviation"}
    assert len(network.blocks) == 3 and network.blocks[-1] is network.blocks.submodules["2"]
    network.blocks[0] = new = Block(3)
    assert next(iter(network.blocks)) is new
    assert "mean" in network.heads and list(network.heads) == ["mean", "deviation"] == list(network.heads.keys())
    del network.heads["mean"]
    assert [name for name, _ in network.heads.items()] == ["deviation"]
    for wrong in (lambda: nn.ModuleList([F.relu]), lambda: nn.ModuleDict({"a": 3})):
        with pytest.raises(TypeError, match=r"modules\[.*\]: expected a Module"):
            wrong()


def test_a_module_is_trained_as_it_is(x: nn.Variable) -> None:
    held = Held()
    step = nn.train_step(F.mean((held(x) - 1) ** 2), held, S.Adam(0.03))
    before = {name: p.d.copy() for name, p in held.get_parameters().items()}
    losses = [float(step()) for _ in range(40)]
    assert losses[-1] < 0.8 * losses[0]
    assert all((p.d != before[name]).any() for name, p in held.get_parameters().items())


def test_summary(x: nn.Variable) -> None:
    network = Network()
    network(x)
    lines = network.summary().splitlines()
    assert lines[0] == "Network" and lines[1].split() == ["@first/affine/W", "[3,", "4]", "float32", "12"]
    assert lines[5].split() == ["offset", "[1]", "float32", "1", "not", "trained"]
    assert lines[-1].split() == ["7", "parameters", "42", "41", "trained"]
