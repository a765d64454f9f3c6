"""Leaves that a loss depends on and nobody trains are named, once, and what only looks like them is not."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
import nngrad.solvers as S

X = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)


class Layer(nn.Module):
    """An affine function."""

    def call(self, x: nn.Variable) -> nn.Variable:
        return PF.affine(x, 3)


class Network(nn.Module):
    """A layer that is trained, and what a Module does not find: one in an object of another class, and a Variable."""

    def __init__(self) -> None:
        self.first = Layer()
        self.other = SimpleNamespace(layer=Layer(), scale=leaf(np.ones(3)))

    def call(self, x: nn.Variable) -> nn.Variable:
        return self.other.layer(self.first(x)) * self.other.scale


def leaf(array: Any, name: str = "") -> nn.Variable:
    x = nn.Variable.from_numpy_array(np.asarray(array, np.float32), need_grad=True)
    x.name = name
    return x


def loop(loss: nn.Variable, x: nn.Variable, parameters: Mapping[str, nn.Variable]) -> Callable[[], Any]:
    solver = S.Sgd(0.01)
    solver.set_parameters(parameters)

    def step() -> None:
        x.d = X
        loss.forward()
        solver.zero_grad()
        loss.backward()
        solver.update()

    return step


def compiled(loss: nn.Variable, x: nn.Variable, parameters: Mapping[str, nn.Variable]) -> Callable[[], Any]:
    step = nn.train_step(loss, parameters, S.Sgd(0.01), [x])
    return lambda: step(X)


each_loop = pytest.mark.parametrize("made", [loop, compiled])


def silent(step: Callable[[], Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        step()


@each_loop
def test_what_a_module_does_not_find_is_named_once(made: Callable[..., Callable[[], Any]]) -> None:
    network, x = Network(), nn.Variable(X.shape)
    loss = F.mean(network(x) ** 2)
    step = made(loss, x, network.get_parameters())
    with pytest.warns(UserWarning, match="leaves with need_grad that no solver trains") as caught:
        step()
    (warning,) = caught
    assert warning.filename == __file__
    leaves = "'affine/W', float32[3, 3]", "'affine/b', float32[3]", "one without a name, float32[3]"
    for named in (*leaves, "lists, tuples and dicts"):
        assert named in str(warning.message)
    silent(step)
    silent(made(loss, x, network.get_parameters()))


@each_loop
def test_all_are_trained_by_some_solver(made: Callable[..., Callable[[], Any]]) -> None:
    """As in adversarial training: each loss depends on both networks."""
    x, first, second = nn.Variable(X.shape), Layer(), Layer()
    generated = first(x)
    losses = F.mean(second(generated)), F.mean(second(generated) ** 2)
    steps = [made(y, x, m.get_parameters()) for y, m in zip(losses, (first, second), strict=True)]
    for step in (*steps, *steps):
        silent(step)


@each_loop
def test_what_no_gradient_reaches_is_not_named(made: Callable[..., Callable[[], Any]]) -> None:
    x, w, target, fixed = nn.Variable(X.shape), leaf(np.eye(3)), leaf(np.eye(3)), leaf(np.eye(3))
    fixed.need_grad = False
    stopped = x @ leaf(np.eye(3))
    stopped.need_grad = False
    silent(made(F.mean((x @ w - F.unlink(x @ target) - stopped @ fixed) ** 2), x, {"w": w}))


def test_data_and_gradients_that_are_read_are_not_named() -> None:
    w, noise, watched, elsewhere = leaf(np.eye(3)), leaf(X), leaf(X), leaf(X)
    r = noise / F.norm(noise)
    r.persistent = True
    loss = F.mean(((r + watched) @ w) ** 2)
    solver = S.Sgd(0.01)
    solver.set_parameters({"w": w})
    loss.forward()
    loss.backward()
    noise.data.copy_from(r.grad)  # as in virtual adversarial training
    solver.zero_grad()
    loss.forward()
    loss.backward()
    assert watched.g.any()
    F.sum(elsewhere**2).backward()  # which is no loss of this solver
    silent(solver.update)


@each_loop
def test_what_the_program_differentiates_by_itself_is_not_named(made: Callable[..., Callable[[], Any]]) -> None:
    """As points of an eikonal loss, or of a gradient penalty, which are data with need_grad."""
    x, w, points, v = nn.Variable(X.shape), leaf(np.eye(3), "w"), leaf(X), leaf(np.eye(3), "v")
    (slope,) = nn.grad(F.sum(F.tanh(points @ w)), points)
    penalty = F.mean((F.norm(slope, axis=1) - 1) ** 2)
    silent(made(F.mean((x @ w) ** 2) + penalty, x, {"w": w}))
    with pytest.warns(UserWarning, match=r"no solver trains: 'v', float32\[3, 3\]\."):
        made(F.mean((x @ w @ v) ** 2) + penalty, x, {"w": w})()
    with pytest.warns(UserWarning, match="no solver trains: one without a name"):
        made(F.mean((x + points @ w) ** 2), x, {"w": w})()  # where no gradient by them is asked for
