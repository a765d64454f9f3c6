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
    assert list(one.get_parameters()) == ["offset"]
    y = one(x)
    other(x)
    assert not nn.get_parameters(grad_only=False)
    params = one.get_parameters()
    assert list(params) == NAMES
    assert list(one.get_parameters(grad_only=True)) == [name for name in NAMES if name != "offset"]
    assert list(one.get_parameters(recursive=False)) == ["offset", "affine/W", "affine/b"]
    assert not {id(p) for p in params.values()} & {id(p) for p in other.get_parameters().values()}
    again = one(x)
    np.testing.assert_array_equal(again.d, y.d)
    assert list(one.get_parameters()) == NAMES
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
    with pytest.raises(NotImplementedError, match="Module has no method `call`"):
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
    assert not other.get_parameters()["offset"].need_grad
    empty.load_parameters(path)
    np.testing.assert_array_equal(empty(x).d, expected.d)
    with pytest.raises(ValueError, match="'@first/affine/W': @block has no submodule 'first'"):
        Block(4).load_parameters(path)
    block = Block(4)
    block.load_parameters(path, raise_if_missing=False)
    assert list(block.get_parameters()) == ["offset", "affine/W", "affine/b"]
    narrow = Network()
    narrow.first = Block(2)
    narrow(x)
    before = {name: p.d.copy() for name, p in narrow.get_parameters().items()}
    with pytest.raises(ValueError, match=r"'@first/affine/W' has shape \(3, 4\), but here it has \(3, 2\)"):
        narrow.load_parameters(path)
    for name, p in narrow.get_parameters().items():
        np.testing.assert_array_equal(p.d, before[name])


def test_training(x: nn.Variable) -> None:
    network = Network()
    loss = F.mean(F.squared_error(network(x), np.ones((5, 1), np.float32)))
    solver = S.Sgd(0.05)
    solver.set_parameters(network.get_parameters(grad_only=True))
    losses = []
    for _ in range(20):
        loss.forward()
        network.zero_grad()
        loss.backward()
        solver.update()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2


def test_setting_parameters(x: nn.Variable) -> None:
    network = Network()
    network(x)
    new = nn.Variable((3, 4), need_grad=True)
    network.set_parameters({"@first/affine/W": new, "@third/affine/W": new})
    assert network.get_parameters()["@first/affine/W"] is new and "@third/affine/W" not in network.get_parameters()
    assert network.first.get_parameters()["affine/W"] is new
    with pytest.raises(ValueError, match="'@third/affine/W': @network has no submodule 'third'"):
        network.set_parameter("@third/affine/W", new, raise_if_missing=True)


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
    for wrong in (F.tanh, ("a", 3), (3, Block(1))):
        with pytest.raises(TypeError, match=r"args\[0\]: expected a Module, or a name and a Module"):
            nn.Sequential(wrong)


@pytest.mark.parametrize("again", [copy.deepcopy, lambda network: pickle.loads(pickle.dumps(network))])
def test_copies_are_models_of_their_own(again: Callable[[Network], Network], x: nn.Variable) -> None:
    network = Network()
    expected = network(x).d.copy()
    other = again(network)
    assert list(other.get_parameters()) == NAMES and other.first.parent is other
    for p in network.get_parameters().values():
        p.d = 0
    np.testing.assert_array_equal(other(x).d, expected)
    other.first.get_parameters()["affine/W"].d = 0
    assert not other.get_parameters()["@first/affine/W"].d.any(), "a submodule's parameters are the module's"
