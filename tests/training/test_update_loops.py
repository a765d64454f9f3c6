"""Loops of forward, zero_grad, backward and update: what is read on the way changes no number, and holds no memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
import nngrad.solvers as S
from nngrad.solvers.solver import Solver
from tests.solver_states import state_arrays

STEPS = 5
Leaves = dict[str, nn.Variable]


def leaves(dtype: Any = "d") -> Leaves:
    rng = np.random.default_rng(0)
    shapes = {"w1": (4, 8), "b1": (8,), "w2": (8, 1)}
    arrays = {name: rng.normal(size=shape).astype(dtype) for name, shape in shapes.items()}
    return {name: nn.Variable.from_numpy_array(array, need_grad=True) for name, array in arrays.items()}


def data(step: int) -> np.ndarray:
    return np.random.default_rng(step).normal(size=(6, 4))


def loss_of(p: Leaves, x: nn.Variable) -> nn.Variable:
    return F.mean(F.affine(F.tanh(F.affine(x, p["w1"], p["b1"])), p["w2"]) ** 2)


Between = Callable[[int, Leaves, nn.Variable], Any]


def train(solver: Solver, between: Between = lambda i, p, loss: None, anew: bool = True) -> list[np.ndarray]:
    """All that a loop leaves: parameters, state, the losses and gradients; after `between` the backward and the update
    of each step."""
    p = leaves()
    solver.set_parameters(p)
    x = nn.Variable.from_numpy_array(data(0))
    built = loss_of(p, x)
    losses = []
    for i in range(STEPS):
        x.d = data(i)
        loss = loss_of(p, x) if anew else built
        loss.forward()
        solver.zero_grad()
        loss.backward(loss_scale=float(solver.loss_scale))
        between(i, p, loss)
        solver.update()
        losses.append(loss.d.copy())
    return [*losses, *[w.d.copy() for w in p.values()], *[w.g.copy() for w in p.values()],
            *state_arrays(solver).values()]


def check_equal(found: list[np.ndarray], expected: list[np.ndarray]) -> None:
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("solver", [lambda: S.Sgd(0.05), lambda: S.Adam(0.01)], ids=["Sgd", "Adam"])
def test_what_is_read_in_between_changes_nothing(solver: Callable[[], Solver]) -> None:
    expected = train(solver())
    check_equal(train(solver(), lambda i, p, loss: print(loss.d)), expected)
    check_equal(train(solver(), lambda i, p, loss: p["w1"].g if i % 2 else None), expected)
    check_equal(train(solver(), anew=False), expected)


@pytest.mark.parametrize(
    "between",
    [
        lambda i, p, loss: setattr(p["w2"], "d", np.full((8, 1), 0.1 * i)),
        lambda i, p, loss: setattr(p["w2"], "g", np.full((8, 1), 0.1 * i)),
        lambda i, p, loss: p["b1"].grad.zero(),
        lambda i, p, loss: loss.backward(2.0),
    ],
    ids=["parameter", "gradient", "no gradient", "added"],
)
def test_what_is_written_in_between_counts(between: Between) -> None:
    found = train(S.Sgd(0.05), between)
    p = {name: w.d.copy() for name, w in leaves().items()}
    for i in range(STEPS):
        given = {name: nn.Variable.from_numpy_array(array, need_grad=True) for name, array in p.items()}
        loss = loss_of(given, nn.Variable.from_numpy_array(data(i)))
        for w, g in zip(given.values(), nn.grad(loss, list(given.values())), strict=True):
            w.g = g.d
        loss.d  # noqa: B018 - that of the parameters before they are written to
        between(i, given, loss)
        p = {name: w.d - 0.05 * w.g for name, w in given.items()}
    for a, b in zip(found[STEPS : STEPS + 3], p.values(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-11)
