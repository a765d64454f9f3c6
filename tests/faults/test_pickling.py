"""What can be pickled and copied, and what says that it cannot."""

from __future__ import annotations

import copy
import functools
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import optax
import pytest

import nngrad as nn
import nngrad.functions as F
import nngrad.solvers as S
from nngrad import Variable


def again_pickled(thing: Any) -> Any:
    return pickle.loads(pickle.dumps(thing))


def parameters() -> dict[str, Variable]:
    return {"a/w": Variable.from_numpy_array(np.arange(4.0).reshape(2, 2), need_grad=True),
            "b": Variable.from_numpy_array(np.ones(2), need_grad=True)}


def train(solver: S.Solver, steps: int = 1) -> list[list[float]]:
    for _ in range(steps):
        for p in solver.get_parameters().values():
            p.g = np.cos(p.d)
        solver.update()
    return [p.d.tolist() for p in solver.get_parameters().values()]


@pytest.mark.parametrize("copied", [again_pickled, copy.deepcopy, copy.copy])
def test_contexts(copied: Callable[[Any], Any]) -> None:
    context = copied(nn.Context(["cpu:float", "cudnn:float"], device_id=0))
    assert context == nn.Context("cpu") and (context.backend, context.device_id) == ("cpu", "0")
    with nn.context_scope(context):
        assert F.exp(Variable((2,))).d.tolist() == [1, 1]


@pytest.mark.parametrize("copied", [again_pickled, copy.deepcopy])
@pytest.mark.parametrize(
    "make",
    [S.Adam, lambda: S.Solver.from_optax(functools.partial(optax.adam, b1=0.5), lr=0.1)],
)
def test_a_solver_goes_on_training(make: Callable[[], S.Solver], copied: Callable[[Any], Any]) -> None:
    solver = make()
    solver.set_parameters(parameters())
    train(solver, 3)
    solver.set_learning_rate(0.25)
    again = copied(solver)
    assert repr(again) == repr(solver)
    assert list(again.get_parameters()) == ["a/w", "b"]
    assert again.get_parameters()["b"] is not solver.get_parameters()["b"]
    assert again.get_parameters()["b"].need_grad
    np.testing.assert_array_equal(again.get_parameters()["b"].g, solver.get_parameters()["b"].g)
    expected = train(solver, 2)
    assert train(again, 2) == expected


def test_solver_and_parameters_stay_together() -> None:
    params, solver = parameters(), S.Momentum(0.1)
    solver.set_parameters(params)
    for copied in (again_pickled, copy.deepcopy):
        others, other = copied((params, solver))
        train(other)
        assert other.get_parameters()["b"] is others["b"]
        assert others["b"].d.tolist() != params["b"].d.tolist()


def test_a_copy_has_a_state_of_its_own_for_the_same_parameters() -> None:
    params, solver = parameters(), S.Adam()
    solver.set_parameters(params)
    train(solver)
    other = copy.copy(solver)
    assert other.get_parameters()["b"] is params["b"]
    train(solver)
    assert solver.get_states()["b"].t == 2 and other.get_states()["b"].t == 1
    other.clear_parameters()
    assert list(solver.get_parameters()) == ["a/w", "b"]


@pytest.mark.parametrize("copied", [again_pickled, copy.deepcopy, copy.copy])
def test_executables_say_that_they_cannot_be_pickled(copied: Callable[[Any], Any]) -> None:
    params = parameters()
    loss = F.sum(params["a/w"] ** 2) + sum([F.sum(p) for p in params.values()])
    with pytest.raises(TypeError, match=r"cannot pickle or copy a training step.*nn\.train_step in the process"):
        copied(nn.train_step(loss, params, S.Sgd()))
    with pytest.raises(TypeError, match=r"compiled function cannot be pickled or copied.*nn\.compile in the process"):
        copied(nn.compile(loss, [params["a/w"]]))
